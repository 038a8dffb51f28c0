#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "base/error.h"
#include "base/enc.h"

static void a_code_has_the_names_and_statuses_of_the_contract (void **state ENC_UNUSED)
{
	static const struct {
		int code;
		const char *name;
		int exit;
		int http;
	} want[] = {
		{ ENC_EFAILED, "failed", 1, 500 },     { ENC_EUSAGE, "usage", 2, 400 },      { ENC_EDENIED, "denied", 3, 403 },
		{ ENC_ENOTFOUND, "not_found", 4, 404 }, { ENC_EBUSY, "busy", 5, 409 },        { ENC_ECONFLICT, "conflict", 5, 409 },
		{ ENC_ETIMEOUT, "timeout", 6, 504 },   { ENC_EINTEGRITY, "integrity", 7, 422 }, { ENC_EUNAVAIL, "unavailable", 8, 503 },
	};
	for (size_t i = 0; i < sizeof (want) / sizeof (want[0]); i++) {
		assert_string_equal (enc_code_name (-want[i].code), want[i].name);
		assert_int_equal (enc_code_exit (want[i].code), want[i].exit);
		assert_int_equal (enc_code_http (want[i].code), want[i].http);
		assert_int_equal (enc_code_of_name (want[i].name), want[i].code);
	}
	assert_string_equal (enc_code_name (9999), "failed");
	assert_int_equal (enc_code_of_name ("nonsense"), ENC_EFAILED);
}

static void failing_fills_the_box_and_keeps_errno (void **state ENC_UNUSED)
{
	struct enc_error err = { .next = "old advice" };
	errno = 77;
	assert_int_equal (enc_fail (&err, ENC_EBUSY, "node %s is held", "n1"), -ENC_EBUSY);
	assert_int_equal (errno, 77);
	assert_string_equal (err.text, "node n1 is held");
	assert_string_equal (err.next, "");
	assert_int_equal (enc_fail (NULL, ENC_EBUSY, "nobody listens"), -ENC_EBUSY);
}

static void a_text_cut_short_says_so (void **state ENC_UNUSED)
{
	char longer[400];
	struct enc_error err;
	memset (longer, 'x', sizeof (longer) - 1);
	longer[sizeof (longer) - 1] = 0;
	(void) enc_fail (&err, ENC_EFAILED, "%s", longer);
	assert_int_equal (strlen (err.text), sizeof (err.text) - 1);
	assert_int_equal (err.text[sizeof (err.text) - 2], '+');
	for (size_t i = 0; i + 1 < sizeof (longer) - 1; i += 2)
		memcpy (longer + i, "\xc3\xa4", 2);
	(void) enc_fail (&err, ENC_EFAILED, "%s", longer);
	assert_int_equal (err.text[strlen (err.text) - 1], '+');
	assert_int_not_equal ((unsigned char) err.text[strlen (err.text) - 2], 0xc3);
}

static void errno_chooses_the_code (void **state ENC_UNUSED)
{
	struct enc_error err;
	errno = ENOENT;
	assert_int_equal (enc_fail_sys (&err, "open /x"), -ENC_ENOTFOUND);
	assert_string_equal (err.text, "open /x: No such file or directory");
	assert_int_equal (err.sys, ENOENT);
	errno = EIO;
	assert_int_equal (enc_fail_sys (&err, "read"), -ENC_ESYS);
}

static void context_goes_in_front_and_details_stay (void **state ENC_UNUSED)
{
	struct enc_error err;
	int rc = enc_error_next (&err, enc_fail (&err, ENC_EBUSY, "held"), "enclavectl show %s", "cxr");
	rc = enc_error_object (&err, rc, "n1");
	rc = enc_error_step (&err, rc, "reserve");
	rc = enc_wrap (&err, rc, "step %s", "reserve");
	assert_int_equal (rc, -ENC_EBUSY);
	assert_string_equal (err.text, "step reserve: held");
	assert_string_equal (err.next, "enclavectl show cxr");
	assert_string_equal (err.object, "n1");
	assert_string_equal (err.step, "reserve");
	assert_int_equal (enc_wrap (&err, 0, "nothing"), 0);
	assert_string_equal (err.text, "step reserve: held");
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (a_code_has_the_names_and_statuses_of_the_contract),
		cmocka_unit_test (failing_fills_the_box_and_keeps_errno),
		cmocka_unit_test (a_text_cut_short_says_so),
		cmocka_unit_test (errno_chooses_the_code),
		cmocka_unit_test (context_goes_in_front_and_details_stay),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
