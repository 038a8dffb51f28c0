/* The node's identity towards the controller: a key made here, the certificate that the controller had signed for it, and before that a
 * one-time token. Files in the agent's own state folder: `key.pem`, `cert.pem`, `token`; all 0600. */
#ifndef ENC_AGENTD_IDENTITY_H
#define ENC_AGENTD_IDENTITY_H

#include <stdbool.h>

#include "base/error.h"

struct ssl_ctx_st;

bool enc_identity_has_certificate (const char *state_dir);
/* The token's text, heap; NULL with ENC_ENOTFOUND when there is none. */
char *enc_identity_token (const char *state_dir, struct enc_error *err) ENC_MUST_USE;
int enc_identity_drop_token (const char *state_dir, struct enc_error *err);
/* A signing request for `node` in PEM, heap; makes the key at first use. */
char *enc_identity_csr (const char *state_dir, const char *node, struct enc_error *err) ENC_MUST_USE;
/* Keep the certificate and forget the token. */
int enc_identity_store (const char *state_dir, const char *certificate, struct enc_error *err) ENC_MUST_USE;
/* A client context that trusts `ca_file` only; with the node's certificate, or without for enrolment. */
struct ssl_ctx_st *enc_identity_tls (const char *state_dir, const char *ca_file, bool with_certificate, struct enc_error *err) ENC_MUST_USE;

#endif
