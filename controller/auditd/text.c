#include "controller/auditd/text.h"

#include "controller/auditd/sql.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#include "base/enc.h"

struct enc_texts {
	sqlite3 *db;
	sqlite3_stmt *put;
	sqlite3_stmt *get;
	sqlite3_stmt *drop;
	int open; /* a transaction is */
};

static int prepare (struct enc_texts *texts, const char *state, struct enc_error *err)
{
	int rc = enc_sql_open (state, "text.db", 1, &texts->db, err);

	if (rc == 0)
		rc = enc_sql_exec (texts->db,
			"CREATE TABLE IF NOT EXISTS text (idx INTEGER PRIMARY KEY, salt BLOB NOT NULL, text TEXT NOT "
			"NULL)",
			err);
	if (rc == 0)
		rc = enc_sql_prepare (texts->db, "INSERT OR REPLACE INTO text VALUES (?, ?, ?)", &texts->put, err);
	if (rc == 0)
		rc = enc_sql_prepare (texts->db, "SELECT salt, text FROM text WHERE idx = ?", &texts->get, err);
	if (rc == 0)
		rc = enc_sql_prepare (texts->db, "DELETE FROM text WHERE idx >= ?", &texts->drop, err);
	return rc;
}

struct enc_texts *enc_texts_open (const char *state, uint64_t size, struct enc_error *err)
{
	enc_auto (enc_texts) struct enc_texts *texts = calloc (1, sizeof (*texts));

	if (!texts) {
		(void)enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	if (prepare (texts, state, err) < 0)
		return NULL;
	enc_texts_drop (texts, size);
	return ENC_TAKE (texts);
}

void enc_texts_free (struct enc_texts *texts)
{
	if (!texts)
		return;
	(void)sqlite3_finalize (texts->put);
	(void)sqlite3_finalize (texts->get);
	(void)sqlite3_finalize (texts->drop);
	(void)sqlite3_close (texts->db);
	free (texts);
}

int enc_texts_put (struct enc_texts *texts, uint64_t index, const struct enc_record *record, struct enc_error *err)
{
	int rc;

	if (!texts->open && (rc = enc_sql_exec (texts->db, "BEGIN", err)) < 0)
		return rc;
	texts->open = 1;
	(void)sqlite3_bind_int64 (texts->put, 1, (sqlite3_int64)index);
	(void)sqlite3_bind_blob (texts->put, 2, record->salt, sizeof (record->salt), SQLITE_TRANSIENT);
	(void)sqlite3_bind_text (texts->put, 3, record->text, -1, SQLITE_TRANSIENT);
	return enc_sql_run (texts->db, texts->put, err);
}

int enc_texts_commit (struct enc_texts *texts, struct enc_error *err)
{
	int rc;

	if (!texts->open)
		return 0;
	texts->open = 0;
	if ((rc = enc_sql_exec (texts->db, "COMMIT", err)) < 0)
		(void)sqlite3_exec (texts->db, "ROLLBACK", NULL, NULL, NULL);
	return rc;
}

void enc_texts_drop (struct enc_texts *texts, uint64_t size)
{
	if (texts->open)
		(void)sqlite3_exec (texts->db, "ROLLBACK", NULL, NULL, NULL);
	texts->open = 0;
	(void)sqlite3_bind_int64 (texts->drop, 1, (sqlite3_int64)size);
	(void)sqlite3_step (texts->drop);
	(void)sqlite3_reset (texts->drop);
}

int enc_texts_get (struct enc_texts *texts, uint64_t index, char **ret_text, uint8_t salt[static ENC_RECORD_SALT],
	struct enc_error *err)
{
	int rc = 0;

	(void)sqlite3_bind_int64 (texts->get, 1, (sqlite3_int64)index);
	if (sqlite3_step (texts->get) != SQLITE_ROW || sqlite3_column_bytes (texts->get, 0) != ENC_RECORD_SALT) {
		rc = enc_fail (err, ENC_ENOTFOUND, "record %llu has no text", (unsigned long long)index);
	} else {
		memcpy (salt, sqlite3_column_blob (texts->get, 0), ENC_RECORD_SALT);
		*ret_text = enc_strdup ((const char *)sqlite3_column_text (texts->get, 1));
		rc = *ret_text ? 0 : enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	(void)sqlite3_reset (texts->get);
	return rc;
}
