/* The journal of steps and the events of operations: append only, read back by the runner after a restart and by people. */
#include "controller/enclaved/store.h"

#include "base/enctime.h"
#include "base/enc.h"

int enc_journal_intent (struct enc_db *db, const char *enclave_id, const char *row, enum enc_dir dir, struct enc_error *err)
{
	return enc_db_exec (db, err, "INSERT INTO journal (enclave_id, row, dir, phase, rc, at, ms) VALUES (?,?,?,'intent',0,?,0)", "ssii",
			    enclave_id, row, (int64_t) dir, enc_now ());
}

int enc_journal_outcome (struct enc_db *db, const char *enclave_id, const char *row, enum enc_dir dir, int rc, int64_t ms,
			 const char *text, struct enc_error *err)
{
	return enc_db_exec (db, err, "INSERT INTO journal (enclave_id, row, dir, phase, rc, at, ms, text) VALUES (?,?,?,'outcome',?,?,?,?)",
			    "ssiiiis", enclave_id, row, (int64_t) dir, (int64_t) rc, enc_now (), ms, text);
}

enum enc_row_state enc_journal_state (struct enc_db *db, const char *enclave_id, const char *row)
{
	/* [direction][intent, outcome good, outcome bad] */
	static const enum enc_row_state states[2][3] = { { ENC_ROW_DOING, ENC_ROW_DONE, ENC_ROW_FAILED },
							 { ENC_ROW_UNDOING, ENC_ROW_UNDONE, ENC_ROW_UNDO_FAILED } };
	enc_auto (enc_rows) struct enc_rows *r = NULL;

	if (enc_db_query (db, &r, NULL, "SELECT dir, phase='outcome', rc FROM journal WHERE enclave_id=? AND row=? ORDER BY id DESC LIMIT 1",
			  "ss", enclave_id, row) < 0 ||
	    enc_rows_next (r, NULL) <= 0)
		return ENC_ROW_NONE;
	if (!enc_rows_int (r, 1))
		return states[enc_rows_int (r, 0) & 1][0];
	return states[enc_rows_int (r, 0) & 1][enc_rows_int (r, 2) == 0 ? 1 : 2];
}

struct enc_json *enc_journal_json (struct enc_db *db, const char *enclave_id)
{
	struct enc_json *list = enc_json_array ();
	enc_auto (enc_rows) struct enc_rows *r = NULL;

	if (enc_db_query (db, &r, NULL, "SELECT row, dir, rc, ms, text FROM journal WHERE enclave_id=? AND phase='outcome' ORDER BY id", "s",
			  enclave_id) < 0)
		return list;
	while (enc_rows_next (r, NULL) > 0) {
		struct enc_json *o = enc_json_add_object (list);
		const char *good = enc_rows_int (r, 1) ? "undone" : "ok";

		enc_json_set_str (o, "step", enc_rows_text (r, 0));
		enc_json_set_null (o, "node");
		enc_json_set_str (o, "outcome", enc_rows_int (r, 2) ? "failed" : good);
		enc_json_set_double (o, "seconds", (double) enc_rows_int (r, 3) / 1000.0);
		enc_json_set_str (o, "text", enc_rows_text (r, 4));
	}
	return list;
}

/* ---- operations ---- */

int enc_operation_load (struct enc_db *db, const char *id, struct enc_operation *ret, struct enc_error *err)
{
	return enc_db_get (db, "operations", enc_operation_cols, ret, err, "WHERE id=?", "s", id);
}

int enc_operation_put (struct enc_db *db, const struct enc_operation *o, struct enc_error *err)
{
	return enc_db_put (db, "operations", enc_operation_cols, o, err);
}

int enc_operation_running (struct enc_db *db, const char *enclave_id, struct enc_operation *ret, struct enc_error *err)
{
	return enc_db_get (db, "operations", enc_operation_cols, ret, err, "WHERE enclave_id=? AND state='running' ORDER BY rowid DESC",
			   "s", enclave_id);
}

int enc_event_add (struct enc_db *db, const char *op, const struct enc_json *event, struct enc_error *err)
{
	enc_auto_free char *text = enc_json_write (event, NULL, err);

	if (!text)
		return -ENC_ENOMEM;
	return enc_db_exec (db, err, "INSERT INTO events (op, n, json) SELECT ?1, coalesce(max(n),0)+1, ?2 FROM events WHERE op=?1", "ss", op,
			    text);
}

struct enc_json *enc_events_after (struct enc_db *db, const char *op, int64_t after, int64_t *ret_last)
{
	struct enc_json *list = enc_json_array ();
	enc_auto (enc_rows) struct enc_rows *r = NULL;

	*ret_last = after;
	if (enc_db_query (db, &r, NULL, "SELECT n, json FROM events WHERE op=? AND n>? ORDER BY n LIMIT 500", "si", op, after) < 0)
		return list;
	while (enc_rows_next (r, NULL) > 0) {
		const char *text = enc_rows_text (r, 1);
		struct enc_json *j = enc_json_parse (text, strlen (text), 65536, NULL);

		if (!j)
			continue;
		enc_json_set_i64 (j, "n", enc_rows_int (r, 0));
		enc_json_add (list, j);
		*ret_last = enc_rows_int (r, 0);
	}
	return list;
}
