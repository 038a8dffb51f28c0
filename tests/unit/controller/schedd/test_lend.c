#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <cmocka.h>
#include "controller/schedd/lend.h"
#include "base/enc.h"

static void a_list_adds_up_and_names_its_floor (void **state ENC_UNUSED)
{
	struct enc_lend lend;

	assert_int_equal (enc_lend_parse ("# lent by the site\nn[1-3]   # first rack\n\n  gpu7\t\ngeneral never below 2 schedulable nodes\n", &lend, NULL), 0);
	assert_int_equal (lend.nodes.n, 4);
	assert_string_equal (lend.nodes.v[3], "gpu7");
	assert_int_equal (lend.floor, 2);
	enc_lend_done (&lend);
}

static void without_a_floor_one_node_stays (void **state ENC_UNUSED)
{
	struct enc_lend lend;

	assert_int_equal (enc_lend_parse ("n1", &lend, NULL), 0);
	assert_int_equal (lend.floor, 1);
	enc_lend_done (&lend);
	assert_int_equal (enc_lend_parse ("", &lend, NULL), 0);
	assert_int_equal (lend.nodes.n, 0);
	enc_lend_done (&lend);
}

static void a_malformed_list_is_refused_with_its_line (void **state ENC_UNUSED)
{
	static const char *const bad[] = {
		"\nn[1-", "\nn[3-1]", "\nn1 n2", "\ngeneral never below x schedulable nodes", "\ngeneral never below -1 schedulable nodes",
		"\ngeneral never below 2 nodes", "\ngeneral never below  schedulable nodes", "\ngeneral always", "\n../etc",
		"\ngeneral never below 99999999999999999999 schedulable nodes",
	};

	for (size_t i = 0; i < ENC_ARRAY_LEN (bad); i++) {
		struct enc_lend lend = { .floor = 77 };
		struct enc_error err = { 0 };

		assert_true (enc_lend_parse (bad[i], &lend, &err) < 0);
		assert_non_null (strstr (err.text, "line 2"));
		assert_int_equal (lend.floor, 77); /* untouched */
	}
}

static void two_floors_are_refused (void **state ENC_UNUSED)
{
	struct enc_lend lend;

	assert_int_equal (enc_lend_parse ("general never below 1 schedulable node\ngeneral never below 0 schedulable nodes", &lend, NULL), -ENC_EINVAL);
}

static const struct enc_lend_node four[] = { { "n1", true }, { "n2", true }, { "n3", false }, { "n4", true } };

static int check (const char *list, const char *const *want, struct enc_error *err)
{
	struct enc_lend lend;
	struct enc_strs names = { 0 };
	int rc;

	assert_int_equal (enc_lend_parse (list, &lend, NULL), 0);
	for (size_t i = 0; want[i]; i++)
		assert_int_equal (enc_strs_add (&names, want[i], NULL), 0);
	rc = enc_lend_check (&lend, four, 4, &names, err);
	enc_strs_done (&names);
	enc_lend_done (&lend);
	return rc;
}

#define WANT(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void nodes_in_the_list_and_above_the_floor_are_lent (void **state ENC_UNUSED)
{
	assert_int_equal (check ("n[1-4]\ngeneral never below 1 schedulable nodes", WANT ("n1", "n2"), NULL), 0);
	assert_int_equal (check ("n[1-4]\ngeneral never below 0 schedulable nodes", WANT ("n1", "n2", "n3", "n4"), NULL), 0);
}

static void the_floor_holds (void **state ENC_UNUSED)
{
	struct enc_error err = { 0 };

	assert_int_equal (check ("n[1-4]\ngeneral never below 2 schedulable nodes", WANT ("n1", "n2"), &err), -ENC_EBUSY);
	assert_non_null (strstr (err.text, "1 schedulable"));
	assert_int_equal (check ("n[1-4]", WANT ("n1", "n2", "n4"), NULL), -ENC_EBUSY); /* the default floor */
	/* The same node twice counts once. */
	assert_int_equal (check ("n[1-4]\ngeneral never below 2 schedulable nodes", WANT ("n1", "n1"), NULL), 0);
}

static void what_is_out_already_takes_nothing_from_the_floor (void **state ENC_UNUSED)
{
	assert_int_equal (check ("n[1-4]\ngeneral never below 9 schedulable nodes", WANT ("n3"), NULL), 0);
}

static void an_unlisted_node_is_denied_and_an_unknown_one_not_found (void **state ENC_UNUSED)
{
	struct enc_error err = { 0 };

	assert_int_equal (check ("n1", WANT ("n1", "n2"), &err), -ENC_EDENIED);
	assert_string_equal (err.object, "n2");
	assert_int_equal (check ("n[1-9]", WANT ("n1", "n9"), &err), -ENC_ENOTFOUND);
	assert_string_equal (err.object, "n9");
	assert_int_equal (check ("", WANT ("n1"), NULL), -ENC_EDENIED);
}

static void a_list_that_others_can_write_is_not_believed (void **state ENC_UNUSED)
{
	char path[] = "/var/tmp/lendXXXXXX";
	int fd = mkstemp (path);
	struct enc_lend lend;

	assert_true (fd >= 0);
	assert_int_equal (write (fd, "n1\n", 3), 3);
	assert_int_equal (fchmod (fd, 0666), 0);
	close (fd);
	assert_int_equal (enc_lend_load (path, &lend, NULL), -ENC_EDENIED);
	assert_int_equal (unlink (path), 0);
	assert_int_equal (enc_lend_load ("/etc/enclave-no-such-list", &lend, NULL), -ENC_ENOTFOUND);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (a_list_adds_up_and_names_its_floor),
		cmocka_unit_test (without_a_floor_one_node_stays),
		cmocka_unit_test (a_malformed_list_is_refused_with_its_line),
		cmocka_unit_test (two_floors_are_refused),
		cmocka_unit_test (nodes_in_the_list_and_above_the_floor_are_lent),
		cmocka_unit_test (the_floor_holds),
		cmocka_unit_test (what_is_out_already_takes_nothing_from_the_floor),
		cmocka_unit_test (an_unlisted_node_is_denied_and_an_unknown_one_not_found),
		cmocka_unit_test (a_list_that_others_can_write_is_not_believed),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
