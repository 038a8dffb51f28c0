/* Apart from the arena: a static verifier that links the arena must not bring the generator along. */
#include "crypto/secmem.h"

#include <openssl/rand.h>

#include "base/enc.h"

int enc_secmem_random (size_t len, uint8_t **ret, struct enc_error *err)
{
	enc_auto (enc_secmem) uint8_t *p = NULL;
	int rc = enc_secmem_get (len, &p, err);

	if (rc < 0)
		return rc;
	if (len > INT32_MAX || RAND_priv_bytes (p, (int) len) != 1)
		return enc_fail (err, ENC_ESYS, "the generator of random numbers failed");
	*ret = ENC_TAKE (p);
	return 0;
}
