#include "crypto/volume_header.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include "base/str.h"
#include "crypto/secmem.h"
#include "base/enc.h"

enum { FORMAT = 1, MAC = 32, KEY = 64, HEAD_MIN = 1 + 4 + 2 + 8 + 4, BLOCK = 64, PART_MAX = 32768 };

static const char info[] = "enclave volume header v1";

ENC_DEFINE_AUTO (kdf, EVP_KDF, EVP_KDF_free);
ENC_DEFINE_AUTO (kdf_ctx, EVP_KDF_CTX, EVP_KDF_CTX_free);

static int derive (const struct enc_volume_key *key, uint8_t ret[static MAC])
{
	enc_auto (kdf) EVP_KDF *hkdf = EVP_KDF_fetch (NULL, "HKDF", NULL);
	enc_auto (kdf_ctx) EVP_KDF_CTX *ctx = hkdf ? EVP_KDF_CTX_new (hkdf) : NULL;
	enc_auto (enc_secmem) uint8_t *copy = enc_secmem_alloc (KEY);
	char digest[] = "SHA256", label[sizeof info];

	if (!ctx || !copy)
		return -ENC_ENOMEM;
	memcpy (copy, key->data, KEY);
	memcpy (label, info, sizeof info);
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string (OSSL_KDF_PARAM_DIGEST, digest, 0),
		OSSL_PARAM_construct_octet_string (OSSL_KDF_PARAM_KEY, copy, KEY),
		OSSL_PARAM_construct_octet_string (OSSL_KDF_PARAM_INFO, label, strlen (info)),
		OSSL_PARAM_construct_end (),
	};
	return EVP_KDF_derive (ctx, ret, MAC, params) == 1 ? 0 : -ENC_ESYS;
}

static int authenticate (const struct enc_volume_key *key, const void *data, size_t len, uint8_t ret[static MAC], struct enc_error *err)
{
	enc_auto (enc_secmem) uint8_t *mac_key = NULL;
	unsigned n = MAC;
	int rc;

	if (key->len != KEY)
		return enc_fail (err, ENC_EINVAL, "a volume key of %zu bytes, not %d", key->len, KEY);
	if ((rc = enc_secmem_get (MAC, &mac_key, err)) < 0)
		return rc;
	if (derive (key, mac_key) < 0 || !HMAC (EVP_sha256 (), mac_key, MAC, data, len, ret, &n) || n != MAC)
		return enc_fail (err, ENC_ESYS, "cannot authenticate a volume header");
	return 0;
}

static size_t least (size_t a, size_t b)
{
	return a < b ? a : b;
}

static bool is_zero (const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

/* Metadata is mostly zeros: only blocks that are not. */
static void put_parts (const uint8_t *meta, size_t len, struct enc_buf *out)
{
	for (size_t at = 0, end; at < len; at = end) {
		bool zero = is_zero (meta + at, least (BLOCK, len - at));
		for (end = at; end < len && end - at < PART_MAX && is_zero (meta + end, least (BLOCK, len - end)) == zero;)
			end += least (BLOCK, len - end);
		if (zero)
			continue;
		enc_buf_put_u32 (out, (uint32_t)at);
		enc_buf_put_bytes (out, meta + at, end - at);
	}
}

int enc_volume_header_seal (const struct enc_volume_header_id *id, const struct enc_volume_key *key, const void *meta, size_t len,
	struct enc_buf *out, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);
	uint8_t mac[MAC];
	int rc;

	if (len == 0 || len > ENC_VOLUME_HEADER_META)
		return enc_fail (err, ENC_EINVAL, "a volume header of %zu bytes", len);
	enc_buf_put_u8 (&text, FORMAT);
	enc_buf_put_u32 (&text, id->version);
	enc_buf_put_str (&text, id->volume);
	enc_buf_put_u64 (&text, id->size_bytes);
	enc_buf_put_u32 (&text, (uint32_t)len);
	put_parts (meta, len, &text);
	if ((rc = enc_buf_check (&text, err)) < 0 || (rc = authenticate (key, text.data, text.len, mac, err)) < 0)
		return rc;
	enc_buf_put (out, text.data, text.len);
	enc_buf_put (out, mac, sizeof mac);
	return enc_buf_check (out, err);
}

/* The head names what it is, so that a mistake is told apart from an attack; the MAC decides. */
static int check_head (const struct enc_volume_header_id *id, struct enc_view *v, size_t *ret_len, struct enc_error *err)
{
	uint8_t format = enc_view_u8 (v);
	uint32_t version = enc_view_u32 (v);
	char volume[64];
	uint64_t size;

	enc_view_str (v, volume, sizeof volume);
	size = enc_view_u64 (v);
	*ret_len = enc_view_u32 (v);
	if (v->bad)
		return enc_fail (err, ENC_EINTEGRITY, "the volume header is cut short");
	if (format != FORMAT || *ret_len == 0 || *ret_len > ENC_VOLUME_HEADER_META)
		return enc_fail (err, ENC_EINTEGRITY, "the volume header has no known format");
	if (strcmp (volume, id->volume) != 0)
		return enc_fail (err, ENC_EINTEGRITY, "the volume header is that of another volume");
	if (version != id->version)
		return enc_fail (err, ENC_EINTEGRITY, "the volume header is version %u, %s than the wanted %u", version,
				 version < id->version ? "older" : "newer", id->version);
	if (size != id->size_bytes)
		return enc_fail (err, ENC_EINTEGRITY, "the volume header is for a volume of another size");
	return 0;
}

static int take_parts (struct enc_view *v, uint8_t *meta, size_t len, struct enc_error *err)
{
	size_t end = 0;

	while (v->left > 0) {
		uint32_t at = enc_view_u32 (v);
		struct enc_view part = enc_view_bytes (v, PART_MAX);
		if (v->bad || at < end || part.left == 0 || at > len || part.left > len - at)
			return enc_fail (err, ENC_EINTEGRITY, "the volume header is malformed");
		memcpy (meta + at, part.at, part.left);
		end = at + part.left;
	}
	return 0;
}

int enc_volume_header_open (const struct enc_volume_header_id *id, const struct enc_volume_key *key, const void *sealed, size_t len,
	struct enc_buf *out, struct enc_error *err)
{
	enc_auto_free uint8_t *meta = NULL;
	size_t meta_len = 0;
	uint8_t mac[MAC];
	int rc;

	if (len < HEAD_MIN + MAC)
		return enc_fail (err, ENC_EINTEGRITY, "the volume header is cut short");
	if (len > ENC_VOLUME_HEADER_MAX)
		return enc_fail (err, ENC_EINTEGRITY, "the volume header is too long");
	struct enc_view v = enc_view_of (sealed, len - MAC);
	if ((rc = check_head (id, &v, &meta_len, err)) < 0 || (rc = authenticate (key, sealed, len - MAC, mac, err)) < 0)
		return rc;
	if (CRYPTO_memcmp (mac, (const uint8_t *)sealed + len - MAC, MAC) != 0)
		return enc_fail (err, ENC_EINTEGRITY, "the volume header was edited, cut short, or made under another key");
	if (!(meta = calloc (1, meta_len)))
		return enc_fail (err, ENC_ENOMEM, "volume header: no memory");
	if ((rc = take_parts (&v, meta, meta_len, err)) < 0)
		return rc;
	enc_buf_put (out, meta, meta_len);
	return enc_buf_check (out, err);
}
