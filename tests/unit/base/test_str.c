#include "tests/unit/base/test.h"
#include "base/hostlist.h"
#include "base/str.h"
#include "base/enc.h"

static struct enc_error err;

T (numbers_are_strict)
{
	uint64_t u = 0;
	int64_t i = 0;
	ok (enc_parse_u64 ("18446744073709551615", 0, UINT64_MAX, &u, &err));
	assert_true (u == UINT64_MAX);
	ok (enc_parse_u64 ("0", 0, 1, &u, &err));
	static const char *const bad[] = { "", "-1", "+1", " 1", "1 ", "01", "1x", "0x1", "18446744073709551616", "1.0" };
	for (size_t n = 0; n < ENC_ARRAY_LEN (bad); n++)
		fails (enc_parse_u64 (bad[n], 0, UINT64_MAX, &u, &err), ENC_EINVAL);
	fails (enc_parse_u64 ("9", 1, 8, &u, &err), ENC_EINVAL);
	ok (enc_parse_i64 ("-9223372036854775808", INT64_MIN, INT64_MAX, &i, &err));
	assert_true (i == INT64_MIN);
	fails (enc_parse_i64 ("-9223372036854775809", INT64_MIN, INT64_MAX, &i, &err), ENC_EINVAL);
	fails (enc_parse_i64 ("-0", INT64_MIN, INT64_MAX, &i, &err), ENC_EINVAL);
	fails (enc_parse_u64 (NULL, 0, 1, &u, &err), ENC_EINVAL);
}

T (durations_and_sizes)
{
	uint64_t v = 0;
	static const struct { const char *s; uint64_t v; } good[] = { { "14d", 1209600 }, { "2h", 7200 }, { "30m", 1800 }, { "10s", 10 },
		{ "1d12h", 129600 }, { "0", 0 }, { "1w", 604800 } };
	for (size_t n = 0; n < ENC_ARRAY_LEN (good); n++) {
		ok (enc_parse_duration (good[n].s, &v, &err));
		assert_true (v == good[n].v);
	}
	static const char *const bad[] = { "", "1", "d", "1x", "12h1d", "1d1d", "-1d", "1 d", "999999999d", "99999999999999999999s", "1d2" };
	for (size_t n = 0; n < ENC_ARRAY_LEN (bad); n++)
		fails (enc_parse_duration (bad[n], &v, &err), ENC_EINVAL);
	static const struct { const char *s; uint64_t v; } sizes[] = { { "100G", UINT64_C (100) << 30 }, { "512", 512 }, { "1k", 1024 },
		{ "2MiB", 2 << 20 }, { "3B", 3 }, { "1TB", UINT64_C (1) << 40 } };
	for (size_t n = 0; n < ENC_ARRAY_LEN (sizes); n++) {
		ok (enc_parse_size (sizes[n].s, &v, &err));
		assert_true (v == sizes[n].v);
	}
	static const char *const bad_sizes[] = { "", "G", "1X", "1Gi", "1.5G", "-1", "9999999999P", "1GG" };
	for (size_t n = 0; n < ENC_ARRAY_LEN (bad_sizes); n++)
		fails (enc_parse_size (bad_sizes[n], &v, &err), ENC_EINVAL);
}

T (names_follow_the_contract)
{
	assert_true (enc_name_ok ("cxr") && enc_name_ok ("a") && enc_name_ok ("a-1") && enc_name_ok ("abcdefghijklmnopqrstuvwxyz01234"));
	static const char *const bad[] = { "", "A", "1a", "a-", "-a", "a_b", "a.b", "abcdefghijklmnopqrstuvwxyz012345", "a b", "../x", "a\n" };
	for (size_t n = 0; n < ENC_ARRAY_LEN (bad); n++)
		assert_false (enc_name_ok (bad[n]));
	assert_false (enc_name_ok (NULL));
	assert_true (enc_node_name_ok ("n1") && enc_node_name_ok ("gpu-3.example.org") && enc_node_name_ok ("3com"));
	assert_false (enc_node_name_ok ("") || enc_node_name_ok ("-n") || enc_node_name_ok ("n/1") || enc_node_name_ok ("n-") || enc_node_name_ok ("n 1"));
	assert_true (enc_user_name_ok ("res1") && enc_user_name_ok ("_x") && enc_user_name_ok ("a-b_c"));
	assert_false (enc_user_name_ok ("Res") || enc_user_name_ok ("") || enc_user_name_ok ("1a") || enc_user_name_ok ("a$") ||
		      enc_user_name_ok ("abcdefghijklmnopqrstuvwxyz0123456"));
}

T (ids_are_fresh_and_well_formed)
{
	char a[ENC_ID_SIZE], b[ENC_ID_SIZE];
	ok (enc_id_new (a, &err));
	ok (enc_id_new (b, &err));
	assert_true (enc_id_ok (a) && enc_id_ok (b));
	assert_string_not_equal (a, b);
	assert_false (enc_id_ok ("abc") || enc_id_ok ("ABCDEFGHIJKLMNOPQRSTUVWXYZ") || enc_id_ok ("abcdefghijklmnopqrstuvwxyz2"));
}

T (encodings_round_and_have_one_text_per_value)
{
	uint8_t data[40];
	for (size_t i = 0; i < sizeof (data); i++)
		data[i] = (uint8_t) (i * 37 + 11);
	for (size_t len = 0; len <= sizeof (data); len++) {
		struct enc_buf hex = ENC_BUF_INIT (200), b64 = ENC_BUF_INIT (200), b32 = ENC_BUF_INIT (200), back = ENC_BUF_INIT (200);
		enc_put_hex (&hex, data, len);
		enc_put_base64 (&b64, data, len);
		enc_put_base32 (&b32, data, len);
		ok (enc_get_hex ((char *) hex.data, hex.len, &back, &err));
		ok (enc_get_base64 ((char *) b64.data, b64.len, &back, &err));
		ok (enc_get_base32 ((char *) b32.data, b32.len, &back, &err));
		assert_int_equal (back.len, 3 * len);
		for (size_t i = 0; len && i < 3; i++)
			assert_memory_equal (back.data + i * len, data, len);
		enc_buf_done (&hex); enc_buf_done (&b64); enc_buf_done (&b32); enc_buf_done (&back);
	}
	char *s = enc_base64 ("light w", 7);
	assert_string_equal (s, "bGlnaHQgdw==");
	free (s);
	struct enc_buf out = ENC_BUF_INIT (100);
	static const char *const bad[] = { "bGlnaHQgdw=", "bGlnaHQgdx==", "bGln aHQ", "=AAA", "A===", "bGlnaHQgdw==AAAA", "bGl-" };
	for (size_t n = 0; n < ENC_ARRAY_LEN (bad); n++)
		fails (enc_get_base64 (bad[n], strlen (bad[n]), &out, &err), ENC_EINVAL);
	fails (enc_get_hex ("AB", 2, &out, &err), ENC_EINVAL);
	fails (enc_get_hex ("abc", 3, &out, &err), ENC_EINVAL);
	fails (enc_get_base32 ("ab1", 3, &out, &err), ENC_EINVAL);
	fails (enc_get_base32 ("a", 1, &out, &err), ENC_EINVAL);
	assert_int_equal (out.len, 0);
	enc_buf_done (&out);
	uint8_t four[4] = { 9 };
	fails (enc_hex_fixed ("0102030405", four, 4, &err), ENC_EINVAL);
	fails (enc_hex_fixed ("010203", four, 4, &err), ENC_EINVAL);
	assert_int_equal (four[0], 9);
	ok (enc_hex_fixed ("01020304", four, 4, &err));
}

T (texts_for_terminals_hide_nothing)
{
	assert_true (enc_text_ok ("chest x-ray reports, Zürich 東京"));
	static const char *const bad[] = { "a\nb", "\033[2J", "\xe2\x80\xae" "abc", "\xff", "a\xe2\x80\x8b", "\xc2\x9b", "\xf3\xa0\x81\x81", "\xed\xa0\x80", "\xc0\x80" };
	for (size_t n = 0; n < ENC_ARRAY_LEN (bad); n++) {
		assert_false (enc_text_ok (bad[n]));
		char *shown = enc_text_printable (bad[n]);
		assert_true (enc_text_ok (shown));
		free (shown);
	}
	char *s = enc_text_printable ("a\033\xe2\x80\xae\xffz");
	assert_string_equal (s, "a\\u001b\\u202e\\xffz");
	free (s);
}

static void expands (const char *text, const char *want)
{
	struct enc_strs l = { 0 };
	ok (enc_hostlist_expand (text, 0, &l, &err));
	char *s = enc_strs_join (&l, " ");
	assert_string_equal (s, want);
	free (s);
	enc_strs_done (&l);
}

T (host_lists_expand_and_compress)
{
	expands ("n[1-3],n5", "n1 n2 n3 n5");
	expands ("n[08-11]", "n08 n09 n10 n11");
	expands ("n[1-2,4]-ib,n1-ib", "n1-ib n2-ib n4-ib");
	expands ("b,a,b", "b a");
	struct enc_strs l = { 0 };
	static const char *const bad[] = { "", ",", "n1,", "n[1-", "n1]", "n[]", "n[2-1]", "n[1-2][3]", "n[a]", "n[1-2", "n[1;2]", "n[-1]", "n[1-10000000000]", "x y" };
	for (size_t n = 0; n < ENC_ARRAY_LEN (bad); n++)
		fails (enc_hostlist_expand (bad[n], 0, &l, &err), ENC_EINVAL);
	fails (enc_hostlist_expand ("n[1-999999999]", 0, &l, &err), ENC_ELIMIT);
	fails (enc_hostlist_expand ("n[1-5]", 4, &l, &err), ENC_ELIMIT);
	assert_int_equal (l.n, 0);
	ok (enc_hostlist_expand ("login,n[1-3,5,9-10],n10,m[01-02],n7x", 0, &l, &err));
	char *s = enc_hostlist_compress (&l);
	assert_string_equal (s, "login,m[01,02],n[1-3,5,9,10],n7x");
	free (s);
	ok (enc_hostlist_expand ("n2,z", 0, &l, &err));
	assert_int_equal (l.n, 11);
	enc_strs_done (&l);
}

T (lists_of_strings)
{
	struct enc_strs l = { 0 }, copy = { 0 };
	for (int i = 0; i < 40; i++) {
		char name[8];
		(void) snprintf (name, sizeof (name), "%d", 39 - i);
		ok (enc_strs_add (&l, name, &err));
	}
	assert_null (l.v[40]);
	assert_true (enc_strs_remove (&l, "39"));
	assert_false (enc_strs_remove (&l, "39"));
	ok (enc_strs_copy (&copy, &l, &err));
	while (l.n)
		assert_true (enc_strs_remove (&l, l.v[0]));
	ok (enc_strs_add (&l, "again", &err));
	assert_null (l.v[1]);
	enc_strs_sort (&copy);
	assert_string_equal (copy.v[1], "1");
	fails (enc_strs_split (&l, "a,,b", ',', 9, &err), ENC_EINVAL);
	fails (enc_strs_split (&l, "a,b,c", ',', 2, &err), ENC_ELIMIT);
	assert_int_equal (l.n, 1);
	ok (enc_strs_split (&l, "a,b", ',', 2, &err));
	assert_true (enc_strs_has (&l, "b"));
	enc_strs_done (&l);
	enc_strs_done (&copy);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		RUN (numbers_are_strict), RUN (durations_and_sizes), RUN (names_follow_the_contract), RUN (ids_are_fresh_and_well_formed),
		RUN (encodings_round_and_have_one_text_per_value), RUN (texts_for_terminals_hide_nothing), RUN (host_lists_expand_and_compress),
		RUN (lists_of_strings),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
