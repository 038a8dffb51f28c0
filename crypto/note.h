#ifndef ENC_CRYPTO_NOTE_H
#define ENC_CRYPTO_NOTE_H

#include "base/error.h"
#include "crypto/sign.h"

#include <sys/types.h>

/* C2SP signed notes: a text, a blank line, and signature lines
 * "— NAME base64(key id || signature)". */

#define ENC_NOTE_NAME_MAX 127
#define ENC_NOTE_SIGS_MAX 32
#define ENC_NOTE_MAX 65536 /* bytes of a whole note that we read */
#define ENC_VKEY_TEXT_MAX (ENC_NOTE_NAME_MAX + 1 + 8 + 1 + 132 + 1)

/* A verifier key: NAME+KEYID+BASE64(algorithm byte || public key). */
struct enc_vkey {
	char name[ENC_NOTE_NAME_MAX + 1];
	uint32_t id;
	struct enc_sign_pub pub;
};

/* Key names: 1 to ENC_NOTE_NAME_MAX printable ASCII bytes without space or '+'.
 * (The format allows Unicode; our logs and witnesses do not need it.) */
int enc_note_name_ok (const char *name, size_t len);

int enc_vkey_init (
	struct enc_vkey *vkey, const char *name, const struct enc_sign_pub *pub, struct enc_error *err) ENC_MUST_USE;

/* Read one vkey text; a trailing newline is accepted. The key id must match
 * the key. */
int enc_vkey_parse (const char *text, size_t len, struct enc_vkey *ret, struct enc_error *err) ENC_MUST_USE;
void enc_vkey_format (const struct enc_vkey *vkey, char out[static ENC_VKEY_TEXT_MAX]);

/* A parsed note; all pointers borrow from the caller's bytes. `text` includes
 * its final newline. */
struct enc_note_sig {
	const char *name;
	size_t name_len;
	uint32_t id;
	const char *b64;
	size_t b64_len;
};
struct enc_note {
	const char *text;
	size_t text_len;
	size_t n_sigs;
	struct enc_note_sig sigs[ENC_NOTE_SIGS_MAX];
};

/* Split a note. ENC_EINVAL when it is not one. Nothing is trusted yet. */
int enc_note_parse (const char *bytes, size_t len, struct enc_note *ret, struct enc_error *err) ENC_MUST_USE;

/* Check the signature by `vkey`. ENC_ENOTFOUND: the note has none by that name
 * and key id. ENC_EINTEGRITY: it has one and it is wrong. */
int enc_note_check (const struct enc_note *note, const struct enc_vkey *vkey, struct enc_error *err) ENC_MUST_USE;

/* Write the note again with the signature lines of `vkey` alone. Returns 0 and the length without the final NUL. */
int enc_note_pick (const struct enc_note *note, const struct enc_vkey *vkey, char *out, size_t size, size_t *ret_len, struct enc_error *err) ENC_MUST_USE;

/* Write `text` (ends in a newline), the blank line and one signature line.
 * Returns the length written without the final NUL, or a negative code. */
ssize_t enc_note_sign (const char *text, const struct enc_vkey *vkey, const struct enc_sign_key *key, char *out,
	size_t size, struct enc_error *err) ENC_MUST_USE;

#endif
