/* Who is in, and out with them. */
#include "controller/enclaved/api.h"

#include "controller/enclaved/sessions.h"
#include "base/enctime.h"
#include "base/enc.h"

enum { END_MS = 20000 };

static void answer_sessions (struct enc_api *a, const struct enc_enclave *e)
{
	a->answer = enc_json_object ();
	enc_json_set_str (a->answer, "enclave", e->name);
	enc_json_set (a->answer, "sessions", enc_sessions_view (a->c, e->id));
}

int enc_api_sessions (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc = enc_api_enclave (a, ENC_ACT_SESSION_LIST, false, &e, err);

	if (rc == 0)
		answer_sessions (a, &e);
	return rc;
}

/* ---- end ---- */

static int64_t open_of (struct enc_api *a, const struct enc_enclave *e, const char *id)
{
	return enc_db_int (a->c->db, 0, "SELECT count(*) FROM sessions WHERE enclave_id=?1 AND ended_at=0 AND (id=?2 OR ?2='all')", "ss", e->id, id);
}

/* Tightening does not wait for the log. */
static void record_order (struct enc_api *a, const struct enc_enclave *e, const char *id)
{
	enc_auto (enc_rows) struct enc_rows *r = NULL;
	struct enc_json *record = enc_api_record (a, "session", "terminate", "intent");

	enc_record_enclave (record, e);
	if (enc_db_query (a->c->db, &r, NULL, "SELECT user FROM sessions WHERE id=?", "s", id) == 0 && enc_rows_next (r, NULL) > 0)
		enc_record_obj (record, "user", enc_rows_text (r, 0));
	enc_rows_free (ENC_TAKE (r));
	enc_record_obj (record, "name", id);
	enc_record_soon (a->c, record);
}

/* Until the node says that it has ended, which the log then holds. */
static int wait_end (struct enc_api *a, const struct enc_enclave *e, const char *id, struct enc_error *err)
{
	int64_t until = enc_deadline_ms (END_MS);

	while (open_of (a, e, id) > 0) {
		int rc = enc_cond_wait (a->c->fibers, &a->c->changed, until, err);

		if (rc == -ENC_ETIMEOUT)
			return enc_error_next (err, enc_fail (err, ENC_ETIMEOUT, "the login node does not say that the session has ended"),
					       "it ends when the node is reached; enclavectl session list %s", e->name);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int enc_api_session_end (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	const char *id = enc_http_capture (a->req, 1);
	bool all = enc_streq (id, "all");
	int rc;

	if (!all && !enc_id_ok (id))
		return enc_error_pointer (err, enc_fail (err, ENC_EUSAGE, "not a session's id"), "session");
	if ((rc = enc_api_enclave (a, ENC_ACT_SESSION_END, false, &e, err)) < 0)
		return rc;
	if (!all && open_of (a, &e, id) == 0)
		return enc_error_next (err, enc_fail (err, ENC_ENOTFOUND, "no such session is open"), "enclavectl session list %s", e.name);
	record_order (a, &e, id);
	if ((rc = enc_db_exec (a->c->db, err, "UPDATE sessions SET ending=1 WHERE enclave_id=?1 AND ended_at=0 AND (id=?2 OR ?2='all')", "ss", e.id, id)) < 0)
		return rc;
	enc_ctl_changed (a->c);
	if ((rc = wait_end (a, &e, id, err)) < 0)
		return rc;
	answer_sessions (a, &e);
	return 0;
}
