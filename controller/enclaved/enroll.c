/* Tokens, certificates and baselines: how a machine becomes a node. */
#include "controller/enclaved/agents.h"

#include <fcntl.h>
#include <sys/stat.h>
#include "base/file.h"
#include "base/log.h"
#include "controller/enclaved/nodes.h"
#include "controller/enclaved/record.h"
#include "crypto/cert.h"
#include "base/enc.h"

static int sha256_hex (const void *data, size_t len, char ret[65], struct enc_error *err)
{
	uint8_t digest[32];
	enc_auto_free char *hex = NULL;

	enc_doc_digest (data, len, digest);
	hex = enc_hex (digest, sizeof digest);
	return hex ? enc_str_copy (ret, 65, hex, err) : enc_fail (err, ENC_ENOMEM, "out of memory");
}

/* ---- tokens ---- */

int enc_token_new (struct enc_ctl *c, const char *node, const char *pool, char ret[65], int64_t *ret_expires, struct enc_error *err)
{
	enc_auto_free char *hex = NULL;
	uint8_t raw[24];
	char hash[65];
	int rc;

	if ((rc = enc_random (raw, sizeof raw, err)) < 0)
		return rc;
	hex = enc_hex (raw, sizeof raw);
	enc_wipe (raw, sizeof raw);
	if (!hex)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	*ret_expires = enc_now_s () + (int64_t) c->conf->token_ttl_s;
	if ((rc = sha256_hex (hex, strlen (hex), hash, err)) < 0 || (rc = enc_token_put (c->db, hash, node, pool, *ret_expires, err)) < 0)
		return rc;
	return enc_str_copy (ret, 65, hex, err);
}

int enc_agents_ca_sha256 (struct enc_ctl *c, char ret[65], struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf pem = ENC_BUF_INIT (ENC_CERT_PEM_MAX);
	enc_auto_free char *text = NULL, *hex = NULL;
	uint8_t print[ENC_CERT_FINGERPRINT];
	int rc;

	if (enc_file_read (c->conf->ca, ENC_CERT_PEM_MAX, &pem, err) < 0)
		return enc_error_next (err, enc_fail (err, ENC_EUNAVAIL, "there is no CA yet"), "enclavectl key init");
	if (!(text = enc_buf_take_str (&pem)))
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if ((rc = enc_cert_fingerprint (text, print, err)) < 0)
		return rc;
	hex = enc_hex (print, sizeof print);
	return hex ? enc_str_copy (ret, 65, hex, err) : enc_fail (err, ENC_ENOMEM, "out of memory");
}

/* ---- a node's certificate ---- */

struct request {
	char *node, *token, *csr, *identity, *boot;
};

static const struct enc_field request_fields[] = {
	ENC_FIELD (struct request, node, "node", ENC_T_NODE, .flags = ENC_REQUIRED),
	ENC_FIELD (struct request, token, "token", ENC_T_STR, .flags = ENC_REQUIRED, .max = 128),
	ENC_FIELD (struct request, csr, "csr", ENC_T_STR, .flags = ENC_REQUIRED, .max = 8192),
	ENC_FIELD (struct request, identity, "identity", ENC_T_STR, .flags = ENC_REQUIRED, .min = 64, .max = 64),
	ENC_FIELD (struct request, boot, "boot", ENC_T_STR, .max = 32),
	ENC_FIELD_END
};

static void request_done (struct request *r)
{
	enc_fields_done (request_fields, r);
}

static int certify (struct enc_ctl *c, const char *verb, const char *node, const char *csr, const char *identity, struct enc_json **ret,
		    struct enc_error *err)
{
	bool self = enc_streq (verb, "server.certify");
	struct enc_order o = { 0 };
	char digest[65];
	int rc = sha256_hex (csr, strlen (csr), digest, err);

	if (rc < 0)
		return rc;
	o.head = enc_head (verb);
	o.record = enc_record ("node", "enroll", "intent");
	o.request = enc_request ("certify");
	enc_json_set_str (o.head, "object", self ? ENC_CERT_SERVICE : identity);
	enc_json_set_str (o.head, "document", digest);
	enc_record_actor (o.record, NULL);
	enc_record_obj (o.record, "node", node);
	enc_json_set_str (o.request, "csr", csr);
	if (!self) {
		enc_json_set_str (o.head, "node", node);
		enc_json_set_str (o.request, "node", node);
		enc_json_set_str (o.request, "identity", identity);
	}
	return enc_order (c, &o, ret, NULL, err);
}

static int store_node (struct enc_ctl *c, const struct request *r, const char *pool, const char *certificate, struct enc_error *err)
{
	enc_auto_done (enc_node_done) struct enc_node n = { 0 };
	enc_auto_free char *hex = NULL;
	uint8_t print[ENC_CERT_FINGERPRINT];
	bool known = enc_node_load (c->db, r->node, &n, NULL) == 0;
	int rc;

	if ((rc = enc_cert_fingerprint (certificate, print, err)) < 0)
		return rc;
	if (!(hex = enc_hex (print, sizeof print)))
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if (!known) {
		n.pool = enc_streq (pool, "general") ? ENC_POOL_GENERAL : ENC_POOL_SERVICE;
		(void) snprintf (n.name, sizeof n.name, "%s", r->node);
	}
	/* Another identity is another machine: what was measured before does not speak for it. */
	if (!enc_streq (n.identity, r->identity))
		n.baseline_at = 0;
	(void) snprintf (n.declared, sizeof n.declared, "%s", pool);
	(void) snprintf (n.identity, sizeof n.identity, "%s", r->identity);
	(void) snprintf (n.fingerprint, sizeof n.fingerprint, "%s", hex);
	n.enrolled_at = enc_now_s ();
	return enc_node_put (c->db, &n, err);
}

int enc_enroll (struct enc_ctl *c, const struct enc_json *body, struct enc_json **ret, struct enc_error *err)
{
	enc_auto_done (request_done) struct request r = { 0 };
	enc_auto (enc_json) struct enc_json *answer = NULL;
	char hash[65], pool[12] = "";
	const char *certificate, *ca;
	int rc;

	if ((rc = enc_json_decode (request_fields, body, &r, err)) < 0 || (rc = sha256_hex (r.token, strlen (r.token), hash, err)) < 0 ||
	    (rc = enc_token_use (c->db, hash, r.node, enc_now_s (), pool, err)) < 0)
		return rc;
	if ((rc = certify (c, "node.enroll", r.node, r.csr, r.identity, &answer, err)) < 0) {
		/* Used up only by a certificate, or a key service that was away would cost the node its token. */
		if (rc == -ENC_EUNAVAIL && enc_db_exec (c->db, NULL, "UPDATE tokens SET used_at=0 WHERE hash=?", "s", hash) < 0)
			enc_log_warn ("the token of %s is lost", r.node);
		return rc;
	}
	if ((rc = enc_json_need_str (answer, "certificate", &certificate, err)) < 0 || (rc = enc_json_need_str (answer, "ca", &ca, err)) < 0 ||
	    (rc = store_node (c, &r, pool, certificate, err)) < 0)
		return rc;
	*ret = enc_json_object ();
	enc_json_set_str (*ret, "certificate", certificate);
	enc_json_set_str (*ret, "ca", ca);
	enc_log_notice ("%s is enrolled in pool %s", r.node, pool);
	return 0;
}

/* ---- the controller's own certificate ---- */

static int put_file (const char *path, mode_t mode, const void *data, size_t len, struct enc_error *err)
{
	struct enc_file_attr attr = ENC_FILE_ATTR (mode);

	return enc_file_write (path, data, len, &attr, err);
}

int enc_enroll_self (struct enc_ctl *c, struct enc_error *err)
{
	enc_auto (enc_cert_key) struct enc_cert_key *key = NULL;
	enc_auto_done (enc_buf_done) struct enc_buf pem = ENC_BUF_SECRET (ENC_CERT_PEM_MAX), csr = ENC_BUF_INIT (ENC_CERT_PEM_MAX);
	enc_auto (enc_json) struct enc_json *answer = NULL;
	enc_auto_free char *text = NULL;
	const char *certificate, *ca;
	int rc;

	if ((rc = enc_cert_key_new (&key, err)) < 0 || (rc = enc_cert_key_pem (key, &pem, err)) < 0 ||
	    (rc = enc_cert_request (key, ENC_CERT_SERVICE, &csr, err)) < 0)
		return rc;
	if (!(text = enc_buf_take_str (&csr)))
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if ((rc = certify (c, "server.certify", ENC_CERT_SERVICE, text, NULL, &answer, err)) < 0 ||
	    (rc = enc_json_need_str (answer, "certificate", &certificate, err)) < 0 || (rc = enc_json_need_str (answer, "ca", &ca, err)) < 0)
		return rc;
	/* The certificate comes last: it is what says that all three are there. */
	if ((rc = put_file (c->conf->key, 0600, pem.data, pem.len, err)) < 0 || (rc = put_file (c->conf->ca, 0644, ca, strlen (ca), err)) < 0)
		return rc;
	return put_file (c->conf->certificate, 0644, certificate, strlen (certificate), err);
}
