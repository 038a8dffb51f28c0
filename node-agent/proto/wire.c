#include "node-agent/proto/wire.h"

#include <string.h>

#include "base/enc.h"

void enc_proto_fixed (struct enc_view *view, void *ret, size_t len)
{
	struct enc_view data = enc_view_bytes (view, len);

	if (view->bad || data.left != len) {
		view->bad = true;
		memset (ret, 0, len);
		return;
	}
	memcpy (ret, data.at, len);
}
