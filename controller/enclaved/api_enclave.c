/* list, show, destroy, extend, and what goes on inside as far as it may be told. */
#include "controller/enclaved/api.h"

#include "node-agent/proto/document.h"
#include "base/enc.h"

int enc_api_list (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_enclaves_done) struct enc_enclaves l = { 0 };
	struct enc_json *list;
	int rc;

	if ((rc = enc_enclave_list (a->c->db, &l, err, "WHERE state!='closed' ORDER BY name")) < 0)
		return rc;
	a->answer = enc_json_object ();
	list = enc_json_set_array (a->answer, "enclaves");
	for (size_t i = 0; i < l.n; i++) {
		struct enc_facts f = { .action = ENC_ACT_SHOW, .user = a->actor->user, .now = enc_now () };
		struct enc_decision d;

		f.is_owner = enc_streq (l.v[i].owner, a->actor->user);
		f.is_member = enc_db_int (a->c->db, 0, "SELECT count(*) FROM members WHERE enclave_id=? AND user=?", "ss", l.v[i].id,
					  a->actor->user) > 0;
		enc_policy_decide (&a->c->policies, NULL, &f, &d);
		if (d.allowed)
			enc_json_add (list, enc_view_enclave_line (a->c, &l.v[i]));
	}
	return 0;
}

int enc_api_show (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc = enc_api_enclave (a, ENC_ACT_SHOW, true, &e, err);

	if (rc == 0)
		a->answer = enc_view_enclave (a->c, &e);
	return rc;
}

/* ---- destroy ---- */

struct destroy {
	bool now;
	char *erase;
};

static const struct enc_field destroy_fields[] = {
	ENC_FIELD (struct destroy, now, "now", ENC_T_BOOL),
	ENC_FIELD (struct destroy, erase, "erase", ENC_T_TEXT, .max = 512, .help = "\"all\", or volumes with commas between"),
	ENC_FIELD_END
};

static void destroy_done (struct destroy *d)
{
	enc_fields_done (destroy_fields, d);
}

/* From the body, or from the query, which is what a DELETE of enclavectl has. */
static int read_destroy (struct enc_api *a, struct destroy *d, struct enc_error *err)
{
	const char *now = enc_http_query (a->req, "now"), *erase = enc_http_query (a->req, "erase");
	enc_auto (enc_json) struct enc_json *query = NULL;

	if (a->body)
		return enc_json_decode (destroy_fields, a->body, d, err);
	query = enc_json_object ();
	enc_json_set_bool (query, "now", enc_streq (now, "true"));
	if (erase)
		enc_json_set_str (query, "erase", erase);
	return enc_json_decode (destroy_fields, query, d, err);
}

static int may_erase (struct enc_api *a, const struct enc_enclave *e, struct enc_error *err)
{
	const struct enc_policy *p = enc_policies_find (&a->c->policies, e->policy);
	enc_auto_done (enc_enclave_done) struct enc_enclave again = { 0 };
	int rc = enc_api_enclave (a, ENC_ACT_ERASE, true, &again, err);

	if (rc < 0)
		return rc;
	if (p && enc_strs_has (&p->two_person, "erase"))
		return enc_error_next (err, enc_fail (err, ENC_EDENIED, "policy %s wants two people to approve an erasure", e->policy),
				       "destroy without --erase: volumes stay locked");
	return 0;
}

/* A destroy under way is joined, not doubled. */
static bool join_running (struct enc_api *a, const struct enc_enclave *e)
{
	enc_auto_done (enc_operation_done) struct enc_operation o = { 0 };

	if (!enc_life_find (a->c, e->id) || enc_operation_running (a->c->db, e->id, &o, NULL) < 0 || !enc_streq (o.kind, "destroy"))
		return false;
	enc_api_accepted (a, o.id);
	return true;
}

int enc_api_destroy (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	enc_auto_done (destroy_done) struct destroy d = { 0 };
	struct enc_json *record;
	char op[ENC_ID_SIZE];
	int rc;

	if ((rc = read_destroy (a, &d, err)) < 0 || (rc = enc_api_enclave (a, ENC_ACT_DESTROY, true, &e, err)) < 0 || (d.erase && (rc = may_erase (a, &e, err)) < 0))
		return rc;
	if (d.erase && (rc = enc_db_exec (a->c->db, err, "UPDATE enclaves SET erase=? WHERE id=?", "ss", d.erase, e.id)) < 0)
		return rc;
	if (join_running (a, &e))
		return 0;
	if (!enc_streq (e.state, ENC_STATE_CLOSED)) {
		record = enc_api_record (a, "enclave", "destroy", "ok");
		enc_record_enclave (record, &e);
		enc_record_soon (a->c, record); /* tightening does not wait for the log */
	}
	if ((rc = enc_operation_new (a->c, "destroy", a->actor->user, &e, op, err)) < 0 || (rc = enc_life_destroy (a->c, e.id, op, err)) < 0)
		return rc;
	enc_api_accepted (a, op);
	enc_json_set_str (a->answer, "name", e.name);
	enc_json_set_str (a->answer, "id", e.id);
	return 0;
}

/* ---- jobs, from the scheduler node's last report ---- */

static const char *node_with (struct enc_api *a, const struct enc_enclave *e, uint8_t role, struct enc_nodes *nodes)
{
	return enc_nodes_of (a->c->db, e->id, role, nodes, NULL) == 0 && nodes->n ? nodes->v[0].name : NULL;
}

/* A member's jobs are his own: the same rule as in the enclave's scheduler. */
static struct enc_json *jobs_of (const struct enc_json *jobs, const char *user)
{
	struct enc_json *list = enc_json_array ();

	for (size_t i = 0; i < enc_json_len (jobs); i++) {
		const struct enc_json *job = enc_json_at (jobs, i);

		if (!user || enc_streq (enc_json_get_str (job, "user", ""), user))
			enc_json_add (list, enc_json_copy (job));
	}
	return list;
}

int enc_api_jobs (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 }, again = { 0 };
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
	enc_auto (enc_json) struct enc_json *report = NULL;
	const char *node;
	bool all;
	int rc = enc_api_enclave (a, ENC_ACT_JOB_LIST, false, &e, err);

	if (rc < 0)
		return rc;
	all = enc_api_enclave (a, ENC_ACT_JOB_LIST_ALL, false, &again, NULL) == 0;
	node = node_with (a, &e, ENC_ROLE_SCHEDULER, &nodes);
	if (node && enc_observed_load (a->c->db, node, &seen, NULL) == 0 && seen.report)
		report = enc_json_parse (seen.report, strlen (seen.report), ENC_JSON_MAX_DEFAULT, NULL);
	a->answer = enc_json_object ();
	enc_json_set_str (a->answer, "enclave", e.name);
	enc_json_set (a->answer, "jobs", jobs_of (enc_json_find (report, "/evidence/slurm/jobs"), all ? NULL : a->actor->user));
	return 0;
}
