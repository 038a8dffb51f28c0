#ifndef ENC_CRYPTO_TLOG_CANON_H
#define ENC_CRYPTO_TLOG_CANON_H

#include <stddef.h>
#include <stdint.h>

/* Canonical JSON (RFC 8785, integers only) read in place, without a tree and
 * without memory: what a verifier needs, so that it depends on no JSON library. */

#define ENC_CANON_DEPTH 16

/* A borrowed value: for strings the text between the quotes, still escaped. */
struct enc_canon_value {
	char type; /* '{' '[' '"' '0' 't' 'f' 'n' */
	const uint8_t *at;
	size_t len;
};

/* Check that the bytes are one canonical JSON object: keys sorted and single,
 * no white space, shortest escapes, valid UTF-8, integers within ±(2^53-1).
 * Returns 0, or -1 and the offset of the first byte that is not so. */
int enc_canon_check (const uint8_t *data, size_t len, size_t *ret_at);

/* The same in one pass with looking up members of the outer object by keys that
 * need no escapes; `found` is set for those that are there. */
struct enc_canon_want {
	const char *key;
	struct enc_canon_value value;
	int found;
};
int enc_canon_scan (const uint8_t *data, size_t len, struct enc_canon_want *want, size_t n, size_t *ret_at);

/* Find a member of an object that enc_canon_check() accepted; `key` needs no
 * escapes. Returns 0, or -1 when it is not there. */
int enc_canon_find (const uint8_t *object, size_t len, const char *key, struct enc_canon_value *ret);

/* A value as a non-negative integer, and the same of a member. Return 0 or -1. */
int enc_canon_uint (const struct enc_canon_value *value, uint64_t *ret);
int enc_canon_u64 (const uint8_t *object, size_t len, const char *key, uint64_t *ret);

#endif
