/* Only what our own CA needs of X.509. A certificate is built from the order alone: a request can bring a public key, but no name,
 * extension or date. */
#include "crypto/cert.h"

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "base/str.h"
#include "crypto/secmem.h"
#include "base/enc.h"

enum { SERIAL = 16, BACKDATE_S = 300 };

struct enc_cert_key {
	EVP_PKEY *pair;
};

ENC_DEFINE_AUTO (bio, BIO, BIO_free_all);
ENC_DEFINE_AUTO (x509, X509, X509_free);
ENC_DEFINE_AUTO (x509_req, X509_REQ, X509_REQ_free);
ENC_DEFINE_AUTO (x509_ext, X509_EXTENSION, X509_EXTENSION_free);
ENC_DEFINE_AUTO (pkey, EVP_PKEY, EVP_PKEY_free);
ENC_DEFINE_AUTO (bn, BIGNUM, BN_free);
ENC_DEFINE_AUTO (store, X509_STORE, X509_STORE_free);
ENC_DEFINE_AUTO (store_ctx, X509_STORE_CTX, X509_STORE_CTX_free);

static int failed (struct enc_error *err, const char *what)
{
	return enc_fail (err, ENC_ESYS, "cannot %s", what);
}

static int take_bio (BIO *bio, struct enc_buf *out, struct enc_error *err)
{
	char *data = NULL;
	long len = BIO_get_mem_data (bio, &data);

	if (len <= 0)
		return failed (err, "write a certificate");
	enc_buf_put (out, data, (size_t) len);
	return enc_buf_check (out, err);
}

static BIO *bio_of (const void *data, size_t len)
{
	return len > 0 && len <= ENC_CERT_PEM_MAX ? BIO_new_mem_buf (data, (int) len) : NULL;
}

/* ---- keys ---- */

void enc_cert_key_free (struct enc_cert_key *key)
{
	if (!key)
		return;
	EVP_PKEY_free (key->pair);
	free (key);
}

static bool is_p256 (EVP_PKEY *pair)
{
	char group[32] = "";
	size_t len = 0;

	return pair && EVP_PKEY_is_a (pair, "EC") && EVP_PKEY_get_group_name (pair, group, sizeof group, &len) == 1 &&
	       (enc_streq (group, "prime256v1") || enc_streq (group, "P-256"));
}

/* Takes `pair` over, also on failure. */
static int key_of_pair (EVP_PKEY *pair, struct enc_cert_key **ret, struct enc_error *err)
{
	struct enc_cert_key *key = is_p256 (pair) ? calloc (1, sizeof *key) : NULL;

	if (!key) {
		EVP_PKEY_free (pair);
		return enc_fail (err, ENC_EINVAL, "not a P-256 private key");
	}
	key->pair = pair;
	*ret = key;
	return 0;
}

int enc_cert_key_new (struct enc_cert_key **ret, struct enc_error *err)
{
	EVP_PKEY *pair = EVP_EC_gen ("P-256");

	return pair ? key_of_pair (pair, ret, err) : failed (err, "make a P-256 key pair");
}

int enc_cert_key_pem (const struct enc_cert_key *key, struct enc_buf *out, struct enc_error *err)
{
	enc_auto (bio) BIO *bio = BIO_new (BIO_s_secmem ());

	if (!bio || PEM_write_bio_PrivateKey (bio, key->pair, NULL, NULL, 0, NULL, NULL) != 1)
		return failed (err, "write a private key");
	return take_bio (bio, out, err);
}

int enc_cert_key_der (const struct enc_cert_key *key, struct enc_secret *ret, struct enc_error *err)
{
	enc_auto (bio) BIO *bio = BIO_new (BIO_s_secmem ());
	enc_auto (enc_secmem) uint8_t *copy = NULL;
	char *data = NULL;

	if (!bio || i2d_PrivateKey_bio (bio, key->pair) != 1)
		return failed (err, "write a private key");
	long len = BIO_get_mem_data (bio, &data);
	int rc = len > 0 ? enc_secmem_get ((size_t) len, &copy, err) : failed (err, "write a private key");
	if (rc < 0)
		return rc;
	memcpy (copy, data, (size_t) len);
	*ret = (struct enc_secret){ ENC_TAKE (copy), (size_t) len };
	return 0;
}

int enc_cert_key_of_pem (const void *pem, size_t len, struct enc_cert_key **ret, struct enc_error *err)
{
	enc_auto (bio) BIO *bio = bio_of (pem, len);

	return key_of_pair (bio ? PEM_read_bio_PrivateKey (bio, NULL, NULL, NULL) : NULL, ret, err);
}

int enc_cert_key_of_der (const void *der, size_t len, struct enc_cert_key **ret, struct enc_error *err)
{
	enc_auto (bio) BIO *bio = bio_of (der, len);

	return key_of_pair (bio ? d2i_PrivateKey_bio (bio, NULL) : NULL, ret, err);
}

/* ---- making ---- */

static bool set_name (X509_NAME *name, const char *cn)
{
	return name && X509_NAME_add_entry_by_txt (name, "CN", MBSTRING_UTF8, (const unsigned char *) cn, -1, -1, 0) == 1;
}

int enc_cert_request (const struct enc_cert_key *key, const char *name, struct enc_buf *ret_pem, struct enc_error *err)
{
	enc_auto (x509_req) X509_REQ *req = X509_REQ_new ();
	enc_auto (bio) BIO *bio = BIO_new (BIO_s_mem ());

	if (!req || !bio || X509_REQ_set_version (req, 0) != 1 || !set_name (X509_REQ_get_subject_name (req), name) ||
		X509_REQ_set_pubkey (req, key->pair) != 1 || X509_REQ_sign (req, key->pair, EVP_sha256 ()) <= 0 ||
		PEM_write_bio_X509_REQ (bio, req) != 1)
		return failed (err, "make a certificate request");
	return take_bio (bio, ret_pem, err);
}

static bool set_serial (X509 *x509, char hex[static ENC_CERT_SERIAL_HEX])
{
	uint8_t bytes[SERIAL];

	if (enc_random (bytes, sizeof bytes, NULL) < 0)
		return false;
	bytes[0] = (uint8_t) ((bytes[0] & 0x7f) | 0x40); /* positive, and always 32 digits */
	enc_auto (bn) BIGNUM *bn = BN_bin2bn (bytes, sizeof bytes, NULL);
	enc_auto_free char *text = enc_hex (bytes, sizeof bytes);
	if (!bn || !text || !BN_to_ASN1_INTEGER (bn, X509_get_serialNumber (x509)))
		return false;
	return enc_str_copy (hex, ENC_CERT_SERIAL_HEX, text, NULL) == 0;
}

static bool add_ext (X509 *x509, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;

	X509V3_set_ctx_nodb (&ctx);
	X509V3_set_ctx (&ctx, issuer, x509, NULL, NULL, 0);
	enc_auto (x509_ext) X509_EXTENSION *ext = X509V3_EXT_conf_nid (NULL, &ctx, nid, value);
	return ext && X509_add_ext (x509, ext, -1) == 1;
}

/* What both kinds have. Dates start a little in the past: clocks of nodes differ. */
static bool fill (X509 *x509, const char *name, EVP_PKEY *pub, unsigned days)
{
	return X509_set_version (x509, 2) == 1 && set_name (X509_get_subject_name (x509), name) &&
	       X509_set_pubkey (x509, pub) == 1 && X509_gmtime_adj (X509_getm_notBefore (x509), -BACKDATE_S) &&
	       X509_time_adj_ex (X509_getm_notAfter (x509), (int) days, 0, NULL);
}

int enc_cert_ca (const struct enc_cert_key *key, const char *name, unsigned days, struct enc_buf *ret_pem, struct enc_error *err)
{
	enc_auto (x509) X509 *x509 = X509_new ();
	enc_auto (bio) BIO *bio = BIO_new (BIO_s_mem ());
	char serial[ENC_CERT_SERIAL_HEX];

	if (!x509 || !bio || !set_serial (x509, serial) || !fill (x509, name, key->pair, days) ||
		X509_set_issuer_name (x509, X509_get_subject_name (x509)) != 1 ||
		!add_ext (x509, x509, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
		!add_ext (x509, x509, NID_key_usage, "critical,keyCertSign,cRLSign") ||
		!add_ext (x509, x509, NID_subject_key_identifier, "hash") || X509_sign (x509, key->pair, EVP_sha256 ()) <= 0 ||
		PEM_write_bio_X509 (bio, x509) != 1)
		return failed (err, "make the CA certificate");
	return take_bio (bio, ret_pem, err);
}

static X509 *x509_of (const char *pem)
{
	enc_auto (bio) BIO *bio = bio_of (pem, strlen (pem));

	return bio ? PEM_read_bio_X509 (bio, NULL, NULL, NULL) : NULL;
}

/* The public key of a request whose own signature holds; NULL if it is not P-256 or anything else is wrong. */
static EVP_PKEY *key_of_request (const char *csr_pem)
{
	enc_auto (bio) BIO *bio = bio_of (csr_pem, strlen (csr_pem));
	enc_auto (x509_req) X509_REQ *req = bio ? PEM_read_bio_X509_REQ (bio, NULL, NULL, NULL) : NULL;
	enc_auto (pkey) EVP_PKEY *pub = req ? X509_REQ_get_pubkey (req) : NULL;

	if (!is_p256 (pub) || X509_REQ_verify (req, pub) != 1)
		return NULL;
	return ENC_TAKE (pub);
}

static bool add_use (X509 *x509, X509 *issuer, const struct enc_cert_order *order)
{
	enc_auto_free char *san = enc_strf ("DNS:%s", order->name);

	return san && add_ext (x509, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
	       add_ext (x509, issuer, NID_key_usage, "critical,digitalSignature") &&
	       add_ext (x509, issuer, NID_ext_key_usage, order->use == ENC_CERT_SERVER ? "critical,serverAuth" : "critical,clientAuth") &&
	       add_ext (x509, issuer, NID_subject_alt_name, san) && add_ext (x509, issuer, NID_subject_key_identifier, "hash") &&
	       add_ext (x509, issuer, NID_authority_key_identifier, "keyid:always");
}

static int fingerprint_of (const X509 *x509, uint8_t *ret, struct enc_error *err)
{
	unsigned len = ENC_CERT_FINGERPRINT;

	return X509_digest (x509, EVP_sha256 (), ret, &len) == 1 ? 0 : failed (err, "hash a certificate");
}

int enc_cert_sign (const struct enc_cert_issuer *ca, const char *csr_pem, const struct enc_cert_order *order,
	struct enc_cert_made *ret, struct enc_error *err)
{
	enc_auto (x509) X509 *issuer = x509_of (ca->certificate);
	enc_auto (x509) X509 *x509 = X509_new ();
	enc_auto (bio) BIO *bio = BIO_new (BIO_s_mem ());
	enc_auto (pkey) EVP_PKEY *pub = key_of_request (csr_pem);
	struct enc_cert_made made = { .pem = ENC_BUF_INIT (ENC_CERT_PEM_MAX) };
	int rc;

	if (!pub)
		return enc_fail (err, ENC_EINVAL, "not a certificate request for a P-256 key");
	/* The name becomes part of an extension's text: a comma in it would be another name. */
	if (!enc_node_name_ok (order->name))
		return enc_fail (err, ENC_EINVAL, "bad name for a certificate");
	if (!issuer || !x509 || !bio || !set_serial (x509, made.serial) || !fill (x509, order->name, pub, order->days) ||
		X509_set_issuer_name (x509, X509_get_subject_name (issuer)) != 1 || !add_use (x509, issuer, order) ||
		X509_sign (x509, ca->key->pair, EVP_sha256 ()) <= 0 || PEM_write_bio_X509 (bio, x509) != 1)
		return failed (err, "sign a certificate");
	if ((rc = fingerprint_of (x509, made.fingerprint, err)) < 0 || (rc = take_bio (bio, &made.pem, err)) < 0) {
		enc_buf_done (&made.pem);
		return rc;
	}
	enc_buf_put_u8 (&made.pem, 0); /* readers take it as text */
	made.pem.len--;
	*ret = made;
	return 0;
}

/* ---- reading ---- */

int enc_cert_read (const X509 *x509, struct enc_cert_info *ret, struct enc_error *err)
{
	struct enc_cert_info info = { 0 };
	enc_auto (bn) BIGNUM *serial = ASN1_INTEGER_to_BN (X509_get0_serialNumber (x509), NULL);
	uint8_t bytes[SERIAL];
	struct tm tm;

	/* OpenSSL shortens silently, and stops at a NUL inside: take the length it wants as the truth. */
	int len = X509_NAME_get_text_by_NID (X509_get_subject_name (x509), NID_commonName, NULL, 0);
	if (len <= 0 || len >= (int) sizeof info.name)
		return enc_fail (err, ENC_EINTEGRITY, "a certificate without a usable name");
	X509_NAME_get_text_by_NID (X509_get_subject_name (x509), NID_commonName, info.name, sizeof info.name);
	if (strlen (info.name) != (size_t) len || !enc_node_name_ok (info.name))
		return enc_fail (err, ENC_EINTEGRITY, "a certificate without a usable name");
	if (!serial || BN_bn2binpad (serial, bytes, sizeof bytes) != SERIAL || ASN1_TIME_to_tm (X509_get0_notAfter (x509), &tm) != 1)
		return enc_fail (err, ENC_EINTEGRITY, "a certificate that is not ours");
	enc_auto_free char *text = enc_hex (bytes, sizeof bytes);
	if (!text || enc_str_copy (info.serial, sizeof info.serial, text, NULL) < 0)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	info.not_after = timegm (&tm);
	int rc = fingerprint_of (x509, info.fingerprint, err);
	if (rc == 0)
		*ret = info;
	return rc;
}

int enc_cert_verify (const char *pem, const char *ca_pem, enum enc_cert_use use, struct enc_cert_info *ret, struct enc_error *err)
{
	enc_auto (x509) X509 *x509 = x509_of (pem);
	enc_auto (x509) X509 *ca = x509_of (ca_pem);
	enc_auto (store) X509_STORE *store = X509_STORE_new ();
	enc_auto (store_ctx) X509_STORE_CTX *ctx = X509_STORE_CTX_new ();

	if (!x509 || !ca)
		return enc_fail (err, ENC_EINVAL, "not a certificate");
	if (!store || !ctx || X509_STORE_add_cert (store, ca) != 1 || X509_STORE_CTX_init (ctx, store, x509, NULL) != 1 ||
		X509_STORE_CTX_set_purpose (ctx, use == ENC_CERT_SERVER ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT) != 1)
		return failed (err, "check a certificate");
	if (X509_verify_cert (ctx) != 1)
		return enc_fail (err, ENC_EINTEGRITY, "the certificate does not hold: %s",
			X509_verify_cert_error_string (X509_STORE_CTX_get_error (ctx)));
	return enc_cert_read (x509, ret, err);
}

int enc_cert_fingerprint (const char *pem, uint8_t ret[static ENC_CERT_FINGERPRINT], struct enc_error *err)
{
	enc_auto (x509) X509 *x509 = x509_of (pem);

	return x509 ? fingerprint_of (x509, ret, err) : enc_fail (err, ENC_EINVAL, "not a certificate");
}
