#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/enctime.h"
#include "base/peer.h"
#include "controller/schedd/reach.h"
#include "base/enc.h"

static void hosts_and_port_are_found_in_a_configuration (void **state ENC_UNUSED)
{
	enc_auto_done (enc_reach_done) struct enc_reach r;

	assert_int_equal (enc_reach_parse ("# SlurmctldHost=no\nClusterName=x\n slurmctldhost = s1(10.0.0.1)  # first\nSlurmctldHost=s2\nSlurmctldPort=7000-7003\n"
					   "SlurmctldHostX=no\nSlurmctldPort", &r, NULL), 0);
	assert_int_equal (r.hosts.n, 2);
	assert_string_equal (r.hosts.v[0], "10.0.0.1");
	assert_string_equal (r.hosts.v[1], "s2");
	assert_int_equal (r.port_first, 7000);
	assert_int_equal (r.port_last, 7003);
}

static void odd_values_are_passed_over (void **state ENC_UNUSED)
{
	enc_auto_done (enc_reach_done) struct enc_reach r;

	assert_int_equal (enc_reach_parse ("SlurmctldHost=\nSlurmctldHost=()\nSlurmctldPort=99999\nSlurmctldPort=x", &r, NULL), 0);
	assert_int_equal (r.hosts.n, 0);
	assert_int_equal (r.port_first, 6817);
	assert_true (enc_reach_any (&r, 10)); /* nothing known: not ours to say no */
}

static void a_listener_is_told_from_a_closed_port (void **state ENC_UNUSED)
{
	enc_auto_done (enc_reach_done) struct enc_reach r;
	enc_auto_close int fd = enc_tcp_listen ("127.0.0.1", 0, NULL);
	int64_t begin;

	assert_true (fd >= 0);
	assert_int_equal (enc_reach_parse ("SlurmctldHost=127.0.0.1", &r, NULL), 0);
	r.port_first = enc_fd_port (fd);
	assert_true (enc_reach_any (&r, 1000));
	close (ENC_TAKE_FD (fd));
	begin = enc_mono ();
	assert_false (enc_reach_any (&r, 1000));
	assert_true (enc_mono () - begin < 900 * ENC_NS_MS);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (hosts_and_port_are_found_in_a_configuration),
		cmocka_unit_test (odd_values_are_passed_over),
		cmocka_unit_test (a_listener_is_told_from_a_closed_port),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
