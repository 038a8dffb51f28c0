/* The wire encoding of docs/protocol.md section 1: what root reads. Integers little-endian, `str` and `bytes` = u16 length | bytes.
 * Numbers go through base/buf.h. Failures are remembered by the buffer or the view and checked once. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Put a NUL-ended text, or bytes, with its u16 length; longer than 65535 is -ENC_ELIMIT in the buffer. */
void enc_proto_put_str (struct enc_buf *buf, const char *text);
void enc_proto_put_bytes (struct enc_buf *buf, const void *data, size_t len);

/* Get a text into `ret` of `size` bytes, with NUL. Too long, or a NUL inside, makes the view bad; `ret` is then "". */
void enc_proto_str (struct enc_view *view, char *ret, size_t size);

/* Get bytes of at most `max` as a borrowed view; empty when the view is bad. */
struct enc_view enc_proto_bytes (struct enc_view *view, size_t max);

/* Get bytes of exactly `len` into `ret`; zeroed when the view is bad. */
void enc_proto_fixed (struct enc_view *view, void *ret, size_t len);
