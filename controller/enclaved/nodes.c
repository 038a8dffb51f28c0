#include "controller/enclaved/nodes.h"

#include "base/log.h"
#include "crypto/hash.h"
#include "base/enc.h"

enum { ERRAND_S = 3600, TRIES = 5 };

/* ---- documents in the store ---- */

static void fresh_doc (const struct enc_ctl *c, const struct enc_node *node, struct enc_doc *doc)
{
	memset (doc, 0, sizeof *doc);
	(void) snprintf (doc->node, sizeof doc->node, "%s", node->name);
	doc->pool = enc_streq (node->declared, "general") ? ENC_POOL_GENERAL : ENC_POOL_SERVICE;
	doc->units = ENC_UNITS_SITE;
	doc->fence = ENC_FENCE_NONE;
	doc->controller_port = c->conf->port;
}

int enc_doc_of (struct enc_ctl *c, const struct enc_node *node, struct enc_doc **ret, struct enc_error *err)
{
	enc_auto_done (enc_document_done) struct enc_document d = { 0 };
	enc_auto_done (enc_buf_done) struct enc_buf wire = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);
	enc_auto_free struct enc_doc *doc = malloc (sizeof *doc);
	int rc;

	if (!doc)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if ((rc = enc_document_load (c->db, node->name, &d, err)) < 0)
		return rc;
	if (!d.doc) {
		fresh_doc (c, node, doc);
	} else if ((rc = enc_get_base64 (d.doc, strlen (d.doc), &wire, err)) < 0 ||
		   (rc = enc_doc_decode (wire.data, wire.len, doc, err)) < 0) {
		return enc_wrap (err, rc, "stored document of %s", node->name);
	}
	*ret = ENC_TAKE (doc);
	return 0;
}

/* The wire form of the next generation, with its digest. */
static int next_generation (struct enc_doc *doc, struct enc_document *d, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf wire = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);
	enc_auto_free char *hex = NULL;
	uint8_t digest[32];
	int rc;

	doc->generation = (uint64_t) d->generation + 1;
	if ((rc = enc_doc_encode (doc, &wire, err)) < 0)
		return rc;
	enc_doc_digest (wire.data, wire.len, digest);
	hex = enc_hex (digest, sizeof digest);
	free (d->doc);
	d->doc = enc_base64 (wire.data, wire.len);
	if (!hex || !d->doc)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	d->generation++;
	(void) snprintf (d->challenge, sizeof d->challenge, "%s", doc->challenge);
	return enc_str_copy (d->digest, sizeof d->digest, hex, err);
}

static void drop_grant (struct enc_document *d)
{
	free (d->grant_);
	free (d->sealed);
	d->grant_ = NULL;
	d->sealed = NULL;
	d->boot[0] = '\0';
}

int enc_node_tighten (struct enc_ctl *c, const struct enc_node *node, enc_edit_fn edit, void *arg, struct enc_error *err)
{
	enc_auto_done (enc_document_done) struct enc_document d = { 0 };
	enc_auto_free struct enc_doc *doc = NULL;
	int rc;

	if ((rc = enc_doc_of (c, node, &doc, err)) < 0 || (rc = enc_document_load (c->db, node->name, &d, err)) < 0)
		return rc;
	edit (doc, node, arg);
	if ((rc = next_generation (doc, &d, err)) < 0)
		return rc;
	drop_grant (&d);
	if ((rc = enc_document_put (c->db, &d, err)) < 0)
		return rc;
	enc_ctl_changed (c);
	return 0;
}

/* ---- with a grant ---- */

static struct enc_json *keys_of (const struct enc_doc *doc)
{
	struct enc_json *keys = enc_json_array ();

	for (size_t i = 0; i < doc->volumes_n; i++)
		if (doc->volumes[i].key[0])
			enc_json_add_str (keys, doc->volumes[i].key);
	if (doc->roles && doc->munge_key[0])
		enc_json_add_str (keys, doc->munge_key);
	return keys;
}

/* Inside an enclave a grant lasts as long as the lease; the way home is a short errand. */
static struct enc_json *grant_head (const struct enc_doc *doc, const struct enc_document *d, const char *boot)
{
	struct enc_json *h = enc_head ("node.grant");

	enc_json_set_str (h, "node", doc->node);
	enc_json_set_str (h, "boot", boot);
	enc_json_set_i64 (h, "generation", d->generation);
	if (doc->enclave_id[0])
		enc_json_set_str (h, "enclave", doc->enclave_id);
	enc_json_set_str (h, "document", d->digest);
	enc_json_set_i64 (h, "not_after", doc->pool == ENC_POOL_ENCLAVE ? (int64_t) doc->not_after : enc_now_s () + ERRAND_S);
	return h;
}

/* `d` gets grant and sealed keys for its document. */
static int fetch_grant (struct enc_run *run, const struct enc_doc *doc, struct enc_document *d, struct enc_error *err)
{
	enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
	enc_auto (enc_json) struct enc_json *answer = NULL;
	struct enc_order o = { 0 };
	const char *grant;
	int rc;

	if ((rc = enc_observed_load (run->ctl->db, doc->node, &seen, err)) < 0)
		return rc;
	if (!seen.boot[0])
		return enc_fail (err, ENC_EFAILED, "%s has not told its boot yet", doc->node);
	o.head = grant_head (doc, d, seen.boot);
	o.record = enc_record ("node", "order", "intent");
	enc_record_actor (o.record, NULL);
	enc_record_obj (o.record, "node", doc->node);
	enc_record_obj (o.record, "enclave_id", run->enclave_id);
	enc_json_set_i64 (enc_record_data (o.record), "generation", d->generation);
	enc_json_set_str (enc_record_data (o.record), "pool", enc_pool_name (doc->pool));
	o.request = enc_request ("grant");
	enc_json_set_str (o.request, "document", d->doc);
	enc_json_set (o.request, "keys", keys_of (doc));
	if ((rc = enc_order (run->ctl, &o, &answer, NULL, err)) < 0 || (rc = enc_json_need_str (answer, "grant", &grant, err)) < 0)
		return enc_wrap (err, rc, "grant for %s", doc->node);
	drop_grant (d);
	d->grant_ = enc_strdup (grant);
	(void) snprintf (d->boot, sizeof d->boot, "%s", seen.boot);
	d->sealed = enc_json_write (enc_json_get (answer, "sealed"), NULL, err);
	return d->grant_ ? 0 : enc_fail (err, ENC_ENOMEM, "out of memory");
}

static int set_members (struct enc_run *run, const struct enc_doc *doc, struct enc_document *d, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc;

	free (d->members);
	d->members = NULL;
	if (doc->pool != ENC_POOL_ENCLAVE)
		return 0;
	if ((rc = enc_run_enclave (run, &e, err)) < 0)
		return rc;
	d->members = ENC_TAKE (e.members_doc);
	return 0;
}

/* Nothing is left open: this needs no grant. */
static void fall_to_airlock (struct enc_doc *doc)
{
	doc->pool = ENC_POOL_AIRLOCK;
	doc->fence = ENC_FENCE_AIRLOCK;
	doc->units = ENC_UNITS_DOWN;
	doc->overlay = 0;
	doc->roles = 0;
	doc->door = 0;
	doc->volumes_n = 0;
}

static int add_grant (struct enc_run *run, enum enc_grant_need need, struct enc_doc *doc, struct enc_document *d, struct enc_error *err)
{
	int rc;

	drop_grant (d);
	if (need == ENC_GRANT_NONE || (need == ENC_GRANT_IF_CAN && doc->fence != ENC_FENCE_ENCLAVE))
		return 0;
	rc = fetch_grant (run, doc, d, err);
	if (rc == 0 || need == ENC_GRANT_MUST || rc == -ENC_ECANCELED)
		return rc;
	enc_log_err (ENC_LOG_WARN, err, "no grant for %s, it goes to the airlock at once", doc->node);
	fall_to_airlock (doc);
	drop_grant (d);
	d->generation--;
	return next_generation (doc, d, err);
}

/* 1: stored. 0: somebody else changed the document meanwhile, try again. */
static int issue_once (struct enc_run *run, const struct enc_node *node, const struct enc_change *change, struct enc_error *err)
{
	enc_auto_done (enc_document_done) struct enc_document d = { 0 }, now = { 0 };
	enc_auto_free struct enc_doc *doc = NULL;
	struct enc_ctl *c = run->ctl;
	int rc;

	if ((rc = enc_doc_of (c, node, &doc, err)) < 0 || (rc = enc_document_load (c->db, node->name, &d, err)) < 0)
		return rc;
	change->edit (doc, node, change->arg);
	if ((rc = next_generation (doc, &d, err)) < 0 || (rc = add_grant (run, change->grant, doc, &d, err)) < 0 ||
	    (rc = set_members (run, doc, &d, err)) < 0)
		return rc;
	/* The grant took a while: a quarantine in between must not be overwritten. */
	if ((rc = enc_document_load (c->db, node->name, &now, err)) < 0)
		return rc;
	if (now.generation != d.generation - 1)
		return 0;
	rc = enc_document_put (c->db, &d, err);
	return rc < 0 ? rc : 1;
}

static int issue_one (struct enc_run *run, const struct enc_node *node, const struct enc_change *change, struct enc_error *err)
{
	for (int i = 0; i < TRIES; i++) {
		int rc = issue_once (run, node, change, err);

		if (rc != 0)
			return rc < 0 ? rc : 0;
	}
	return enc_fail (err, ENC_EBUSY, "the document of %s does not stand still", node->name);
}

int enc_nodes_issue (struct enc_run *run, const struct enc_nodes *nodes, const struct enc_change *change, struct enc_error *err)
{
	for (size_t i = 0; i < nodes->n; i++) {
		int rc = issue_one (run, &nodes->v[i], change, err);

		if (rc < 0) {
			/* Unreachable services are nobody's fault among the nodes. */
			if (rc != -ENC_EUNAVAIL && rc != -ENC_ECANCELED)
				enc_run_failed (run, nodes->v[i].name);
			return enc_error_object (err, rc, "%s", nodes->v[i].name);
		}
	}
	enc_ctl_changed (run->ctl);
	return 0;
}

/* ---- waiting for reports ---- */

static int look (struct enc_ctl *c, const struct enc_node *node, struct enc_error *err)
{
	enc_auto_done (enc_document_done) struct enc_document d = { 0 };
	enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
	enc_auto_free struct enc_doc *doc = NULL;
	int rc;

	if ((rc = enc_doc_of (c, node, &doc, err)) < 0 || (rc = enc_document_load (c->db, node->name, &d, err)) < 0 ||
	    (rc = enc_observed_load (c->db, node->name, &seen, err)) < 0)
		return rc;
	return enc_doc_reached (doc, d.digest, &seen, err);
}

static const char *last_of (const struct enc_strs *names)
{
	return names->n ? names->v[names->n - 1] : "?";
}

int enc_nodes_await (struct enc_run *run, const struct enc_nodes *nodes, const char *what, struct enc_error *err)
{
	for (;;) {
		enc_auto_done (enc_strs_done) struct enc_strs late = { 0 };
		enc_auto_free char *text = NULL, *list = NULL;
		int rc;

		for (size_t i = 0; i < nodes->n; i++) {
			rc = look (run->ctl, &nodes->v[i], err);
			if (rc < 0) {
				enc_run_failed (run, nodes->v[i].name);
				return enc_error_object (err, rc, "%s", nodes->v[i].name);
			}
			if (rc == 0 && (rc = enc_strs_add (&late, nodes->v[i].name, err)) < 0)
				return rc;
		}
		if (late.n == 0)
			return 0;
		list = enc_strs_join (&late, ", ");
		text = enc_strf ("%s: %s", list ? list : "nodes", what);
		rc = enc_run_wait (run, text, "enclavectl node show NODE", err);
		if (rc == -ENC_ETIMEOUT) {
			for (size_t i = 0; i < late.n; i++)
				enc_run_failed (run, late.v[i]);
			rc = enc_fail (err, ENC_ETIMEOUT, "%s did not report in time (%s)", list ? list : "nodes", what);
			return enc_error_object (err, rc, "%s", last_of (&late));
		}
		if (rc < 0)
			return rc;
	}
}

int enc_nodes_hold (struct enc_run *run, const struct enc_nodes *nodes, struct enc_error *err)
{
	for (size_t i = 0; i < nodes->n; i++) {
		int rc = look (run->ctl, &nodes->v[i], err);

		if (rc > 0)
			continue;
		enc_run_failed (run, nodes->v[i].name);
		if (rc == 0)
			rc = enc_fail (err, ENC_EFAILED, "%s is not in the state it was ordered to", nodes->v[i].name);
		return enc_error_object (err, rc, "%s", nodes->v[i].name);
	}
	return 0;
}

int enc_nodes_change (struct enc_run *run, const struct enc_nodes *nodes, const struct enc_change *change, struct enc_error *err)
{
	int rc = enc_nodes_issue (run, nodes, change, err);

	return rc < 0 ? rc : enc_nodes_await (run, nodes, change->what, err);
}
