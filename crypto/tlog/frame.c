#include "crypto/tlog/frame.h"

#include "crypto/tlog/crc32c.h"

#include <stdio.h>
#include <string.h>

#include "base/enc.h"

static void put_le (uint8_t *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_le (const uint8_t *p, int bytes)
{
	uint64_t v = 0;

	for (int i = bytes - 1; i >= 0; i--)
		v = v << 8 | p[i];
	return v;
}

static uint32_t frame_crc (const uint8_t *head, const void *body, size_t len)
{
	return enc_crc32c (enc_crc32c (0, head, ENC_FRAME_HEAD - 4), body, len);
}

enum enc_frame_state enc_frame_parse (const uint8_t *data, size_t left, struct enc_frame *ret)
{
	static const uint8_t zero[ENC_FRAME_TAIL];
	struct enc_frame frame;

	if (left < ENC_FRAME_HEAD)
		return ENC_FRAME_SHORT;
	frame.flags = (uint16_t)get_le (data + 6, 2);
	frame.index = get_le (data + 8, 8);
	frame.len = (uint32_t)get_le (data + 16, 4);
	frame.body = data + ENC_FRAME_HEAD;
	frame.size = ENC_FRAME_HEAD + (size_t)frame.len + ENC_FRAME_TAIL;
	if (get_le (data, 4) != ENC_FRAME_MAGIC || get_le (data + 4, 2) != ENC_FRAME_VERSION ||
		frame.flags & ~ENC_FRAME_MAC)
		return ENC_FRAME_BAD;
	if (frame.len == 0 || frame.len > ENC_FRAME_BODY_MAX)
		return ENC_FRAME_BAD;
	if (left < frame.size)
		return ENC_FRAME_SHORT;
	if (get_le (data + 20, 4) != frame_crc (data, frame.body, frame.len))
		return ENC_FRAME_BAD;
	/* Bytes that nothing covers would be a place to hide things in. */
	if (!(frame.flags & ENC_FRAME_MAC) && memcmp (frame.body + frame.len, zero, sizeof (zero)) != 0)
		return ENC_FRAME_BAD;
	*ret = frame;
	return ENC_FRAME_GOOD;
}

size_t enc_frame_put (uint64_t index, const void *body, uint32_t len, uint8_t *out)
{
	put_le (out, ENC_FRAME_MAGIC, 4);
	put_le (out + 4, ENC_FRAME_VERSION, 2);
	put_le (out + 6, 0, 2);
	put_le (out + 8, index, 8);
	put_le (out + 16, len, 4);
	put_le (out + 20, frame_crc (out, body, len), 4);
	memcpy (out + ENC_FRAME_HEAD, body, len);
	memset (out + ENC_FRAME_HEAD + len, 0, ENC_FRAME_TAIL);
	return ENC_FRAME_HEAD + (size_t)len + ENC_FRAME_TAIL;
}

void enc_segment_name (uint64_t first, char out[static ENC_SEGMENT_NAME_SIZE])
{
	(void)snprintf (out, ENC_SEGMENT_NAME_SIZE, "seg-%020llu.log", (unsigned long long)first);
}

int enc_segment_parse (const char *name, uint64_t *ret_first)
{
	uint64_t v = 0;

	if (strlen (name) != ENC_SEGMENT_NAME_SIZE - 1 || memcmp (name, "seg-", 4) != 0 ||
		memcmp (name + 24, ".log", 5) != 0)
		return -1;
	for (int i = 4; i < 24; i++) {
		if (name[i] < '0' || name[i] > '9' || v > UINT64_MAX / 10)
			return -1;
		v = v * 10 + (uint64_t)(name[i] - '0');
	}
	*ret_first = v;
	return 0;
}
