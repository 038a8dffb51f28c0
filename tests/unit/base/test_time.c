#include <errno.h>
#include "tests/unit/base/test.h"
#include "base/enctime.h"
#include "base/enc.h"

static struct enc_error err;

T (times_round)
{
	char s[ENC_TIME_SIZE];
	int64_t t = 0;
	ok (enc_time_parse ("2026-12-01T04:50:07.25Z", &t, &err));
	assert_string_equal (enc_time_format (t, true, s), "2026-12-01T04:50:07.250Z");
	assert_string_equal (enc_time_format (t, false, s), "2026-12-01T04:50:07Z");
	ok (enc_date_parse ("2028-02-29", &t, &err));
	assert_string_equal (enc_time_format (t, false, s), "2028-02-29T23:59:59Z");
	static const char *const bad[] = { "", "2026-12-01", "2026-12-01T04:50:07", "2026-12-01t04:50:07Z", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z",
		"2026-12-01T24:00:00Z", "2026-12-01T04:50:60Z", "2026-12-01T04:50:07.Z", "2026-12-01T04:50:07+01:00", "1969-12-31T23:59:59Z", "2026-12-01 04:50:07Z", "9999-12-31T23:59:59Z" };
	for (size_t n = 0; n < sizeof (bad) / sizeof (bad[0]); n++)
		fails (enc_time_parse (bad[n], &t, &err), ENC_EINVAL);
}

T (spans_are_for_people)
{
	char s[ENC_SPAN_SIZE];
	assert_string_equal (enc_span_format (6 * ENC_NS_S + 240 * ENC_NS_MS, s), "6.2 s");
	assert_string_equal (enc_span_format (41 * 60 * ENC_NS_S, s), "41 min");
	assert_string_equal (enc_span_format ((13 * 24 + 23) * 3600 * ENC_NS_S, s), "13 d 23 h");
	assert_string_equal (enc_span_format (14 * 86400 * ENC_NS_S, s), "14 d");
	assert_string_equal (enc_span_format (12000 * ENC_NS_S, s), "3 h 20 min");
	assert_string_equal (enc_span_format (41 * ENC_NS_S, s), "41 s");
}

T (deadlines_count_down)
{
	int64_t d = enc_deadline_ms (50);
	assert_in_range (enc_left_ms (d), 1, 51);
	assert_false (enc_passed (d));
	assert_int_equal (enc_left_ms (enc_mono () - 1), 0);
	assert_int_equal (enc_deadline_ms (INT64_MAX), ENC_FOREVER);
	char boot[ENC_BOOT_ID_SIZE];
	ok (enc_boot_id (boot, &err));
}

int main (void)
{
	const struct CMUnitTest tests[] = { RUN (times_round), RUN (spans_are_for_people), RUN (deadlines_count_down) };
	return cmocka_run_group_tests (tests, NULL, NULL);
}
