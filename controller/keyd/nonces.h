/* Nonces that keyd gave out: each is good once and for a short time. In memory only: a restart voids them, and callers ask again. */
#ifndef ENC_KEYD_NONCES_H
#define ENC_KEYD_NONCES_H

#include <stdbool.h>
#include <stdint.h>
#include "base/cleanup.h"
#include "base/error.h"

enum {
	ENC_NONCE_BYTES = 16,
	ENC_NONCES_MAX = 8192,       /* outstanding at one time */
	ENC_NONCE_RECEIPT_S = 60,    /* for the head of a record */
	ENC_NONCE_CHALLENGE_S = 600, /* for an attestation: the node has to be cleaned and measured in between */
};

struct enc_nonces;
struct enc_nonces *enc_nonces_new (void) ENC_MUST_USE; /* NULL when memory is short */
void enc_nonces_free (struct enc_nonces *n);
ENC_DEFINE_AUTO (enc_nonces, struct enc_nonces, enc_nonces_free);

/* `now` is of a clock that only goes forward, in ns. ENC_EBUSY when too many are outstanding. */
ENC_MUST_USE int enc_nonces_give (struct enc_nonces *n, int64_t now, uint8_t ret[static ENC_NONCE_BYTES], struct enc_error *err);

/* Use one up: whatever follows, it will not be taken again. ENC_EDENIED if it was never given out, was used, or is older than
 * `max_s`. */
ENC_MUST_USE int enc_nonces_take (struct enc_nonces *n, int64_t now, const uint8_t nonce[static ENC_NONCE_BYTES], unsigned max_s,
	struct enc_error *err);

#endif
