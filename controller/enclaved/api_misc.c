/* Operations and their events, agreements, policies, and what is relayed to log and key service. */
#include "controller/enclaved/api.h"

#include "base/enctime.h"
#include "controller/enclaved/polls.h"
#include "base/enc.h"

enum { EVENTS_MS = 25000 };

/* ---- operations ---- */

/* An operation is its user's, and of those who may see its enclave. */
static int load_operation (struct enc_api *a, struct enc_operation *ret, struct enc_error *err)
{
	const char *id = enc_http_capture (a->req, 0);
	struct enc_facts f = { .action = ENC_ACT_SHOW, .user = a->actor->user, .now = enc_now () };
	struct enc_decision d;
	int rc;

	if (!enc_id_ok (id))
		return enc_error_pointer (err, enc_fail (err, ENC_EUSAGE, "not an operation's id"), "operation");
	rc = enc_operation_load (a->c->db, id, ret, NULL);
	f.is_owner = rc == 0 && enc_streq (ret->user, a->actor->user);
	enc_policy_decide (&a->c->policies, NULL, &f, &d);
	if (rc < 0 || !d.allowed)
		return enc_fail (err, ENC_ENOTFOUND, "there is no such operation");
	return 0;
}

int enc_api_operation (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_operation_done) struct enc_operation o = { 0 };
	int rc = load_operation (a, &o, err);

	if (rc == 0)
		a->answer = enc_view_operation (&o);
	return rc;
}

/* The operation as it stands with "events", "last" (what to ask for next) and "done". */
static bool answer_events (struct enc_ctl *c, struct enc_http_req *req, struct enc_poll *poll, bool last)
{
	enc_auto_done (enc_operation_done) struct enc_operation o = { 0 };
	enc_auto (enc_json) struct enc_json *list = NULL;
	struct enc_error err = { 0 };
	struct enc_json *answer;
	int64_t next = 0;
	bool done;

	if (enc_operation_load (c->db, poll->key, &o, &err) < 0) {
		enc_http_reply_error (req, &err);
		return true;
	}
	list = enc_events_after (c->db, poll->key, poll->after, &next);
	done = !enc_streq (o.state, "running");
	if (!enc_json_len (list) && !done && !last)
		return false;
	answer = enc_view_operation (&o);
	enc_json_set (answer, "events", ENC_TAKE (list));
	enc_json_set_i64 (answer, "last", next);
	enc_json_set_bool (answer, "done", done);
	enc_http_reply (req, 200, answer);
	return true;
}

int enc_api_events (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_operation_done) struct enc_operation o = { 0 };
	const char *text = enc_http_query (a->req, "after");
	int64_t after = 0;
	int rc = load_operation (a, &o, err);

	if (rc == 0 && text && (rc = enc_parse_i64 (text, 0, INT64_MAX, &after, err)) < 0)
		rc = enc_error_pointer (err, rc, "after");
	if (rc < 0)
		return rc;
	a->parked = true;
	enc_poll_park (a->c, a->req, answer_events, o.id, after, EVENTS_MS);
	return 0;
}

/* ---- agreements ---- */

static void add_agreement (struct enc_json *list, const char *id, int64_t until, bool ended)
{
	struct enc_json *o = enc_json_add_object (list);

	enc_json_set_str (o, "id", id);
	enc_json_set_time (o, "until", until);
	enc_json_set_str (o, "state", ended ? "ended" : until > enc_now () ? "valid" : "lapsed");
}

int enc_api_agreements (struct enc_api *a, struct enc_error *err)
{
	enc_auto (enc_rows) struct enc_rows *r = NULL;
	struct enc_json *list;
	int rc;

	if ((rc = enc_api_may (a, ENC_ACT_AGREEMENT_LIST, err)) < 0 ||
	    (rc = enc_db_query (a->c->db, &r, err, "SELECT id, until, ended FROM agreements ORDER BY id", "")) < 0)
		return rc;
	a->answer = enc_json_object ();
	list = enc_json_set_array (a->answer, "agreements");
	while (enc_rows_next (r, NULL) > 0)
		add_agreement (list, enc_rows_text (r, 0), enc_rows_int (r, 1) * ENC_NS_S, enc_rows_int (r, 2));
	for (size_t i = 0; i < a->c->policies.n; i++) {
		const struct enc_policy_until *v = a->c->policies.v[i].agreements.v;

		for (size_t k = 0; k < a->c->policies.v[i].agreements.n; k++)
			if (enc_db_int (a->c->db, 0, "SELECT count(*) FROM agreements WHERE id=?", "s", v[k].id) == 0)
				add_agreement (list, v[k].id, v[k].until, false);
	}
	return 0;
}

static bool agreement_id_ok (const char *id)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	return id && *id && strlen (id) <= 64 && strspn (id, allowed) == strlen (id);
}

static int put_agreement (struct enc_api *a, const char *action, const struct enc_agreement *row, struct enc_error *err)
{
	struct enc_json *record = enc_api_record (a, "agreement", action, "ok");
	char until[ENC_TIME_SIZE];
	int rc;

	enc_json_set_str (record, "agreement", row->id);
	enc_json_set_str (enc_record_data (record), "until", enc_time_format (row->until * ENC_NS_S, false, until));
	if ((rc = enc_record_now (a->c, record, NULL, err)) < 0 ||
	    (rc = enc_db_put (a->c->db, "agreements", enc_agreement_cols, row, err)) < 0)
		return rc;
	a->answer = enc_json_object ();
	add_agreement (enc_json_set_array (a->answer, "agreements"), row->id, row->until * ENC_NS_S, row->ended);
	return 0;
}

/* A day (its end) or a time; the store keeps seconds. */
int enc_until_of (const struct enc_json *body, int64_t *ret_s, struct enc_error *err)
{
	const char *text = enc_json_get_str (body, "until", NULL);
	int64_t ns = 0;

	if (!text || enc_date_parse (text, &ns, NULL) < 0)
		return enc_error_pointer (err, enc_fail (err, ENC_EUSAGE, "until: a date such as 2027-12-31 is needed"), "/until");
	*ret_s = ns / ENC_NS_S;
	return 0;
}

int enc_api_agreement_add (struct enc_api *a, struct enc_error *err)
{
	const char *id = enc_http_capture (a->req, 0);
	struct enc_agreement row = { 0 };
	int rc;

	if (!agreement_id_ok (id))
		return enc_error_pointer (err, enc_fail (err, ENC_EUSAGE, "not an agreement's id"), "agreement");
	if ((rc = enc_until_of (a->body, &row.until, err)) < 0 || (rc = enc_api_may (a, ENC_ACT_AGREEMENT_CHANGE, err)) < 0)
		return rc;
	(void) snprintf (row.id, sizeof row.id, "%s", id);
	(void) snprintf (row.added_by, sizeof row.added_by, "%s", a->actor->user);
	return put_agreement (a, "add", &row, err);
}

int enc_api_agreement_end (struct enc_api *a, struct enc_error *err)
{
	const char *id = enc_http_capture (a->req, 0);
	struct enc_agreement row = { 0 };
	int rc;

	if (!agreement_id_ok (id))
		return enc_error_pointer (err, enc_fail (err, ENC_EUSAGE, "not an agreement's id"), "agreement");
	if ((rc = enc_api_may (a, ENC_ACT_AGREEMENT_CHANGE, err)) < 0)
		return rc;
	if (enc_db_get (a->c->db, "agreements", enc_agreement_cols, &row, NULL, "WHERE id=?", "s", id) < 0) {
		row.until = enc_policies_agreement (&a->c->policies, id) / ENC_NS_S;
		(void) snprintf (row.id, sizeof row.id, "%s", id);
	}
	if (!row.until)
		return enc_error_object (err, enc_fail (err, ENC_ENOTFOUND, "there is no agreement %s", id), "%s", id);
	row.ended = 1;
	return put_agreement (a, "end", &row, err);
}

/* ---- relayed ---- */

static const char *const search_texts[] = { "user", "enclave", "dataset", "node", "action", "outcome", "since", "until", NULL };
static const char *const search_numbers[] = { "from", "limit", NULL };
static const char *const read_texts[] = { "file", NULL };
static const char *const read_numbers[] = { "offset", "length", NULL };
static const char *const index_numbers[] = { "index", NULL };
static const char *const size_numbers[] = { "from", "to", NULL };

static const struct audit_op {
	const char *name;
	const char *const *texts, *const *numbers;
	const char *action; /* of the record; NULL: not worth one */
} audit_ops[] = {
	{ "search", search_texts, search_numbers, "search" }, { "head", NULL, NULL, NULL }, { "files", NULL, NULL, NULL },
	{ "read", read_texts, read_numbers, NULL }, { "receipt", NULL, index_numbers, NULL },
	{ "consistency", NULL, size_numbers, NULL }, { "witness", NULL, NULL, NULL },
};

static int audit_request (struct enc_api *a, const struct audit_op *op, struct enc_json *request, struct enc_error *err)
{
	for (int i = 0; op->texts && op->texts[i]; i++)
		if (enc_http_query (a->req, op->texts[i]))
			enc_json_set_str (request, op->texts[i], enc_http_query (a->req, op->texts[i]));
	for (int i = 0; op->numbers && op->numbers[i]; i++) {
		const char *text = enc_http_query (a->req, op->numbers[i]);
		uint64_t v = 0;
		int rc;

		if (!text)
			continue;
		if ((rc = enc_parse_u64 (text, 0, UINT64_C (1) << 53, &v, err)) < 0)
			return enc_error_pointer (err, rc, "%s", op->numbers[i]);
		enc_json_set_u64 (request, op->numbers[i], v);
	}
	return 0;
}

/* Reading the log is in the log. */
static void record_reading (struct enc_api *a, const struct audit_op *op, const struct enc_json *answer)
{
	struct enc_json *record;

	if (!op->action)
		return;
	record = enc_api_record (a, "audit", op->action, "ok");
	enc_json_set_i64 (enc_record_data (record), "matched", enc_json_get_i64 (answer, "matched", 0));
	enc_record_soon (a->c, record);
}

int enc_api_audit (struct enc_api *a, struct enc_error *err)
{
	const char *name = enc_http_capture (a->req, 0);
	struct enc_json *request;
	int rc;

	for (size_t i = 0; i < ENC_ARRAY_LEN (audit_ops); i++) {
		if (!enc_streq (audit_ops[i].name, name))
			continue;
		if ((rc = enc_api_may (a, ENC_ACT_AUDIT, err)) < 0)
			return rc;
		request = enc_request (name);
		if ((rc = audit_request (a, &audit_ops[i], request, err)) < 0) {
			enc_json_free (request);
			return rc;
		}
		if ((rc = enc_ctl_call (a->c, a->c->auditd, request, &a->answer, err)) < 0)
			return rc;
		record_reading (a, &audit_ops[i], a->answer);
		return 0;
	}
	return enc_fail (err, ENC_ENOTFOUND, "there is no such route");
}

int enc_api_keys (struct enc_api *a, struct enc_error *err)
{
	static const char *const kept[] = { "state", "driver", "version", NULL };
	enc_auto (enc_json) struct enc_json *answer = NULL;
	int rc;

	/* root has no role, but may see whether the vault is sealed: unsealing is his. */
	if (a->actor->uid != 0 && (rc = enc_api_may (a, ENC_ACT_KEY_STATUS, err)) < 0)
		return rc;
	if ((rc = enc_ctl_call (a->c, a->c->keyd, enc_request ("status"), &answer, err)) < 0)
		return rc;
	a->answer = enc_json_object ();
	for (int i = 0; kept[i]; i++)
		enc_json_set (a->answer, kept[i], enc_view_member (answer, kept[i]));
	return 0;
}

/* ---- policies ---- */

int enc_api_policies (struct enc_api *a, struct enc_error *err)
{
	struct enc_json *list;
	int rc = enc_api_may (a, ENC_ACT_POLICY, err);

	if (rc < 0)
		return rc;
	a->answer = enc_json_object ();
	list = enc_json_set_array (a->answer, "policies");
	for (size_t i = 0; i < a->c->policies.n; i++) {
		struct enc_json *o = enc_json_add_object (list);

		enc_json_set_str (o, "name", a->c->policies.v[i].name);
		enc_json_set_str (o, "version", a->c->policies.v[i].version);
		enc_json_set_str (o, "text", a->c->policies.v[i].text);
		enc_json_set_bool (o, "default", enc_streq (a->c->policies.v[i].name, a->c->conf->policy));
	}
	return 0;
}

int enc_api_policy_check (struct enc_api *a, struct enc_error *err)
{
	const char *text;
	struct enc_policies alone = { 0 };
	struct enc_error why = { 0 };
	struct enc_json *errors;
	int rc;

	if ((rc = enc_api_may (a, ENC_ACT_POLICY, err)) < 0 || (rc = enc_json_need_str (a->body, "policy", &text, err)) < 0)
		return rc;
	rc = enc_policies_add (&alone, text, strlen (text), &why);
	enc_policies_done (&alone);
	a->answer = enc_json_object ();
	enc_json_set_bool (a->answer, "ok", rc == 0);
	errors = enc_json_set_array (a->answer, "errors");
	if (rc < 0) {
		struct enc_json *o = enc_json_add_object (errors);
		unsigned line = enc_json_line (text, strlen (text), why.pointer);

		if (line)
			enc_json_set_u64 (o, "line", line);
		else
			enc_json_set_null (o, "line");
		enc_json_set_str (o, "pointer", why.pointer);
		enc_json_set_str (o, "text", why.text);
	}
	return 0;
}

int enc_api_whoami (struct enc_api *a, ENC_UNUSED struct enc_error *err)
{
	a->answer = enc_json_object ();
	enc_json_set_str (a->answer, "user", a->actor->user);
	enc_json_set_str (a->answer, "role", a->actor->role);
	enc_json_set_i64 (a->answer, "uid", a->actor->uid);
	return 0;
}
