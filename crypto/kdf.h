/* A key from a passphrase: argon2id by libsodium. The parameters are stored beside what the key wraps, so that they can be raised
 * later without losing what is there. */
#ifndef ENC_CRYPTO_KDF_H
#define ENC_CRYPTO_KDF_H

#include "base/buf.h"
#include "base/error.h"

enum {
	ENC_KDF_SALT = 16,
	ENC_KDF_MIB_MIN = 8,
	ENC_KDF_MIB_MAX = 1024,
	ENC_KDF_WIRE = 1 + 4 + 4 + ENC_KDF_SALT,
	ENC_PASSPHRASE_MIN = 8,    /* bytes; a floor against accidents, not a policy */
	ENC_PASSPHRASE_MAX = 1024,
};

struct enc_kdf {
	uint32_t passes;
	uint32_t mib;
	uint8_t salt[ENC_KDF_SALT];
};

/* Parameters with a fresh salt. `mib` within the bounds above (256 is the usual, 0.3 s). */
ENC_MUST_USE int enc_kdf_new (uint32_t mib, struct enc_kdf *ret, struct enc_error *err);
/* u8 1 (argon2id, version 1.3) | u32 passes | u32 MiB | salt[16], and back with the bounds checked. */
void enc_kdf_put (const struct enc_kdf *kdf, struct enc_buf *out);
ENC_MUST_USE int enc_kdf_read (const void *data, size_t len, struct enc_kdf *ret, struct enc_error *err);

/* 32 bytes in fresh secmem, free with enc_secmem_free(). ENC_EINVAL for a passphrase out of bounds, ENC_ENOMEM. */
ENC_MUST_USE int enc_kdf_derive (const struct enc_kdf *kdf, const uint8_t *passphrase, size_t len, uint8_t **ret,
	struct enc_error *err);

#endif
