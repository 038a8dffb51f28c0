#ifndef ENC_CRYPTO_COSIGNATURE_H
#define ENC_CRYPTO_COSIGNATURE_H

#include "crypto/note.h"

/* C2SP tlog-cosignature, type Ed25519 (cosignature/v1): a witness's statement that, at a
 * time, a checkpoint was the largest consistent one that it had seen of a log. It stands as
 * one more signature line below the checkpoint. */

#define ENC_COSIGN_ED25519 0x04 /* the signature type byte in a witness's vkey */
#define ENC_COSIGN_LINE_MAX (ENC_NOTE_NAME_MAX + 120)

/* The verifier key of a witness. A key for cosignatures verifies nothing else, and a log's
 * key no cosignature: the type byte differs. */
int enc_cosign_vkey (struct enc_vkey *ret, const char *name, const struct enc_sign_key *key, struct enc_error *err) ENC_MUST_USE;

/* Write one signature line, with its newline, over a parsed checkpoint. `time` is in seconds
 * since the epoch. Returns its length without the NUL, or a negative code. */
ssize_t enc_cosign (const struct enc_note *note, const struct enc_vkey *vkey, const struct enc_sign_key *key, uint64_t time,
	char *out, size_t size, struct enc_error *err) ENC_MUST_USE;

/* Check the cosignature of `vkey`; `ret_time` is the newest where there are several.
 * ENC_ENOTFOUND: there is none. ENC_EINTEGRITY: there is a wrong one. ENC_EINVAL: not a
 * witness's key. */
int enc_cosign_check (const struct enc_note *note, const struct enc_vkey *vkey, uint64_t *ret_time, struct enc_error *err) ENC_MUST_USE;

#endif
