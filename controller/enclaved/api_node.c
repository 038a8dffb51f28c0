#include "controller/enclaved/api.h"

#include "controller/enclaved/agents.h"
#include "controller/enclaved/steps.h"
#include "base/enc.h"

enum { RELEASE_MS = 50000 };

static int named_node (struct enc_api *a, enum enc_action action, struct enc_node *ret, struct enc_error *err)
{
	const char *name = enc_http_capture (a->req, 0);
	int rc;

	if (!enc_node_name_ok (name))
		return enc_error_pointer (err, enc_fail (err, ENC_EUSAGE, "not a node name"), "node");
	rc = enc_api_may (a, action, err);
	return rc < 0 ? rc : enc_node_load (a->c->db, name, ret, err);
}

int enc_api_nodes (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_nodes_done) struct enc_nodes all = { 0 };
	enc_auto (enc_json) struct enc_json *slurm = NULL;
	struct enc_json *list, *observers;
	int rc;

	if ((rc = enc_api_may (a, ENC_ACT_NODE_LIST, err)) < 0)
		return rc;
	slurm = enc_api_slurm (a);
	if ((rc = enc_nodes_all (a->c->db, &all, err)) < 0)
		return rc;
	a->answer = enc_json_object ();
	list = enc_json_set_array (a->answer, "nodes");
	observers = enc_json_set_array (a->answer, "observers");
	for (size_t i = 0; i < all.n; i++)
		enc_json_add (enc_streq (all.v[i].declared, "observer") ? observers : list, enc_view_node (a->c, &all.v[i], enc_json_get (slurm, "nodes")));
	return 0;
}

int enc_api_node (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_node_done) struct enc_node n = { 0 };
	enc_auto (enc_json) struct enc_json *slurm = NULL;
	int rc;

	if ((rc = named_node (a, ENC_ACT_NODE_LIST, &n, err)) < 0)
		return rc;
	slurm = enc_api_slurm (a);
	a->answer = enc_json_object ();
	enc_json_add (enc_json_set_array (a->answer, "nodes"), enc_view_node (a->c, &n, enc_json_get (slurm, "nodes")));
	return 0;
}

/* ---- enrol ---- */

/* The configuration says what a node is; an order may say it for one that is not listed. */
static const char *const pools[] = { "", "general", "service", "observer", NULL };

struct enroll {
	int pool;
};

static const struct enc_field enroll_fields[] = {
	ENC_FIELD (struct enroll, pool, "pool", ENC_T_ENUM, .names = pools, .dflt = "\"\""),
	ENC_FIELD_END
};

static const char *declared_pool (const struct enc_conf *conf, const char *node, const struct enroll *in)
{
	if (in->pool)
		return pools[in->pool];
	if (enc_strs_has (&conf->service_nodes, node))
		return "service";
	return enc_strs_has (&conf->observers, node) ? "observer" : "general";
}

int enc_api_node_enroll (struct enc_api *a, struct enc_error *err)
{
	const char *name = enc_http_capture (a->req, 0);
	enc_auto_done (enc_node_done) struct enc_node known = { 0 };
	struct enroll in = { 0 };
	struct enc_json *record;
	char token[65], ca[65];
	int64_t expires = 0;
	int rc;

	if (!enc_node_name_ok (name))
		return enc_error_pointer (err, enc_fail (err, ENC_EUSAGE, "not a node name"), "node");
	if ((a->body && (rc = enc_json_decode (enroll_fields, a->body, &in, err)) < 0) || (rc = enc_api_may (a, ENC_ACT_NODE_CHANGE, err)) < 0 ||
	    (rc = enc_agents_ca_sha256 (a->c, ca, err)) < 0)
		return rc;
	if (enc_node_load (a->c->db, name, &known, NULL) == 0 && known.enclave_id[0])
		return enc_error_object (err, enc_fail (err, ENC_EBUSY, "%s is held by an enclave", name), "%s", name);
	record = enc_api_record (a, "node", "enroll", "intent");
	enc_record_obj (record, "node", name);
	if ((rc = enc_record_now (a->c, record, NULL, err)) < 0 ||
	    (rc = enc_token_new (a->c, name, declared_pool (a->c->conf, name, &in), token, &expires, err)) < 0)
		return rc;
	a->answer = enc_json_object ();
	enc_json_set_str (a->answer, "node", name);
	enc_json_set_str (a->answer, "token", token);
	enc_json_set_time (a->answer, "expires_at", expires * ENC_NS_S);
	enc_json_set_str (a->answer, "ca_sha256", ca);
	return 0;
}

/* ---- quarantine and back ---- */

struct quarantine {
	char *why;
};

static const struct enc_field quarantine_fields[] = {
	ENC_FIELD (struct quarantine, why, "why", ENC_T_TEXT, .max = 200),
	ENC_FIELD_END
};

int enc_api_node_quarantine (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_node_done) struct enc_node n = { 0 };
	struct quarantine in = { 0 };
	enc_auto_free char *why = NULL;
	int rc;

	if ((a->body && (rc = enc_json_decode (quarantine_fields, a->body, &in, err)) < 0))
		return rc;
	why = in.why ? in.why : enc_strf ("by order of %s", a->actor->user);
	if ((rc = named_node (a, ENC_ACT_NODE_CHANGE, &n, err)) < 0)
		return rc;
	if (enc_streq (n.declared, "observer"))
		return enc_fail (err, ENC_EUSAGE, "%s is an observer", n.name);
	if ((rc = enc_node_quarantine (a->c, n.name, "none", why ? why : "by order", err)) < 0)
		return rc;
	return enc_api_node (a, err);
}

static void edit_airlock_again (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, ENC_UNUSED void *arg)
{
	doc->pool = ENC_POOL_AIRLOCK;
}

static void edit_units_back (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, ENC_UNUSED void *arg)
{
	doc->units = ENC_UNITS_SITE;
}

static int set_home (struct enc_run *run, const char *node, struct enc_error *err)
{
	return enc_db_exec (run->ctl->db, err,
			    "UPDATE nodes SET pool=CASE WHEN declared='general' THEN 0 ELSE 1 END, why=NULL, next=NULL, enclave_id='', role=0,"
			    " overlay='', held_since=0 WHERE name=?",
			    "s", node);
}

/* quarantine → airlock (a grant: somebody takes the blame) → clean and measured → home. */
static int release_node (struct enc_run *run, void *arg, struct enc_json **ret, struct enc_error *err)
{
	static const struct enc_change airlock = { .edit = edit_airlock_again, .grant = ENC_GRANT_MUST, .what = "airlock" };
	static const struct enc_change units = { .edit = edit_units_back, .grant = ENC_GRANT_MUST, .what = "start the site's services" };
	enc_auto_free char *name = arg;
	struct enc_nodes one = { .v = calloc (1, sizeof *one.v), .n = 1 };
	struct enc_json *request;
	int rc;

	if (!one.v)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	(void) enc_fiber_bound (run->ctl->fibers, enc_deadline_ms (900000));
	rc = enc_node_load (run->ctl->db, name, one.v, err);
	if (rc == 0 && (rc = enc_nodes_change (run, &one, &airlock, err)) == 0 && (rc = enc_nodes_clean (run, &one, ENC_CLEAN_LIVE, err)) == 0 &&
	    (rc = enc_nodes_return (run, &one, err)) == 0 && (rc = enc_nodes_change (run, &one, &units, err)) == 0)
		rc = set_home (run, name, err);
	if (rc == 0 && enc_streq (one.v->declared, "general")) {
		request = enc_request ("resume");
		enc_json_set_str (request, "node", name);
		rc = enc_ctl_call (run->ctl, run->ctl->schedd, request, NULL, err);
	}
	(void) enc_fiber_bound (run->ctl->fibers, ENC_FOREVER);
	if (rc == 0) {
		*ret = enc_json_object ();
		enc_json_add (enc_json_set_array (*ret, "nodes"), enc_view_node (run->ctl, one.v, NULL));
	}
	enc_nodes_done (&one);
	return rc;
}

int enc_api_node_release (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_node_done) struct enc_node n = { 0 };
	struct enc_enclave e = { 0 };
	struct enc_json *record;
	char op[ENC_ID_SIZE], *name;
	int rc;

	if ((rc = named_node (a, ENC_ACT_NODE_CHANGE, &n, err)) < 0)
		return rc;
	if (n.pool != ENC_POOL_QUARANTINE)
		return enc_error_object (err, enc_fail (err, ENC_ECONFLICT, "%s is not in quarantine", n.name), "%s", n.name);
	record = enc_api_record (a, "node", "release", "intent");
	enc_record_obj (record, "node", n.name);
	if ((rc = enc_record_now (a->c, record, NULL, err)) < 0)
		return rc;
	/* The operation hangs on the enclave that the node came from, so that nothing else moves either of them. */
	(void) snprintf (e.id, sizeof e.id, "%s", n.enclave_id);
	(void) snprintf (e.name, sizeof e.name, "%.31s", n.name);
	if ((rc = enc_operation_new (a->c, "node-release", a->actor->user, &e, op, err)) < 0)
		return rc;
	if (!(name = enc_strdup (n.name)))
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if ((rc = enc_life_run (a->c, e.id, op, release_node, name, err)) < 0) {
		free (name);
		return rc;
	}
	if ((rc = enc_api_wait (a, op, RELEASE_MS, err)) < 0)
		return rc;
	if ((rc = enc_api_node (a, err)) < 0)
		return rc;
	enc_json_set_str (a->answer, "operation", op);
	a->status = 202;
	return 0;
}

/* ---- certificate ---- */

int enc_api_node_certificate (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_node_done) struct enc_node n = { 0 };
	struct enc_certificate cert = { 0 };
	int rc;

	if ((rc = named_node (a, ENC_ACT_NODE_CERTIFICATE, &n, err)) < 0)
		return rc;
	rc = enc_db_get (a->c->db, "certificates", enc_certificate_cols, &cert, err, "WHERE node=? ORDER BY at DESC, record DESC", "s", n.name);
	if (rc == -ENC_ENOTFOUND)
		return enc_error_object (err, enc_fail (err, ENC_ENOTFOUND, "%s has no certificate", n.name), "%s", n.name);
	if (rc < 0)
		return rc;
	a->answer = cert.json ? enc_json_parse (cert.json, strlen (cert.json), ENC_JSON_MAX_DEFAULT, err) : NULL;
	if (a->answer) {
		enc_json_set_i64 (a->answer, "record", cert.record);
		enc_json_set_str (a->answer, "record_body", cert.record_body);
		enc_json_set_str (a->answer, "proof", cert.proof);
	} else {
		rc = enc_fail (err, ENC_EINTEGRITY, "the stored certificate of %s is damaged", n.name);
	}
	enc_cols_done (enc_certificate_cols, &cert);
	return rc;
}
