#include "crypto/receipt.h"

#include "crypto/tlog/canon.h"
#include "crypto/tlog/frame.h"

#include <string.h>

#include "base/enc.h"

/* The record says of itself where it stands, so that a record moved to another
 * place or log is seen by whoever reads it alone. */
static int check_self (const uint8_t *record, size_t len, uint64_t index, const char *origin, struct enc_error *err)
{
	struct enc_canon_value value;
	uint64_t idx;

	if (enc_canon_check (record, len, NULL) < 0)
		return enc_fail (err, ENC_EINTEGRITY, "record is not canonical");
	if (enc_canon_u64 (record, len, "idx", &idx) < 0 || idx != index)
		return enc_fail (err, ENC_EINTEGRITY, "record does not name index %llu", (unsigned long long)index);
	if (enc_canon_find (record, len, "origin", &value) < 0 || value.type != '"' || value.len != strlen (origin) ||
		memcmp (value.at, origin, value.len) != 0)
		return enc_fail (err, ENC_EINTEGRITY, "record does not name log %s", origin);
	return 0;
}

int enc_receipt_check (const char *proof_text, size_t proof_len, const void *record, size_t record_len,
	const struct enc_vkey *vkey, struct enc_receipt *ret, struct enc_error *err)
{
	struct enc_receipt receipt;
	struct enc_proof proof;
	struct enc_hash leaf;
	int rc;

	if (record_len == 0 || record_len > ENC_FRAME_BODY_MAX)
		return enc_fail (err, ENC_EINVAL, "record of %zu bytes", record_len);
	if ((rc = enc_proof_parse (proof_text, proof_len, &proof, err)) < 0)
		return rc;
	enc_hash_leaf (record, record_len, &leaf);
	if ((rc = enc_proof_check (&proof, &leaf, vkey, &receipt.head, err)) < 0)
		return rc;
	if ((rc = check_self (record, record_len, proof.index, vkey->name, err)) < 0)
		return rc;
	receipt.index = proof.index;
	*ret = receipt;
	return 0;
}
