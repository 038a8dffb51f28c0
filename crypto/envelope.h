/* Signed envelopes (docs/protocol.md section 1): what keyd and node identities sign.
 *   "ENCS" | u8 1 | u8 algorithm | u8 type | u8 0 | key id[4] | u32 length | body | signature[64]
 * Key id: the first 4 bytes of SHA-256 (algorithm | public key): a hint for finding the key, never a proof.
 * Checking needs no allocation and no state, so that it can be done inside sshd and slurmctld. */
#ifndef ENC_CRYPTO_ENVELOPE_H
#define ENC_CRYPTO_ENVELOPE_H

#include "base/buf.h"
#include "crypto/sign.h"

enum enc_envelope_type {
	ENC_ENVELOPE_GRANT = 1,
	ENC_ENVELOPE_MEMBERS = 2,
	ENC_ENVELOPE_ATTESTATION = 3,
	ENC_ENVELOPE_CERTIFICATE_ORDER = 4,
};

enum {
	ENC_ENVELOPE_BODY_MAX = 65536,
	ENC_ENVELOPE_HEAD = 16,
	ENC_ENVELOPE_SIGNATURE = 64,
	ENC_ENVELOPE_MAX = ENC_ENVELOPE_HEAD + ENC_ENVELOPE_BODY_MAX + ENC_ENVELOPE_SIGNATURE,
	ENC_KEY_ID = 4,
};

/* Append `body` in a signed envelope to `out` (whose maximum must allow it). */
ENC_MUST_USE int enc_envelope_sign (const struct enc_sign_key *key, enum enc_envelope_type type, const struct enc_buf *body,
	struct enc_buf *out, struct enc_error *err);

/* Check an envelope against one key. `ret_body` borrows from `data`. ENC_EINVAL: no envelope of this version, wrong type, left-over
 * bytes. ENC_EINTEGRITY: another key, or a signature that does not hold. */
ENC_MUST_USE int enc_envelope_check (struct enc_view data, enum enc_envelope_type type, const struct enc_sign_pub *pub,
	struct enc_view *ret_body, struct enc_error *err);

void enc_envelope_key_id (const struct enc_sign_pub *pub, uint8_t ret[static ENC_KEY_ID]);

/* A verifier key file: one vkey line. The file and its folders must be root's (base/file.h, enc_path_trusted). `path` such as
 * /etc/enclave/keyd.vkey. */
ENC_MUST_USE int enc_vkey_load (const char *path, struct enc_sign_pub *ret, struct enc_error *err);

#endif
