#include "crypto/wire.h"

#include "base/str.h"
#include "base/enc.h"

void enc_wire_put_bytes (struct enc_buf *b, const void *data, size_t len, size_t max)
{
	if (len > max || len > UINT16_MAX) {
		if (!b->failed)
			b->failed = -ENC_ELIMIT;
		return;
	}
	enc_buf_put_u16 (b, (uint16_t) len);
	enc_buf_put (b, data, len);
}

void enc_wire_put_str (struct enc_buf *b, const char *s, size_t max)
{
	enc_wire_put_bytes (b, s ? s : "", s ? strlen (s) : 0, max);
}

struct enc_view enc_wire_bytes (struct enc_view *v, size_t max)
{
	size_t len = enc_view_u16 (v);

	if (len > max)
		v->bad = true;
	const uint8_t *p = enc_view_take (v, v->bad ? 0 : len);

	if (v->bad)
		return (struct enc_view){ .bad = true };
	return enc_view_of (p, len);
}

void enc_wire_fixed (struct enc_view *v, void *out, size_t len)
{
	struct enc_view item = enc_wire_bytes (v, len);

	if (item.left != len)
		v->bad = true;
	if (v->bad)
		memset (out, 0, len);
	else
		memcpy (out, item.at, len);
}

void enc_wire_str (struct enc_view *v, char *out, size_t size)
{
	struct enc_view item = enc_wire_bytes (v, size - 1);

	out[0] = '\0';
	if (v->bad || item.left == 0)
		return;
	if (memchr (item.at, '\0', item.left) || !enc_utf8_ok ((const char *) item.at, item.left)) {
		v->bad = true;
		return;
	}
	memcpy (out, item.at, item.left);
	out[item.left] = '\0';
}

size_t enc_wire_count (struct enc_view *v, size_t max)
{
	size_t n = enc_view_u16 (v);

	if (n > max)
		v->bad = true;
	return v->bad ? 0 : n;
}
