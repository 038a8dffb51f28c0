/* Nodes: who they are (certificate and identity), what they should be (baseline), what they are (attestation). */
#include "controller/keyd/ops.h"

#include "crypto/attestation.h"
#include "crypto/hash.h"
#include "base/enc.h"

enum { NAMES_MAX = 32, ROWS_MAX = 64 * 1024 };

/* ---- certificates ---- */

static int sign_request (struct enc_keyd_call *c, const char *csr, const struct enc_cert_order *order, struct enc_cert_made *ret,
	struct enc_error *err)
{
	const struct enc_cert_issuer ca = { enc_vault_ca_key (c->k->vault), enc_vault_ca (c->k->vault) };
	int rc = enc_claim_document (&c->claim, csr, strlen (csr), err);

	return rc < 0 ? rc : enc_cert_sign (&ca, csr, order, ret, err);
}

static void answer_certificate (struct enc_keyd_call *c, const struct enc_cert_made *made)
{
	enc_auto_free char *fingerprint = enc_hex (made->fingerprint, sizeof made->fingerprint);

	enc_json_set_str (c->answer, "certificate", (const char *) made->pem.data);
	enc_json_set_str (c->answer, "ca", enc_vault_ca (c->k->vault));
	enc_json_set_str (c->answer, "serial", made->serial);
	enc_json_set_str (c->answer, "fingerprint", fingerprint);
}

/* Another identity is another machine as far as we can know: what was measured before does not speak for it. */
static int bind_node (struct enc_keyd_call *c, const uint8_t identity[static 32], const char *serial, struct enc_error *err)
{
	enc_auto_done (enc_node_row_done) struct enc_node_row row = { 0 };
	int rc = enc_keystore_node (c->k->store, c->claim.node, &row, err);

	if (rc < 0 && rc != -ENC_ENOTFOUND)
		return rc;
	if (rc == -ENC_ENOTFOUND || !enc_mem_equal (row.identity, identity, 32)) {
		enc_buf_done (&row.baseline);
		row = (struct enc_node_row){ 0 };
		if ((rc = enc_keystore_drop_attest (c->k->store, c->claim.node, err)) < 0)
			return rc;
	}
	if ((rc = enc_str_copy (row.node, sizeof row.node, c->claim.node, err)) < 0 ||
		(rc = enc_str_copy (row.serial, sizeof row.serial, serial, err)) < 0)
		return rc;
	memcpy (row.identity, identity, 32);
	return enc_keystore_set_node (c->k->store, &row, err);
}

int enc_keyd_certify (struct enc_keyd_call *c, struct enc_error *err)
{
	const struct enc_cert_order order = { c->claim.node, ENC_CERT_NODE, (unsigned) c->k->conf->certificate_days };
	struct enc_cert_made made = { 0 };
	const char *csr = NULL, *identity = NULL, *node = NULL;
	uint8_t key[32];
	int rc;

	if ((rc = enc_json_need_str (c->body, "csr", &csr, err)) < 0 || (rc = enc_json_need_str (c->body, "identity", &identity, err)) < 0 ||
		(rc = enc_json_need_str (c->body, "node", &node, err)) < 0 || (rc = enc_claim_object (&c->claim, identity, err)) < 0)
		return rc;
	if ((rc = enc_hex_fixed (identity, key, sizeof key, err)) < 0)
		return enc_error_pointer (err, rc, "/identity");
	/* The service's name is no node's, in whatever case a resolver might take it. */
	if (strcasecmp (node, ENC_CERT_SERVICE) == 0)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "this name is the controller's"), "/node");
	if ((rc = sign_request (c, csr, &order, &made, err)) < 0)
		return rc;
	if ((rc = enc_keystore_begin (c->k->store, err)) == 0 && (rc = bind_node (c, key, made.serial, err)) == 0)
		rc = enc_keystore_commit (c->k->store, err);
	if (rc == 0)
		answer_certificate (c, &made);
	enc_buf_done (&made.pem);
	return rc;
}

int enc_keyd_certify_server (struct enc_keyd_call *c, struct enc_error *err)
{
	const struct enc_cert_order order = { ENC_CERT_SERVICE, ENC_CERT_SERVER, (unsigned) c->k->conf->certificate_days };
	struct enc_cert_made made = { 0 };
	const char *csr = NULL;
	int rc = enc_json_need_str (c->body, "csr", &csr, err);

	if (rc < 0 || (rc = enc_claim_object (&c->claim, ENC_CERT_SERVICE, err)) < 0 ||
		(rc = sign_request (c, csr, &order, &made, err)) < 0)
		return rc;
	answer_certificate (c, &made);
	enc_buf_done (&made.pem);
	return 0;
}

/* ---- attestations ---- */

/* Decode and check by the identity that the node is bound to; the challenge must be one of ours, and is then used up. */
static int read_attestation (struct enc_keyd_call *c, const struct enc_node_row *node, const struct enc_buf *envelope,
	struct enc_attestation *ret, struct enc_error *err)
{
	struct enc_sign_pub identity = { .alg = ENC_SIGN_ED25519, .len = sizeof node->identity };
	enc_auto_done (enc_attestation_done) struct enc_attestation a = { 0 };
	int rc;

	memcpy (identity.key, node->identity, sizeof node->identity);
	if ((rc = enc_attestation_read (enc_view_of (envelope->data, envelope->len), &identity, &a, err)) < 0)
		return rc;
	if (!enc_streq (a.node, node->node))
		return enc_fail (err, ENC_EDENIED, "the attestation is of node %s", a.node);
	if ((rc = enc_nonces_take (c->k->nonces, c->k->mono (), a.challenge, ENC_NONCE_CHALLENGE_S, err)) < 0)
		return enc_wrap (err, rc, "challenge");
	*ret = a;
	a = (struct enc_attestation){ 0 };
	return 0;
}

static int store_attestation (struct enc_keyd_call *c, const struct enc_attestation *a, struct enc_error *err)
{
	enc_auto_done (enc_attest_record_done) struct enc_attest_record row = { .time = c->now, .rows = ENC_BUF_INIT (ROWS_MAX) };
	int rc = enc_attest_rows_put (a->rows, a->rows_n, &row.rows, err);

	if (rc < 0 || (rc = enc_str_copy (row.node, sizeof row.node, a->node, err)) < 0)
		return rc;
	memcpy (row.boot, a->boot, sizeof row.boot);
	memcpy (row.boot_key, a->boot_key, sizeof row.boot_key);
	return enc_keystore_set_attest (c->k->store, &row, err);
}

static int read_rows (const struct enc_buf *stored, struct enc_attest_row **ret, size_t *ret_n, struct enc_error *err)
{
	struct enc_view v = enc_view_of (stored->data, stored->len);
	int rc = enc_attest_rows_get (&v, ret, ret_n, err);

	if (rc == 0 && v.left) {
		free (ENC_TAKE (*ret));
		return enc_fail (err, ENC_EINTEGRITY, "keys.db: damaged rows");
	}
	return rc;
}

/* The challenge as the request has it: it says which one is being answered, so that a mix-up is seen. */
static int check_challenge (struct enc_keyd_call *c, const struct enc_attestation *a, struct enc_error *err)
{
	const char *text = NULL;
	uint8_t challenge[ENC_NONCE_BYTES];
	int rc = enc_json_need_str (c->body, "challenge", &text, err);

	if (rc < 0 || (rc = enc_hex_fixed (text, challenge, sizeof challenge, err)) < 0)
		return enc_error_pointer (err, rc, "/challenge");
	if (!enc_mem_equal (challenge, a->challenge, sizeof challenge))
		return enc_fail (err, ENC_EDENIED, "the attestation answers another challenge");
	return 0;
}

static int answer_rows (struct enc_keyd_call *c, const struct enc_attestation *a, const struct enc_node_row *node, struct enc_error *err)
{
	enc_auto_free struct enc_attest_row *baseline = NULL;
	struct enc_json *differs = enc_json_set_array (c->answer, "differs");
	struct enc_json *rows = enc_json_set_array (c->answer, "rows");
	const char *names[NAMES_MAX];
	size_t baseline_n = 0;
	int rc = read_rows (&node->baseline, &baseline, &baseline_n, err);

	if (rc < 0)
		return rc;
	size_t n = enc_attest_differs (a, baseline, baseline_n, names, NAMES_MAX);
	enc_json_set_bool (c->answer, "equal", n == 0);
	for (size_t i = 0; i < n && i < NAMES_MAX; i++)
		enc_json_add_str (differs, names[i]);
	for (size_t i = 0; i < a->rows_n; i++) {
		enc_auto_free char *hex = enc_hex (a->rows[i].digest, sizeof a->rows[i].digest);
		struct enc_json *row = enc_json_add_object (rows);

		enc_json_set_str (row, "name", a->rows[i].name);
		enc_json_set_str (row, "digest", hex);
	}
	return 0;
}

int enc_keyd_attest (struct enc_keyd_call *c, struct enc_error *err)
{
	enc_auto_done (enc_node_row_done) struct enc_node_row node = { 0 };
	enc_auto_done (enc_buf_done) struct enc_buf envelope = { 0 };
	enc_auto_done (enc_attestation_done) struct enc_attestation a = { 0 };
	const char *name = NULL;
	int rc;

	if ((rc = enc_json_need_str (c->body, "node", &name, err)) < 0 || (rc = enc_keyd_find_node (c, name, &node, err)) < 0 ||
		(rc = enc_keyd_bytes (c->body, "attestation", ENC_ENVELOPE_MAX, &envelope, err)) < 0)
		return rc;
	if (node.baseline.len == 0)
		return enc_error_next (err, enc_fail (err, ENC_ENOTFOUND, "node %s has no baseline", name), "enclavectl node baseline %s", name);
	if ((rc = read_attestation (c, &node, &envelope, &a, err)) < 0 || (rc = check_challenge (c, &a, err)) < 0 ||
		(rc = answer_rows (c, &a, &node, err)) < 0)
		return rc;
	/* Kept also when it differs: it replaces an older one that was equal. */
	return store_attestation (c, &a, err);
}

int enc_keyd_baseline (struct enc_keyd_call *c, struct enc_error *err)
{
	enc_auto_done (enc_node_row_done) struct enc_node_row node = { 0 };
	enc_auto_done (enc_buf_done) struct enc_buf envelope = { 0 };
	enc_auto_done (enc_attestation_done) struct enc_attestation a = { 0 };
	int rc;

	if ((rc = enc_keyd_find_node (c, c->claim.node, &node, err)) < 0 ||
		(rc = enc_keyd_bytes (c->body, "attestation", ENC_ENVELOPE_MAX, &envelope, err)) < 0 ||
		(rc = enc_claim_document (&c->claim, envelope.data, envelope.len, err)) < 0)
		return rc;
	/* Approvals by the approvers' own keys are what a second baseline takes; until they can be given it takes a new enrolment. */
	if (node.baseline.len > 0)
		return enc_error_next (err, enc_fail (err, ENC_EDENIED, "node %s has a baseline; another one needs approvals", node.node),
			"enclavectl node enroll %s", node.node);
	if ((rc = read_attestation (c, &node, &envelope, &a, err)) < 0)
		return rc;
	if (!enc_mem_equal (a.boot, c->claim.boot, sizeof a.boot))
		return enc_fail (err, ENC_EDENIED, "the attestation is of another boot than the record's");
	node.baseline = ENC_BUF_INIT (ROWS_MAX);
	if ((rc = enc_attest_rows_put (a.rows, a.rows_n, &node.baseline, err)) < 0 || (rc = enc_keystore_begin (c->k->store, err)) < 0 ||
		(rc = enc_keystore_set_node (c->k->store, &node, err)) < 0 || (rc = store_attestation (c, &a, err)) < 0 ||
		(rc = enc_keystore_commit (c->k->store, err)) < 0)
		return rc;
	enc_json_set_u64 (c->answer, "rows", a.rows_n);
	return 0;
}

int enc_keyd_attested (struct enc_keyd_call *c, const struct enc_node_row *node, const uint8_t *boot, struct enc_attest_record *ret,
	struct enc_error *err)
{
	enc_auto_done (enc_attest_record_done) struct enc_attest_record row = { 0 };
	enc_auto_free struct enc_attest_row *now = NULL;
	enc_auto_free struct enc_attest_row *baseline = NULL;
	struct enc_attestation a = { 0 };
	size_t baseline_n = 0;
	const char *name = NULL;
	int rc = enc_keystore_attest (c->k->store, node->node, &row, err);

	if (rc == -ENC_ENOTFOUND || node->baseline.len == 0)
		return enc_fail (err, ENC_EDENIED, "node %s is not attested", node->node);
	if (rc < 0)
		return rc;
	if (!enc_mem_equal (row.boot, boot, sizeof row.boot))
		return enc_fail (err, ENC_EDENIED, "node %s is not attested in this boot", node->node);
	if (row.time > c->now || c->now - row.time > c->k->conf->attest_max_age_s)
		return enc_fail (err, ENC_EDENIED, "the attestation of node %s is too old", node->node);
	if ((rc = read_rows (&row.rows, &now, &a.rows_n, err)) < 0 || (rc = read_rows (&node->baseline, &baseline, &baseline_n, err)) < 0)
		return rc;
	a.rows = now;
	size_t n = enc_attest_differs (&a, baseline, baseline_n, &name, 1);
	if (n > 0)
		return enc_fail (err, ENC_EDENIED, "node %s differs from its baseline in %zu rows, the first is %s", node->node, n, name);
	*ret = row;
	row = (struct enc_attest_record){ 0 };
	return 0;
}
