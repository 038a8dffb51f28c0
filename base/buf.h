/* Bytes with bounds: `enc_buf` grows up to a required maximum, `enc_view` reads strictly.
 *
 * Both remember their first failure, so that a message is put or got in one go and checked once:
 *
 *   enc_buf_put_u32 (&b, 7); enc_buf_put_str (&b, name);
 *   if ((rc = enc_buf_check (&b, err)) < 0) return rc;
 *
 *   kind = enc_view_u32 (&v); enc_view_str (&v, name, sizeof name);
 *   if ((rc = enc_view_end (&v, err)) < 0) return rc;      fails on underflow *and* on bytes left over
 *
 * Numbers are little endian. A length-prefixed item is u16 length + bytes (the wire encoding of docs/protocol.md). */
#ifndef ENC_BASE_BUF_H
#define ENC_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/cleanup.h"
#include "base/error.h"

/* Read the fields data and len; change them by the calls only. `data` is NULL while empty. */
struct enc_buf {
	uint8_t *data;
	size_t len;
	size_t cap;
	size_t max;
	bool secret; /* wiped on growth and at the end; still swappable: keys belong into crypto/secmem */
	int failed;  /* first failure, a negative code */
};

#define ENC_BUF_INIT(max_) ((struct enc_buf){ .max = (max_) })
#define ENC_BUF_SECRET(max_) ((struct enc_buf){ .max = (max_), .secret = true })

/* Free the bytes (wiped if secret). The buffer is empty and usable after it. */
void enc_buf_done (struct enc_buf *b);
/* Forget contents and failure, keep the memory. */
void enc_buf_clear (struct enc_buf *b);
/* 0, or the first failure: ENC_ELIMIT over the maximum, ENC_ENOMEM. */
ENC_MUST_USE int enc_buf_check (const struct enc_buf *b, struct enc_error *err);

void enc_buf_put (struct enc_buf *b, const void *data, size_t len);
void enc_buf_put_u8 (struct enc_buf *b, uint8_t v);
void enc_buf_put_u16 (struct enc_buf *b, uint16_t v);
void enc_buf_put_u32 (struct enc_buf *b, uint32_t v);
void enc_buf_put_u64 (struct enc_buf *b, uint64_t v);
/* u16 length + bytes, over 65535 is ENC_ELIMIT; a NULL string is put as the empty one. */
void enc_buf_put_bytes (struct enc_buf *b, const void *data, size_t len);
void enc_buf_put_str (struct enc_buf *b, const char *s);
/* Text without length or end mark, for building lines. */
void enc_buf_putf (struct enc_buf *b, const char *fmt, ...) ENC_PRINTF (2, 3);
/* Room for `len` bytes at the end, counted as used; NULL on failure (remembered). */
uint8_t *enc_buf_grow (struct enc_buf *b, size_t len);
/* Drop the first `len` bytes (all, if fewer). */
void enc_buf_consume (struct enc_buf *b, size_t len);
/* The contents as a C string owned by the caller (a NUL is added after the data; embedded ones are not looked for),
 * the buffer is empty afterwards. NULL if the buffer failed or memory is short. */
char *enc_buf_take_str (struct enc_buf *b);

/* Borrowed bytes being read. `at` and `left` may be read by the caller. */
struct enc_view {
	const uint8_t *at;
	size_t left;
	bool bad;
};

static inline struct enc_view enc_view_of (const void *data, size_t len)
{
	return (struct enc_view){ .at = (const uint8_t *) data, .left = len };
}

/* Each gives zero or NULL once the view is bad. */
uint8_t enc_view_u8 (struct enc_view *v);
uint16_t enc_view_u16 (struct enc_view *v);
uint32_t enc_view_u32 (struct enc_view *v);
uint64_t enc_view_u64 (struct enc_view *v);
/* `len` bytes, borrowed. */
const uint8_t *enc_view_take (struct enc_view *v, size_t len);
/* Copy exactly `len` bytes to `out`; `out` is zeroed when the view is bad. */
void enc_view_copy (struct enc_view *v, void *out, size_t len);
/* A length-prefixed item of at most `max` bytes as a view of its own. */
struct enc_view enc_view_bytes (struct enc_view *v, size_t max);
/* A length-prefixed string into `out` of `size` bytes with NUL; bad if it does not fit, or has a NUL inside, or is not UTF-8. */
void enc_view_str (struct enc_view *v, char *out, size_t size);
/* ENC_EINVAL if anything was short, malformed or left over. */
ENC_MUST_USE int enc_view_end (const struct enc_view *v, struct enc_error *err);

#endif
