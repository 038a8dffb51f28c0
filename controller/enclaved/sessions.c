#include "controller/enclaved/sessions.h"

#include "base/enctime.h"
#include "base/log.h"
#include "controller/enclaved/record.h"
#include "base/enc.h"

enum { RECEIPTS_MAX = 64 };

static const char *at (const struct enc_json *event, const char *pointer)
{
	const char *s = enc_json_str (enc_json_find (event, pointer));

	return s ? s : "";
}

static int64_t time_of (const struct enc_json *event)
{
	int64_t ns = 0;

	return enc_time_parse (enc_json_get_str (event, "time", ""), &ns, NULL) == 0 ? ns / ENC_NS_S : enc_now_s ();
}

void enc_sessions_note (struct enc_ctl *c, const char *node, const struct enc_json *event, int64_t index)
{
	const char *id = at (event, "/actor/session"), *action = enc_json_get_str (event, "action", "");
	struct enc_error err = { 0 };
	int rc = 0;

	if (!enc_streq (enc_json_get_str (event, "class", ""), "session") || !enc_id_ok (id))
		return;
	if (enc_streq (action, "start"))
		rc = enc_db_exec (c->db, &err,
				  "INSERT OR IGNORE INTO sessions (id, enclave_id, user, node, ip, factor, started_at, record) VALUES (?,?,?,?,?,?,?,?)",
				  "ssssssii", id, at (event, "/obj/enclave_id"), at (event, "/actor/user"), node, at (event, "/peer/ip"),
				  at (event, "/data/factor"), time_of (event), index);
	else if (enc_streq (action, "end"))
		rc = enc_db_exec (c->db, &err, "UPDATE sessions SET ended_at=? WHERE id=? AND node=?", "iss", time_of (event), id, node);
	if (rc < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "a session of %s could not be noted", node);
	enc_ctl_changed (c);
}

static void record_lost (struct enc_ctl *c, const char *node, const char *id, const char *user, const char *enclave_id)
{
	struct enc_json *record = enc_record ("session", "end", "failed"), *actor;

	enc_record_actor (record, NULL);
	actor = enc_json_get (record, "actor");
	enc_json_set_str (actor, "user", user);
	enc_json_set_str (actor, "session", id);
	enc_record_obj (record, "node", node);
	enc_record_obj (record, "enclave_id", enclave_id);
	enc_record_reason (record, "the node was rebooted");
	enc_record_soon (c, record);
}

/* Note one session of the node as ended. 1 if there was one, 0 if there is none left. */
static int end_one (struct enc_ctl *c, const char *node, struct enc_error *err)
{
	enc_auto (enc_rows) struct enc_rows *r = NULL;
	char id[ENC_ID_SIZE], user[33], enclave[ENC_ID_SIZE];
	int rc = enc_db_query (c->db, &r, err, "SELECT id, user, enclave_id FROM sessions WHERE node=? AND ended_at=0 LIMIT 1", "s", node);

	if (rc < 0 || (rc = enc_rows_next (r, err)) <= 0)
		return rc;
	(void) snprintf (id, sizeof id, "%s", enc_rows_text (r, 0));
	(void) snprintf (user, sizeof user, "%s", enc_rows_text (r, 1));
	(void) snprintf (enclave, sizeof enclave, "%s", enc_rows_text (r, 2));
	enc_rows_free (ENC_TAKE (r));
	if ((rc = enc_db_exec (c->db, err, "UPDATE sessions SET ended_at=? WHERE id=?", "is", enc_now_s (), id)) < 0)
		return rc;
	record_lost (c, node, id, user, enclave);
	return 1;
}

void enc_sessions_reboot (struct enc_ctl *c, const char *node, const char *boot)
{
	struct enc_error err = { 0 };
	int rc = 1;

	if (enc_db_int (c->db, 0, "SELECT count(*) FROM observed WHERE node=? AND events_boot IS NOT NULL AND events_boot NOT IN ('', ?)", "ss", node, boot) == 0)
		return;
	while (rc > 0)
		rc = end_one (c, node, &err);
	if (rc < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "sessions of %s from before its reboot could not be noted as ended", node);
}

struct enc_json *enc_sessions_receipts (struct enc_ctl *c, const char *node, const struct enc_json *wanted)
{
	struct enc_json *out = enc_json_array ();

	for (size_t i = 0; i < enc_json_len (wanted) && i < RECEIPTS_MAX; i++) {
		const char *id = enc_json_str (enc_json_at (wanted, i));
		enc_auto (enc_json) struct enc_json *answer = NULL;
		struct enc_json *request, *row;
		struct enc_error err = { 0 };
		int64_t index = id ? enc_db_int (c->db, -1, "SELECT record FROM sessions WHERE id=? AND node=?", "ss", id, node) : -1;

		if (index < 0)
			continue;
		request = enc_request ("receipt");
		enc_json_set_i64 (request, "index", index);
		if (enc_ctl_call (c, c->auditd, request, &answer, &err) < 0) {
			enc_log_err (ENC_LOG_WARN, &err, "no receipt for a session of %s", node);
			continue;
		}
		row = enc_json_add_object (out);
		enc_json_set_str (row, "session", id);
		enc_json_set_str (row, "record", enc_json_get_str (answer, "record", ""));
		enc_json_set_str (row, "proof", enc_json_get_str (answer, "proof", ""));
	}
	return out;
}

struct enc_json *enc_sessions_ending (struct enc_ctl *c, const char *node, bool fresh)
{
	enc_auto (enc_rows) struct enc_rows *r = NULL;
	struct enc_json *list = NULL;

	if (enc_db_query (c->db, &r, NULL,
			  fresh ? "SELECT id FROM sessions WHERE node=? AND ended_at=0 AND ending=1 LIMIT 16"
				: "SELECT id FROM sessions WHERE node=? AND ended_at=0 AND ending>0 LIMIT 16",
			  "s", node) < 0)
		return NULL;
	while (enc_rows_next (r, NULL) > 0) {
		list = list ? list : enc_json_array ();
		enc_json_add_str (list, enc_rows_text (r, 0));
	}
	enc_rows_free (ENC_TAKE (r));
	if (list && fresh && enc_db_exec (c->db, NULL, "UPDATE sessions SET ending=2 WHERE node=? AND ending=1", "s", node) < 0)
		enc_log_warn ("%s may be told twice of sessions that shall end", node);
	return list;
}

struct enc_json *enc_sessions_view (struct enc_ctl *c, const char *enclave_id)
{
	enc_auto (enc_rows) struct enc_rows *r = NULL;
	struct enc_json *list = enc_json_array ();

	if (enc_db_query (c->db, &r, NULL,
			  "SELECT id, user, started_at, ip, factor, node FROM sessions WHERE enclave_id=? AND ended_at=0 ORDER BY started_at, id", "s", enclave_id) < 0)
		return list;
	while (enc_rows_next (r, NULL) > 0) {
		struct enc_json *o = enc_json_add_object (list);

		enc_json_set_str (o, "id", enc_rows_text (r, 0));
		enc_json_set_str (o, "user", enc_rows_text (r, 1));
		enc_json_set_time (o, "since", enc_rows_int (r, 2) * ENC_NS_S);
		enc_json_set_str (o, "from", enc_rows_text (r, 3)[0] ? enc_rows_text (r, 3) : NULL);
		enc_json_set_str (o, "factor", enc_rows_text (r, 4)[0] ? enc_rows_text (r, 4) : NULL);
		enc_json_set_str (o, "node", enc_rows_text (r, 5));
	}
	return list;
}

int64_t enc_sessions_last (struct enc_ctl *c, const char *enclave_id, const char *user)
{
	return enc_db_int (c->db, 0, "SELECT max(started_at) FROM sessions WHERE enclave_id=? AND user=?", "ss", enclave_id, user);
}
