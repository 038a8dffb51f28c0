/* The hierarchy of keys: passphrase → root key → CA key, signing key, an enclave's KEK → its volume and munge keys.
 * Root key driver `file`: the root key stands in keys.db, wrapped under argon2id of the passphrase. What is unwrapped lives in
 * locked memory: root, CA and signing key while unsealed, the rest for one request. */
#ifndef ENC_KEYD_VAULT_H
#define ENC_KEYD_VAULT_H

#include "controller/keyd/store.h"
#include "crypto/note.h"
#include "crypto/wrap.h"

enum enc_vault_state { ENC_VAULT_UNINITIALISED, ENC_VAULT_SEALED, ENC_VAULT_UNSEALED };

struct enc_vault;

/* `store` stays the caller's and must outlive it. Sealed or uninitialised at first. `site` names the CA and the verifier key. */
ENC_MUST_USE int enc_vault_new (struct enc_keystore *store, const char *site, uint32_t argon2_mib, struct enc_vault **ret,
	struct enc_error *err);
void enc_vault_free (struct enc_vault *v);
ENC_DEFINE_AUTO (enc_vault, struct enc_vault, enc_vault_free);

enum enc_vault_state enc_vault_state (const struct enc_vault *v);
const char *enc_vault_state_name (const struct enc_vault *v);

/* Make root, CA and signing key once. ENC_ECONFLICT if there are some. Unsealed afterwards. */
ENC_MUST_USE int enc_vault_init (struct enc_vault *v, const struct enc_secret *passphrase, struct enc_error *err);
/* ENC_EDENIED for a wrong passphrase; 0 if it is unsealed already and the passphrase is right. */
ENC_MUST_USE int enc_vault_unseal (struct enc_vault *v, const struct enc_secret *passphrase, struct enc_error *err);
/* Unseal with the root key itself, as kept by the descriptor store. ENC_EINTEGRITY if it is another one. */
ENC_MUST_USE int enc_vault_adopt (struct enc_vault *v, const struct enc_secret *root, struct enc_error *err);
/* Forget what was unwrapped. */
void enc_vault_seal (struct enc_vault *v);

/* Borrowed; NULL while sealed. */
const struct enc_secret *enc_vault_root (const struct enc_vault *v);
const struct enc_sign_key *enc_vault_signer (const struct enc_vault *v);
const struct enc_cert_key *enc_vault_ca_key (const struct enc_vault *v);
/* Public texts, "" before init: the verifier key line (no line end) and the CA certificate (PEM). */
const char *enc_vault_vkey (const struct enc_vault *v);
const char *enc_vault_ca (const struct enc_vault *v);

/* Make and wrap a key of `row->bytes` under the KEK of `row->enclave` (which is made when there is none) and fill row->wrap.
 * Writes the KEK, not the row. */
ENC_MUST_USE int enc_vault_make_key (struct enc_vault *v, struct enc_key_row *row, struct enc_error *err);
/* Unwrap into fresh secmem. */
ENC_MUST_USE int enc_vault_open_key (struct enc_vault *v, const struct enc_key_row *row, struct enc_secret *ret, struct enc_error *err);
/* Wrap the key anew under the KEK of another enclave and set row->enclave and row->wrap. */
ENC_MUST_USE int enc_vault_move_key (struct enc_vault *v, struct enc_key_row *row, const char *enclave, struct enc_error *err);

#endif
