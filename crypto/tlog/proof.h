#ifndef ENC_CRYPTO_TLOG_PROOF_H
#define ENC_CRYPTO_TLOG_PROOF_H

#include "crypto/checkpoint.h"

/* The C2SP `tlog-proof` text: index, inclusion path and the checkpoint it ends
 * in. It verifies offline with the log's vkey alone. */

#define ENC_PROOF_MAX 65536	/* bytes that we read */
#define ENC_PROOF_TEXT_MAX 8192 /* bytes that we write: 63 hashes and a checkpoint with a few cosignatures */

struct enc_proof {
	uint64_t index;
	struct enc_path path;
	const char *checkpoint; /* borrowed from the parsed text */
	size_t checkpoint_len;
};

/* Write a proof. `extra` data is never written. Returns the length without the
 * final NUL, or a negative code. */
ssize_t enc_proof_format (const struct enc_proof *proof, char *out, size_t size, struct enc_error *err) ENC_MUST_USE;

/* Read a proof; an `extra` line is skipped. ENC_EINVAL if it is not one. */
int enc_proof_parse (const char *text, size_t len, struct enc_proof *ret, struct enc_error *err) ENC_MUST_USE;

/* Check that `leaf` is in the log of `vkey` at proof->index. `ret_head` (may be
 * NULL) is the signed head it was checked against. ENC_EINTEGRITY when the
 * signature or the path does not hold, ENC_ENOTFOUND when another log or key
 * signed it. */
int enc_proof_check (const struct enc_proof *proof, const struct enc_hash *leaf, const struct enc_vkey *vkey,
	struct enc_tree_head *ret_head, struct enc_error *err) ENC_MUST_USE;

#endif
