/* Ed25519 by libsodium: its key memory is guarded, and its strict check
 * refuses small-order keys and non-canonical signatures. */
#include "crypto/sign.h"

#include "crypto/secmem.h"

#include <sodium.h>
#include <string.h>

#include "base/enc.h"

struct enc_sign_key {
	struct enc_sign_pub pub;
	uint8_t seed[ENC_SIGN_SEED_SIZE];
	uint8_t secret[crypto_sign_ed25519_SECRETKEYBYTES];
	int in_arena;
};

/* In the arena of the process, where there is one; else (tools, tests) in a guarded page of its own. */
static struct enc_sign_key *new_key (struct enc_error *err)
{
	struct enc_sign_key *key;

	if (enc_secmem_ready ()) {
		uint8_t *room = enc_secmem_alloc (sizeof (*key));

		key = (struct enc_sign_key *)(void *)room;
		if (!key)
			(void)enc_fail (err, ENC_EUNAVAIL, "no room for a signing key among the secrets");
		else
			key->in_arena = 1;
		return key;
	}
	key = sodium_malloc (sizeof (*key));
	/* sodium_malloc goes on silently when the lock limit is short. */
	if (key && sodium_mlock (key, sizeof (*key)) != 0) {
		sodium_free (key);
		key = NULL;
	}
	if (!key)
		(void)enc_fail (err, ENC_EUNAVAIL, "memory for a signing key cannot be locked: raise LimitMEMLOCK");
	else
		key->in_arena = 0;
	return key;
}

struct enc_sign_key *enc_sign_key_new (enum enc_sign_alg alg, const uint8_t *seed, struct enc_error *err)
{
	struct enc_sign_key *key;

	if (alg != ENC_SIGN_ED25519) {
		(void)enc_fail (err, ENC_EINVAL, "signature algorithm %d is not supported", (int)alg);
		return NULL;
	}
	if (sodium_init () < 0 || !(key = new_key (err)))
		return NULL;
	if (seed)
		memcpy (key->seed, seed, sizeof (key->seed));
	else
		randombytes_buf (key->seed, sizeof (key->seed));
	memset (&key->pub, 0, sizeof (key->pub));
	key->pub.alg = ENC_SIGN_ED25519;
	key->pub.len = crypto_sign_ed25519_PUBLICKEYBYTES;
	crypto_sign_ed25519_seed_keypair (key->pub.key, key->secret, key->seed);
	return key;
}

void enc_sign_key_free (struct enc_sign_key *key)
{
	if (key && key->in_arena)
		enc_secmem_free ((uint8_t *)key);
	else if (key)
		sodium_free (key);
}

const struct enc_sign_pub *enc_sign_key_pub (const struct enc_sign_key *key)
{
	return &key->pub;
}

void enc_sign_key_seed (const struct enc_sign_key *key, uint8_t seed[static ENC_SIGN_SEED_SIZE])
{
	memcpy (seed, key->seed, ENC_SIGN_SEED_SIZE);
}

int enc_sign (const struct enc_sign_key *key, const void *msg, size_t len, struct enc_sig *ret, struct enc_error *err)
{
	unsigned long long made = 0;
	struct enc_sig sig;

	if (crypto_sign_ed25519_detached (sig.b, &made, msg, len, key->secret) != 0)
		return enc_fail (err, ENC_EUNAVAIL, "signing failed");
	sig.len = (size_t)made;
	*ret = sig;
	return 0;
}

int enc_sign_check (const struct enc_sign_pub *pub, const void *msg, size_t len, const uint8_t *sig, size_t sig_len)
{
	if (pub->alg != ENC_SIGN_ED25519 || pub->len != crypto_sign_ed25519_PUBLICKEYBYTES)
		return -ENC_EINVAL;
	if (sig_len != crypto_sign_ed25519_BYTES)
		return -ENC_EINTEGRITY;
	return crypto_sign_ed25519_verify_detached (sig, msg, len, pub->key) == 0 ? 0 : -ENC_EINTEGRITY;
}
