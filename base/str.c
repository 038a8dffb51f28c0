#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include "base/str.h"
#include "base/enc.h"

char *enc_strf (const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;
	va_start (ap, fmt);
	int n = vasprintf (&s, fmt, ap);
	va_end (ap);
	return n < 0 ? NULL : s;
}

char *enc_strdup (const char *s)
{
	return s ? strdup (s) : NULL;
}

int enc_str_copy (char *out, size_t size, const char *s, struct enc_error *err)
{
	size_t len = strlen (s);
	if (len >= size) {
		if (size)
			out[0] = 0;
		return enc_fail (err, ENC_ELIMIT, "text of %zu bytes, at most %zu fit", len, size ? size - 1 : 0);
	}
	memcpy (out, s, len + 1);
	return 0;
}

bool enc_streq (const char *a, const char *b)
{
	return a == b || (a && b && strcmp (a, b) == 0);
}

bool enc_starts (const char *s, const char *prefix)
{
	return s && strncmp (s, prefix, strlen (prefix)) == 0;
}

bool enc_ends (const char *s, const char *suffix)
{
	size_t n = s ? strlen (s) : 0, m = strlen (suffix);
	return s && n >= m && memcmp (s + n - m, suffix, m) == 0;
}

bool enc_mem_equal (const void *a, const void *b, size_t len)
{
	const volatile uint8_t *x = (const volatile uint8_t *) a, *y = (const volatile uint8_t *) b;
	uint8_t diff = 0;
	for (size_t i = 0; i < len; i++)
		diff |= (uint8_t) (x[i] ^ y[i]);
	return diff == 0;
}

void enc_wipe (void *p, size_t len)
{
	if (p && len)
		explicit_bzero (p, len);
}

/* ---- numbers ---- */

/* Digits at *s into *ret, at least one; false on overflow. Moves *s behind them. */
static bool take_digits (const char **s, uint64_t *ret)
{
	uint64_t v = 0;
	const char *at = *s;
	if (*at < '0' || *at > '9')
		return false;
	for (; *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow (v, 10, &v) || __builtin_add_overflow (v, (uint64_t) (*at - '0'), &v))
			return false;
	*s = at;
	*ret = v;
	return true;
}

int enc_parse_u64 (const char *s, uint64_t min, uint64_t max, uint64_t *ret, struct enc_error *err)
{
	const char *at = s;
	uint64_t v;
	if (!s || !take_digits (&at, &v) || *at || (s[0] == '0' && s[1]))
		return enc_fail (err, ENC_EINVAL, "not a whole number");
	if (v < min || v > max)
		return enc_fail (err, ENC_EINVAL, "%llu is not within %llu to %llu", (unsigned long long) v,
				 (unsigned long long) min, (unsigned long long) max);
	*ret = v;
	return 0;
}

int enc_parse_i64 (const char *s, int64_t min, int64_t max, int64_t *ret, struct enc_error *err)
{
	bool negative = s && s[0] == '-';
	uint64_t v;
	int rc = enc_parse_u64 (negative ? s + 1 : s, 0, negative ? (uint64_t) INT64_MAX + 1 : INT64_MAX, &v, err);
	if (rc < 0)
		return rc;
	if (negative && v == 0)
		return enc_fail (err, ENC_EINVAL, "not a whole number");
	int64_t value = negative ? (int64_t) (0 - v) : (int64_t) v;
	if (value < min || value > max)
		return enc_fail (err, ENC_EINVAL, "%lld is not within %lld to %lld", (long long) value, (long long) min, (long long) max);
	*ret = value;
	return 0;
}

int enc_parse_duration (const char *s, uint64_t *ret_s, struct enc_error *err)
{
	static const char units[] = "wdhms";
	static const uint64_t seconds[] = { 604800, 86400, 3600, 60, 1 };
	uint64_t sum = 0;
	size_t least = 0; /* units must get smaller: "1d12h", not "12h1d" */
	const char *at = s;
	if (enc_streq (s, "0")) {
		*ret_s = 0;
		return 0;
	}
	while (at && *at) {
		uint64_t v;
		const char *unit = take_digits (&at, &v) && *at ? strchr (units + least, *at) : NULL;
		if (!unit)
			break;
		least = (size_t) (unit - units) + 1;
		if (__builtin_mul_overflow (v, seconds[least - 1], &v) || __builtin_add_overflow (sum, v, &sum) ||
		    sum > UINT64_C (100) * 366 * 86400)
			return enc_fail (err, ENC_EINVAL, "duration over 100 years");
		at++;
		if (!*at) {
			*ret_s = sum;
			return 0;
		}
	}
	return enc_fail (err, ENC_EINVAL, "not a duration such as 14d, 2h, 30m or 1d12h");
}

int enc_parse_size (const char *s, uint64_t *ret_bytes, struct enc_error *err)
{
	static const char units[] = "KMGTP";
	uint64_t v;
	const char *at = s;
	if (!s || !take_digits (&at, &v))
		return enc_fail (err, ENC_EINVAL, "not a size such as 512M or 100G");
	const char *unit = *at ? strchr (units, toupper ((unsigned char) *at)) : NULL;
	unsigned shift = 0;
	if (unit) {
		shift = 10 * ((unsigned) (unit - units) + 1);
		at++;
	}
	if (unit && at[0] == 'i' && at[1] == 'B')
		at += 2;
	else if (at[0] == 'B')
		at++;
	if (*at)
		return enc_fail (err, ENC_EINVAL, "not a size such as 512M or 100G");
	if (shift && v > (uint64_t) INT64_MAX >> shift)
		return enc_fail (err, ENC_EINVAL, "size too large");
	*ret_bytes = v << shift;
	return 0;
}

/* ---- names and ids ---- */

static bool lower (char c)
{
	return c >= 'a' && c <= 'z';
}

static bool digit (char c)
{
	return c >= '0' && c <= '9';
}

bool enc_name_ok (const char *s)
{
	if (!s || !lower (s[0]))
		return false;
	size_t i = 1;
	for (; s[i]; i++)
		if (i > 30 || !(lower (s[i]) || digit (s[i]) || s[i] == '-'))
			return false;
	return s[i - 1] != '-';
}

bool enc_node_name_ok (const char *s)
{
	if (!s || !(isalnum ((unsigned char) s[0]) && (unsigned char) s[0] < 128))
		return false;
	size_t i = 1;
	for (; s[i]; i++) {
		char c = s[i];
		if (i > 62 || !(lower (c) || digit (c) || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' || c == '_'))
			return false;
	}
	return s[i - 1] != '-' && s[i - 1] != '.';
}

bool enc_user_name_ok (const char *s)
{
	if (!s || !(lower (s[0]) || s[0] == '_'))
		return false;
	for (size_t i = 1; s[i]; i++)
		if (i > 31 || !(lower (s[i]) || digit (s[i]) || s[i] == '_' || s[i] == '-'))
			return false;
	return true;
}

int enc_random (void *out, size_t len, struct enc_error *err)
{
	uint8_t *at = (uint8_t *) out;
	while (len) {
		ssize_t n = getrandom (at, len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return enc_fail_sys (err, "getrandom");
		at += n;
		len -= (size_t) n;
	}
	return 0;
}

static const char base32_digits[] = "abcdefghijklmnopqrstuvwxyz234567";

int enc_id_new (char out[static ENC_ID_SIZE], struct enc_error *err)
{
	uint8_t bytes[ENC_ID_LEN];
	int rc = enc_random (bytes, sizeof (bytes), err);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ENC_ID_LEN; i++)
		out[i] = base32_digits[bytes[i] & 31];
	out[ENC_ID_LEN] = 0;
	return 0;
}

bool enc_id_ok (const char *s)
{
	if (!s || strnlen (s, ENC_ID_SIZE) != ENC_ID_LEN)
		return false;
	for (size_t i = 0; i < ENC_ID_LEN; i++)
		if (!strchr (base32_digits, s[i]))
			return false;
	return true;
}
