/* One thing that base/buf.h has not: bytes of one length only. */
#pragma once

#include <stddef.h>

#include "base/buf.h"

/* Get bytes of exactly `len` into `ret`; zeroed when the view is bad. */
void enc_proto_fixed (struct enc_view *view, void *ret, size_t len);
