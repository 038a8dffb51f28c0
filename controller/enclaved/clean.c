/* Cleaning, measuring and setting apart: what makes a node trustworthy, or takes it out of every pool. */
#include "controller/enclaved/nodes.h"

#include "base/log.h"
#include "base/enc.h"

/* ---- quarantine ---- */

static void edit_quarantine (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, ENC_UNUSED void *arg)
{
	doc->pool = ENC_POOL_QUARANTINE;
	doc->door = 0;
	doc->roles = 0;
	doc->volumes_n = 0;
	doc->overlay = 0;
	doc->fence = ENC_FENCE_AIRLOCK;
	doc->units = ENC_UNITS_DOWN;
	doc->challenge[0] = '\0';
	doc->probe_id[0] = '\0';
}

int enc_node_quarantine (struct enc_ctl *c, const char *name, const char *step, const char *why, struct enc_error *err)
{
	enc_auto_done (enc_node_done) struct enc_node n = { 0 };
	struct enc_log_fields fields = { .node = name, .step = step };
	struct enc_json *record;
	int rc;

	if ((rc = enc_node_load (c->db, name, &n, err)) < 0)
		return rc;
	free (n.why);
	free (n.next);
	n.why = enc_strdup (why);
	n.next = enc_strf ("enclavectl node release %s", name);
	n.pool = ENC_POOL_QUARANTINE;
	if ((rc = enc_node_put (c->db, &n, err)) < 0 || (rc = enc_node_tighten (c, &n, edit_quarantine, NULL, err)) < 0)
		return rc;
	enc_log_with (ENC_LOG_ERROR, &fields, "%s goes to quarantine: %s", name, why);
	record = enc_record ("node", "quarantine", "ok");
	enc_record_actor (record, NULL);
	enc_record_obj (record, "node", name);
	enc_record_obj (record, "enclave_id", n.enclave_id);
	enc_json_set_str (enc_record_data (record), "step", step);
	enc_record_reason (record, why);
	enc_json_set_str (record, "text", why);
	enc_record_soon (c, record);
	return 0;
}

/* ---- measuring ---- */

static void edit_challenge (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, void *arg)
{
	memcpy (doc->challenge, arg, sizeof doc->challenge);
}

static int challenge (struct enc_run *run, struct enc_node *node, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *answer = NULL;
	struct enc_nodes one = { .v = node, .n = 1 };
	char nonce[33] = "";
	struct enc_change change = { .edit = edit_challenge, .arg = nonce, .what = "measure" };
	const char *text;
	int rc;

	if ((rc = enc_ctl_call (run->ctl, run->ctl->keyd, enc_request ("nonce"), &answer, err)) < 0 ||
	    (rc = enc_json_need_str (answer, "nonce", &text, err)) < 0 || (rc = enc_str_copy (nonce, sizeof nonce, text, err)) < 0)
		return rc;
	/* Inside the enclave the document leaves things open. */
	if (node->pool == ENC_POOL_ENCLAVE)
		change.grant = ENC_GRANT_MUST;
	return enc_nodes_issue (run, &one, &change, err);
}

static char *differing (const struct enc_json *answer)
{
	const struct enc_json *list = enc_json_get (answer, "differs");
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };

	for (size_t i = 0; i < enc_json_len (list) && i < 8; i++)
		if (enc_strs_add (&names, enc_json_str (enc_json_at (list, i)), NULL) < 0)
			break;
	return enc_strs_join (&names, ", ");
}

static void record_attest (struct enc_run *run, const char *node, bool equal, const char *differs)
{
	struct enc_json *record = enc_record ("node", "attest", equal ? "ok" : "failed");

	enc_record_actor (record, NULL);
	enc_record_obj (record, "node", node);
	enc_record_obj (record, "enclave_id", run->enclave_id);
	enc_json_set_bool (enc_record_data (record), "equal", equal);
	if (differs && *differs)
		enc_json_set_str (enc_record_data (record), "differs", differs);
	enc_record_soon (run->ctl, record);
}

static int verdict (struct enc_run *run, const struct enc_node *node, struct enc_error *err)
{
	enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
	enc_auto_done (enc_document_done) struct enc_document d = { 0 };
	enc_auto (enc_json) struct enc_json *answer = NULL;
	enc_auto_free char *rows = NULL, *why = NULL;
	struct enc_json *request = enc_request ("attest");
	int rc;

	if ((rc = enc_observed_load (run->ctl->db, node->name, &seen, err)) < 0 ||
	    (rc = enc_document_load (run->ctl->db, node->name, &d, err)) < 0) {
		enc_json_free (request);
		return rc;
	}
	enc_json_set_str (request, "node", node->name);
	enc_json_set_str (request, "attestation", seen.attestation);
	enc_json_set_str (request, "challenge", d.challenge);
	if ((rc = enc_ctl_call (run->ctl, run->ctl->keyd, request, &answer, err)) < 0)
		return rc;
	if (enc_json_get_bool (answer, "equal", false)) {
		record_attest (run, node->name, true, NULL);
		return enc_db_exec (run->ctl->db, err, "UPDATE nodes SET attested=?, attested_at=? WHERE name=?", "sis", d.challenge,
				    enc_now_s (), node->name);
	}
	rows = differing (answer);
	record_attest (run, node->name, false, rows);
	why = enc_strf ("%s differs from its baseline: %s", node->name, rows && *rows ? rows : "no baseline");
	if ((rc = enc_node_quarantine (run->ctl, node->name, run->step ? run->step->name : "measure", why ? why : "", err)) < 0)
		return rc;
	rc = enc_fail (err, ENC_EINTEGRITY, "%s", why ? why : "a node differs from its baseline");
	return enc_error_next (err, enc_error_object (err, rc, "%s", node->name), "enclavectl node show %s", node->name);
}

int enc_nodes_measure (struct enc_run *run, const struct enc_nodes *nodes, struct enc_error *err)
{
	struct enc_error first = { 0 };
	int rc, worst = 0;

	for (size_t i = 0; i < nodes->n; i++)
		if ((rc = challenge (run, &nodes->v[i], err)) < 0)
			return rc;
	if ((rc = enc_nodes_await (run, nodes, "measure", err)) < 0)
		return rc;
	/* All are judged, so that every one that differs is set apart now. */
	for (size_t i = 0; i < nodes->n; i++) {
		rc = verdict (run, &nodes->v[i], err);
		if (rc < 0 && worst == 0) {
			worst = rc;
			if (err)
				first = *err;
		}
		if (rc == -ENC_EUNAVAIL || rc == -ENC_ECANCELED)
			break;
	}
	if (worst < 0 && err)
		*err = first;
	return worst;
}

/* ---- cleaning ---- */

struct clean_order {
	uint8_t level;
	char id[ENC_ID_SIZE];
};

static void edit_clean (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, void *arg)
{
	const struct clean_order *o = arg;

	doc->clean = o->level;
	doc->challenge[0] = '\0';
	memcpy (doc->clean_id, o->id, sizeof doc->clean_id);
}

int enc_nodes_clean (struct enc_run *run, const struct enc_nodes *nodes, uint8_t level, struct enc_error *err)
{
	struct clean_order order = { .level = level };
	struct enc_change change = { .edit = edit_clean, .arg = &order, .what = "clean" };
	int rc;

	/* A fresh id: a clean that passed once does not count twice. */
	if ((rc = enc_id_new (order.id, err)) < 0 || (rc = enc_nodes_change (run, nodes, &change, err)) < 0)
		return rc;
	return enc_nodes_measure (run, nodes, err);
}
