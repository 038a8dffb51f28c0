#include "node-agent/proto/wire.h"

#include <string.h>

#include "base/enc.h"

enum { WIRE_MAX = UINT16_MAX };

void enc_proto_put_bytes (struct enc_buf *buf, const void *data, size_t len)
{
	if (len > WIRE_MAX) {
		if (buf->failed == 0)
			buf->failed = -ENC_ELIMIT;
		return;
	}
	enc_buf_put_u16 (buf, (uint16_t)len);
	enc_buf_put (buf, data, len);
}

void enc_proto_put_str (struct enc_buf *buf, const char *text)
{
	enc_proto_put_bytes (buf, text, strlen (text));
}

struct enc_view enc_proto_bytes (struct enc_view *view, size_t max)
{
	size_t len = enc_view_u16 (view);

	if (len > max)
		view->bad = true;
	const uint8_t *data = enc_view_take (view, view->bad ? 0 : len);

	return view->bad ? enc_view_of (NULL, 0) : enc_view_of (data, len);
}

void enc_proto_str (struct enc_view *view, char *ret, size_t size)
{
	struct enc_view text = enc_proto_bytes (view, size - 1);

	if (text.left > 0 && memchr (text.at, 0, text.left)) {
		view->bad = true;
		text.left = 0;
	}
	if (text.left > 0)
		memcpy (ret, text.at, text.left);
	ret[text.left] = '\0';
}

void enc_proto_fixed (struct enc_view *view, void *ret, size_t len)
{
	struct enc_view data = enc_proto_bytes (view, len);

	if (data.left != len) {
		view->bad = true;
		memset (ret, 0, len);
		return;
	}
	memcpy (ret, data.at, len);
}
