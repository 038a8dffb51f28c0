#include "tests/unit/base/test.h"
#include "base/buf.h"
#include "base/enc.h"

static struct enc_error err;

T (what_is_put_is_got)
{
	struct enc_buf b = ENC_BUF_INIT (1000);
	enc_buf_put_u8 (&b, 0xab);
	enc_buf_put_u16 (&b, 0x1234);
	enc_buf_put_u32 (&b, 0xdeadbeef);
	enc_buf_put_u64 (&b, UINT64_C (0x0102030405060708));
	enc_buf_put_str (&b, "n1");
	enc_buf_put_bytes (&b, "\0\1\2", 3);
	ok (enc_buf_check (&b, &err));
	assert_memory_equal (b.data, "\xab\x34\x12\xef\xbe\xad\xde\x08\x07\x06\x05\x04\x03\x02\x01\x02\0n1\x03\0\0\1\2", 24);
	struct enc_view v = enc_view_of (b.data, b.len);
	char name[8];
	assert_int_equal (enc_view_u8 (&v), 0xab);
	assert_int_equal (enc_view_u16 (&v), 0x1234);
	assert_int_equal (enc_view_u32 (&v), 0xdeadbeef);
	assert_true (enc_view_u64 (&v) == UINT64_C (0x0102030405060708));
	enc_view_str (&v, name, sizeof (name));
	assert_string_equal (name, "n1");
	struct enc_view bytes = enc_view_bytes (&v, 3);
	assert_int_equal (bytes.left, 3);
	ok (enc_view_end (&v, &err));
	enc_buf_done (&b);
}

T (every_shorter_message_is_refused)
{
	struct enc_buf b = ENC_BUF_INIT (100);
	enc_buf_put_u32 (&b, 7);
	enc_buf_put_str (&b, "abc");
	enc_buf_put_u64 (&b, 9);
	for (size_t len = 0; len < b.len; len++) {
		struct enc_view v = enc_view_of (b.data, len);
		char s[10];
		(void) enc_view_u32 (&v);
		enc_view_str (&v, s, sizeof (s));
		(void) enc_view_u64 (&v);
		fails (enc_view_end (&v, &err), ENC_EINVAL);
	}
	struct enc_view v = enc_view_of (b.data, b.len);
	(void) enc_view_u64 (&v);
	fails (enc_view_end (&v, &err), ENC_EINVAL); /* left over */
	enc_buf_done (&b);
}

T (a_string_too_long_or_with_nul_or_not_utf8_is_refused)
{
	static const struct {
		const char *data;
		size_t len;
	} bad[] = { { "\x04\0abcd", 6 }, { "\x02\0a\0", 4 }, { "\x02\0a\xff", 4 }, { "\xff\xff" "a", 3 } };
	for (size_t i = 0; i < ENC_ARRAY_LEN (bad); i++) {
		struct enc_view v = enc_view_of (bad[i].data, bad[i].len);
		char s[4];
		enc_view_str (&v, s, sizeof (s));
		assert_string_equal (s, "");
		fails (enc_view_end (&v, &err), ENC_EINVAL);
	}
}

T (the_maximum_holds_and_the_first_failure_stays)
{
	struct enc_buf b = ENC_BUF_INIT (10);
	enc_buf_put (&b, "0123456789", 10);
	ok (enc_buf_check (&b, &err));
	enc_buf_put_u8 (&b, 1);
	fails (enc_buf_check (&b, &err), ENC_ELIMIT);
	assert_int_equal (b.len, 10);
	enc_buf_clear (&b);
	enc_buf_put_u8 (&b, 1);
	ok (enc_buf_check (&b, &err));
	enc_buf_done (&b);
	struct enc_buf big = ENC_BUF_INIT (100000);
	static const char many[65536];
	enc_buf_put_bytes (&big, many, sizeof (many));
	fails (enc_buf_check (&big, &err), ENC_ELIMIT);
	enc_buf_done (&big);
}

T (a_buffer_becomes_a_string)
{
	struct enc_buf b = ENC_BUF_SECRET (1000);
	char *empty = enc_buf_take_str (&b);
	assert_string_equal (empty, "");
	free (empty);
	for (int i = 0; i < 256; i++)
		enc_buf_put_u8 (&b, 'x');
	enc_buf_consume (&b, 250);
	enc_buf_putf (&b, "-%d", 5);
	char *s = enc_buf_take_str (&b);
	assert_string_equal (s, "xxxxxx-5");
	free (s);
	enc_buf_done (&b);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		RUN (what_is_put_is_got), RUN (every_shorter_message_is_refused), RUN (a_string_too_long_or_with_nul_or_not_utf8_is_refused),
		RUN (the_maximum_holds_and_the_first_failure_stays), RUN (a_buffer_becomes_a_string),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
