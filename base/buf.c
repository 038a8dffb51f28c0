#include <stdio.h>
#include <string.h>
#include "base/buf.h"
#include "base/str.h"
#include "base/enc.h"

#define FIRST_CAP 256

void enc_buf_done (struct enc_buf *b)
{
	if (!b)
		return;
	if (b->data && b->secret)
		enc_wipe (b->data, b->cap);
	free (b->data);
	b->data = NULL;
	b->len = b->cap = 0;
	b->failed = 0;
}

void enc_buf_clear (struct enc_buf *b)
{
	if (b->data && b->secret)
		enc_wipe (b->data, b->len);
	b->len = 0;
	b->failed = 0;
}

int enc_buf_check (const struct enc_buf *b, struct enc_error *err)
{
	if (b->failed == -ENC_ELIMIT)
		return enc_fail (err, ENC_ELIMIT, "more than %zu bytes", b->max);
	if (b->failed)
		return enc_fail (err, (enum enc_code) -b->failed, "out of memory");
	return 0;
}

/* realloc() would leave old copies of secrets behind. */
static int move_to (struct enc_buf *b, size_t cap)
{
	if (!b->secret) {
		uint8_t *data = realloc (b->data, cap);
		if (!data)
			return b->failed = -ENC_ENOMEM;
		b->data = data;
		b->cap = cap;
		return 0;
	}
	uint8_t *data = malloc (cap);
	if (!data)
		return b->failed = -ENC_ENOMEM;
	if (b->data) {
		memcpy (data, b->data, b->len);
		enc_wipe (b->data, b->cap);
		free (b->data);
	}
	b->data = data;
	b->cap = cap;
	return 0;
}

static int reserve (struct enc_buf *b, size_t len)
{
	if (b->failed)
		return b->failed;
	if (len > b->max || b->len > b->max - len)
		return b->failed = -ENC_ELIMIT;
	size_t need = b->len + len;
	if (need <= b->cap)
		return 0;
	size_t cap = b->cap ? b->cap : FIRST_CAP;
	while (cap < need)
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	return move_to (b, cap);
}

uint8_t *enc_buf_grow (struct enc_buf *b, size_t len)
{
	/* Keep one byte more, so that an empty buffer has a data pointer and a string's NUL has room. */
	if (reserve (b, len) < 0 || (!b->data && move_to (b, FIRST_CAP) < 0))
		return NULL;
	uint8_t *at = b->data + b->len;
	b->len += len;
	return at;
}

void enc_buf_put (struct enc_buf *b, const void *data, size_t len)
{
	if (len == 0)
		return;
	uint8_t *at = enc_buf_grow (b, len);
	if (at)
		memcpy (at, data, len);
}

static void put_le (struct enc_buf *b, uint64_t v, size_t size)
{
	uint8_t bytes[8];
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t) (v >> (8 * i));
	enc_buf_put (b, bytes, size);
}

void enc_buf_put_u8 (struct enc_buf *b, uint8_t v)
{
	put_le (b, v, 1);
}

void enc_buf_put_u16 (struct enc_buf *b, uint16_t v)
{
	put_le (b, v, 2);
}

void enc_buf_put_u32 (struct enc_buf *b, uint32_t v)
{
	put_le (b, v, 4);
}

void enc_buf_put_u64 (struct enc_buf *b, uint64_t v)
{
	put_le (b, v, 8);
}

void enc_buf_put_bytes (struct enc_buf *b, const void *data, size_t len)
{
	if (len > UINT16_MAX) {
		if (!b->failed)
			b->failed = -ENC_ELIMIT;
		return;
	}
	enc_buf_put_u16 (b, (uint16_t) len);
	enc_buf_put (b, data, len);
}

void enc_buf_put_str (struct enc_buf *b, const char *s)
{
	enc_buf_put_bytes (b, s, s ? strlen (s) : 0);
}

void enc_buf_putf (struct enc_buf *b, const char *fmt, ...)
{
	va_list ap;
	va_start (ap, fmt);
	char *text = NULL;
	int n = vasprintf (&text, fmt, ap);
	va_end (ap);
	if (n < 0) {
		if (!b->failed)
			b->failed = -ENC_ENOMEM;
		return;
	}
	enc_buf_put (b, text, (size_t) n);
	if (b->secret)
		enc_wipe (text, (size_t) n);
	free (text);
}

void enc_buf_consume (struct enc_buf *b, size_t len)
{
	if (len > b->len)
		len = b->len;
	if (len == 0)
		return;
	memmove (b->data, b->data + len, b->len - len);
	if (b->secret)
		enc_wipe (b->data + b->len - len, len);
	b->len -= len;
}

char *enc_buf_take_str (struct enc_buf *b)
{
	if (b->failed)
		return NULL;
	if (b->len == b->cap && move_to (b, b->len + 1) < 0)
		return NULL;
	b->data[b->len] = 0;
	char *s = (char *) b->data;
	b->data = NULL;
	b->len = b->cap = 0;
	return s;
}

const uint8_t *enc_view_take (struct enc_view *v, size_t len)
{
	if (v->bad || len > v->left) {
		v->bad = true;
		return NULL;
	}
	const uint8_t *at = v->at;
	v->at += len;
	v->left -= len;
	return at;
}

static uint64_t get_le (struct enc_view *v, size_t size)
{
	const uint8_t *at = enc_view_take (v, size);
	uint64_t value = 0;
	for (size_t i = 0; at && i < size; i++)
		value |= (uint64_t) at[i] << (8 * i);
	return value;
}

uint8_t enc_view_u8 (struct enc_view *v)
{
	return (uint8_t) get_le (v, 1);
}

uint16_t enc_view_u16 (struct enc_view *v)
{
	return (uint16_t) get_le (v, 2);
}

uint32_t enc_view_u32 (struct enc_view *v)
{
	return (uint32_t) get_le (v, 4);
}

uint64_t enc_view_u64 (struct enc_view *v)
{
	return get_le (v, 8);
}

void enc_view_copy (struct enc_view *v, void *out, size_t len)
{
	const uint8_t *at = enc_view_take (v, len);
	if (at)
		memcpy (out, at, len);
	else
		memset (out, 0, len);
}

struct enc_view enc_view_bytes (struct enc_view *v, size_t max)
{
	size_t len = enc_view_u16 (v);
	if (len > max)
		v->bad = true;
	const uint8_t *at = enc_view_take (v, len);
	return (struct enc_view){ .at = at, .left = at ? len : 0, .bad = v->bad };
}

void enc_view_str (struct enc_view *v, char *out, size_t size)
{
	out[0] = 0;
	struct enc_view s = enc_view_bytes (v, size - 1);
	if (s.bad)
		return;
	if (memchr (s.at, 0, s.left) || !enc_utf8_ok ((const char *) s.at, s.left)) {
		v->bad = true;
		return;
	}
	memcpy (out, s.at, s.left);
	out[s.left] = 0;
}

int enc_view_end (const struct enc_view *v, struct enc_error *err)
{
	if (v->bad)
		return enc_fail (err, ENC_EINVAL, "message is too short or malformed");
	if (v->left)
		return enc_fail (err, ENC_EINVAL, "%zu bytes left over after the message", v->left);
	return 0;
}
