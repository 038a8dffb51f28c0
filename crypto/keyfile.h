#ifndef ENC_CRYPTO_KEYFILE_H
#define ENC_CRYPTO_KEYFILE_H

#include "crypto/note.h"

/* A signing key of a log or a witness as a file: one line "ed25519 NAME SEED" (base64), mode
 * 0600, owned by the reader. It is never elsewhere in clear; in memory only where secrets are. */

/* ENC_ENOTFOUND: there is no such file. ENC_EINTEGRITY: damaged. ENC_EDENIED: others may read
 * it. ENC_EUNAVAIL: memory for it cannot be locked. Free the key with enc_sign_key_free(). */
int enc_keyfile_load (int dirfd, const char *file, struct enc_sign_key **ret, char name[static ENC_NOTE_NAME_MAX + 1],
	struct enc_error *err) ENC_MUST_USE;
/* Make a fresh key and its file; ENC_ECONFLICT when the file is there. */
int enc_keyfile_make (int dirfd, const char *file, const char *name, struct enc_sign_key **ret, struct enc_error *err) ENC_MUST_USE;

#endif
