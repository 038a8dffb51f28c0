#include "controller/enclaved/view.h"

#include "controller/enclaved/repair.h"
#include "node-agent/proto/document.h"
#include "base/enc.h"

enum { CONNECTED_S = 40 };

static const char *const kind_names[] = { "?", "scratch", "project", "dataset" };

static void set_time (struct enc_json *o, const char *key, int64_t seconds)
{
	enc_json_set_time (o, key, seconds * ENC_NS_S);
}

static void set_text (struct enc_json *o, const char *key, const char *text)
{
	enc_json_set_str (o, key, text && *text ? text : NULL);
}

struct enc_json *enc_view_member (const struct enc_json *of, const char *key)
{
	const struct enc_json *v = enc_json_get (of, key);

	return v ? enc_json_copy (v) : enc_json_new_null ();
}

bool enc_agent_connected (const struct enc_observed *seen)
{
	return seen->last_seen && enc_now_s () - seen->last_seen <= CONNECTED_S;
}

struct enc_json *enc_view_observed (const struct enc_observed *seen)
{
	enc_auto (enc_json) struct enc_json *report = seen->report ? enc_json_parse (seen->report, strlen (seen->report), ENC_JSON_MAX_DEFAULT, NULL) : NULL;
	struct enc_json *o;

	if (!report)
		return enc_json_new_null ();
	o = enc_json_object ();
	enc_json_set_i64 (o, "generation", seen->generation);
	enc_json_set (o, "areas", enc_view_member (report, "areas"));
	enc_json_set (o, "failed", enc_view_member (report, "failed"));
	enc_json_set (o, "waiting", enc_view_member (report, "waiting"));
	return o;
}

/* ---- an enclave ---- */

static struct enc_json *waiting_of (struct enc_ctl *c, const struct enc_enclave *e)
{
	struct enc_json *o = enc_streq (e->state, ENC_STATE_OPEN) ? enc_repair_waiting (c, e) : NULL;

	if (o || !e->wait_for)
		return o ? o : enc_json_new_null ();
	o = enc_json_object ();
	enc_json_set_str (o, "for", e->wait_for);
	set_time (o, "until", e->wait_until);
	enc_json_set_str (o, "next", e->wait_next);
	return o;
}

static struct enc_json *evidence_of (struct enc_ctl *c, const struct enc_enclave *e)
{
	struct enc_json *o = enc_json_object ();
	const struct enc_policy *p = enc_policies_find (&c->policies, e->policy);
	int64_t age = enc_now_s () - e->evidence_at;
	int64_t max = p ? (int64_t) p->evidence_max_age_s : 86400;
	const char *state = age <= max ? "fresh" : "stale";

	if (!e->evidence_at)
		state = "none";
	else if (e->probes != e->as_expected)
		state = "failed";
	enc_json_set_str (o, "state", state);
	if (e->evidence_at)
		enc_json_set_i64 (o, "age_s", age);
	else
		enc_json_set_null (o, "age_s");
	enc_json_set_i64 (o, "probes", e->probes);
	enc_json_set_i64 (o, "as_expected", e->as_expected);
	return o;
}

static void set_nodes (struct enc_ctl *c, struct enc_json *o, const struct enc_nodes *all, bool *ret_open)
{
	struct enc_json *nodes = enc_json_set_array (o, "nodes");
	struct enc_json *services = enc_json_set_array (o, "services");
	struct enc_json *login = NULL;

	*ret_open = false;
	for (size_t i = 0; i < all->n; i++) {
		const struct enc_node *n = &all->v[i];
		enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
		enc_auto_free struct enc_doc *doc = NULL;
		enc_auto (enc_json) struct enc_json *report = NULL;
		enc_auto_done (enc_document_done) struct enc_document d = { 0 };
		enc_auto_done (enc_buf_done) struct enc_buf wire = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);
		struct enc_json *item;

		if (enc_observed_load (c->db, n->name, &seen, NULL) < 0 || enc_document_load (c->db, n->name, &d, NULL) < 0)
			continue;
		if (n->role == ENC_ROLE_COMPUTE || n->pool == ENC_POOL_QUARANTINE) {
			item = enc_json_add_object (nodes);
			enc_json_set_str (item, "name", n->name);
			enc_json_set_str (item, "pool", enc_pool_name (n->pool));
			enc_json_set_i64 (item, "generation", d.generation);
			enc_json_set (item, "observed", enc_view_observed (&seen));
			continue;
		}
		item = enc_json_add_object (services);
		enc_json_set_str (item, "role", enc_role_name (n->role));
		enc_json_set_str (item, "node", n->name);
		enc_json_set_str (item, "driver", "host");
		if (n->role != ENC_ROLE_LOGIN)
			continue;
		doc = malloc (sizeof *doc);
		login = enc_json_object ();
		enc_json_set_str (login, "host", n->name);
		set_text (login, "address", seen.address4);
		if (doc && d.doc && enc_get_base64 (d.doc, strlen (d.doc), &wire, NULL) == 0 &&
		    enc_doc_decode (wire.data, wire.len, doc, NULL) == 0 && doc->login_port)
			enc_json_set_i64 (login, "port", doc->login_port);
		else
			enc_json_set_null (login, "port");
		report = seen.report ? enc_json_parse (seen.report, strlen (seen.report), ENC_JSON_MAX_DEFAULT, NULL) : NULL;
		*ret_open = enc_streq (enc_json_str (enc_json_find (report, "/areas/door")), "open");
	}
	enc_json_set (o, "login", login ? login : enc_json_new_null ());
}

static void set_members (struct enc_ctl *c, struct enc_json *o, const char *id)
{
	struct enc_json *list = enc_json_set_array (o, "members");
	enc_auto_done (enc_member_rows_done) struct enc_member_rows rows = { 0 };

	if (enc_members_of (c->db, id, &rows, NULL) < 0)
		return;
	for (size_t i = 0; i < rows.n; i++) {
		struct enc_json *m = enc_json_add_object (list);

		enc_json_set_str (m, "user", rows.v[i].user);
		enc_json_set_str (m, "role", rows.v[i].role);
	}
}

static const char *mount_of (const struct enc_volume *v)
{
	static const char *const mounts[] = { "", "/enclave/scratch", "/enclave/home", "/enclave/data" };

	return v->kind <= ENC_VOLUME_DATASET ? mounts[v->kind] : "";
}

struct enc_json *enc_view_volume (const struct enc_volume *v)
{
	struct enc_json *o = enc_json_object ();

	enc_json_set_str (o, "name", v->name);
	enc_json_set_str (o, "kind", kind_names[v->kind & 3]);
	enc_json_set_str (o, "driver", v->driver);
	enc_json_set_i64 (o, "size_bytes", v->size_bytes);
	enc_json_set_str (o, "cipher", "aes-256-xts");
	enc_json_set_i64 (o, "key_bits", 512);
	enc_json_set_str (o, "state", v->state);
	enc_json_set_str (o, "mount", mount_of (v));
	return o;
}

static void set_volumes (struct enc_ctl *c, struct enc_json *o, const char *id)
{
	struct enc_json *list = enc_json_set_array (o, "volumes");
	enc_auto_done (enc_volumes_done) struct enc_volumes vs = { 0 };

	if (enc_volumes_of (c->db, id, &vs, NULL) < 0)
		return;
	for (size_t i = 0; i < vs.n; i++)
		enc_json_add (list, enc_view_volume (&vs.v[i]));
}

static int64_t count_jobs (const struct enc_json *jobs, const char *state)
{
	int64_t n = 0;

	for (size_t i = 0; i < enc_json_len (jobs); i++)
		n += enc_streq (enc_json_get_str (enc_json_at (jobs, i), "state", ""), state);
	return n;
}

/* From the scheduler node's last report; zero while it says nothing. */
static void set_jobs (struct enc_ctl *c, struct enc_json *o, const struct enc_nodes *all)
{
	struct enc_json *jobs = enc_json_set_object (o, "jobs");
	int64_t running = 0, pending = 0;

	for (size_t i = 0; i < all->n; i++) {
		enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
		enc_auto (enc_json) struct enc_json *report = NULL;

		if (all->v[i].role != ENC_ROLE_SCHEDULER || enc_observed_load (c->db, all->v[i].name, &seen, NULL) < 0 || !seen.report)
			continue;
		report = enc_json_parse (seen.report, strlen (seen.report), ENC_JSON_MAX_DEFAULT, NULL);
		running = count_jobs (enc_json_find (report, "/evidence/slurm/jobs"), "running");
		pending = count_jobs (enc_json_find (report, "/evidence/slurm/jobs"), "pending");
	}
	enc_json_set_i64 (jobs, "running", running);
	enc_json_set_i64 (jobs, "pending", pending);
}

static void set_records (struct enc_json *o, const struct enc_enclave *e)
{
	struct enc_json *r = enc_json_set_object (o, "records");

	if (e->record_first >= 0) {
		enc_json_set_i64 (r, "first", e->record_first);
		enc_json_set_i64 (r, "last", e->record_last);
	} else {
		enc_json_set_null (r, "first");
		enc_json_set_null (r, "last");
	}
}

/* The one under way, for those who want to follow it. */
static void set_operation (struct enc_ctl *c, struct enc_json *o, const char *id)
{
	enc_auto_done (enc_operation_done) struct enc_operation op = { 0 };

	enc_json_set_str (o, "operation", enc_operation_running (c->db, id, &op, NULL) == 0 ? op.id : NULL);
}

static int held_nodes (struct enc_ctl *c, const char *id, struct enc_nodes *ret)
{
	void *v = NULL;
	int rc = enc_db_all (c->db, "nodes", enc_node_cols, sizeof *ret->v, &v, &ret->n, NULL, "WHERE enclave_id=? ORDER BY overlay", "s", id);

	ret->v = v;
	return rc;
}

struct enc_json *enc_view_enclave (struct enc_ctl *c, const struct enc_enclave *e)
{
	struct enc_json *o = enc_json_object ();
	enc_auto_done (enc_nodes_done) struct enc_nodes all = { 0 };
	struct enc_json *policy;
	bool moving = !enc_streq (e->state, ENC_STATE_OPEN) && !enc_streq (e->state, ENC_STATE_CLOSED);
	bool open = false;

	if (held_nodes (c, e->id, &all) < 0)
		all.n = 0;
	enc_json_set_str (o, "name", e->name);
	enc_json_set_str (o, "id", e->id);
	enc_json_set_str (o, "state", e->state);
	set_text (o, "step", moving ? e->step : NULL);
	enc_json_set_str (o, "owner", e->owner);
	enc_json_set_str (o, "agreement", e->agreement);
	enc_json_set_str (o, "purpose", e->purpose);
	policy = enc_json_set_object (o, "policy");
	enc_json_set_str (policy, "name", e->policy);
	enc_json_set_str (policy, "version", e->policy_version);
	set_time (o, "created_at", e->created_at);
	set_time (o, "opened_at", e->opened_at);
	set_time (o, "expires_at", e->expires_at);
	enc_json_set_str (o, "partition", "protected");
	enc_json_set_null (o, "door");
	enc_json_set_str (o, "entry", e->entry);
	set_nodes (c, o, &all, &open);
	enc_json_set_str (o, "door", open ? "open" : "shut");
	set_members (c, o, e->id);
	set_volumes (c, o, e->id);
	set_jobs (c, o, &all);
	enc_json_set (o, "evidence", evidence_of (c, e));
	enc_json_set (o, "waiting", waiting_of (c, e));
	enc_json_set (o, "steps", enc_journal_json (c->db, e->id));
	set_records (o, e);
	set_operation (c, o, e->id);
	return o;
}

struct enc_json *enc_view_enclave_id (struct enc_ctl *c, const char *id)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };

	return enc_enclave_load (c->db, id, &e, NULL) < 0 ? enc_json_new_null () : enc_view_enclave (c, &e);
}

struct enc_json *enc_view_enclave_line (struct enc_ctl *c, const struct enc_enclave *e)
{
	struct enc_json *o = enc_json_object ();
	enc_auto_done (enc_nodes_done) struct enc_nodes all = { 0 };
	struct enc_json *names;
	bool moving = !enc_streq (e->state, ENC_STATE_OPEN) && !enc_streq (e->state, ENC_STATE_CLOSED);

	if (held_nodes (c, e->id, &all) < 0)
		all.n = 0;
	enc_json_set_str (o, "name", e->name);
	enc_json_set_str (o, "id", e->id);
	enc_json_set_str (o, "state", e->state);
	set_text (o, "step", moving ? e->step : NULL);
	names = enc_json_set_array (o, "nodes");
	for (size_t i = 0; i < all.n; i++)
		if (all.v[i].role == ENC_ROLE_COMPUTE)
			enc_json_add_str (names, all.v[i].name);
	enc_json_set_i64 (o, "members", enc_db_int (c->db, 0, "SELECT count(*) FROM members WHERE enclave_id=?", "s", e->id));
	set_time (o, "opened_at", e->opened_at);
	set_time (o, "expires_at", e->expires_at);
	enc_json_set (o, "evidence", evidence_of (c, e));
	enc_json_set (o, "waiting", waiting_of (c, e));
	return o;
}
