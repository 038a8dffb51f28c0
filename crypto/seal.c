/* ECIES in the small: a fresh key pair for each sealed key, whose private half is dropped at once. The wrapping key is derived
 * with the boot nonce as salt, so that a boot key that was read out says nothing without it, and the associated data names node,
 * boot, generation, key and record: a sealed key cannot be played back to another node, boot, generation or purpose. */
#include "crypto/seal.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include "base/str.h"
#include "crypto/aead.h"
#include "crypto/secmem.h"
#include "base/enc.h"

enum { VERSION = 1, AD_MAX = 256, SHARED = 32 };

static const char info[] = "enclave sealed key v1";

struct enc_boot_key {
	EVP_PKEY *pair;
	uint8_t point[ENC_SEAL_POINT];
};

ENC_DEFINE_AUTO (pkey, EVP_PKEY, EVP_PKEY_free);
ENC_DEFINE_AUTO (pkey_ctx, EVP_PKEY_CTX, EVP_PKEY_CTX_free);
ENC_DEFINE_AUTO (kdf, EVP_KDF, EVP_KDF_free);
ENC_DEFINE_AUTO (kdf_ctx, EVP_KDF_CTX, EVP_KDF_CTX_free);

void enc_boot_key_free (struct enc_boot_key *key)
{
	if (!key)
		return;
	EVP_PKEY_free (key->pair);
	free (key);
}

const uint8_t *enc_boot_key_point (const struct enc_boot_key *key)
{
	return key->point;
}

int enc_boot_key_new (struct enc_boot_key **ret, struct enc_error *err)
{
	enc_auto (enc_boot_key) struct enc_boot_key *key = calloc (1, sizeof *key);
	size_t len = 0;

	if (!key)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	if (!enc_secmem_ready ())
		return enc_fail (err, ENC_EFAILED, "no locked memory for a private key");
	key->pair = EVP_EC_gen ("P-256");
	if (!key->pair || EVP_PKEY_get_octet_string_param (key->pair, OSSL_PKEY_PARAM_PUB_KEY, key->point, sizeof key->point,
				  &len) != 1 || len != sizeof key->point)
		return enc_fail (err, ENC_ESYS, "cannot make a P-256 key pair");
	*ret = ENC_TAKE (key);
	return 0;
}

static EVP_PKEY *peer_of_point (const uint8_t *point)
{
	char group[] = "P-256";
	uint8_t copy[ENC_SEAL_POINT];
	EVP_PKEY *peer = NULL;

	memcpy (copy, point, sizeof copy);
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string (OSSL_PKEY_PARAM_GROUP_NAME, group, 0),
		OSSL_PARAM_construct_octet_string (OSSL_PKEY_PARAM_PUB_KEY, copy, sizeof copy),
		OSSL_PARAM_construct_end (),
	};
	enc_auto (pkey_ctx) EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name (NULL, "EC", NULL);
	if (copy[0] != 4 || !ctx || EVP_PKEY_fromdata_init (ctx) != 1 ||
		EVP_PKEY_fromdata (ctx, &peer, EVP_PKEY_PUBLIC_KEY, params) != 1)
		return NULL;
	enc_auto (pkey_ctx) EVP_PKEY_CTX *check = EVP_PKEY_CTX_new_from_pkey (NULL, peer, NULL);
	if (!check || EVP_PKEY_public_check (check) != 1) {
		EVP_PKEY_free (peer);
		return NULL;
	}
	return peer;
}

/* HKDF over the shared secret; both in secmem. */
static int derive (EVP_PKEY *own, EVP_PKEY *peer, const uint8_t *boot, uint8_t key[static ENC_AEAD_KEY])
{
	enc_auto (enc_secmem) uint8_t *shared = enc_secmem_alloc (SHARED);
	enc_auto (pkey_ctx) EVP_PKEY_CTX *ecdh = EVP_PKEY_CTX_new_from_pkey (NULL, own, NULL);
	enc_auto (kdf) EVP_KDF *hkdf = EVP_KDF_fetch (NULL, "HKDF", NULL);
	enc_auto (kdf_ctx) EVP_KDF_CTX *ctx = hkdf ? EVP_KDF_CTX_new (hkdf) : NULL;
	char digest[] = "SHA256", label[sizeof info];
	uint8_t salt[ENC_SEAL_BOOT];
	size_t len = SHARED;

	memcpy (label, info, sizeof info);
	memcpy (salt, boot, sizeof salt);
	if (!shared || !ecdh || !ctx || EVP_PKEY_derive_init (ecdh) != 1 || EVP_PKEY_derive_set_peer (ecdh, peer) != 1 ||
		EVP_PKEY_derive (ecdh, shared, &len) != 1 || len != SHARED)
		return -ENC_ESYS;
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string (OSSL_KDF_PARAM_DIGEST, digest, 0),
		OSSL_PARAM_construct_octet_string (OSSL_KDF_PARAM_KEY, shared, SHARED),
		OSSL_PARAM_construct_octet_string (OSSL_KDF_PARAM_SALT, salt, sizeof salt),
		OSSL_PARAM_construct_octet_string (OSSL_KDF_PARAM_INFO, label, strlen (info)),
		OSSL_PARAM_construct_end (),
	};
	return EVP_KDF_derive (ctx, key, ENC_AEAD_KEY, params) == 1 ? 0 : -ENC_ESYS;
}

/* node | 0 | boot nonce | u64 generation | key id | 0 | u64 record index */
static void associate (const struct enc_seal_id *id, struct enc_buf *ad)
{
	enc_buf_put (ad, id->node, strlen (id->node) + 1);
	enc_buf_put (ad, id->boot, ENC_SEAL_BOOT);
	enc_buf_put_u64 (ad, id->generation);
	enc_buf_put (ad, id->key, strlen (id->key) + 1);
	enc_buf_put_u64 (ad, id->record);
}

int enc_seal (const uint8_t point[static ENC_SEAL_POINT], const struct enc_seal_id *id, const struct enc_secret *secret,
	struct enc_buf *out, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf ad = ENC_BUF_INIT (AD_MAX);
	enc_auto (enc_secmem) uint8_t *key = enc_secmem_alloc (ENC_AEAD_KEY);
	enc_auto (enc_boot_key) struct enc_boot_key *once = NULL;
	enc_auto (pkey) EVP_PKEY *peer = peer_of_point (point);
	uint8_t nonce[ENC_AEAD_NONCE];
	int rc;

	if (!peer)
		return enc_fail (err, ENC_EINVAL, "the boot key of node %s is not a point of P-256", id->node);
	if (!key)
		return enc_fail (err, ENC_ENOMEM, "no locked memory left");
	if (secret->len == 0 || secret->len > ENC_WRAP_KEY_MAX)
		return enc_fail (err, ENC_ELIMIT, "a key of %zu bytes", secret->len);
	associate (id, &ad);
	if ((rc = enc_buf_check (&ad, err)) < 0 || (rc = enc_boot_key_new (&once, err)) < 0 ||
		(rc = enc_random (nonce, sizeof nonce, err)) < 0)
		return rc;
	if (derive (once->pair, peer, id->boot, key) < 0)
		return enc_fail (err, ENC_ESYS, "cannot derive the sealing key");
	enc_buf_put_u8 (out, VERSION);
	enc_buf_put (out, once->point, sizeof once->point);
	enc_buf_put (out, nonce, sizeof nonce);
	uint8_t *room = enc_buf_grow (out, secret->len + ENC_AEAD_TAG);
	if (!room)
		return enc_buf_check (out, err);
	const struct enc_aead a = { key, nonce, ad.data, ad.len };
	return enc_aead_seal (&a, secret->data, secret->len, room, err);
}

int enc_seal_open (const struct enc_boot_key *key, const struct enc_seal_id *id, struct enc_view sealed, struct enc_secret *ret,
	struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf ad = ENC_BUF_INIT (AD_MAX);
	enc_auto (enc_secmem) uint8_t *wrapping = enc_secmem_alloc (ENC_AEAD_KEY);
	enc_auto (enc_secmem) uint8_t *clear = NULL;
	int rc;

	if (sealed.left <= ENC_SEAL_OVERHEAD || sealed.left > ENC_SEALED_MAX || enc_view_u8 (&sealed) != VERSION)
		return enc_fail (err, ENC_EINVAL, "not a sealed key");
	enc_auto (pkey) EVP_PKEY *peer = peer_of_point (enc_view_take (&sealed, ENC_SEAL_POINT));
	const uint8_t *nonce = enc_view_take (&sealed, ENC_AEAD_NONCE);
	if (!peer)
		return enc_fail (err, ENC_EINVAL, "not a sealed key: its point is not on the curve");
	if (!wrapping)
		return enc_fail (err, ENC_ENOMEM, "no locked memory left");
	associate (id, &ad);
	size_t len = sealed.left - ENC_AEAD_TAG;
	if ((rc = enc_buf_check (&ad, err)) < 0 || (rc = enc_secmem_get (len, &clear, err)) < 0)
		return rc;
	if (derive (key->pair, peer, id->boot, wrapping) < 0)
		return enc_fail (err, ENC_ESYS, "cannot derive the sealing key");
	const struct enc_aead a = { wrapping, nonce, ad.data, ad.len };
	if ((rc = enc_aead_open (&a, sealed.at, sealed.left, clear, err)) < 0)
		return enc_fail (err, ENC_EINTEGRITY, "the sealed key is not for this node, boot, generation and record");
	*ret = (struct enc_secret){ ENC_TAKE (clear), len };
	return 0;
}
