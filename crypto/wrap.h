/* Wrapped keys, as they are stored (docs/protocol.md section 3): AES-256-GCM under a parent key, bound to purpose, ids and version.
 *   u8 format 1 | u8 algorithm 1 | u32 parent version | nonce[12] | ciphertext | tag[16] */
#ifndef ENC_CRYPTO_WRAP_H
#define ENC_CRYPTO_WRAP_H

#include "base/buf.h"

enum {
	ENC_WRAP_OVERHEAD = 1 + 1 + 4 + 12 + 16,
	ENC_WRAP_KEY_MAX = 4096, /* bytes of a key that is wrapped */
};

/* What a wrap is bound to: it opens only with the same four. Texts without NUL; "" where there is none. */
struct enc_wrap_id {
	const char *purpose;  /* "volume", "munge", "enclave", "ca", "sign", "root" */
	const char *key;
	const char *enclave;
	uint32_t version;     /* of this key, rising when it is made anew */
};

/* Append the wrap of `len` bytes at `secret` under `parent` (32 bytes, whose version goes into the wrap) to `out`. */
struct enc_wrap_parent {
	const uint8_t *key;
	uint32_t version;
};
ENC_MUST_USE int enc_key_wrap (const struct enc_wrap_parent *parent, const struct enc_wrap_id *id, const uint8_t *secret, size_t len,
	struct enc_buf *out);

/* The key in fresh secmem (free with enc_secmem_free) and its length. ENC_EINTEGRITY if the parent, one of the ids or a byte
 * differ; ENC_EINVAL if it is no wrap of a known format; ENC_ENOMEM. */
struct enc_secret {
	uint8_t *data;
	size_t len;
};
ENC_MUST_USE int enc_key_unwrap (const struct enc_wrap_parent *parent, const struct enc_wrap_id *id, const void *wrap, size_t len,
	struct enc_secret *ret);
/* Free the bytes and forget them. */
void enc_secret_done (struct enc_secret *s);

#endif
