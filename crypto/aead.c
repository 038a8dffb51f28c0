#include "crypto/aead.h"

#include <openssl/evp.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/enc.h"

ENC_DEFINE_AUTO (cipher_ctx, EVP_CIPHER_CTX, EVP_CIPHER_CTX_free);

/* Key, nonce and associated data, as both directions start. */
static int start (EVP_CIPHER_CTX *ctx, const struct enc_aead *a, int encrypt)
{
	int n = 0;

	if (!ctx || a->ad_len > INT32_MAX)
		return 0;
	if (EVP_CipherInit_ex (ctx, EVP_aes_256_gcm (), NULL, a->key, a->nonce, encrypt) != 1)
		return 0;
	return a->ad_len == 0 || EVP_CipherUpdate (ctx, NULL, &n, a->ad, (int) a->ad_len) == 1;
}

int enc_aead_seal (const struct enc_aead *a, const void *plain, size_t len, uint8_t *out, struct enc_error *err)
{
	enc_auto (cipher_ctx) EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new ();
	int n = 0, tail = 0;

	if (len > INT32_MAX - ENC_AEAD_TAG)
		return enc_fail (err, ENC_ELIMIT, "too many bytes to encrypt at once");
	if (!start (ctx, a, 1) || EVP_CipherUpdate (ctx, out, &n, plain, (int) len) != 1 ||
		EVP_CipherFinal_ex (ctx, out + n, &tail) != 1 ||
		EVP_CIPHER_CTX_ctrl (ctx, EVP_CTRL_GCM_GET_TAG, ENC_AEAD_TAG, out + len) != 1)
		return enc_fail (err, ENC_ESYS, "encryption failed");
	return 0;
}

int enc_aead_open (const struct enc_aead *a, const void *sealed, size_t len, uint8_t *out, struct enc_error *err)
{
	enc_auto (cipher_ctx) EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new ();
	uint8_t tag[ENC_AEAD_TAG];
	int n = 0, tail = 0;

	if (len < ENC_AEAD_TAG || len > INT32_MAX)
		return enc_fail (err, ENC_EINVAL, "sealed data of %zu bytes", len);
	size_t plain = len - ENC_AEAD_TAG;
	memcpy (tag, (const uint8_t *) sealed + plain, sizeof tag);
	if (!start (ctx, a, 0) || EVP_CipherUpdate (ctx, out, &n, sealed, (int) plain) != 1)
		return enc_fail (err, ENC_ESYS, "decryption failed");
	if (EVP_CIPHER_CTX_ctrl (ctx, EVP_CTRL_GCM_SET_TAG, ENC_AEAD_TAG, tag) != 1 ||
		EVP_CipherFinal_ex (ctx, out + n, &tail) != 1) {
		enc_wipe (out, plain);
		return enc_fail (err, ENC_EINTEGRITY, "sealed data does not match its key and purpose");
	}
	return 0;
}
