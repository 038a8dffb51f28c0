/* SHA-256 through OpenSSL's direct entry points. The provider interface of
 * OpenSSL 3 costs more than the hash itself for bodies of 256 bytes, allocates
 * and may fail; a log is verified at a million records a second only without
 * it. This is the one file to change for a build that must go through a
 * validated provider. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "crypto/hash.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <string.h>

#include "base/enc.h"

void enc_sha256_spans (const struct enc_span *spans, size_t n, struct enc_hash *ret)
{
	SHA256_CTX ctx;

	SHA256_Init (&ctx);
	for (size_t i = 0; i < n; i++)
		if (spans[i].len > 0)
			SHA256_Update (&ctx, spans[i].data, spans[i].len);
	SHA256_Final (ret->b, &ctx);
}

void enc_sha256 (const void *data, size_t len, struct enc_hash *ret)
{
	struct enc_span span = { data, len };

	enc_sha256_spans (&span, 1, ret);
}

void enc_hash_leaf (const void *body, size_t len, struct enc_hash *ret)
{
	static const uint8_t tag = 0x00;
	struct enc_span spans[2] = { { &tag, 1 }, { body, len } };

	enc_sha256_spans (spans, 2, ret);
}

void enc_hash_node (const struct enc_hash *left, const struct enc_hash *right, struct enc_hash *ret)
{
	uint8_t buf[1 + 2 * ENC_HASH_SIZE];

	buf[0] = 0x01;
	memcpy (buf + 1, left->b, ENC_HASH_SIZE);
	memcpy (buf + 1 + ENC_HASH_SIZE, right->b, ENC_HASH_SIZE);
	enc_sha256 (buf, sizeof (buf), ret);
}

void enc_hash_empty (struct enc_hash *ret)
{
	enc_sha256 (NULL, 0, ret);
}

int enc_hash_equal (const struct enc_hash *a, const struct enc_hash *b)
{
	return CRYPTO_memcmp (a->b, b->b, ENC_HASH_SIZE) == 0;
}

void enc_hash_hex (const struct enc_hash *hash, char out[static ENC_HASH_HEX_SIZE])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < ENC_HASH_SIZE; i++) {
		out[2 * i] = digits[hash->b[i] >> 4];
		out[2 * i + 1] = digits[hash->b[i] & 15];
	}
	out[2 * ENC_HASH_SIZE] = '\0';
}

void enc_hash_b64 (const struct enc_hash *hash, char out[static ENC_HASH_B64_SIZE])
{
	(void)enc_b64_put (hash->b, ENC_HASH_SIZE, out, ENC_HASH_B64_SIZE);
}

int enc_hash_from_b64 (const char *text, size_t len, struct enc_hash *ret)
{
	struct enc_hash hash;

	if (len != ENC_B64_LEN (ENC_HASH_SIZE) || enc_b64_get (text, len, hash.b, sizeof (hash.b)) != ENC_HASH_SIZE)
		return -1;
	*ret = hash;
	return 0;
}

static const char b64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

ssize_t enc_b64_put (const void *data, size_t len, char *out, size_t size)
{
	const uint8_t *in = data;
	char *p = out;

	if (len > SIZE_MAX / 2 || size < ENC_B64_LEN (len) + 1)
		return -1;
	for (size_t i = 0; i < len; i += 3) {
		size_t left = len - i;
		uint32_t v = (uint32_t)in[i] << 16;

		if (left > 1)
			v |= (uint32_t)in[i + 1] << 8;
		if (left > 2)
			v |= in[i + 2];
		*p++ = b64_digits[v >> 18];
		*p++ = b64_digits[v >> 12 & 63];
		*p++ = left > 1 ? b64_digits[v >> 6 & 63] : '=';
		*p++ = left > 2 ? b64_digits[v & 63] : '=';
	}
	*p = '\0';
	return p - out;
}

static int b64_value (char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+')
		return 62;
	return c == '/' ? 63 : -1;
}

/* Decode one group of four. Returns its 1 to 3 bytes, or -1. Bits that the
 * padding throws away must be zero, else two texts would mean one value. */
static int b64_group (const char *text, int last, uint8_t out[3])
{
	int pad = last && text[3] == '=' ? (text[2] == '=' ? 2 : 1) : 0;
	uint32_t v = 0;

	for (int i = 0; i < 4; i++) {
		int d = i < 4 - pad ? b64_value (text[i]) : 0;

		if (d < 0)
			return -1;
		v = v << 6 | (uint32_t)d;
	}
	if ((pad == 1 && (v & 0xff)) || (pad == 2 && (v & 0xffff)))
		return -1;
	out[0] = (uint8_t)(v >> 16);
	out[1] = (uint8_t)(v >> 8);
	out[2] = (uint8_t)v;
	return 3 - pad;
}

ssize_t enc_b64_get (const char *text, size_t len, void *out, size_t size)
{
	uint8_t *p = out;
	size_t used = 0;

	if (len % 4 != 0)
		return -1;
	for (size_t i = 0; i < len; i += 4) {
		uint8_t group[3];
		int n = b64_group (text + i, i + 4 == len, group);

		if (n < 0 || used + (size_t)n > size)
			return -1;
		memcpy (p + used, group, (size_t)n);
		used += (size_t)n;
	}
	return (ssize_t)used;
}
