#ifndef ENC_CRYPTO_HASH_H
#define ENC_CRYPTO_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* SHA-256 and the two domain-separated hashes of an RFC 6962 tree. None of
 * these calls allocates or can fail, so they may be used inside plugins. */

#define ENC_HASH_SIZE 32
#define ENC_HASH_HEX_SIZE (2 * ENC_HASH_SIZE + 1)
#define ENC_HASH_B64_SIZE 45 /* 44 characters and the NUL */

struct enc_hash {
	uint8_t b[ENC_HASH_SIZE];
};

/* One piece of a message that is hashed without being copied together. */
struct enc_span {
	const void *data;
	size_t len;
};

void enc_sha256 (const void *data, size_t len, struct enc_hash *ret);
void enc_sha256_spans (const struct enc_span *spans, size_t n, struct enc_hash *ret);

/* RFC 6962 section 2.1: SHA-256(0x00 || body) and SHA-256(0x01 || left || right). */
void enc_hash_leaf (const void *body, size_t len, struct enc_hash *ret);
void enc_hash_node (const struct enc_hash *left, const struct enc_hash *right, struct enc_hash *ret);

/* The root of the tree without leaves: SHA-256 of nothing. */
void enc_hash_empty (struct enc_hash *ret);

/* Compare in constant time. Returns 1 when equal, else 0. */
int enc_hash_equal (const struct enc_hash *a, const struct enc_hash *b);

/* Text forms; `out` holds at least the size named by the macro. */
void enc_hash_hex (const struct enc_hash *hash, char out[static ENC_HASH_HEX_SIZE]);
void enc_hash_b64 (const struct enc_hash *hash, char out[static ENC_HASH_B64_SIZE]);

/* Read exactly 44 characters of base64. Returns 0, or -1 when they are not
 * the one canonical encoding of 32 bytes. */
int enc_hash_from_b64 (const char *text, size_t len, struct enc_hash *ret);

/* Standard base64 with padding (RFC 4648 section 4), no line breaks.
 * Encoding writes a NUL and returns the length without it, or -1 when `size`
 * is too small. Decoding accepts only the canonical form (no white space, no
 * stray bits) and returns the number of bytes, or -1. */
ssize_t enc_b64_put (const void *data, size_t len, char *out, size_t size);
ssize_t enc_b64_get (const char *text, size_t len, void *out, size_t size);

#define ENC_B64_LEN(n) ((((size_t)(n) + 2) / 3) * 4)

#endif
