/* A ring in the order of birth: what is too old leaves at the tail, a taken one is marked. Looking one up walks the ring; at 8192
 * entries of 32 bytes that is some microseconds, beside a signature check of hundreds. */
#include "controller/keyd/nonces.h"

#include "base/enctime.h"
#include "base/str.h"
#include "base/enc.h"

struct entry {
	uint8_t nonce[ENC_NONCE_BYTES];
	int64_t born;
	bool taken;
};

struct enc_nonces {
	size_t first, n;
	struct entry ring[ENC_NONCES_MAX];
};

struct enc_nonces *enc_nonces_new (void)
{
	return calloc (1, sizeof (struct enc_nonces));
}

void enc_nonces_free (struct enc_nonces *n)
{
	free (n);
}

static struct entry *entry_at (struct enc_nonces *n, size_t i)
{
	return &n->ring[(n->first + i) % ENC_NONCES_MAX];
}

static void drop_old (struct enc_nonces *n, int64_t now)
{
	while (n->n > 0 && (entry_at (n, 0)->taken || now - entry_at (n, 0)->born > ENC_NONCE_CHALLENGE_S * ENC_NS_S)) {
		n->first = (n->first + 1) % ENC_NONCES_MAX;
		n->n--;
	}
}

int enc_nonces_give (struct enc_nonces *n, int64_t now, uint8_t ret[static ENC_NONCE_BYTES], struct enc_error *err)
{
	drop_old (n, now);
	if (n->n == ENC_NONCES_MAX)
		return enc_fail (err, ENC_EBUSY, "%d nonces are outstanding", ENC_NONCES_MAX);
	struct entry *e = entry_at (n, n->n);
	int rc = enc_random (e->nonce, sizeof e->nonce, err);
	if (rc < 0)
		return rc;
	e->born = now;
	e->taken = false;
	n->n++;
	memcpy (ret, e->nonce, sizeof e->nonce);
	return 0;
}

int enc_nonces_take (struct enc_nonces *n, int64_t now, const uint8_t nonce[static ENC_NONCE_BYTES], unsigned max_s,
	struct enc_error *err)
{
	struct entry *found = NULL;

	for (size_t i = 0; i < n->n; i++)
		if (enc_mem_equal (entry_at (n, i)->nonce, nonce, ENC_NONCE_BYTES))
			found = entry_at (n, i);
	if (!found || found->taken)
		return enc_fail (err, ENC_EDENIED, "the nonce is not one that was given out and is unused");
	found->taken = true;
	if (now - found->born > (int64_t) max_s * ENC_NS_S)
		return enc_fail (err, ENC_EDENIED, "the nonce is older than %u s", max_s);
	return 0;
}
