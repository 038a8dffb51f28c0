#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/enctime.h"
#include "base/file.h"
#include "base/enc.h"

static int64_t read_clock (clockid_t id)
{
	struct timespec ts;
	if (clock_gettime (id, &ts) < 0)
		return 0;
	return (int64_t) ts.tv_sec * ENC_NS_S + ts.tv_nsec;
}

int64_t enc_now (void)
{
	return read_clock (CLOCK_REALTIME);
}

int64_t enc_now_s (void)
{
	return enc_now () / ENC_NS_S;
}

int64_t enc_mono (void)
{
	return read_clock (CLOCK_BOOTTIME);
}

int64_t enc_deadline_ms (int64_t ms)
{
	int64_t ns;
	if (ms < 0)
		ms = 0;
	if (__builtin_mul_overflow (ms, ENC_NS_MS, &ns) || __builtin_add_overflow (enc_mono (), ns, &ns))
		return ENC_FOREVER;
	return ns;
}

int enc_left_ms (int64_t deadline)
{
	int64_t left = deadline - enc_mono ();
	if (left <= 0)
		return 0;
	left = left / ENC_NS_MS + (left % ENC_NS_MS != 0);
	return left > INT_MAX ? INT_MAX : (int) left;
}

bool enc_passed (int64_t deadline)
{
	return enc_mono () >= deadline;
}

int enc_boot_id (char out[static ENC_BOOT_ID_SIZE], struct enc_error *err)
{
	char line[64];
	int rc = enc_file_read_line ("/proc/sys/kernel/random/boot_id", line, sizeof (line), err);
	if (rc < 0)
		return rc;
	if (strlen (line) != ENC_BOOT_ID_SIZE - 1)
		return enc_fail (err, ENC_EFAILED, "the kernel's boot id has an unknown form");
	memcpy (out, line, ENC_BOOT_ID_SIZE);
	return 0;
}

const char *enc_time_format (int64_t wall_ns, bool ms, char out[static ENC_TIME_SIZE])
{
	time_t s = (time_t) (wall_ns / ENC_NS_S);
	int64_t rest = wall_ns % ENC_NS_S;
	if (rest < 0) {
		rest += ENC_NS_S;
		s--;
	}
	struct tm tm;
	size_t n = gmtime_r (&s, &tm) ? strftime (out, ENC_TIME_SIZE, "%Y-%m-%dT%H:%M:%S", &tm) : 0;
	if (ms)
		(void) snprintf (out + n, ENC_TIME_SIZE - n, ".%03dZ", (int) (rest / ENC_NS_MS));
	else
		(void) snprintf (out + n, ENC_TIME_SIZE - n, "Z");
	return out;
}

/* `len` digits at s as a number within min..max, else -1. */
static int field (const char *s, int len, int min, int max)
{
	int v = 0;
	for (int i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -1;
		v = v * 10 + (s[i] - '0');
	}
	return v < min || v > max ? -1 : v;
}

static int days_in (int year, int month)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
	return days[month - 1] + (month == 2 && leap);
}

/* "YYYY-MM-DD" at s into days since 1970; false if it is no date. */
static bool date_at (const char *s, struct tm *tm)
{
	int year = field (s, 4, 1970, 9999);
	int month = year < 0 || s[4] != '-' ? -1 : field (s + 5, 2, 1, 12);
	int day = month < 0 || s[7] != '-' ? -1 : field (s + 8, 2, 1, days_in (year, month));
	*tm = (struct tm){ .tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day };
	return day > 0;
}

int enc_time_parse (const char *s, int64_t *ret_wall_ns, struct enc_error *err)
{
	struct tm tm;
	size_t len = s ? strlen (s) : 0;
	if (len < 20 || len > 30 || !date_at (s, &tm) || s[10] != 'T' || s[13] != ':' || s[16] != ':' || s[len - 1] != 'Z')
		return enc_fail (err, ENC_EINVAL, "not a time such as 2026-12-01T04:50:00Z");
	tm.tm_hour = field (s + 11, 2, 0, 23);
	tm.tm_min = field (s + 14, 2, 0, 59);
	tm.tm_sec = field (s + 17, 2, 0, 59);
	int64_t fraction = 0;
	bool ok = tm.tm_hour >= 0 && tm.tm_min >= 0 && tm.tm_sec >= 0 && (len == 20 || (s[19] == '.' && len > 21));
	int64_t unit = ENC_NS_S;
	for (size_t i = 20; ok && i + 1 < len; i++) {
		int digit = field (s + i, 1, 0, 9);
		ok = digit >= 0;
		unit /= 10;
		fraction += digit * unit;
	}
	int64_t ns;
	if (!ok || __builtin_mul_overflow ((int64_t) timegm (&tm), ENC_NS_S, &ns) || __builtin_add_overflow (ns, fraction, &ns))
		return enc_fail (err, ENC_EINVAL, "not a time such as 2026-12-01T04:50:00Z");
	*ret_wall_ns = ns;
	return 0;
}

int enc_date_parse (const char *s, int64_t *ret_wall_ns, struct enc_error *err)
{
	struct tm tm;
	if (!s || strlen (s) != 10)
		return enc_time_parse (s, ret_wall_ns, err);
	int64_t ns;
	if (!date_at (s, &tm) || __builtin_mul_overflow ((int64_t) timegm (&tm) + 86399, ENC_NS_S, &ns))
		return enc_fail (err, ENC_EINVAL, "not a date such as 2026-12-01");
	*ret_wall_ns = ns;
	return 0;
}

const char *enc_span_format (int64_t ns, char out[static ENC_SPAN_SIZE])
{
	const char *sign = ns < 0 ? "-" : "";
	uint64_t tenths = (uint64_t) (ns < 0 ? -(ns + 1) : ns) / (uint64_t) (ENC_NS_S / 10);
	unsigned long long s = tenths / 10, rest;
	if (s < 10)
		(void) snprintf (out, ENC_SPAN_SIZE, "%s%llu.%u s", sign, s, (unsigned) (tenths % 10));
	else if (s < 120)
		(void) snprintf (out, ENC_SPAN_SIZE, "%s%llu s", sign, s);
	else if (s < 2 * 3600)
		(void) snprintf (out, ENC_SPAN_SIZE, "%s%llu min", sign, s / 60);
	else if (s < 2 * 86400) {
		rest = s % 3600 / 60;
		(void) snprintf (out, ENC_SPAN_SIZE, rest ? "%s%llu h %llu min" : "%s%llu h", sign, s / 3600, rest);
	} else {
		rest = s % 86400 / 3600;
		(void) snprintf (out, ENC_SPAN_SIZE, rest ? "%s%llu d %llu h" : "%s%llu d", sign, s / 86400, rest);
	}
	return out;
}
