/* Slurm host lists: "n[1-3,07],gpu5" and back. */
#ifndef ENC_BASE_HOSTLIST_H
#define ENC_BASE_HOSTLIST_H

#include "base/str.h"

/* More hosts than this in one list are refused before memory is spent. */
#define ENC_HOSTLIST_MAX 10000

/* Append the hosts of `text` to `out`, in order, without doubles. One bracket per name; leading zeros are kept ("n[01-10]").
 * ENC_EINVAL on bad syntax or bad host name, ENC_ELIMIT on more than `max` hosts (0: ENC_HOSTLIST_MAX). `out` is untouched on failure. */
ENC_MUST_USE int enc_hostlist_expand (const char *text, size_t max, struct enc_strs *out, struct enc_error *err);

/* The shortest form for people and Slurm: sorted, runs of one prefix and width in brackets. Heap, NULL when memory is short. */
char *enc_hostlist_compress (const struct enc_strs *hosts) ENC_MUST_USE;

#endif
