#ifndef ENC_CRYPTO_CHECKPOINT_H
#define ENC_CRYPTO_CHECKPOINT_H

#include "crypto/note.h"
#include "crypto/tlog/tree.h"

/* C2SP checkpoints: a signed note whose text is origin, tree size and root.
 * We write no extension lines, and ignore those we read. The origin is the
 * name of the log's key. */

#define ENC_CHECKPOINT_MAX 1024 /* bytes of one that we sign, without cosignatures */

/* Sign the head of a tree. Returns the length written without the final NUL,
 * or a negative code. */
ssize_t enc_checkpoint_sign (const struct enc_tree_head *head, const struct enc_vkey *vkey,
	const struct enc_sign_key *key, char *out, size_t size, struct enc_error *err) ENC_MUST_USE;

/* Read a checkpoint and check that it is by `vkey` for the log of that name.
 * ENC_EINVAL: not a checkpoint. ENC_ENOTFOUND: another log's, or not signed by
 * this key. ENC_EINTEGRITY: a wrong signature. */
int enc_checkpoint_open (const char *bytes, size_t len, const struct enc_vkey *vkey, struct enc_tree_head *ret,
	struct enc_error *err) ENC_MUST_USE;

#endif
