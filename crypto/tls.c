#include "crypto/tls.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/str.h"
#include "base/enc.h"

ENC_DEFINE_AUTO (ssl_ctx, SSL_CTX, SSL_CTX_free);
ENC_DEFINE_AUTO (bio, BIO, BIO_free_all);
ENC_DEFINE_AUTO (x509, X509, X509_free);
ENC_DEFINE_AUTO (pkey, EVP_PKEY, EVP_PKEY_free);

/* OpenSSL keeps a queue of errors per thread; say the newest and leave the queue empty. */
static int tls_fail (struct enc_error *err, enum enc_code code, const char *what)
{
	unsigned long e = ERR_peek_last_error ();
	const char *reason = e ? ERR_reason_error_string (e) : NULL;

	ERR_clear_error ();
	return enc_fail (err, code, "%s: %s", what, reason ? reason : "refused");
}

static SSL_CTX *new_ctx (const SSL_METHOD *method)
{
	enc_auto (ssl_ctx) SSL_CTX *ctx = SSL_CTX_new (method);

	if (!ctx || SSL_CTX_set_min_proto_version (ctx, TLS1_3_VERSION) != 1 ||
		SSL_CTX_set_ciphersuites (ctx, "TLS_AES_256_GCM_SHA384") != 1 || SSL_CTX_set1_groups_list (ctx, "P-256") != 1 ||
		SSL_CTX_set1_sigalgs_list (ctx, "ECDSA+SHA256") != 1 || SSL_CTX_set_num_tickets (ctx, 0) != 1)
		return NULL;
	SSL_CTX_set_session_cache_mode (ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_options (ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_mode (ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	return ENC_TAKE (ctx);
}

static int load_files (SSL_CTX *ctx, const struct enc_tls_files *files, struct enc_error *err)
{
	if (files->ca && SSL_CTX_load_verify_file (ctx, files->ca) != 1)
		return enc_wrap (err, tls_fail (err, ENC_EINVAL, "not a CA certificate"), "%s", files->ca);
	if (!files->certificate)
		return 0;
	if (SSL_CTX_use_certificate_file (ctx, files->certificate, SSL_FILETYPE_PEM) != 1)
		return enc_wrap (err, tls_fail (err, ENC_EINVAL, "not a certificate"), "%s", files->certificate);
	if (SSL_CTX_use_PrivateKey_file (ctx, files->key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key (ctx) != 1)
		return enc_wrap (err, tls_fail (err, ENC_EINVAL, "not the key of the certificate"), "%s", files->key);
	return 0;
}

/* An enrolling client is the only one without a certificate; it is told apart before the certificate is asked for. */
static int on_name (SSL *ssl, int *alert ENC_UNUSED, void *arg ENC_UNUSED)
{
	const char *name = SSL_get_servername (ssl, TLSEXT_NAMETYPE_host_name);

	if (enc_streq (name, ENC_TLS_ENROL))
		SSL_set_verify (ssl, SSL_VERIFY_NONE, NULL);
	return SSL_TLSEXT_ERR_OK;
}

SSL_CTX *enc_tls_server (const struct enc_tls_files *files, struct enc_error *err)
{
	enc_auto (ssl_ctx) SSL_CTX *ctx = new_ctx (TLS_server_method ());

	if (!ctx) {
		(void) tls_fail (err, ENC_ESYS, "TLS cannot be set up");
		return NULL;
	}
	if (load_files (ctx, files, err) < 0)
		return NULL;
	STACK_OF (X509_NAME) *names = SSL_load_client_CA_file (files->ca);
	if (!names) {
		(void) tls_fail (err, ENC_EINVAL, "not a CA certificate");
		return NULL;
	}
	SSL_CTX_set_client_CA_list (ctx, names);
	SSL_CTX_set_verify (ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	SSL_CTX_set_tlsext_servername_callback (ctx, on_name);
	return ENC_TAKE (ctx);
}

static SSL_CTX *public_ctx (const SSL_METHOD *method, const struct enc_tls_files *files, struct enc_error *err)
{
	enc_auto (ssl_ctx) SSL_CTX *ctx = new_ctx (method);

	if (!ctx) {
		(void) tls_fail (err, ENC_ESYS, "TLS cannot be set up");
		return NULL;
	}
	return load_files (ctx, files, err) < 0 ? NULL : ENC_TAKE (ctx);
}

SSL_CTX *enc_tls_public_server (const struct enc_tls_files *files, struct enc_error *err)
{
	SSL_CTX *ctx = public_ctx (TLS_server_method (), files, err);

	if (ctx && files->ca)
		SSL_CTX_set_verify (ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	return ctx;
}

SSL_CTX *enc_tls_public_client (const struct enc_tls_files *files, struct enc_error *err)
{
	SSL_CTX *ctx = public_ctx (TLS_client_method (), files, err);

	if (ctx)
		SSL_CTX_set_verify (ctx, SSL_VERIFY_PEER, NULL);
	return ctx;
}

/* Chain to the CA, use "server", and the one name: a node's certificate is none of these. */
static SSL_CTX *expect_service (SSL_CTX *ctx, struct enc_error *err)
{
	X509_VERIFY_PARAM *param = SSL_CTX_get0_param (ctx);

	if (X509_VERIFY_PARAM_set1_host (param, ENC_CERT_SERVICE, 0) != 1) {
		SSL_CTX_free (ctx);
		(void) tls_fail (err, ENC_ESYS, "TLS cannot be set up");
		return NULL;
	}
	X509_VERIFY_PARAM_set_hostflags (param, X509_CHECK_FLAG_NO_WILDCARDS);
	SSL_CTX_set_verify (ctx, SSL_VERIFY_PEER, NULL);
	return ctx;
}

SSL_CTX *enc_tls_client (const struct enc_tls_files *files, struct enc_error *err)
{
	enc_auto (ssl_ctx) SSL_CTX *ctx = new_ctx (TLS_client_method ());

	if (!ctx) {
		(void) tls_fail (err, ENC_ESYS, "TLS cannot be set up");
		return NULL;
	}
	if (load_files (ctx, files, err) < 0)
		return NULL;
	return expect_service (ENC_TAKE (ctx), err);
}

static X509 *x509_of (const char *pem)
{
	enc_auto (bio) BIO *bio = pem ? BIO_new_mem_buf (pem, -1) : NULL;

	return bio ? PEM_read_bio_X509 (bio, NULL, NULL, NULL) : NULL;
}

static int load_own (SSL_CTX *ctx, const struct enc_tls_pem *pem, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_SECRET (ENC_CERT_PEM_MAX);
	enc_auto (x509) X509 *own = x509_of (pem->certificate);
	int rc = enc_cert_key_pem (pem->key, &text, err);

	if (rc < 0)
		return rc;
	enc_auto (bio) BIO *bio = BIO_new_mem_buf (text.data, (int) text.len);
	enc_auto (pkey) EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey (bio, NULL, NULL, NULL) : NULL;
	if (!own || !key || SSL_CTX_use_certificate (ctx, own) != 1 || SSL_CTX_use_PrivateKey (ctx, key) != 1 ||
		SSL_CTX_check_private_key (ctx) != 1)
		return tls_fail (err, ENC_EINVAL, "certificate and key do not belong together");
	return 0;
}

SSL_CTX *enc_tls_client_pem (const struct enc_tls_pem *pem, struct enc_error *err)
{
	enc_auto (ssl_ctx) SSL_CTX *ctx = new_ctx (TLS_client_method ());
	enc_auto (x509) X509 *ca = x509_of (pem->ca);

	if (!ctx || !ca || X509_STORE_add_cert (SSL_CTX_get_cert_store (ctx), ca) != 1) {
		(void) tls_fail (err, ENC_EINVAL, "not a CA certificate");
		return NULL;
	}
	if (pem->certificate && load_own (ctx, pem, err) < 0)
		return NULL;
	return expect_service (ENC_TAKE (ctx), err);
}

int enc_tls_client_name (SSL *ssl, bool enrol, struct enc_error *err)
{
	char name[ENC_CERT_NAME_SIZE]; /* the macro of OpenSSL wants no const */

	if (enc_str_copy (name, sizeof name, enrol ? ENC_TLS_ENROL : ENC_CERT_SERVICE, err) < 0 ||
		SSL_set_tlsext_host_name (ssl, name) != 1)
		return tls_fail (err, ENC_ESYS, "TLS cannot be set up");
	return 0;
}

int enc_tls_peer (const SSL *ssl, struct enc_cert_info *ret, struct enc_error *err)
{
	const X509 *peer = SSL_get0_peer_certificate (ssl);

	if (!peer)
		return enc_fail (err, ENC_ENOTFOUND, "the peer has no certificate");
	if (SSL_get_verify_result (ssl) != X509_V_OK)
		return enc_fail (err, ENC_EINTEGRITY, "the peer's certificate was not verified");
	return enc_cert_read (peer, ret, err);
}
