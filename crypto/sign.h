#ifndef ENC_CRYPTO_SIGN_H
#define ENC_CRYPTO_SIGN_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Signatures. The algorithm is a field of every key, so that formats need not
 * change when a profile asks for another one. The numbers are the signature
 * type bytes of C2SP signed notes and are stored in vkeys. */
enum enc_sign_alg {
	ENC_SIGN_ED25519 = 0x01,
	ENC_SIGN_ECDSA_P256 = 0x02, /* reserved: keys and signatures are refused as unsupported */
};

#define ENC_SIGN_SEED_SIZE 32
#define ENC_SIGN_PUB_MAX 96 /* room for a P-256 key as DER SPKI (91 bytes) */
#define ENC_SIGN_SIG_MAX 80 /* Ed25519 64 bytes, P-256 DER at most 72 */

struct enc_sign_pub {
	uint8_t alg;
	uint8_t len;
	uint8_t key[ENC_SIGN_PUB_MAX];
};

struct enc_sig {
	size_t len;
	uint8_t b[ENC_SIGN_SIG_MAX];
};

/* A private key in guarded, locked memory. */
struct enc_sign_key;

/* Make a key from `seed` (ENC_SIGN_SEED_SIZE bytes, the caller wipes them), or
 * a fresh one when `seed` is NULL. Free with enc_sign_key_free(). NULL with
 * `err` filled: ENC_EUNAVAIL when memory cannot be locked, ENC_EINVAL when the
 * algorithm is not supported. */
struct enc_sign_key *enc_sign_key_new (enum enc_sign_alg alg, const uint8_t *seed, struct enc_error *err);
void enc_sign_key_free (struct enc_sign_key *key);

/* The public half; the caller copies it. */
const struct enc_sign_pub *enc_sign_key_pub (const struct enc_sign_key *key);

/* Copy the seed out, to be stored once when a key is made. The caller wipes it. */
void enc_sign_key_seed (const struct enc_sign_key *key, uint8_t seed[static ENC_SIGN_SEED_SIZE]);

int enc_sign (const struct enc_sign_key *key, const void *msg, size_t len, struct enc_sig *ret,
	struct enc_error *err) ENC_MUST_USE;

/* Check a signature. Returns 0, -ENC_EINTEGRITY when it is not by this key over
 * these bytes, -ENC_EINVAL when the algorithm is not supported. */
int enc_sign_check (
	const struct enc_sign_pub *pub, const void *msg, size_t len, const uint8_t *sig, size_t sig_len) ENC_MUST_USE;

#endif
