#include "tests/unit/base/test.h"
#include "base/json.h"
#include "base/str.h"
#include "base/enc.h"

static struct enc_error err;

static struct enc_json *parsed (const char *text)
{
	struct enc_json *j = enc_json_parse (text, strlen (text), 4096, &err);
	if (!j)
		fail_msg ("%s: %s", text, err.text);
	return j;
}

static void refused (const char *text, const char *pointer)
{
	err = (struct enc_error){ 0 };
	struct enc_json *j = enc_json_parse (text, strlen (text), 4096, &err);
	if (j)
		fail_msg ("taken: %s", text);
	assert_true (err.code == ENC_EINVAL || err.code == ENC_ELIMIT);
	if (pointer)
		assert_string_equal (err.pointer, pointer);
}

T (values_round)
{
	const char *text = "{\"a\":[1,-2,18446744073709551615,1.5,true,false,null,\"x\\\"\\\\\\n\xc3\xa4\"],\"b\":{},\"c\":\"\"}";
	struct enc_json *j = parsed (text);
	char *s = enc_json_write (j, NULL, &err);
	assert_string_equal (s, text);
	free (s);
	assert_true (enc_json_u64 (enc_json_find (j, "/a/2"), 0) == UINT64_MAX);
	assert_int_equal (enc_json_i64 (enc_json_find (j, "/a/2"), -7), -7);
	assert_int_equal (enc_json_i64 (enc_json_find (j, "/a/1"), 0), -2);
	assert_int_equal (enc_json_type (enc_json_find (j, "/a/6")), ENC_JSON_NULL);
	assert_null (enc_json_find (j, "/a/8"));
	assert_null (enc_json_get (j, "none"));
	assert_int_equal (enc_json_len (enc_json_get (j, "a")), 8);
	struct enc_json *copy = enc_json_copy (j);
	assert_true (enc_json_equal (j, copy));
	enc_json_free (copy);
	enc_json_free (j);
	j = parsed ("\"\\u00e4\\ud83d\\ude00\"");
	assert_string_equal (enc_json_str (j), "\xc3\xa4\xf0\x9f\x98\x80");
	enc_json_free (j);
}

T (duplicate_keys_are_refused_also_in_disguise)
{
	refused ("{\"a\":1,\"a\":1}", "/a");
	refused ("{\"a\":1,\"\\u0061\":2}", "/a");
	refused ("{\"x\":[{\"a\":1},{\"b\":0,\"b\":1}]}", "/x/1/b");
	refused ("{\"a\":null,\"a\":null}", "/a");
}

T (nothing_lenient_is_taken)
{
	static const char *const bad[] = { "", " ", "{", "[", "[1", "[1,]", "[,1]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{'a':1}", "01", "-", "+1", "1.", ".5", "1e",
		"0x1", "NaN", "Infinity", "nul", "True", "1 2", "{} {}", "\"a", "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"", "\"\\u0000\"",
		"\"\n\"", "\"\t\"", "\"\xff\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "/**/1", "[1]//", "18446744073709551616", "-9223372036854775809", "1e999", "\xef\xbb\xbf{}" };
	for (size_t i = 0; i < ENC_ARRAY_LEN (bad); i++)
		refused (bad[i], NULL);
	struct enc_json *j = enc_json_parse ("1\0", 2, 10, &err);
	assert_null (j);
}

T (depth_and_size_are_bounded)
{
	char deep[64] = "";
	for (int i = 0; i < 17; i++)
		deep[i] = '[';
	refused (deep, NULL);
	assert_int_equal (err.code, ENC_ELIMIT);
	memset (deep + 16, ']', 16);
	enc_json_free (parsed (deep));
	assert_null (enc_json_parse ("[1,2,3]", 7, 6, &err));
	assert_int_equal (err.code, ENC_ELIMIT);
}

T (errors_name_line_and_pointer)
{
	refused ("{\n\"a\": {\n\"b/c\": [1, 2,\n x]}}", "/a/b~1c/2");
	assert_non_null (strstr (err.text, "line 4"));
	const char *text = "{\n\"a\":\n [1,\n {\"k\":2}]}";
	assert_int_equal (enc_json_line (text, strlen (text), "/a/1/k"), 4);
	assert_int_equal (enc_json_line (text, strlen (text), "/a/0"), 3);
	assert_int_equal (enc_json_line (text, strlen (text), "/b"), 0);
	assert_int_equal (enc_json_line (text, strlen (text), ""), 1);
}

T (built_values_are_written)
{
	struct enc_json *j = enc_json_object ();
	enc_json_set_str (j, "name", "cxr");
	enc_json_set_str (j, "none", NULL);
	enc_json_set_u64 (j, "size", UINT64_MAX);
	enc_json_set_double (j, "s", 4.25);
	enc_json_set_double (j, "whole", 3);
	enc_json_set_bool (j, "yes", true);
	enc_json_set_time (j, "at", INT64_C (1796100600000000000));
	enc_json_set_strf (j, "f", "%d-%s", 1, "x");
	struct enc_json *list = enc_json_set_array (j, "list");
	enc_json_add_str (list, "n1");
	enc_json_add (list, enc_json_new_null ());
	enc_json_set_i64 (enc_json_add_object (list), "i", -1);
	char *s = enc_json_write (j, NULL, &err);
	assert_string_equal (s, "{\"name\":\"cxr\",\"none\":null,\"size\":18446744073709551615,\"s\":4.25,\"whole\":3.0,\"yes\":true,"
				"\"at\":\"2026-12-01T04:50:00Z\",\"f\":\"1-x\",\"list\":[\"n1\",null,{\"i\":-1}]}");
	free (s);
	enc_json_set_str (enc_json_at (list, 2), "bad", "\xff");
	assert_null (enc_json_write (j, NULL, &err));
	enc_json_free (j);
}

T (canonical_form_is_one)
{
	struct enc_json *j = parsed ("{ \"b\" : [ true, {\"z\":1,\"a\":\"\\u0001\\/\\u00e4\"} ], \"B\":-5, \"a\":null }");
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (1000);
	ok (enc_json_canonical (j, &b, &err));
	const char *want = "{\"B\":-5,\"a\":null,\"b\":[true,{\"a\":\"\\u0001/\xc3\xa4\",\"z\":1}]}";
	assert_int_equal (b.len, strlen (want));
	assert_memory_equal (b.data, want, b.len);
	enc_json_free (j);
	j = enc_json_parse_canonical (want, strlen (want), 1000, &err);
	assert_non_null (j);
	enc_json_free (j);
	static const char *const other[] = { "{\"b\":1,\"a\":2}", "{ \"a\":1}", "{\"a\":1.0}", "[9007199254740992]", "{\"a\":\"\\/\"}", "{\"\xc3\xa4\":1}", "-0", "{\"a\":1}\n", "\"\\u0041\"" };
	for (size_t i = 0; i < ENC_ARRAY_LEN (other); i++) {
		assert_null (enc_json_parse_canonical (other[i], strlen (other[i]), 100, &err));
		assert_int_equal (err.code, ENC_EINTEGRITY);
	}
}

T (errors_travel_as_json)
{
	struct enc_error got = { 0 };
	int rc = enc_error_next (&err, enc_fail (&err, ENC_EBUSY, "node is held"), "enclavectl list");
	(void) enc_error_object (&err, rc, "n1");
	struct enc_json *j = enc_json_of_error (&err);
	char *s = enc_json_write (j, NULL, &err);
	assert_string_equal (s, "{\"error\":{\"code\":\"busy\",\"step\":null,\"object\":\"n1\",\"text\":\"node is held\",\"next\":\"enclavectl list\"}}");
	free (s);
	assert_int_equal (enc_json_to_error (j, &got), -ENC_EBUSY);
	assert_string_equal (got.text, "node is held");
	assert_string_equal (got.object, "n1");
	enc_json_free (j);
	j = parsed ("{\"ok\":true}");
	assert_int_equal (enc_json_to_error (j, &got), 0);
	enc_json_free (j);
	(void) enc_fail (&got, ENC_EFAILED, "bytes \xff\n");
	j = enc_json_of_error (&got);
	s = enc_json_write (j, NULL, &err);
	assert_non_null (s);
	free (s);
	enc_json_free (j);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		RUN (values_round), RUN (duplicate_keys_are_refused_also_in_disguise), RUN (nothing_lenient_is_taken), RUN (depth_and_size_are_bounded),
		RUN (errors_name_line_and_pointer), RUN (built_values_are_written), RUN (canonical_form_is_one), RUN (errors_travel_as_json),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
