#include "controller/enclaved/api.h"

#include "base/log.h"
#include "base/peer.h"
#include "controller/enclaved/metrics.h"
#include "base/enc.h"

#define OP(name, fn_, help_) static const struct enc_api_op name = { .fn = (fn_), .help = (help_) }
OP (op_create, enc_api_create, "Order an enclave");
OP (op_plan, enc_api_plan, "What an order would do");
OP (op_list, enc_api_list, "Enclaves that the caller may see");
OP (op_show, enc_api_show, "One enclave");
OP (op_destroy, enc_api_destroy, "Order the end of an enclave");
OP (op_extend, enc_api_extend, "Lengthen a lease");
OP (op_sessions, enc_api_sessions, "Login sessions");
OP (op_session_end, enc_api_session_end, "End a session, or all");
OP (op_jobs, enc_api_jobs, "Jobs, without their names");
OP (op_members, enc_api_members, "Members");
OP (op_member_add, enc_api_member_add, "Add a member");
OP (op_member_remove, enc_api_member_remove, "Remove a member");
OP (op_nodes, enc_api_nodes, "All nodes");
OP (op_node, enc_api_node, "One node");
OP (op_node_enroll, enc_api_node_enroll, "A one-time token for a node");
OP (op_node_quarantine, enc_api_node_quarantine, "Put a node into quarantine");
OP (op_node_release, enc_api_node_release, "Clean a quarantined node and give it back");
OP (op_node_certificate, enc_api_node_certificate, "Certificate of a clean return");
OP (op_operation, enc_api_operation, "One operation");
OP (op_events, enc_api_events, "Events of an operation after N, waited for");
OP (op_agreements, enc_api_agreements, "Agreements");
OP (op_agreement_add, enc_api_agreement_add, "Register an agreement");
OP (op_agreement_end, enc_api_agreement_end, "End an agreement");
OP (op_audit, enc_api_audit, "The log: search, head, files, read, receipt, consistency, witness");
OP (op_keys, enc_api_keys, "State of the key service");
OP (op_policies, enc_api_policies, "Policies");
OP (op_policy_check, enc_api_policy_check, "Check a policy text");
OP (op_policy_explain, enc_api_policy_explain, "What would be decided, and by which rule");
OP (op_users, enc_api_users, "People that the policies know");
OP (op_training, enc_api_training, "Note until when a user is trained");
OP (op_volumes, enc_api_volumes, "Volumes that the caller may see");
OP (op_doctor, enc_api_doctor, "What is wrong, and what to do");
OP (op_metrics, enc_api_metrics, "Figures for monitoring, as OpenMetrics text");
OP (op_whoami, enc_api_whoami, "Who the caller is to this service");

static void dispatch (struct enc_http_req *req, void *arg);

const struct enc_http_route enc_api_routes[] = {
	{ "GET", "/v1/whoami", dispatch, 0, &op_whoami },
	{ "GET", "/v1/enclaves", dispatch, 0, &op_list },
	{ "POST", "/v1/enclaves", dispatch, ENC_HTTP_BODY, &op_create },
	{ "POST", "/v1/enclaves/plan", dispatch, ENC_HTTP_BODY, &op_plan },
	{ "GET", "/v1/enclaves/{}", dispatch, 0, &op_show },
	{ "DELETE", "/v1/enclaves/{}", dispatch, ENC_HTTP_BODY_OPT, &op_destroy },
	{ "POST", "/v1/enclaves/{}/extend", dispatch, ENC_HTTP_BODY, &op_extend },
	{ "GET", "/v1/enclaves/{}/sessions", dispatch, 0, &op_sessions },
	{ "DELETE", "/v1/enclaves/{}/sessions/{}", dispatch, 0, &op_session_end },
	{ "GET", "/v1/enclaves/{}/jobs", dispatch, 0, &op_jobs },
	{ "GET", "/v1/enclaves/{}/members", dispatch, 0, &op_members },
	{ "POST", "/v1/enclaves/{}/members", dispatch, ENC_HTTP_BODY, &op_member_add },
	{ "DELETE", "/v1/enclaves/{}/members/{}", dispatch, 0, &op_member_remove },
	{ "GET", "/v1/nodes", dispatch, 0, &op_nodes },
	{ "GET", "/v1/nodes/{}", dispatch, 0, &op_node },
	{ "POST", "/v1/nodes/{}/enroll", dispatch, ENC_HTTP_BODY_OPT, &op_node_enroll },
	{ "POST", "/v1/nodes/{}/quarantine", dispatch, ENC_HTTP_BODY_OPT, &op_node_quarantine },
	{ "POST", "/v1/nodes/{}/release", dispatch, ENC_HTTP_BODY_OPT, &op_node_release },
	{ "GET", "/v1/nodes/{}/certificate", dispatch, 0, &op_node_certificate },
	{ "GET", "/v1/operations/{}", dispatch, 0, &op_operation },
	{ "GET", "/v1/operations/{}/events", dispatch, 0, &op_events },
	{ "GET", "/v1/agreements", dispatch, 0, &op_agreements },
	{ "POST", "/v1/agreements/{}", dispatch, ENC_HTTP_BODY, &op_agreement_add },
	{ "DELETE", "/v1/agreements/{}", dispatch, 0, &op_agreement_end },
	{ "GET", "/v1/users", dispatch, 0, &op_users },
	{ "POST", "/v1/users/{}/training", dispatch, ENC_HTTP_BODY, &op_training },
	{ "GET", "/v1/volumes", dispatch, 0, &op_volumes },
	{ "GET", "/v1/doctor", dispatch, 0, &op_doctor },
	{ "GET", "/metrics", dispatch, 0, &op_metrics },
	{ "GET", "/v1/audit/{}", dispatch, 0, &op_audit },
	{ "GET", "/v1/key", dispatch, 0, &op_keys },
	{ "GET", "/v1/policies", dispatch, 0, &op_policies },
	{ "POST", "/v1/policies/check", dispatch, ENC_HTTP_BODY, &op_policy_check },
	{ "POST", "/v1/policies/explain", dispatch, ENC_HTTP_BODY, &op_policy_explain },
	{ 0 },
};

/* ---- callers ---- */

static bool who_is (struct enc_ctl *c, struct enc_http_req *req, struct enc_actor *ret)
{
	const struct enc_peer *peer = enc_http_peer (req);

	*ret = (struct enc_actor){ .uid = -1 };
	if (!peer)
		return false;
	ret->uid = peer->uid;
	if (enc_user_of_uid (peer->uid, ret->user, NULL) < 0)
		return false;
	(void) snprintf (ret->role, sizeof ret->role, "%s", enc_site_role_name (enc_policies_role (&c->policies, ret->user)));
	return true;
}

static bool gate (struct enc_http_req *req, void *arg)
{
	struct enc_actor *actor = calloc (1, sizeof *actor);
	struct enc_error err = { 0 };

	if (!actor || !who_is (arg, req, actor)) {
		free (actor);
		(void) enc_fail (&err, ENC_EDENIED, "the caller is no user of this host");
		enc_http_reply_error (req, &err);
		return false;
	}
	enc_http_set_user (req, actor, free);
	return true;
}

/* Every refusal is one record, whoever refused: the parser, the gate, a policy, a handler. */
static void log_refusal (struct enc_http_req *req, int status, void *arg)
{
	struct enc_ctl *c = arg;
	const struct enc_actor *actor = enc_http_user (req);
	struct enc_actor found;
	struct enc_json *record, *data;

	if (status < 400)
		return;
	enc_metrics_refused (c, status);
	if (!actor && who_is (c, req, &found))
		actor = &found;
	record = enc_record ("api", "refused", status == 403 || status == 404 ? "denied" : "failed");
	enc_record_actor (record, actor);
	data = enc_record_data (record);
	enc_json_set_str (data, "method", enc_http_method (req));
	enc_json_set_str (data, "route", enc_http_path (req));
	enc_json_set_i64 (data, "status", status);
	enc_record_soon (c, record);
}

/* ---- a request ---- */

static void handler_fiber (void *arg)
{
	struct enc_api *a = arg;
	const struct enc_api_op *op = enc_http_route (a->req)->data;
	struct enc_error err = { 0 };

	if (op->fn (a, &err) < 0) {
		enc_json_free (a->answer);
		enc_http_reply_error (a->req, &err);
	} else if (!a->parked) {
		enc_http_reply (a->req, a->status, a->answer);
	}
	free (a);
}

static void dispatch (struct enc_http_req *req, void *arg)
{
	struct enc_ctl *c = arg;
	struct enc_api *a = calloc (1, sizeof *a);
	struct enc_error err = { 0 };

	if (a) {
		*a = (struct enc_api){ .c = c, .req = req, .actor = enc_http_user (req), .body = enc_http_body (req), .status = 200 };
		if (enc_fiber_start (c->fibers, handler_fiber, a, NULL, &err) == 0)
			return;
		free (a);
	}
	(void) enc_fail (&err, ENC_ENOMEM, "out of memory");
	enc_http_reply_error (req, &err);
}

int enc_api_start (struct enc_ctl *c, struct enc_error *err)
{
	struct enc_http_conf conf = { .routes = enc_api_routes, .gate = gate, .log = log_refusal, .arg = c, .idle_s = 300 };
	int fd = c->api_fd;

	c->api_fd = -1;
	c->api = enc_http_server_new (c->base, &conf, err);
	if (!c->api) {
		(void) close (fd);
		return -ENC_EFAILED;
	}
	return enc_http_server_listen (c->api, fd, NULL, err);
}

/* ---- for handlers ---- */

void enc_facts_agreement (struct enc_ctl *c, const char *id, struct enc_facts *f)
{
	struct enc_agreement row = { 0 };

	f->agreement = id;
	if (id && enc_db_get (c->db, "agreements", enc_agreement_cols, &row, NULL, "WHERE id=?", "s", id) == 0) {
		f->agreement_until = row.until * ENC_NS_S;
		f->agreement_ended = row.ended;
	}
}

int enc_api_may (struct enc_api *a, enum enc_action action, struct enc_error *err)
{
	struct enc_facts f = { .action = action, .user = a->actor->user, .now = enc_now () };
	struct enc_decision d;

	enc_policy_decide (&a->c->policies, NULL, &f, &d);
	return enc_decision_error (&d, err);
}

static int not_there (struct enc_error *err)
{
	return enc_error_next (err, enc_fail (err, ENC_ENOTFOUND, "there is no such enclave"), "enclavectl list");
}

int enc_api_enclave (struct enc_api *a, enum enc_action action, bool closed, struct enc_enclave *ret, struct enc_error *err)
{
	const char *name = enc_http_capture (a->req, 0);
	struct enc_facts f = { .action = action, .user = a->actor->user, .now = enc_now () };
	struct enc_decision d;
	int rc;

	if (!enc_name_ok (name))
		return enc_error_pointer (err, enc_fail (err, ENC_EUSAGE, "not a name of an enclave"), "name");
	rc = closed ? enc_enclave_latest (a->c->db, name, ret, NULL) : enc_enclave_named (a->c->db, name, ret, NULL);
	/* An enclave that is not there is judged like one of somebody else's: the same steps, the same answer. */
	f.is_owner = rc == 0 && enc_streq (ret->owner, a->actor->user);
	f.is_member = enc_db_int (a->c->db, 0, "SELECT count(*) FROM members WHERE enclave_id=? AND user=?", "ss", ret->id, a->actor->user) > 0;
	f.owner = ret->owner;
	enc_facts_agreement (a->c, ret->agreement, &f);
	enc_policy_decide (&a->c->policies, enc_policies_find (&a->c->policies, ret->policy), &f, &d);
	if (rc < 0 || d.hidden)
		return not_there (err);
	return enc_decision_error (&d, err);
}

int enc_api_wait (struct enc_api *a, const char *op, int64_t ms, struct enc_error *err)
{
	int64_t until = enc_deadline_ms (ms);

	for (;;) {
		enc_auto_done (enc_operation_done) struct enc_operation o = { 0 };
		enc_auto (enc_json) struct enc_json *why = NULL;
		int rc = enc_operation_load (a->c->db, op, &o, err);

		if (rc < 0)
			return rc;
		why = o.error ? enc_json_parse (o.error, strlen (o.error), ENC_JSON_MAX_DEFAULT, NULL) : NULL;
		if (why)
			return enc_json_to_error (why, err);
		if (!enc_streq (o.state, "running") || enc_passed (until))
			return 0;
		rc = enc_cond_wait (a->c->fibers, &a->c->changed, until, err);
		if (rc < 0 && rc != -ENC_ETIMEOUT)
			return rc;
	}
}

int64_t enc_training_until (struct enc_ctl *c, const char *user)
{
	return enc_db_int (c->db, 0, "SELECT until FROM training WHERE user=?", "s", user) * ENC_NS_S;
}

void enc_api_accepted (struct enc_api *a, const char *op)
{
	a->status = 202;
	a->answer = enc_json_object ();
	enc_json_set_str (a->answer, "operation", op);
}

struct enc_json *enc_api_slurm (struct enc_api *a)
{
	struct enc_json *answer = NULL;

	return enc_ctl_slurm (a->c, &answer, NULL) < 0 ? NULL : answer;
}

struct enc_json *enc_api_record (struct enc_api *a, const char *cls, const char *action, const char *outcome)
{
	struct enc_json *record = enc_record (cls, action, outcome);

	enc_record_actor (record, a->actor);
	return record;
}
