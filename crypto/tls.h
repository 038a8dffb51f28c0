/* TLS 1.3 between the controller and its agents and remote callers. P-256 certificates of the toolkit's own CA, no tickets, no
 * session cache (a resumed session would not show its certificate again), buffers given back while a connection is idle.
 *
 * The server asks for a client certificate and refuses a handshake without one of its CA, with one exception: a client that names
 * ENC_TLS_ENROL as the server (SNI) has no certificate yet. Such a connection may use the enrolment route only; ask
 * enc_tls_peer() at each request, which says ENC_ENOTFOUND for it. */
#ifndef ENC_CRYPTO_TLS_H
#define ENC_CRYPTO_TLS_H

#include "crypto/cert.h"

struct ssl_ctx_st;
struct ssl_st;

#define ENC_TLS_ENROL "enclave-enrol"

struct enc_tls_files {
	const char *certificate; /* PEM file, own certificate; NULL for an enrolling client */
	const char *key;         /* PEM file, mode 0600 */
	const char *ca;          /* PEM file: the CA that both ends must have */
};

/* Free with SSL_CTX_free(). NULL with `err` filled: ENC_ENOTFOUND, ENC_EINVAL (not matching, not a certificate). */
struct ssl_ctx_st *enc_tls_server (const struct enc_tls_files *files, struct enc_error *err) ENC_MUST_USE;
/* A server that asks nobody for a certificate (`ca` may be NULL): what it serves is signed in itself. With `ca`, clients of that CA only. */
struct ssl_ctx_st *enc_tls_public_server (const struct enc_tls_files *files, struct enc_error *err) ENC_MUST_USE;
/* A client of such a server: any certificate of that CA; the caller's HTTP client checks the name. */
struct ssl_ctx_st *enc_tls_public_client (const struct enc_tls_files *files, struct enc_error *err) ENC_MUST_USE;
/* A client that takes only a server certificate of that CA named ENC_CERT_SERVICE. */
struct ssl_ctx_st *enc_tls_client (const struct enc_tls_files *files, struct enc_error *err) ENC_MUST_USE;
/* The same with CA and own certificate from memory (PEM); for enrolment `certificate` and `key` are NULL. */
struct enc_tls_pem {
	const char *certificate;
	const struct enc_cert_key *key;
	const char *ca;
};
struct ssl_ctx_st *enc_tls_client_pem (const struct enc_tls_pem *pem, struct enc_error *err) ENC_MUST_USE;

/* Before the handshake of a client: name the server; `enrol` when there is no certificate yet. */
ENC_MUST_USE int enc_tls_client_name (struct ssl_st *ssl, bool enrol, struct enc_error *err);

/* Who the verified peer is. ENC_ENOTFOUND: it has no certificate. */
ENC_MUST_USE int enc_tls_peer (const struct ssl_st *ssl, struct enc_cert_info *ret, struct enc_error *err);

#endif
