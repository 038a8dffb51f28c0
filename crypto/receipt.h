#ifndef ENC_CRYPTO_RECEIPT_H
#define ENC_CRYPTO_RECEIPT_H

#include "crypto/tlog/proof.h"

/* A receipt says: auditd has signed that this record is durable. It is the
 * record's tlog-proof, no format of its own. */

struct enc_receipt {
	uint64_t index;
	struct enc_tree_head head; /* signed, covers the record */
};

/* Check a proof text against the record's stored bytes and the log's key. The
 * record must be canonical, name this log in `origin` and its own index in `idx`.
 * ENC_EINTEGRITY, ENC_ENOTFOUND (another log or key) or ENC_EINVAL (not a proof).
 * What the record says is for the caller to compare with the request. */
int enc_receipt_check (const char *proof, size_t proof_len, const void *record, size_t record_len,
	const struct enc_vkey *vkey, struct enc_receipt *ret, struct enc_error *err) ENC_MUST_USE;

#endif
