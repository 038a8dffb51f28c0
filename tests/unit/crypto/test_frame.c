/* Frames and the canonical-form scanner. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "crypto/tlog/canon.h"
#include "crypto/tlog/crc32c.h"
#include "crypto/tlog/frame.h"

static void crc32c_has_the_known_answers (void **state)
{
	static const uint8_t zeros[32];

	(void)state;
	assert_int_equal (enc_crc32c (0, "123456789", 9), 0xe3069283u);
	assert_int_equal (enc_crc32c (0, zeros, 32), 0x8a9136aau);
	assert_int_equal (enc_crc32c (enc_crc32c (0, "1234", 4), "56789", 5), 0xe3069283u);
}

static void a_frame_lies_as_written_down (void **state)
{
	static const uint8_t head[] = { 'E', 'N', 'L', '1', 1, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 2, 0, 0, 0 };
	uint8_t out[64];
	struct enc_frame frame;

	(void)state;
	assert_int_equal (enc_frame_put (0x0102030405060708u, "{}", 2, out), 42);
	assert_memory_equal (out, head, sizeof (head));
	assert_int_equal (enc_frame_parse (out, 42, &frame), ENC_FRAME_GOOD);
	assert_true (frame.index == 0x0102030405060708u && frame.len == 2 && frame.size == 42);
}

static void every_flipped_bit_of_a_frame_is_seen (void **state)
{
	uint8_t out[64];
	struct enc_frame frame;

	(void)state;
	(void)enc_frame_put (5, "{\"a\":1}", 7, out);
	for (size_t bit = 0; bit < 47 * 8; bit++) {
		out[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_not_equal (enc_frame_parse (out, 47, &frame), ENC_FRAME_GOOD);
		out[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t n = 0; n < 47; n++)
		assert_int_equal (enc_frame_parse (out, n, &frame), ENC_FRAME_SHORT);
}

static void segment_names_are_strict (void **state)
{
	static const char *const bad[] = { "seg-1.log", "seg-0000000000000000000x.log", "seg-00000000000000000001.lo",
		"seg-00000000000000000001.log.1", "SEG-00000000000000000001.log" };
	char name[ENC_SEGMENT_NAME_SIZE];
	uint64_t first;

	(void)state;
	enc_segment_name (1234, name);
	assert_string_equal (name, "seg-00000000000000001234.log");
	assert_int_equal (enc_segment_parse (name, &first), 0);
	assert_int_equal (first, 1234);
	for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++)
		assert_int_equal (enc_segment_parse (bad[i], &first), -1);
}

static int canonical (const char *text)
{
	return enc_canon_check ((const uint8_t *)text, strlen (text), NULL) == 0;
}

static void canonical_texts_are_accepted (void **state)
{
	static const char *const good[] = {
		"{}",
		"{\"a\":1,\"b\":[],\"c\":{},\"d\":null,\"e\":true,\"f\":false,\"g\":-5,\"h\":\"x\"}",
		"{\"a\":9007199254740991}",
		"{\"a\":0}",
		"{\"a\":\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\\u000b\"}",
		"{\"\":1,\"a\":1,\"a0\":1,\"aa\":1}",
		"{\"a\":[1,\"x\",[{\"b\":2}]]}",
		"{\"k\":\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80/\"}",
		/* U+1F600 sorts before U+FB33: UTF-16 order, not byte order */
		"{\"\xe2\x82\xac\":1,\"\xf0\x9f\x98\x80\":2,\"\xef\xac\xb3\":3}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof (good) / sizeof (good[0]); i++)
		if (!canonical (good[i]))
			fail_msg ("refused %s", good[i]);
}

static void second_spellings_are_refused (void **state)
{
	static const char *const bad[] = {
		"",
		"[]",
		"1",
		"{",
		"{}}",
		"{} ",
		" {}",
		"{\"a\" :1}",
		"{\"a\":1,}",
		"{,}",
		"{\"a\":1 }",
		"{\"b\":1,\"a\":2}",
		"{\"a\":1,\"a\":2}",
		"{\"a\":1.0}",
		"{\"a\":1e3}",
		"{\"a\":01}",
		"{\"a\":-0}",
		"{\"a\":+1}",
		"{\"a\":-}",
		"{\"a\":9007199254740992}",
		"{\"a\":99999999999999999999}",
		"{\"a\":\"\\u0041\"}",
		"{\"a\":\"\\u000A\"}",
		"{\"a\":\"\\u000a\"}",
		"{\"a\":\"\\/\"}",
		"{\"a\":\"\\u001F\"}",
		"{\"a\":\"\x01\"}",
		"{\"a\":\"\xff\"}",
		"{\"a\":\"\xc0\xaf\"}",
		"{\"a\":\"\xed\xa0\x80\"}",
		"{\"a\":\"\xf4\x90\x80\x80\"}",
		"{\"a\":\"\xe2\x82\"}",
		"{\"a\":\"x}",
		"{\"a\":\"\\",
		"{\"a\":tru}",
		"{\"a\":nul",
		"{\"a\"}",
		"{a:1}",
		"{\"a\":1}x",
		"{\"\\u0061\":1}",
		"{\"a\":[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}",
		"{\"\xef\xac\xb3\":3,\"\xf0\x9f\x98\x80\":2}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++)
		if (canonical (bad[i]))
			fail_msg ("accepted %s", bad[i]);
}

static void every_prefix_of_a_record_is_refused_without_reading_past_it (void **state)
{
	static const char text[] = "{\"a\":[1,{\"b\":\"\\u0001\xf0\x9f\x98\x80\"}],\"c\":-12,\"d\":null}";

	(void)state;
	assert_true (canonical (text));
	for (size_t n = 0; n < strlen (text); n++)
		assert_int_equal (enc_canon_check ((const uint8_t *)text, n, NULL), -1);
}

static void members_are_found_at_their_level_only (void **state)
{
	static const char text[] = "{\"a\":{\"idx\":5},\"b\":\"x\\\"idx\\\":6\",\"idx\":7,\"n\":-1}";
	const uint8_t *p = (const uint8_t *)text;
	struct enc_canon_value value;
	uint64_t v = 0;

	(void)state;
	assert_int_equal (enc_canon_u64 (p, strlen (text), "idx", &v), 0);
	assert_int_equal (v, 7);
	assert_int_equal (enc_canon_u64 (p, strlen (text), "n", &v), -1);
	assert_int_equal (enc_canon_u64 (p, strlen (text), "b", &v), -1);
	assert_int_equal (enc_canon_find (p, strlen (text), "zz", &value), -1);
	assert_int_equal (enc_canon_find (p, strlen (text), "a", &value), 0);
	assert_true (value.type == '{' && enc_canon_u64 (value.at, value.len, "idx", &v) == 0 && v == 5);
	assert_int_equal (enc_canon_find ((const uint8_t *)"{}", 2, "a", &value), -1);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (crc32c_has_the_known_answers),
		cmocka_unit_test (a_frame_lies_as_written_down),
		cmocka_unit_test (every_flipped_bit_of_a_frame_is_seen),
		cmocka_unit_test (segment_names_are_strict),
		cmocka_unit_test (canonical_texts_are_accepted),
		cmocka_unit_test (second_spellings_are_refused),
		cmocka_unit_test (every_prefix_of_a_record_is_refused_without_reading_past_it),
		cmocka_unit_test (members_are_found_at_their_level_only),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
