#include "crypto/kdf.h"

#include <sodium.h>

#include "base/str.h"
#include "crypto/secmem.h"
#include "base/enc.h"

enum { ARGON2ID_13 = 1, PASSES = 3, PASSES_MAX = 20 };

int enc_kdf_new (uint32_t mib, struct enc_kdf *ret, struct enc_error *err)
{
	struct enc_kdf kdf = { .passes = PASSES, .mib = mib };

	if (mib < ENC_KDF_MIB_MIN || mib > ENC_KDF_MIB_MAX)
		return enc_fail (err, ENC_EINVAL, "%u MiB for argon2id; %d to %d are possible", mib, ENC_KDF_MIB_MIN, ENC_KDF_MIB_MAX);
	int rc = enc_random (kdf.salt, sizeof kdf.salt, err);
	if (rc < 0)
		return rc;
	*ret = kdf;
	return 0;
}

void enc_kdf_put (const struct enc_kdf *kdf, struct enc_buf *out)
{
	enc_buf_put_u8 (out, ARGON2ID_13);
	enc_buf_put_u32 (out, kdf->passes);
	enc_buf_put_u32 (out, kdf->mib);
	enc_buf_put (out, kdf->salt, sizeof kdf->salt);
}

int enc_kdf_read (const void *data, size_t len, struct enc_kdf *ret, struct enc_error *err)
{
	struct enc_view v = enc_view_of (data, len);
	struct enc_kdf kdf;
	uint8_t kind = enc_view_u8 (&v);

	kdf.passes = enc_view_u32 (&v);
	kdf.mib = enc_view_u32 (&v);
	enc_view_copy (&v, kdf.salt, sizeof kdf.salt);
	int rc = enc_view_end (&v, err);
	if (rc < 0)
		return rc;
	if (kind != ARGON2ID_13 || kdf.passes < 1 || kdf.passes > PASSES_MAX || kdf.mib < ENC_KDF_MIB_MIN || kdf.mib > ENC_KDF_MIB_MAX)
		return enc_fail (err, ENC_EINVAL, "unknown passphrase parameters");
	*ret = kdf;
	return 0;
}

int enc_kdf_derive (const struct enc_kdf *kdf, const uint8_t *passphrase, size_t len, uint8_t **ret, struct enc_error *err)
{
	enc_auto (enc_secmem) uint8_t *key = NULL;
	int rc;

	if (len < ENC_PASSPHRASE_MIN || len > ENC_PASSPHRASE_MAX)
		return enc_fail (err, ENC_EINVAL, "a passphrase has %d to %d bytes", ENC_PASSPHRASE_MIN, ENC_PASSPHRASE_MAX);
	if ((rc = enc_secmem_get (32, &key, err)) < 0)
		return rc;
	if (sodium_init () < 0 || crypto_pwhash (key, 32, (const char *) passphrase, len, kdf->salt, kdf->passes,
					  (size_t) kdf->mib << 20, crypto_pwhash_ALG_ARGON2ID13) != 0)
		return enc_fail (err, ENC_ENOMEM, "no memory for argon2id (%u MiB)", kdf->mib);
	*ret = ENC_TAKE (key);
	return 0;
}
