/* The wire encoding of docs/protocol.md section 1, over base/buf: u16 lengths and counts, every field with a bound.
 * Used for what root reads (grants, member documents, attestations, node documents), so it is strict on both sides. */
#ifndef ENC_CRYPTO_WIRE_H
#define ENC_CRYPTO_WIRE_H

#include "base/buf.h"

/* u16 length | bytes. More than `max` bytes (or 65,535) marks the buffer as failed with ENC_ELIMIT. */
void enc_wire_put_bytes (struct enc_buf *b, const void *data, size_t len, size_t max);
/* The same for text; `max` counts without the NUL, NULL is the empty string. */
void enc_wire_put_str (struct enc_buf *b, const char *s, size_t max);

/* A u16-prefixed item of at most `max` bytes, borrowed. The view `v` goes bad if it is longer or short. */
struct enc_view enc_wire_bytes (struct enc_view *v, size_t max);
/* A u16-prefixed item of exactly `len` bytes, copied. */
void enc_wire_fixed (struct enc_view *v, void *out, size_t len);
/* A u16-prefixed text into `out` of `size` bytes. Bad if it does not fit or holds a NUL or is not UTF-8. */
void enc_wire_str (struct enc_view *v, char *out, size_t size);
/* A u16 count of at most `max`; 0 once the view is bad. */
size_t enc_wire_count (struct enc_view *v, size_t max);

#endif
