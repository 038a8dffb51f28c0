#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "node-agent/privd/spool.h"
#include "node-agent/privd/state.h"
#include "tests/unit/node-agent/proto/fixture.h"

#include "base/enc.h"

static struct enc_privd_conf conf;
static char *folder;

static int setup (void **state)
{
	char name[] = "/tmp/enc-privd-XXXXXX";

	(void)state;
	assert_non_null (mkdtemp (name));
	folder = enc_strdup (name);
	conf = (struct enc_privd_conf){ .run_dir = enc_strf ("%s/run", name), .state_dir = enc_strf ("%s/lib", name), .node = enc_strdup ("n1") };
	assert_int_equal (mkdir (conf.run_dir, 0700) | mkdir (conf.state_dir, 0700), 0);
	return 0;
}

static int teardown (void **state)
{
	int dir = enc_open_dir ("/tmp", NULL);

	(void)state;
	(void)!enc_remove_tree (dir, folder + 5, (uid_t)-1, NULL, NULL);
	(void)close (dir);
	free (conf.run_dir);
	free (conf.state_dir);
	free (conf.node);
	free (folder);
	return 0;
}

static bool is_there (const char *name)
{
	enc_auto_free char *path = enc_strf ("%s/%s", conf.state_dir, name);

	return access (path, F_OK) == 0;
}

static void fill (struct enc_node_state *s)
{
	*s = (struct enc_node_state){ .pool = ENC_POOL_ENCLAVE, .generation = 7, .units = ENC_UNITS_DOWN, .fence = ENC_FENCE_ENCLAVE, .door = true, .roles = 5,
		.grant_until = 100, .counter = 12, .controller_port = 7443 };
	(void)!enc_state_set (&s->controller4, "10.0.0.1", NULL);
	(void)!enc_state_set (&s->enclave_id, FIX_ID, NULL);
	(void)!enc_state_set (&s->enclave_name, "cxr", NULL);
	(void)!enc_strs_add (&s->volumes, "cxr-data", NULL);
}

static void a_restart_finds_what_was (void **state)
{
	struct enc_node_state s, back = { 0 };
	bool rebooted = true;

	(void)state;
	fill (&s);
	assert_int_equal (enc_node_state_store (&conf, &s, NULL), 0);
	assert_int_equal (enc_node_state_load (&conf, &back, &rebooted, NULL), 0);
	assert_false (rebooted);
	assert_true (back.door && back.roles == 5 && back.generation == 7 && back.volumes.n == 1 && back.fence == ENC_FENCE_ENCLAVE);
	enc_node_state_done (&s);
	enc_node_state_done (&back);
}

static void invariant_09_a_reboot_while_held_finds_the_airlock_and_nothing_open (void **state)
{
	enc_auto_free char *path = enc_strf ("%s/state", conf.run_dir);
	struct enc_node_state s, back = { 0 };
	static struct enc_doc doc;
	bool rebooted = false;

	(void)state;
	fill (&s);
	assert_int_equal (enc_node_state_store (&conf, &s, NULL), 0);
	assert_int_equal (unlink (path), 0);
	assert_int_equal (enc_node_state_load (&conf, &back, &rebooted, NULL), 0);
	assert_true (rebooted);
	assert_int_equal (back.pool, ENC_POOL_AIRLOCK);
	assert_int_equal (back.fence, ENC_FENCE_AIRLOCK);
	assert_int_equal (back.units, ENC_UNITS_DOWN);
	assert_true (back.generation == 7 && !back.door && back.roles == 0 && back.volumes.n == 0 && !back.clean_ok && back.grant_until == 0);
	assert_int_equal (enc_node_state_tight (&conf, &back, ENC_POOL_AIRLOCK, &doc, NULL), 0);
	assert_string_equal (doc.controller4, "10.0.0.1");
	assert_int_equal (doc.fence, ENC_FENCE_AIRLOCK);
	enc_node_state_done (&s);
	enc_node_state_done (&back);
}

static void invariant_09_a_node_that_is_not_held_leaves_no_marker (void **state)
{
	struct enc_node_state s, back = { 0 };
	bool rebooted = true;

	(void)state;
	fill (&s);
	assert_int_equal (enc_node_state_store (&conf, &s, NULL), 0);
	assert_true (is_there ("held"));
	s.pool = ENC_POOL_GENERAL;
	s.fence = ENC_FENCE_NONE;
	assert_int_equal (enc_node_state_store (&conf, &s, NULL), 0);
	assert_true (is_there ("held")); /* its units are not back */
	s.units = ENC_UNITS_SITE;
	assert_int_equal (enc_node_state_store (&conf, &s, NULL), 0);
	assert_false (is_there ("held"));
	enc_node_state_done (&s);
	enc_auto_free char *path = enc_strf ("%s/state", conf.run_dir);
	assert_int_equal (unlink (path), 0);
	assert_int_equal (enc_node_state_load (&conf, &back, &rebooted, NULL), 0);
	assert_true (!rebooted && back.pool == ENC_POOL_GENERAL && back.generation == 0);
}

static void a_damaged_state_stops_the_start (void **state)
{
	static const char *const texts[] = { "", "{", "{\"pool\":9}", "{\"pool\":1,\"pool\":1}", "{\"unknown\":1}", "[]" };
	enc_auto_free char *path = enc_strf ("%s/state", conf.run_dir);
	struct enc_file_attr attr = ENC_FILE_ATTR (0600);
	struct enc_node_state back = { 0 };
	bool rebooted;

	(void)state;
	for (size_t i = 0; i < ENC_ARRAY_LEN (texts); i++) {
		assert_int_equal (enc_file_write (path, texts[i], strlen (texts[i]), &attr, NULL), 0);
		assert_int_equal (enc_node_state_load (&conf, &back, &rebooted, NULL), -ENC_EINTEGRITY);
	}
}

static void events_are_numbered_kept_over_a_restart_and_forgotten_when_stored (void **state)
{
	struct enc_spool spool;

	(void)state;
	assert_int_equal (enc_spool_open (&spool, &conf, NULL), 0);
	for (int i = 0; i < 3; i++)
		enc_spool_add (&spool, "fence", "set", "ok", NULL, NULL);
	enc_spool_done (&spool);
	assert_int_equal (enc_spool_open (&spool, &conf, NULL), 0);
	assert_int_equal (enc_json_len (spool.events), 3);
	assert_true (spool.counter == 3);
	enc_spool_forget (&spool, 2);
	assert_int_equal (enc_json_len (spool.events), 1);
	assert_true (enc_json_get_u64 (enc_json_at (spool.events, 0), "counter", 0) == 3);
	for (int i = 0; i < ENC_SPOOL_MAX + 10; i++)
		enc_spool_add (&spool, "fence", "set", "ok", NULL, NULL);
	assert_int_equal (enc_json_len (spool.events), ENC_SPOOL_MAX);
	assert_true (spool.counter == 3 + ENC_SPOOL_MAX + 10);
	enc_spool_done (&spool);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown (a_restart_finds_what_was, setup, teardown),
		cmocka_unit_test_setup_teardown (invariant_09_a_reboot_while_held_finds_the_airlock_and_nothing_open, setup, teardown),
		cmocka_unit_test_setup_teardown (invariant_09_a_node_that_is_not_held_leaves_no_marker, setup, teardown),
		cmocka_unit_test_setup_teardown (a_damaged_state_stops_the_start, setup, teardown),
		cmocka_unit_test_setup_teardown (events_are_numbered_kept_over_a_restart_and_forgotten_when_stored, setup, teardown),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
