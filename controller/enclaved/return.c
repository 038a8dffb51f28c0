/* Giving a node back: a certificate in the log first, then the order, under a fresh grant. */
#include "controller/enclaved/steps.h"

#include "base/enc.h"

/* The residue table as the node's last clean reported it: [{"residue","found","left"}]. */
static struct enc_json *clean_items (struct enc_ctl *c, const char *node, struct enc_error *err)
{
	enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
	enc_auto (enc_json) struct enc_json *report = NULL;
	const struct enc_json *items;

	if (enc_observed_load (c->db, node, &seen, err) < 0 || !seen.report)
		return enc_json_array ();
	report = enc_json_parse (seen.report, strlen (seen.report), ENC_JSON_MAX_DEFAULT, err);
	items = enc_json_find (report, "/evidence/clean/items");
	return enc_json_type (items) == ENC_JSON_ARRAY ? enc_json_copy (items) : enc_json_array ();
}

static int64_t sum_of (const struct enc_json *items, const char *key)
{
	int64_t sum = 0;

	for (size_t i = 0; i < enc_json_len (items); i++)
		sum += enc_json_get_i64 (enc_json_at (items, i), key, 0);
	return sum;
}

/* {"node","enclave_id","from","to","level","entry","items","attest":{"equal"}} */
static struct enc_json *certificate_json (const struct enc_node *n, const struct enc_enclave *e, struct enc_json *items)
{
	struct enc_json *j = enc_json_object ();
	struct enc_json *attest;

	enc_json_set_str (j, "node", n->name);
	enc_json_set_str (j, "enclave_id", e->id);
	enc_json_set_time (j, "from", n->held_since * ENC_NS_S);
	enc_json_set_time (j, "to", enc_now_s () * ENC_NS_S);
	enc_json_set_str (j, "level", "live");
	enc_json_set_str (j, "entry", e->entry);
	enc_json_set (j, "items", items);
	attest = enc_json_set_object (j, "attest");
	/* The way here leads through enc_nodes_clean(), which ends in quarantine if they differ. */
	enc_json_set_bool (attest, "equal", true);
	return j;
}

static struct enc_json *return_record (const struct enc_node *n, const struct enc_enclave *e, const struct enc_json *cert)
{
	struct enc_json *record = enc_record ("node", "return", "intent");
	const struct enc_json *items = enc_json_get (cert, "items");
	struct enc_json *data = enc_record_data (record);

	enc_record_actor (record, NULL);
	enc_record_obj (record, "node", n->name);
	enc_record_enclave (record, e);
	enc_json_set_str (data, "level", enc_json_get_str (cert, "level", "live"));
	enc_json_set_str (data, "entry", e->entry);
	enc_json_set (data, "items", enc_json_copy (items));
	enc_json_set_i64 (data, "found", sum_of (items, "found"));
	enc_json_set_i64 (data, "left", sum_of (items, "left"));
	enc_json_set_str (data, "since", enc_json_get_str (cert, "from", ""));
	enc_json_set_str (data, "until", enc_json_get_str (cert, "to", ""));
	enc_json_set_bool (data, "equal", true);
	return record;
}

static int certify (struct enc_run *run, const struct enc_node *n, const struct enc_enclave *e, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *cert = NULL;
	enc_auto_free char *text = NULL, *body = NULL, *proof = NULL;
	struct enc_certificate row = { .at = enc_now_s () };
	int rc;

	cert = certificate_json (n, e, clean_items (run->ctl, n->name, err));
	if (sum_of (enc_json_get (cert, "items"), "left") != 0) {
		enc_run_failed (run, n->name);
		return enc_fail (err, ENC_EINTEGRITY, "%s is not clean: residue is left", n->name);
	}
	if ((rc = enc_record_receipt (run->ctl, return_record (n, e, cert), &row.record, &body, &proof, err)) < 0)
		return rc;
	text = enc_json_write (cert, NULL, err);
	if (!text)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	row.json = text;
	row.proof = proof;
	row.record_body = body;
	(void) snprintf (row.node, sizeof row.node, "%s", n->name);
	(void) snprintf (row.enclave_id, sizeof row.enclave_id, "%s", e->id);
	return enc_db_put (run->ctl->db, "certificates", enc_certificate_cols, &row, err);
}

/* Nobody's again: the declared pool, no fence, nothing of the enclave left in the document. A node of the general pool stays
 * without its site services until the detach row is undone; a service node gets them back at once. */
static void edit_return (struct enc_doc *doc, const struct enc_node *node, ENC_UNUSED void *arg)
{
	struct enc_doc keep = { .generation = doc->generation, .controller_port = doc->controller_port, .clean = doc->clean };

	memcpy (keep.node, doc->node, sizeof keep.node);
	memcpy (keep.clean_id, doc->clean_id, sizeof keep.clean_id);
	memcpy (keep.challenge, doc->challenge, sizeof keep.challenge);
	memcpy (keep.controller4, doc->controller4, sizeof keep.controller4);
	memcpy (keep.controller6, doc->controller6, sizeof keep.controller6);
	keep.pool = enc_streq (node->declared, "general") ? ENC_POOL_GENERAL : ENC_POOL_SERVICE;
	keep.units = keep.pool == ENC_POOL_GENERAL ? ENC_UNITS_DOWN : ENC_UNITS_SITE;
	keep.fence = ENC_FENCE_NONE;
	*doc = keep;
}

int enc_nodes_return (struct enc_run *run, const struct enc_nodes *nodes, struct enc_error *err)
{
	static const struct enc_change change = { .edit = edit_return, .grant = ENC_GRANT_MUST, .what = "fence down" };
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc;

	/* A node that was set apart outside of any enclave has no stay to certify. */
	if (run->enclave_id[0] && (rc = enc_run_enclave (run, &e, err)) < 0)
		return rc;
	for (size_t i = 0; i < nodes->n && run->enclave_id[0]; i++)
		if ((rc = certify (run, &nodes->v[i], &e, err)) < 0)
			return rc;
	return enc_nodes_change (run, nodes, &change, err);
}
