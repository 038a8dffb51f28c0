/* Keys sealed to one node in one boot (docs/protocol.md section 3): ECDH P-256, HKDF-SHA-256, AES-256-GCM.
 *   u8 1 | ephemeral point[65] | nonce[12] | ciphertext | tag[16]
 * keyd seals, privd opens; what lies between carries opaque bytes. */
#ifndef ENC_CRYPTO_SEAL_H
#define ENC_CRYPTO_SEAL_H

#include "base/buf.h"
#include "base/cleanup.h"
#include "crypto/wrap.h"

enum {
	ENC_SEAL_POINT = 65, /* uncompressed: 4 | x | y */
	ENC_SEAL_BOOT = 16,  /* boot nonce */
	ENC_SEAL_OVERHEAD = 1 + 65 + 12 + 16,
	ENC_SEALED_MAX = ENC_SEAL_OVERHEAD + 4096,
};

/* The key pair that privd makes afresh at each boot. The private half stands in OpenSSL's secure heap: enc_secmem_init() first. */
struct enc_boot_key;
ENC_MUST_USE int enc_boot_key_new (struct enc_boot_key **ret, struct enc_error *err);
void enc_boot_key_free (struct enc_boot_key *key);
/* The public half, ENC_SEAL_POINT bytes, borrowed. */
const uint8_t *enc_boot_key_point (const struct enc_boot_key *key);
ENC_DEFINE_AUTO (enc_boot_key, struct enc_boot_key, enc_boot_key_free);

/* What a sealed key is bound to; it opens only with the same. */
struct enc_seal_id {
	const char *node;
	const uint8_t *boot; /* ENC_SEAL_BOOT bytes */
	uint64_t generation;
	const char *key;     /* key id */
	uint64_t record;     /* index of the record behind the grant */
};

/* Append `secret` sealed for the holder of `point` to `out`. ENC_EINVAL if `point` is not on the curve. */
ENC_MUST_USE int enc_seal (const uint8_t point[static ENC_SEAL_POINT], const struct enc_seal_id *id, const struct enc_secret *secret,
	struct enc_buf *out, struct enc_error *err);

/* Open into fresh secmem. ENC_EINTEGRITY if the boot key, an id or a byte differ, ENC_EINVAL if malformed. */
ENC_MUST_USE int enc_seal_open (const struct enc_boot_key *key, const struct enc_seal_id *id, struct enc_view sealed,
	struct enc_secret *ret, struct enc_error *err);

#endif
