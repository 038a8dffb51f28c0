#include "crypto/wrap.h"

#include "base/str.h"
#include "crypto/aead.h"
#include "crypto/secmem.h"
#include "base/enc.h"

enum { FORMAT = 1, AES_256_GCM = 1, AD_MAX = 512, HEAD = 1 + 1 + 4 + ENC_AEAD_NONCE };

/* purpose | 0 | key id | 0 | enclave id | u32 version: the NUL keeps neighbours from running into each other. */
static void associate (const struct enc_wrap_id *id, struct enc_buf *ad)
{
	enc_buf_put (ad, id->purpose, strlen (id->purpose) + 1);
	enc_buf_put (ad, id->key, strlen (id->key) + 1);
	enc_buf_put (ad, id->enclave, strlen (id->enclave));
	enc_buf_put_u32 (ad, id->version);
}

int enc_key_wrap (const struct enc_wrap_parent *parent, const struct enc_wrap_id *id, const uint8_t *secret, size_t len,
	struct enc_buf *out)
{
	enc_auto_done (enc_buf_done) struct enc_buf ad = ENC_BUF_INIT (AD_MAX);
	uint8_t nonce[ENC_AEAD_NONCE];
	int rc;

	if (len == 0 || len > ENC_WRAP_KEY_MAX)
		return -ENC_ELIMIT;
	associate (id, &ad);
	if ((rc = enc_buf_check (&ad, NULL)) < 0 || (rc = enc_random (nonce, sizeof nonce, NULL)) < 0)
		return rc;
	enc_buf_put_u8 (out, FORMAT);
	enc_buf_put_u8 (out, AES_256_GCM);
	enc_buf_put_u32 (out, parent->version);
	enc_buf_put (out, nonce, sizeof nonce);
	uint8_t *room = enc_buf_grow (out, len + ENC_AEAD_TAG);
	if (!room)
		return enc_buf_check (out, NULL);
	const struct enc_aead a = { parent->key, nonce, ad.data, ad.len };
	return enc_aead_seal (&a, secret, len, room, NULL);
}

int enc_key_unwrap (const struct enc_wrap_parent *parent, const struct enc_wrap_id *id, const void *wrap, size_t len,
	struct enc_secret *ret)
{
	enc_auto_done (enc_buf_done) struct enc_buf ad = ENC_BUF_INIT (AD_MAX);
	enc_auto (enc_secmem) uint8_t *secret = NULL;
	struct enc_view v = enc_view_of (wrap, len);
	int rc;

	if (len <= ENC_WRAP_OVERHEAD || len > ENC_WRAP_OVERHEAD + ENC_WRAP_KEY_MAX)
		return -ENC_EINVAL;
	if (enc_view_u8 (&v) != FORMAT || enc_view_u8 (&v) != AES_256_GCM)
		return -ENC_EINVAL;
	/* The parent's version is a hint which parent to take; a wrong one cannot open the wrap. */
	if (enc_view_u32 (&v) != parent->version)
		return -ENC_EINTEGRITY;
	const uint8_t *nonce = enc_view_take (&v, ENC_AEAD_NONCE);
	associate (id, &ad);
	if ((rc = enc_buf_check (&ad, NULL)) < 0)
		return rc;
	if ((rc = enc_secmem_get (len - ENC_WRAP_OVERHEAD, &secret, NULL)) < 0)
		return rc;
	const struct enc_aead a = { parent->key, nonce, ad.data, ad.len };
	if ((rc = enc_aead_open (&a, v.at, v.left, secret, NULL)) < 0)
		return rc;
	*ret = (struct enc_secret){ ENC_TAKE (secret), len - ENC_WRAP_OVERHEAD };
	return 0;
}

void enc_secret_done (struct enc_secret *s)
{
	enc_secmem_free (s->data);
	*s = (struct enc_secret){ 0 };
}
