/* A CA, and certificates by it, for tests. */
#ifndef ENC_TEST_CA_H
#define ENC_TEST_CA_H

#include "crypto_test.h"
#include "crypto/cert.h"

struct ca {
	struct enc_cert_key *key;
	struct enc_buf pem;
};

/* PEM texts end in NUL behind their length. */
static inline void ca_up (struct ca *ca, const char *name)
{
	*ca = (struct ca){ .pem = ENC_BUF_INIT (ENC_CERT_PEM_MAX) };
	assert_int_equal (enc_cert_key_new (&ca->key, NULL), 0);
	assert_int_equal (enc_cert_ca (ca->key, name, 3650, &ca->pem, NULL), 0);
	enc_buf_put_u8 (&ca->pem, 0);
}

static inline void ca_down (struct ca *ca)
{
	enc_cert_key_free (ca->key);
	enc_buf_done (&ca->pem);
}

static inline void request (const struct enc_cert_key *key, const char *name, struct enc_buf *csr)
{
	*csr = ENC_BUF_INIT (ENC_CERT_PEM_MAX);
	assert_int_equal (enc_cert_request (key, name, csr, NULL), 0);
	enc_buf_put_u8 (csr, 0);
}

static inline struct enc_cert_made issue (const struct ca *ca, const struct enc_cert_key *key, const struct enc_cert_order *order)
{
	const struct enc_cert_issuer issuer = { ca->key, (const char *) ca->pem.data };
	struct enc_cert_made made = { 0 };
	struct enc_buf csr;

	request (key, "whatever", &csr);
	assert_int_equal (enc_cert_sign (&issuer, (const char *) csr.data, order, &made, NULL), 0);
	enc_buf_done (&csr);
	return made;
}

#endif
