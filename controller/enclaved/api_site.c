/* People, volumes, and what is wrong here. */
#include "controller/enclaved/api.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "controller/enclaved/metrics.h"
#include "base/enc.h"

/* ---- people ---- */

static void add_user (struct enc_api *a, struct enc_json *list, const char *user, int role)
{
	enc_auto (enc_rows) struct enc_rows *r = NULL;
	struct enc_json *o = enc_json_add_object (list), *enclaves;
	int64_t trained = enc_training_until (a->c, user);

	enc_json_set_str (o, "user", user);
	enc_json_set_str (o, "role", enc_site_role_name (role));
	enc_json_set_time (o, "trained_until", trained ? trained : enc_policies_training (&a->c->policies, user));
	enclaves = enc_json_set_array (o, "enclaves");
	if (enc_db_query (a->c->db, &r, NULL,
			  "SELECT e.name FROM members m JOIN enclaves e ON e.id=m.enclave_id WHERE m.user=? AND e.state!='closed' ORDER BY 1", "s",
			  user) < 0)
		return;
	while (enc_rows_next (r, NULL) > 0)
		enc_json_add_str (enclaves, enc_rows_text (r, 0));
}

int enc_api_users (struct enc_api *a, struct enc_error *err)
{
	struct enc_json *list;
	int rc = enc_api_may (a, ENC_ACT_AGREEMENT_LIST, err);

	if (rc < 0)
		return rc;
	a->answer = enc_json_object ();
	list = enc_json_set_array (a->answer, "users");
	for (size_t i = 0; i < a->c->policies.n; i++) {
		const struct enc_policy_person *v = a->c->policies.v[i].roles.v;

		for (size_t k = 0; k < a->c->policies.v[i].roles.n; k++)
			add_user (a, list, v[k].user, v[k].role);
	}
	return 0;
}

int enc_api_training (struct enc_api *a, struct enc_error *err)
{
	const char *user = enc_http_capture (a->req, 0);
	enc_auto_free char *keys = NULL;
	struct enc_json *record;
	char text[ENC_TIME_SIZE];
	uint32_t uid, gid;
	int64_t until;
	int rc;

	if (!enc_user_name_ok (user))
		return enc_error_pointer (err, enc_fail (err, ENC_EUSAGE, "not a user name"), "user");
	if ((rc = enc_until_of (a->body, &until, err)) < 0 || (rc = enc_api_may (a, ENC_ACT_AGREEMENT_CHANGE, err)) < 0 ||
	    (rc = enc_site_user_find (a->c->conf->users, user, &uid, &gid, &keys, err)) < 0)
		return rc;
	record = enc_api_record (a, "training", "set", "ok");
	enc_record_obj (record, "user", user);
	enc_json_set_str (enc_record_data (record), "until", enc_time_format (until * ENC_NS_S, false, text));
	if ((rc = enc_record_now (a->c, record, NULL, err)) < 0 ||
	    (rc = enc_db_exec (a->c->db, err, "INSERT OR REPLACE INTO training (user, until) VALUES (?,?)", "si", user, until)) < 0)
		return rc;
	a->answer = enc_json_object ();
	enc_json_set_str (a->answer, "user", user);
	enc_json_set_time (a->answer, "trained_until", until * ENC_NS_S);
	return 0;
}

/* ---- volumes ---- */

int enc_api_volumes (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_volumes_done) struct enc_volumes l = { 0 };
	bool all = enc_api_may (a, ENC_ACT_NODE_LIST, NULL) == 0;
	struct enc_json *list;
	void *v = NULL;
	int rc = enc_db_all (a->c->db, "volumes", enc_volume_cols, sizeof *l.v, &v, &l.n, err, "WHERE kind!=1 ORDER BY name", "");

	if (rc < 0)
		return rc;
	l.v = v;
	a->answer = enc_json_object ();
	list = enc_json_set_array (a->answer, "volumes");
	for (size_t i = 0; i < l.n; i++)
		if (all || enc_streq (l.v[i].owner, a->actor->user))
			enc_json_add (list, enc_view_volume (&l.v[i]));
	return 0;
}

/* ---- doctor ---- */

static void check (struct enc_json *list, const char *id, const char *state, const char *text, const char *next)
{
	struct enc_json *o = enc_json_add_object (list);

	enc_json_set_str (o, "id", id);
	enc_json_set_str (o, "state", state);
	enc_json_set_str (o, "text", text);
	enc_json_set_str (o, "next", next);
}

static void check_service (struct enc_api *a, struct enc_json *list, struct enc_ipc_client *to, const char *op, const char *id, const char *next)
{
	enc_auto (enc_json) struct enc_json *answer = NULL;
	struct enc_error err = { 0 };
	int rc = enc_ctl_call (a->c, to, enc_request (op), &answer, &err);
	const char *state = enc_json_get_str (answer, "state", NULL);

	if (rc < 0)
		check (list, id, "bad", err.text, next);
	else if (state && !enc_streq (state, "unsealed"))
		check (list, id, "bad", state, "as root on the vault: enclavectl key unseal");
	else
		check (list, id, "ok", state ? state : "answers", NULL);
}

/* How long ago a quorum of witnesses vouched for the log; more than this is worth a look. */
#define WITNESS_WARN_S 60

static void check_witnesses (struct enc_api *a, struct enc_json *list)
{
	static const char next[] = "enclavectl audit witness";
	enc_auto (enc_json) struct enc_json *answer = NULL;
	struct enc_error err = { 0 };
	int rc = enc_ctl_call (a->c, a->c->auditd, enc_request ("head"), &answer, &err);
	int64_t age = enc_json_get_i64 (answer, "witness_age_s", -1);
	enc_auto_free char *text = enc_strf ("a quorum vouched %lld s ago", (long long) age);

	if (rc < 0)
		check (list, "witnesses", "unknown", err.text, "systemctl status enclave-auditd");
	else if (enc_json_get_bool (answer, "witness_alarm", false))
		check (list, "witnesses", "bad", "a witness refuses: the log is not what it cosigned before", next);
	else if (enc_json_get_i64 (enc_json_get (answer, "witnesses"), "required", 0) == 0)
		check (list, "witnesses", "warn", "no witness is asked for", "docs/admin.md, Witnesses");
	else if (age < 0)
		check (list, "witnesses", "warn", "no quorum has vouched yet", next);
	else
		check (list, "witnesses", age > WITNESS_WARN_S ? "warn" : "ok", text, age > WITNESS_WARN_S ? next : NULL);
}

/* A count in the store that should be zero. */
static const struct {
	const char *id, *sql, *bad, *next, *state;
} counts[] = {
	{ "quarantine", "SELECT count(*) FROM nodes WHERE pool=4", "nodes are in quarantine", "enclavectl node list", "bad" },
	{ "repair", "SELECT count(*) FROM nodes WHERE trouble_at>0", "nodes of open enclaves have started again, are silent or have lost what they had",
	  "enclavectl list", "bad" },
	{ "stuck", "SELECT count(*) FROM enclaves WHERE state='stuck'", "enclaves are stuck", "enclavectl list", "bad" },
	{ "baseline", "SELECT count(*) FROM nodes WHERE declared!='observer' AND baseline_at=0", "nodes have no baseline", "enclavectl node list", "warn" },
	{ "spool", "SELECT count(*) FROM spool", "records wait for the log", "systemctl status enclave-auditd", "warn" },
	{ "agents", "SELECT count(*) FROM nodes n LEFT JOIN observed o ON o.node=n.name WHERE coalesce(o.last_seen,0) < unixepoch()-40",
	  "agents are not connected", "enclavectl node list", "warn" },
};

static void check_counts (struct enc_api *a, struct enc_json *list)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (counts); i++) {
		int64_t n = enc_db_int (a->c->db, -1, counts[i].sql, "");
		enc_auto_free char *text = enc_strf ("%lld %s", (long long) n, counts[i].bad);

		if (n < 0)
			check (list, counts[i].id, "unknown", "the store does not answer", "journalctl -u enclaved");
		else if (n > 0)
			check (list, counts[i].id, counts[i].state, text, counts[i].next);
		else
			check (list, counts[i].id, "ok", "none", NULL);
	}
}

/* root may ask too: whoever mends things needs to see what is broken. */
static int may_look (struct enc_api *a, enum enc_action action, struct enc_error *err)
{
	return a->actor->uid == 0 ? 0 : enc_api_may (a, action, err);
}

int enc_api_doctor (struct enc_api *a, struct enc_error *err)
{
	struct enc_json *list;
	int rc = may_look (a, ENC_ACT_KEY_STATUS, err);

	if (rc < 0)
		return rc;
	a->answer = enc_json_object ();
	list = enc_json_set_array (a->answer, "checks");
	check (list, "controller", "ok", "answers", NULL);
	check_service (a, list, a->c->auditd, "head", "log", "systemctl status enclave-auditd");
	check_witnesses (a, list);
	check_service (a, list, a->c->keyd, "status", "keys", "systemctl status enclave-keyd");
	check_service (a, list, a->c->schedd, "nodes", "scheduler", "systemctl status enclave-schedd");
	check_counts (a, list);
	return 0;
}

int enc_api_metrics (struct enc_api *a, struct enc_error *err)
{
	enc_auto_free char *text = NULL;
	int rc = may_look (a, ENC_ACT_NODE_LIST, err);

	if (rc < 0 || (rc = enc_metrics_text (a->c, &text, err)) < 0)
		return rc;
	enc_http_reply_text (a->req, 200, ENC_METRICS_TYPE, text, strlen (text));
	a->parked = true;
	return 0;
}
