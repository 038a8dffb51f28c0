/* What may be shown to people: a log line or a name must not move the cursor, reverse its direction or hide characters. */
#include <string.h>
#include "base/str.h"
#include "base/enc.h"

/* One code point from s; 0 on a byte that is not (shortest-form) UTF-8. *ret_len is then 1. */
static uint32_t next_point (const unsigned char *s, size_t left, size_t *ret_len)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = s[0] < 0x80 ? 1 : (s[0] & 0xE0) == 0xC0 ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : (s[0] & 0xF8) == 0xF0 ? 4 : 0;
	*ret_len = 1;
	if (n == 1)
		return s[0];
	if (n == 0 || n > left)
		return 0;
	uint32_t point = s[0] & (0xFFU >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xC0) != 0x80)
			return 0;
		point = point << 6 | (s[i] & 0x3FU);
	}
	if (point < least[n] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
		return 0;
	*ret_len = n;
	return point;
}

bool enc_utf8_ok (const char *s, size_t len)
{
	const unsigned char *at = (const unsigned char *) s;
	while (len) {
		size_t n;
		if (next_point (at, len, &n) == 0 && at[0] != 0)
			return false;
		at += n;
		len -= n;
	}
	return true;
}

/* Controls, line and paragraph ends, bidirectional marks, joiners and other format characters, variation selectors, tags, private use
 * that terminals may interpret, and non-characters. */
static const struct range {
	uint32_t from;
	uint32_t to;
} hidden[] = {
	{ 0x00, 0x1F },       { 0x7F, 0x9F },       { 0xAD, 0xAD },       { 0x034F, 0x034F },   { 0x061C, 0x061C },
	{ 0x070F, 0x070F },   { 0x115F, 0x1160 },   { 0x17B4, 0x17B5 },   { 0x180B, 0x180F },   { 0x200B, 0x200F },
	{ 0x2028, 0x202E },   { 0x2060, 0x206F },   { 0x3164, 0x3164 },   { 0xFE00, 0xFE0F },   { 0xFEFF, 0xFEFF },
	{ 0xFFA0, 0xFFA0 },   { 0xFFF0, 0xFFFB },   { 0xFFFE, 0xFFFF },   { 0x110BD, 0x110BD }, { 0x1BCA0, 0x1BCA3 },
	{ 0x1D173, 0x1D17A }, { 0xE0000, 0xE0FFF },
};

static bool is_hidden (uint32_t point)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (hidden); i++)
		if (point >= hidden[i].from && point <= hidden[i].to)
			return true;
	return false;
}

bool enc_text_ok (const char *s)
{
	size_t left = s ? strlen (s) : 0;
	const unsigned char *at = (const unsigned char *) s;
	while (left) {
		size_t n;
		if (is_hidden (next_point (at, left, &n)))
			return false; /* 0, not UTF-8, is in the first range */
		at += n;
		left -= n;
	}
	return s != NULL;
}

char *enc_text_printable (const char *s)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (SIZE_MAX / 8);
	size_t left = s ? strlen (s) : 0;
	const unsigned char *at = (const unsigned char *) s;
	while (left) {
		size_t n;
		uint32_t point = next_point (at, left, &n);
		if (point == 0)
			enc_buf_putf (&b, "\\x%02x", at[0]);
		else if (is_hidden (point))
			enc_buf_putf (&b, point > 0xFFFF ? "\\U%08x" : "\\u%04x", point);
		else
			enc_buf_put (&b, at, n);
		at += n;
		left -= n;
	}
	return enc_buf_take_str (&b);
}
