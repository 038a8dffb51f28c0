/* The smaller shapes: what a destroy leaves, members, nodes, operations. */
#include "controller/enclaved/sessions.h"
#include "controller/enclaved/view.h"

#include "node-agent/proto/document.h"
#include "base/enc.h"

static void add_returned (struct enc_ctl *c, struct enc_json *list, const char *id)
{
	enc_auto (enc_rows) struct enc_rows *r = NULL;

	if (enc_db_query (c->db, &r, NULL,
			  "SELECT c.node, c.record, n.pool FROM certificates c JOIN nodes n ON n.name=c.node WHERE c.enclave_id=?1 AND"
			  " NOT (n.pool=4 AND n.enclave_id=?1) ORDER BY c.node",
			  "s", id) < 0)
		return;
	while (enc_rows_next (r, NULL) > 0) {
		struct enc_json *o = enc_json_add_object (list);

		enc_json_set_str (o, "name", enc_rows_text (r, 0));
		enc_json_set_str (o, "pool", enc_pool_name ((uint8_t) enc_rows_int (r, 2)));
		enc_json_set_i64 (o, "certificate", enc_rows_int (r, 1));
	}
}

static void add_quarantined (struct enc_ctl *c, struct enc_json *list, const char *id)
{
	enc_auto (enc_rows) struct enc_rows *r = NULL;

	if (enc_db_query (c->db, &r, NULL, "SELECT name FROM nodes WHERE enclave_id=? AND pool=4 ORDER BY name", "s", id) < 0)
		return;
	while (enc_rows_next (r, NULL) > 0) {
		struct enc_json *o = enc_json_add_object (list);

		enc_json_set_str (o, "name", enc_rows_text (r, 0));
		enc_json_set_str (o, "pool", "quarantine");
		enc_json_set_null (o, "certificate");
	}
}

struct enc_json *enc_view_destroyed (struct enc_ctl *c, const char *id)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	enc_auto_done (enc_volumes_done) struct enc_volumes vs = { 0 };
	struct enc_json *o, *list, *records;
	int64_t ms;

	if (enc_enclave_load (c->db, id, &e, NULL) < 0)
		return enc_json_new_null ();
	o = enc_json_object ();
	enc_json_set_str (o, "name", e.name);
	enc_json_set_str (o, "id", e.id);
	enc_json_set_str (o, "state", e.state);
	list = enc_json_set_array (o, "nodes");
	add_returned (c, list, id);
	add_quarantined (c, list, id);
	list = enc_json_set_array (o, "volumes");
	if (enc_volumes_of (c->db, id, &vs, NULL) == 0) {
		for (size_t i = 0; i < vs.n; i++) {
			struct enc_json *v = enc_json_add_object (list);

			enc_json_set_str (v, "name", vs.v[i].name);
			enc_json_set_str (v, "state", vs.v[i].state);
		}
	}
	ms = enc_db_int (c->db, 0, "SELECT sum(ms) FROM journal WHERE enclave_id=? AND dir=1 AND phase='outcome'", "s", id);
	enc_json_set_double (o, "seconds", (double) ms / 1000.0);
	records = enc_json_set_object (o, "records");
	enc_json_set_i64 (records, "first", e.record_first);
	enc_json_set_i64 (records, "last", e.record_last);
	return o;
}

struct enc_json *enc_view_members (struct enc_ctl *c, const struct enc_enclave *e)
{
	struct enc_json *o = enc_json_object ();
	struct enc_json *list;
	enc_auto_done (enc_member_rows_done) struct enc_member_rows rows = { 0 };

	enc_json_set_str (o, "enclave", e->name);
	list = enc_json_set_array (o, "members");
	if (enc_members_of (c->db, e->id, &rows, NULL) < 0)
		return o;
	for (size_t i = 0; i < rows.n; i++) {
		struct enc_json *m = enc_json_add_object (list);

		enc_json_set_str (m, "user", rows.v[i].user);
		enc_json_set_str (m, "role", rows.v[i].role);
		enc_json_set_time (m, "since", rows.v[i].since * ENC_NS_S);
		enc_json_set_time (m, "last_login", enc_sessions_last (c, e->id, rows.v[i].user) * ENC_NS_S);
	}
	return o;
}

static const char *slurm_state (const struct enc_json *slurm, const char *name)
{
	for (size_t i = 0; i < enc_json_len (slurm); i++)
		if (enc_streq (enc_json_get_str (enc_json_at (slurm, i), "name", NULL), name))
			return enc_json_get_str (enc_json_at (slurm, i), "state", NULL);
	return NULL;
}

static const char *enclave_name (struct enc_ctl *c, const char *id, struct enc_enclave *e)
{
	return id[0] && enc_enclave_load (c->db, id, e, NULL) == 0 ? e->name : NULL;
}

struct enc_json *enc_view_node (struct enc_ctl *c, const struct enc_node *n, const struct enc_json *slurm)
{
	struct enc_json *o = enc_json_object (), *agent;
	enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
	enc_auto_done (enc_document_done) struct enc_document d = { 0 };
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	enc_auto (enc_json) struct enc_json *observed = NULL;

	if (enc_observed_load (c->db, n->name, &seen, NULL) < 0 || enc_document_load (c->db, n->name, &d, NULL) < 0)
		return o;
	observed = enc_view_observed (&seen);
	enc_json_set_str (o, "name", n->name);
	/* An observer is of no pool: it looks from outside, and is never lent. */
	enc_json_set_str (o, "pool", enc_streq (n->declared, "observer") ? NULL : enc_pool_name (n->pool));
	enc_json_set_str (o, "enclave", enclave_name (c, n->enclave_id, &e));
	enc_json_set_str (o, "slurm_state", slurm_state (slurm, n->name));
	agent = enc_json_set_object (o, "agent");
	enc_json_set_bool (agent, "connected", enc_agent_connected (&seen));
	enc_json_set_str (agent, "version", seen.version[0] ? seen.version : NULL);
	if (seen.last_seen)
		enc_json_set_i64 (agent, "last_seen_s", enc_now_s () - seen.last_seen);
	else
		enc_json_set_null (agent, "last_seen_s");
	enc_json_set_i64 (o, "generation", d.generation);
	enc_json_set (o, "observed", enc_json_copy (observed));
	enc_json_set_str (o, "fence", enc_json_str (enc_json_find (observed, "/areas/fence")));
	enc_json_set_str (o, "why", n->why ? n->why : n->trouble);
	enc_json_set_str (o, "next", n->next || !n->trouble ? n->next : "enclavectl watch NAME; it is put right by itself, or set apart");
	enc_json_set_str (o, "declared", n->declared);
	enc_json_set_bool (o, "baseline", n->baseline_at > 0);
	return o;
}

static struct enc_json *parsed (const char *text)
{
	struct enc_json *j = text ? enc_json_parse (text, strlen (text), ENC_JSON_MAX_DEFAULT, NULL) : NULL;

	return j ? j : enc_json_new_null ();
}

/* With its end: "result" is the command's document, or "error" (with "steps" and "nodes") its failure. */
struct enc_json *enc_view_operation (const struct enc_operation *op)
{
	struct enc_json *o = enc_json_object ();
	enc_auto (enc_json) struct enc_json *failure = parsed (op->error);
	static const char *const more[] = { "steps", "nodes", NULL };

	enc_json_set_str (o, "operation", op->id);
	enc_json_set_str (o, "kind", op->kind);
	enc_json_set_str (o, "enclave", op->name);
	enc_json_set_str (o, "state", op->state);
	enc_json_set_time (o, "created_at", op->created_at * ENC_NS_S);
	enc_json_set_time (o, "finished_at", op->finished_at * ENC_NS_S);
	enc_json_set (o, "result", parsed (op->result));
	if (enc_json_type (failure) == ENC_JSON_OBJECT) {
		enc_json_set (o, "error", enc_view_member (failure, "error"));
		for (int i = 0; more[i]; i++)
			if (enc_json_get (failure, more[i]))
				enc_json_set (o, more[i], enc_view_member (failure, more[i]));
	} else {
		enc_json_set_null (o, "error");
	}
	return o;
}
