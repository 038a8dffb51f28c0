/* hex, base64 and base32, strict both ways: each value has exactly one text. */
#include <string.h>
#include "base/str.h"
#include "base/enc.h"

static const char hex_digits[] = "0123456789abcdef";
static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char base32_digits[] = "abcdefghijklmnopqrstuvwxyz234567";

/* Groups of `bits` bits, most significant first; the last one is filled with zero bits. */
static void put_groups (struct enc_buf *b, const uint8_t *data, size_t len, unsigned bits, const char *digits)
{
	uint32_t hold = 0;
	unsigned have = 0;
	for (size_t i = 0; i < len; i++) {
		hold = hold << 8 | data[i];
		for (have += 8; have >= bits; have -= bits)
			enc_buf_put_u8 (b, (uint8_t) digits[hold >> (have - bits) & ((1U << bits) - 1)]);
		hold &= (1U << have) - 1;
	}
	if (have)
		enc_buf_put_u8 (b, (uint8_t) digits[hold << (bits - have) & ((1U << bits) - 1)]);
}

void enc_put_hex (struct enc_buf *b, const void *data, size_t len)
{
	put_groups (b, (const uint8_t *) data, len, 4, hex_digits);
}

void enc_put_base64 (struct enc_buf *b, const void *data, size_t len)
{
	put_groups (b, (const uint8_t *) data, len, 6, base64_digits);
	for (size_t i = len; i % 3; i++)
		enc_buf_put_u8 (b, '=');
}

void enc_put_base32 (struct enc_buf *b, const void *data, size_t len)
{
	put_groups (b, (const uint8_t *) data, len, 5, base32_digits);
}

static int get_groups (const char *s, size_t len, unsigned bits, const char *digits, struct enc_buf *out)
{
	uint32_t hold = 0;
	unsigned have = 0;
	for (size_t i = 0; i < len; i++) {
		const char *at = s[i] ? strchr (digits, s[i]) : NULL;
		if (!at)
			return -ENC_EINVAL;
		hold = hold << bits | (uint32_t) (at - digits);
		have += bits;
		if (have >= 8) {
			have -= 8;
			enc_buf_put_u8 (out, (uint8_t) (hold >> have));
		}
		hold &= (1U << have) - 1;
	}
	/* What is left must be less than one digit and zero: one text per value. */
	return have >= bits || hold ? -ENC_EINVAL : 0;
}

static int get (const char *s, size_t len, unsigned bits, const char *digits, struct enc_buf *out, struct enc_error *err)
{
	size_t before = out->len;
	int rc = get_groups (s, len, bits, digits, out);
	if (rc == 0 && out->failed)
		return enc_buf_check (out, err);
	if (rc < 0) {
		if (out->len > before)
			enc_wipe (out->data + before, out->len - before);
		out->len = before;
		return enc_fail (err, ENC_EINVAL, "not %s", bits == 4 ? "lower-case hex" : bits == 6 ? "base64" : "base32");
	}
	return 0;
}

int enc_get_hex (const char *s, size_t len, struct enc_buf *out, struct enc_error *err)
{
	return get (s, len, 4, hex_digits, out, err);
}

int enc_get_base32 (const char *s, size_t len, struct enc_buf *out, struct enc_error *err)
{
	return get (s, len, 5, base32_digits, out, err);
}

int enc_get_base64 (const char *s, size_t len, struct enc_buf *out, struct enc_error *err)
{
	if (len % 4)
		return enc_fail (err, ENC_EINVAL, "not base64");
	size_t pad = 0;
	while (pad < 2 && pad < len && s[len - 1 - pad] == '=')
		pad++;
	return get (s, len - pad, 6, base64_digits, out, err);
}

typedef int get_fn (const char *s, size_t len, struct enc_buf *out, struct enc_error *err);

static int fixed (get_fn *fn, const char *s, void *out, size_t size, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_SECRET (size);
	if (!s)
		return enc_fail (err, ENC_EINVAL, "a value is missing");
	int rc = fn (s, strlen (s), &b, err);
	if (rc == -ENC_ELIMIT || (rc == 0 && b.len != size))
		return enc_fail (err, ENC_EINVAL, "not exactly %zu bytes", size);
	if (rc == 0 && size)
		memcpy (out, b.data, size);
	return rc;
}

int enc_hex_fixed (const char *s, void *out, size_t size, struct enc_error *err)
{
	return fixed (enc_get_hex, s, out, size, err);
}

int enc_base64_fixed (const char *s, void *out, size_t size, struct enc_error *err)
{
	return fixed (enc_get_base64, s, out, size, err);
}

char *enc_hex (const void *data, size_t len)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (SIZE_MAX / 4);
	enc_put_hex (&b, data, len);
	return enc_buf_take_str (&b);
}

char *enc_base64 (const void *data, size_t len)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (SIZE_MAX / 4);
	enc_put_base64 (&b, data, len);
	return enc_buf_take_str (&b);
}
