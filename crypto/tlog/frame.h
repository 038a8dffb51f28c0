#ifndef ENC_CRYPTO_TLOG_FRAME_H
#define ENC_CRYPTO_TLOG_FRAME_H

#include <stddef.h>
#include <stdint.h>

/* One record as it lies in a segment file, little endian:
 *   u32 magic | u16 version | u16 flags | u64 index | u32 length | u32 crc32c
 *   | body[length] | u8 mac[16]
 * The CRC covers the header before it and the body. `mac` is zero unless
 * ENC_FRAME_MAC is set (forward-secure MACs; no writer sets it yet). */

#define ENC_FRAME_MAGIC 0x314c4e45u /* "ENL1" */
#define ENC_FRAME_VERSION 1
#define ENC_FRAME_MAC 0x0001u
#define ENC_FRAME_HEAD 24u
#define ENC_FRAME_TAIL 16u
#define ENC_FRAME_BODY_MAX 65535u
#define ENC_FRAME_MAX (ENC_FRAME_HEAD + ENC_FRAME_BODY_MAX + ENC_FRAME_TAIL)

/* Segment files are named seg-<index of the first record, 20 digits>.log. */
#define ENC_SEGMENT_NAME_SIZE 29

struct enc_frame {
	uint16_t flags;
	uint64_t index;
	const uint8_t *body; /* borrowed */
	uint32_t len;
	size_t size; /* of the whole frame */
};

enum enc_frame_state {
	ENC_FRAME_GOOD,
	ENC_FRAME_SHORT, /* the file ends inside the frame */
	ENC_FRAME_BAD,	 /* magic, version, flags, length, CRC or MAC field is wrong */
};

/* Look at the frame that starts at `data`. */
enum enc_frame_state enc_frame_parse (const uint8_t *data, size_t left, struct enc_frame *ret);

/* Write a frame; `out` has ENC_FRAME_HEAD + len + ENC_FRAME_TAIL bytes. Returns
 * that size. len is 1 to ENC_FRAME_BODY_MAX. */
size_t enc_frame_put (uint64_t index, const void *body, uint32_t len, uint8_t *out);

void enc_segment_name (uint64_t first, char out[static ENC_SEGMENT_NAME_SIZE]);
/* Returns 0, or -1 when `name` is not a segment's. */
int enc_segment_parse (const char *name, uint64_t *ret_first);

#endif
