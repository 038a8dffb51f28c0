/* AES-256-GCM over OpenSSL. Keys and clear bytes are the caller's, in secmem where they are secrets. */
#ifndef ENC_CRYPTO_AEAD_H
#define ENC_CRYPTO_AEAD_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

#define ENC_AEAD_KEY 32
#define ENC_AEAD_NONCE 12
#define ENC_AEAD_TAG 16

struct enc_aead {
	const uint8_t *key;   /* ENC_AEAD_KEY bytes */
	const uint8_t *nonce; /* ENC_AEAD_NONCE bytes, never twice under one key */
	const void *ad;       /* associated data: bound, not hidden */
	size_t ad_len;
};

/* `len` bytes at `plain` become len + ENC_AEAD_TAG bytes at `out` (ciphertext, tag). ENC_ESYS if OpenSSL fails. */
ENC_MUST_USE int enc_aead_seal (const struct enc_aead *a, const void *plain, size_t len, uint8_t *out, struct enc_error *err);

/* The way back: `len` counts the tag, `out` gets len - ENC_AEAD_TAG bytes. ENC_EINTEGRITY if key, nonce, associated data or a
 * byte differ (`out` is then wiped), ENC_EINVAL if it is too short. */
ENC_MUST_USE int enc_aead_open (const struct enc_aead *a, const void *sealed, size_t len, uint8_t *out, struct enc_error *err);

#endif
