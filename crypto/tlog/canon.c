/* A scanner for the one form that the log stores. It is strict on purpose: any
 * second spelling of the same value is refused, so equal meaning is equal bytes. */
#include "crypto/tlog/canon.h"

#include <string.h>

#include "base/enc.h"

struct scan {
	const uint8_t *p;
	const uint8_t *end;
	int depth;
	struct enc_canon_want *want;
	size_t n_want;
};

static int scan_value (struct scan *s);

/* One UTF-8 sequence of two to four bytes. */
static int scan_utf8 (struct scan *s)
{
	const uint8_t *p = s->p;
	size_t more = p[0] >= 0xf0 ? 3 : p[0] >= 0xe0 ? 2 : 1;

	if (p[0] < 0xc2 || p[0] > 0xf4 || more >= (size_t)(s->end - p))
		return -1;
	for (size_t i = 1; i <= more; i++)
		if ((p[i] & 0xc0) != 0x80)
			return -1;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
		(p[0] == 0xf4 && p[1] > 0x8f))
		return -1;
	s->p += more + 1;
	return 0;
}

/* After a backslash: two-character escapes where they exist, else \u00xx in
 * lower case, and that for control characters only. */
static int scan_escape (struct scan *s)
{
	static const char hex[] = "0123456789abcdef";
	const uint8_t *p = s->p;
	const char *lo;

	if (s->end - p >= 2 && p[1] != 'u')
		return memchr ("\"\\bfnrt", p[1], 7) ? (s->p += 2, 0) : -1;
	if (s->end - p < 6 || p[2] != '0' || p[3] != '0' || (p[4] != '0' && p[4] != '1'))
		return -1;
	lo = memchr (hex, p[5], 16);
	if (!lo || (p[4] == '0' && memchr ("89acd", p[5], 5)))
		return -1;
	s->p += 6;
	return 0;
}

/* Bytes that stand for themselves inside a string. */
static inline int plain (uint8_t c)
{
	return (unsigned)(c - 0x20) < 0x60 && c != '"' && c != '\\';
}

static int scan_string (struct scan *s)
{
	if (s->p == s->end || *s->p != '"')
		return -1;
	s->p++;
	while (s->p < s->end) {
		uint8_t c = *s->p;

		if (plain (c)) {
			s->p++;
			continue;
		}
		if (c == '"') {
			s->p++;
			return 0;
		}
		if (c < 0x20 || (c == '\\' ? scan_escape (s) : scan_utf8 (s)) < 0)
			return -1;
	}
	return -1;
}

static int scan_number (struct scan *s)
{
	const uint8_t *start = s->p;
	uint64_t v = 0;

	if (*s->p == '-')
		s->p++;
	if (s->p == s->end || *s->p < '0' || *s->p > '9')
		return -1;
	while (s->p < s->end && *s->p >= '0' && *s->p <= '9') {
		v = v * 10 + (uint64_t)(*s->p - '0');
		if (v >= (uint64_t)1 << 53 || (v == 0 && (s->p > start)))
			return -1;
		s->p++;
		if (v == 0)
			break;
	}
	/* "-0" and "01" are second spellings. */
	return s->p < s->end && *s->p >= '0' && *s->p <= '9' ? -1 : 0;
}

static int scan_word (struct scan *s, const char *word, size_t len)
{
	if ((size_t)(s->end - s->p) < len || memcmp (s->p, word, len) != 0)
		return -1;
	s->p += len;
	return 0;
}

/* The character of an escaped key at `p` as a number that sorts as its UTF-16
 * units do; moves `p` on. That differs from code points only above U+FFFF:
 * those stand where the surrogates are, with room for the low half below. */
#define UNIT(c) ((uint32_t)(c) << 10)

static uint32_t key_unit (const uint8_t **p)
{
	static const char names[] = "\"\\bfnrt";
	static const char means[] = "\"\\\b\f\n\r\t";
	const uint8_t *c = *p;

	if (c[0] < 0x80 && c[0] != '\\') {
		*p = c + 1;
		return UNIT (c[0]);
	}
	if (c[0] == '\\' && c[1] != 'u') {
		const char *at = memchr (names, c[1], 7);

		*p = c + 2;
		return at ? UNIT ((uint8_t)means[at - names]) : 0;
	}
	if (c[0] == '\\') {
		*p = c + 6;
		return UNIT ((c[4] - '0') << 4 | (c[5] <= '9' ? c[5] - '0' : c[5] - 'a' + 10));
	}
	if (c[0] < 0xe0) {
		*p = c + 2;
		return UNIT ((c[0] & 0x1f) << 6 | (c[1] & 0x3f));
	}
	if (c[0] < 0xf0) {
		*p = c + 3;
		return UNIT ((c[0] & 0x0f) << 12 | (c[1] & 0x3f) << 6 | (c[2] & 0x3f));
	}
	*p = c + 4;
	return UNIT (0xd800) +
	       ((uint32_t)((c[0] & 0x07) << 18 | (c[1] & 0x3f) << 12 | (c[2] & 0x3f) << 6 | (c[3] & 0x3f)) - 0x10000u);
}

/* Is key a (to its end) before key b? Both without quotes. */
static int key_before (const uint8_t *a, const uint8_t *a_end, const uint8_t *b, const uint8_t *b_end)
{
	while (a < a_end && b < b_end) {
		uint32_t x = key_unit (&a);
		uint32_t y = key_unit (&b);

		if (x != y)
			return x < y;
	}
	return a == a_end && b < b_end;
}

/* What a value between `value` and the scanner's position is. */
static struct enc_canon_value value_of (const struct scan *s, const uint8_t *value)
{
	struct enc_canon_value out = { .type = (char)*value, .at = value, .len = (size_t)(s->p - value) };

	if (*value == '"') {
		out.at++;
		out.len -= 2;
	} else if (*value == '-' || (*value >= '0' && *value <= '9')) {
		out.type = '0';
	}
	return out;
}

static void note_wanted (struct scan *s, const uint8_t *key, size_t key_len, const uint8_t *value)
{
	for (size_t i = 0; i < s->n_want; i++) {
		struct enc_canon_want *want = &s->want[i];

		if (!want->found && strlen (want->key) == key_len && memcmp (want->key, key, key_len) == 0) {
			want->value = value_of (s, value);
			want->found = 1;
			return;
		}
	}
}

static int scan_members (struct scan *s)
{
	const uint8_t *last = NULL;
	const uint8_t *last_end = NULL;

	for (;;) {
		const uint8_t *key = s->p + 1;
		const uint8_t *value;

		if (scan_string (s) < 0)
			return -1;
		if (last && !key_before (last, last_end, key, s->p - 1))
			return -1;
		last = key;
		last_end = s->p - 1;
		if (s->p == s->end || *s->p++ != ':')
			return -1;
		value = s->p;
		if (scan_value (s) < 0 || s->p == s->end)
			return -1;
		if (s->depth == 1)
			note_wanted (s, key, (size_t)(last_end - key), value);
		if (*s->p == '}')
			return s->p++, 0;
		if (*s->p++ != ',')
			return -1;
	}
}

static int scan_items (struct scan *s)
{
	for (;;) {
		if (scan_value (s) < 0 || s->p == s->end)
			return -1;
		if (*s->p == ']')
			return s->p++, 0;
		if (*s->p++ != ',')
			return -1;
	}
}

static int scan_container (struct scan *s)
{
	uint8_t open = *s->p++;
	int rc;

	if (s->p == s->end || s->depth >= ENC_CANON_DEPTH)
		return -1;
	if (*s->p == (open == '{' ? '}' : ']'))
		return s->p++, 0;
	s->depth++;
	rc = open == '{' ? scan_members (s) : scan_items (s);
	s->depth--;
	return rc;
}

static int scan_value (struct scan *s)
{
	if (s->p == s->end)
		return -1;
	switch (*s->p) {
	case '{':
	case '[':
		return scan_container (s);
	case '"':
		return scan_string (s);
	case 't':
		return scan_word (s, "true", 4);
	case 'f':
		return scan_word (s, "false", 5);
	case 'n':
		return scan_word (s, "null", 4);
	default:
		return scan_number (s);
	}
}

int enc_canon_scan (const uint8_t *data, size_t len, struct enc_canon_want *want, size_t n, size_t *ret_at)
{
	struct scan s = { .p = data, .end = data + len, .want = want, .n_want = n };
	int rc = len > 0 && data[0] == '{' ? scan_value (&s) : -1;

	if (rc == 0 && s.p == s.end)
		return 0;
	if (ret_at)
		*ret_at = (size_t)(s.p - data);
	return -1;
}

int enc_canon_check (const uint8_t *data, size_t len, size_t *ret_at)
{
	return enc_canon_scan (data, len, NULL, 0, ret_at);
}

int enc_canon_find (const uint8_t *object, size_t len, const char *key, struct enc_canon_value *ret)
{
	struct enc_canon_want want = { .key = key };

	if (enc_canon_scan (object, len, &want, 1, NULL) < 0 || !want.found)
		return -1;
	*ret = want.value;
	return 0;
}

int enc_canon_uint (const struct enc_canon_value *value, uint64_t *ret)
{
	uint64_t v = 0;

	if (value->type != '0' || value->at[0] == '-')
		return -1;
	for (size_t i = 0; i < value->len; i++)
		v = v * 10 + (uint64_t)(value->at[i] - '0');
	*ret = v;
	return 0;
}

int enc_canon_u64 (const uint8_t *object, size_t len, const char *key, uint64_t *ret)
{
	struct enc_canon_value value;

	return enc_canon_find (object, len, key, &value) < 0 ? -1 : enc_canon_uint (&value, ret);
}
