/* The fixed signing key (seed 0, 1 … 31) behind the signed vectors, and a stranger's. */
#ifndef ENC_TEST_SIGNED_H
#define ENC_TEST_SIGNED_H

#include "crypto_test.h"
#include "crypto/envelope.h"

static struct enc_sign_key *fixed, *stranger;

static inline int keys_up (void **state)
{
	uint8_t seed[ENC_SIGN_SEED_SIZE];

	count_up (seed, sizeof seed, 0);
	fixed = enc_sign_key_new (ENC_SIGN_ED25519, seed, NULL);
	stranger = enc_sign_key_new (ENC_SIGN_ED25519, NULL, NULL);
	return fixed && stranger ? arena_up (state) : -1;
}

static inline int keys_down (void **state)
{
	enc_sign_key_free (fixed);
	enc_sign_key_free (stranger);
	return arena_down (state);
}

static inline struct enc_view view_of_buf (const struct enc_buf *b)
{
	return enc_view_of (b->data, b->len);
}

#endif
