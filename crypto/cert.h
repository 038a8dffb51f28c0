/* Certificates of nodes and services: P-256, X.509 by OpenSSL. The toolkit's CA lives in keyd; nothing here is a public CA.
 *
 * Names: a node certificate has CN and DNS name = the node's name and may only be a TLS client; the service certificate is named
 * ENC_CERT_SERVICE and may only be a TLS server, so that no node can pose as the controller. */
#ifndef ENC_CRYPTO_CERT_H
#define ENC_CRYPTO_CERT_H

#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "crypto/wrap.h"

#define ENC_CERT_SERVICE "enclave-controller" /* what TLS clients expect at the other end */
#define ENC_CERT_FINGERPRINT 32
#define ENC_CERT_NAME_SIZE 65
enum { ENC_CERT_PEM_MAX = 16384, ENC_CERT_SERIAL_HEX = 33 };

enum enc_cert_use { ENC_CERT_NODE, ENC_CERT_SERVER };

/* A P-256 key pair. With secmem set up, the private number stands in OpenSSL's secure heap. */
struct enc_cert_key;
ENC_MUST_USE int enc_cert_key_new (struct enc_cert_key **ret, struct enc_error *err);
void enc_cert_key_free (struct enc_cert_key *key);
ENC_DEFINE_AUTO (enc_cert_key, struct enc_cert_key, enc_cert_key_free);
/* Private key as PKCS#8 PEM, to be written with mode 0600 by its owner; `out` should be a secret buffer. And back. */
ENC_MUST_USE int enc_cert_key_pem (const struct enc_cert_key *key, struct enc_buf *out, struct enc_error *err);
ENC_MUST_USE int enc_cert_key_of_pem (const void *pem, size_t len, struct enc_cert_key **ret, struct enc_error *err);
/* The same as DER in fresh secmem, for wrapping. */
ENC_MUST_USE int enc_cert_key_der (const struct enc_cert_key *key, struct enc_secret *ret, struct enc_error *err);
ENC_MUST_USE int enc_cert_key_of_der (const void *der, size_t len, struct enc_cert_key **ret, struct enc_error *err);

/* A signing request with CN = `name`, PEM. */
ENC_MUST_USE int enc_cert_request (const struct enc_cert_key *key, const char *name, struct enc_buf *ret_pem, struct enc_error *err);

/* A CA's self-signed certificate: path length 0, key usage only certificates and lists. `days` from now. PEM. */
ENC_MUST_USE int enc_cert_ca (const struct enc_cert_key *key, const char *name, unsigned days, struct enc_buf *ret_pem,
	struct enc_error *err);

/* What the CA puts into a certificate; of the request only the public key is taken (P-256, its signature checked). */
struct enc_cert_order {
	const char *name;
	enum enc_cert_use use;
	unsigned days;
};
struct enc_cert_issuer {
	const struct enc_cert_key *key;
	const char *certificate; /* PEM */
};
struct enc_cert_made {
	struct enc_buf pem;
	char serial[ENC_CERT_SERIAL_HEX];            /* 32 hex digits, random */
	uint8_t fingerprint[ENC_CERT_FINGERPRINT];   /* SHA-256 of the DER */
};
/* ENC_EINVAL when the request is no such request. Free `ret->pem` by enc_buf_done(). */
ENC_MUST_USE int enc_cert_sign (const struct enc_cert_issuer *ca, const char *csr_pem, const struct enc_cert_order *order,
	struct enc_cert_made *ret, struct enc_error *err);

/* What a certificate says, after its chain to `ca_pem`, time and use were checked. ENC_EINTEGRITY if they do not hold. */
struct enc_cert_info {
	char name[ENC_CERT_NAME_SIZE]; /* CN */
	char serial[ENC_CERT_SERIAL_HEX];
	uint8_t fingerprint[ENC_CERT_FINGERPRINT];
	int64_t not_after;             /* Unix seconds */
};
ENC_MUST_USE int enc_cert_verify (const char *pem, const char *ca_pem, enum enc_cert_use use, struct enc_cert_info *ret,
	struct enc_error *err);
/* SHA-256 of a PEM certificate's DER, unchecked: for pinning a CA by its fingerprint. */
ENC_MUST_USE int enc_cert_fingerprint (const char *pem, uint8_t ret[static ENC_CERT_FINGERPRINT], struct enc_error *err);

/* The name and serial of an OpenSSL certificate (of a TLS peer that was verified). */
struct x509_st;
ENC_MUST_USE int enc_cert_read (const struct x509_st *x509, struct enc_cert_info *ret, struct enc_error *err);

#endif
