#include "controller/enclaved/record.h"

#include "base/log.h"
#include "base/enc.h"

struct enc_json *enc_record (const char *cls, const char *action, const char *outcome)
{
	struct enc_json *r = enc_json_object ();

	enc_json_set_str (r, "class", cls);
	enc_json_set_str (r, "action", action);
	enc_json_set_str (r, "outcome", outcome);
	return r;
}

static struct enc_json *child (struct enc_json *o, const char *key)
{
	struct enc_json *c = enc_json_get (o, key);

	return c ? c : enc_json_set_object (o, key);
}

void enc_record_actor (struct enc_json *record, const struct enc_actor *actor)
{
	struct enc_json *a = child (record, "actor");

	enc_json_set_str (a, "user", actor && actor->user[0] ? actor->user : "enclaved");
	if (actor && actor->role[0])
		enc_json_set_str (a, "role", actor->role);
	if (actor && actor->uid >= 0)
		enc_json_set_i64 (a, "uid", actor->uid);
}

void enc_record_obj (struct enc_json *record, const char *key, const char *value)
{
	if (value && *value)
		enc_json_set_str (child (record, "obj"), key, value);
}

void enc_record_enclave (struct enc_json *record, const struct enc_enclave *e)
{
	enc_record_obj (record, "enclave", e->name);
	enc_record_obj (record, "enclave_id", e->id);
}

struct enc_json *enc_record_data (struct enc_json *record)
{
	return child (record, "data");
}

void enc_record_reason (struct enc_json *record, const char *text)
{
	char word[64];
	size_t n = 0;

	for (; text && *text && n < sizeof word - 1; text++) {
		bool fine = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') || (*text >= '0' && *text <= '9');

		if (fine || (n && word[n - 1] != '-'))
			word[n++] = fine ? *text : '-';
	}
	word[n] = '\0';
	if (n)
		enc_json_set_str (enc_record_data (record), "reason", word);
}

/* An enclave carries the first and last index of what was recorded about it. */
static void note_index (struct enc_ctl *c, const char *enclave_id, int64_t index)
{
	if (!enclave_id || index < 0)
		return;
	if (enc_db_exec (c->db, NULL,
			 "UPDATE enclaves SET record_last=max(record_last,?1), record_first=CASE WHEN record_first<0 THEN ?1 ELSE"
			 " min(record_first,?1) END WHERE id=?2",
			 "is", index, enclave_id) < 0)
		enc_log_warn ("the index of a record could not be noted for enclave %s", enclave_id);
}

static int append (struct enc_ctl *c, struct enc_json *record, bool receipt, struct enc_json **ret, struct enc_error *err)
{
	enc_auto_free char *id = enc_strdup (enc_json_get_str (enc_json_get (record, "obj"), "enclave_id", NULL));
	struct enc_json *request = enc_request ("append");
	int rc;

	enc_json_set (request, "record", record);
	enc_json_set_bool (request, "receipt", receipt);
	if ((rc = enc_ctl_call (c, c->auditd, request, ret, err)) < 0)
		return rc;
	note_index (c, id, enc_json_get_i64 (*ret, "index", -1));
	return 0;
}

int enc_record_now (struct enc_ctl *c, struct enc_json *record, int64_t *ret_index, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *answer = NULL;
	int rc = append (c, record, false, &answer, err);

	if (rc < 0)
		return rc;
	if (ret_index)
		*ret_index = enc_json_get_i64 (answer, "index", -1);
	return 0;
}

int enc_record_receipt (struct enc_ctl *c, struct enc_json *record, int64_t *ret_index, char **ret_body, char **ret_proof,
			struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *answer = NULL;
	const char *body, *proof;
	int rc;

	if ((rc = append (c, record, true, &answer, err)) < 0 ||
	    (rc = enc_json_need_str (answer, "record", &body, err)) < 0 ||
	    (rc = enc_json_need_str (answer, "proof", &proof, err)) < 0)
		return rc;
	*ret_body = enc_strdup (body);
	*ret_proof = enc_strdup (proof);
	if (ret_index)
		*ret_index = enc_json_get_i64 (answer, "index", -1);
	return *ret_body && *ret_proof ? 0 : enc_fail (err, ENC_ENOMEM, "out of memory");
}

/* ---- the spool ---- */

void enc_record_soon (struct enc_ctl *c, struct enc_json *record)
{
	enc_auto (enc_json) struct enc_json *r = record;
	struct enc_error err = { 0 };
	enc_auto_free char *text = enc_json_write (r, NULL, &err);

	if (!text || enc_db_exec (c->db, &err, "INSERT INTO spool (record) VALUES (?)", "s", text) < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "a record could not be put aside for the log");
	enc_cond_signal (&c->spooled);
}

static int spool_first (struct enc_ctl *c, int64_t *ret_id, struct enc_json **ret, struct enc_error *err)
{
	enc_auto (enc_rows) struct enc_rows *r = NULL;
	const char *text;
	int rc;

	if ((rc = enc_db_query (c->db, &r, err, "SELECT id, record FROM spool ORDER BY id LIMIT 1", "")) < 0 ||
	    (rc = enc_rows_next (r, err)) <= 0)
		return rc;
	*ret_id = enc_rows_int (r, 0);
	text = enc_rows_text (r, 1);
	*ret = enc_json_parse (text, strlen (text), 65536, err);
	return *ret ? 1 : -ENC_EINVAL;
}

/* True when the record is off our hands: in the log, or refused by it for its form, which a retry does not help. */
static bool spool_send (struct enc_ctl *c, struct enc_json *record)
{
	struct enc_error err = { 0 };
	int rc = enc_record_now (c, record, NULL, &err);

	if (rc == 0)
		return true;
	if (rc == -ENC_EUSAGE || rc == -ENC_EINVAL || rc == -ENC_EDENIED) {
		enc_log_err (ENC_LOG_ERROR, &err, "the log refused a record");
		return true;
	}
	return false;
}

void enc_record_spool (void *arg)
{
	struct enc_ctl *c = arg;

	while (!c->stopping) {
		struct enc_json *record = NULL;
		int64_t id = 0;
		int rc = spool_first (c, &id, &record, NULL);

		if (rc == 0) {
			if (enc_cond_wait (c->fibers, &c->spooled, ENC_FOREVER, NULL) < 0)
				return;
			continue;
		}
		if (rc > 0 && !spool_send (c, record)) {
			if (enc_fiber_sleep (c->fibers, 1000, NULL) < 0)
				return;
			continue;
		}
		if (enc_db_exec (c->db, NULL, "DELETE FROM spool WHERE id=?", "i", id) < 0 && enc_fiber_sleep (c->fibers, 1000, NULL) < 0)
			return;
	}
}

/* ---- orders to keyd ---- */

struct enc_json *enc_head (const char *verb)
{
	struct enc_json *h = enc_json_object ();

	enc_json_set_str (h, "verb", verb);
	return h;
}

static int order_run (struct enc_ctl *c, struct enc_order *o, struct enc_json **ret, int64_t *ret_index, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *nonce = NULL;
	enc_auto_free char *body = NULL, *proof = NULL;
	const char *text;
	int rc;

	if ((rc = enc_ctl_call (c, c->keyd, enc_request ("nonce"), &nonce, err)) < 0 ||
	    (rc = enc_json_need_str (nonce, "nonce", &text, err)) < 0)
		return rc;
	enc_json_set_str (o->head, "nonce", text);
	enc_json_set (o->record, "head", ENC_TAKE (o->head));
	if ((rc = enc_record_receipt (c, ENC_TAKE (o->record), ret_index, &body, &proof, err)) < 0)
		return rc;
	enc_json_set_str (o->request, "record", body);
	enc_json_set_str (o->request, "proof", proof);
	return enc_ctl_call (c, c->keyd, ENC_TAKE (o->request), ret, err);
}

void enc_order_done (struct enc_order *o)
{
	enc_json_free (o->head);
	enc_json_free (o->record);
	enc_json_free (o->request);
	*o = (struct enc_order){ 0 };
}

int enc_order (struct enc_ctl *c, struct enc_order *o, struct enc_json **ret, int64_t *ret_index, struct enc_error *err)
{
	int rc = order_run (c, o, ret, ret_index, err);

	enc_order_done (o);
	return rc;
}
