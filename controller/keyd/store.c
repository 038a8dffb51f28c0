/* One small helper binds by a format string and one reads columns, so that each table needs a statement and a row function only. */
#include "controller/keyd/store.h"

#include <sqlite3.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "base/enc.h"

enum { SCHEMA = 1, BLOB_MAX = 1 << 20 };

struct enc_keystore {
	sqlite3 *db;
	bool open; /* a transaction */
};

ENC_DEFINE_AUTO (stmt, sqlite3_stmt, sqlite3_finalize);

static const char schema[] =
	"CREATE TABLE value (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE lease (enclave TEXT PRIMARY KEY, name TEXT NOT NULL, not_after INTEGER NOT NULL, ended INTEGER NOT NULL,"
	" members_version INTEGER NOT NULL, members_hash BLOB NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE kek (enclave TEXT PRIMARY KEY, wrap BLOB NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE key (id TEXT PRIMARY KEY, enclave TEXT NOT NULL, purpose TEXT NOT NULL, version INTEGER NOT NULL,"
	" bytes INTEGER NOT NULL, state INTEGER NOT NULL, wrap BLOB NOT NULL) WITHOUT ROWID;"
	"CREATE INDEX key_enclave ON key (enclave);"
	"CREATE TABLE node (node TEXT PRIMARY KEY, identity BLOB NOT NULL, serial TEXT NOT NULL, baseline BLOB NOT NULL,"
	" boot BLOB NOT NULL, generation INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE attest (node TEXT PRIMARY KEY, boot BLOB NOT NULL, boot_key BLOB NOT NULL, time INTEGER NOT NULL,"
	" rows BLOB NOT NULL) WITHOUT ROWID;"
	"PRAGMA user_version = 1;";

static int db_fail (struct enc_keystore *s, const char *what, struct enc_error *err)
{
	return enc_fail (err, sqlite3_errcode (s->db) == SQLITE_CORRUPT || sqlite3_errcode (s->db) == SQLITE_NOTADB ? ENC_EINTEGRITY : ENC_ESYS,
		"keys.db: %s: %s", what, sqlite3_errmsg (s->db));
}

/* `kinds`: t text, i uint64_t, b bytes (pointer, size_t). */
static int bind (sqlite3_stmt *st, const char *kinds, va_list args)
{
	int rc = SQLITE_OK;

	for (int i = 1; *kinds && rc == SQLITE_OK; kinds++, i++) {
		if (*kinds == 't') {
			rc = sqlite3_bind_text (st, i, va_arg (args, const char *), -1, SQLITE_TRANSIENT);
		} else if (*kinds == 'i') {
			rc = sqlite3_bind_int64 (st, i, (sqlite3_int64) va_arg (args, uint64_t));
		} else {
			const void *data = va_arg (args, const void *);
			size_t len = va_arg (args, size_t);

			rc = sqlite3_bind_blob64 (st, i, data ? data : "", len, SQLITE_TRANSIENT);
		}
	}
	return rc;
}

static int change (struct enc_keystore *s, struct enc_error *err, const char *sql, const char *kinds, ...)
{
	enc_auto (stmt) sqlite3_stmt *st = NULL;
	va_list args;

	va_start (args, kinds);
	int rc = sqlite3_prepare_v2 (s->db, sql, -1, &st, NULL);
	if (rc == SQLITE_OK)
		rc = bind (st, kinds, args);
	va_end (args);
	if (rc != SQLITE_OK || sqlite3_step (st) != SQLITE_DONE)
		return db_fail (s, "cannot write", err);
	return 0;
}

/* One row by its text key, ENC_ENOTFOUND if there is none. The caller finalises. */
static int find (struct enc_keystore *s, const char *sql, const char *key, sqlite3_stmt **ret, struct enc_error *err)
{
	enc_auto (stmt) sqlite3_stmt *st = NULL;

	if (sqlite3_prepare_v2 (s->db, sql, -1, &st, NULL) != SQLITE_OK ||
		sqlite3_bind_text (st, 1, key, -1, SQLITE_TRANSIENT) != SQLITE_OK)
		return db_fail (s, "cannot read", err);
	int rc = sqlite3_step (st);
	if (rc == SQLITE_DONE)
		return -ENC_ENOTFOUND;
	if (rc != SQLITE_ROW)
		return db_fail (s, "cannot read", err);
	*ret = ENC_TAKE (st);
	return 0;
}

/* Columns into fixed places. A value that does not fit is damage. */
static int get_text (sqlite3_stmt *st, int col, char *out, size_t size)
{
	return enc_str_copy (out, size, (const char *) sqlite3_column_text (st, col), NULL) < 0 ? -ENC_EINTEGRITY : 0;
}

static int get_fixed (sqlite3_stmt *st, int col, void *out, size_t len)
{
	if ((size_t) sqlite3_column_bytes (st, col) != len)
		return -ENC_EINTEGRITY;
	memcpy (out, sqlite3_column_blob (st, col), len);
	return 0;
}

static int get_blob (sqlite3_stmt *st, int col, struct enc_buf *out)
{
	enc_buf_put (out, sqlite3_column_blob (st, col), (size_t) sqlite3_column_bytes (st, col));
	return enc_buf_check (out, NULL);
}

static uint64_t get_int (sqlite3_stmt *st, int col)
{
	return (uint64_t) sqlite3_column_int64 (st, col);
}

static int damaged (int rc, const char *what, struct enc_error *err)
{
	return rc < 0 ? enc_fail (err, ENC_EINTEGRITY, "keys.db: damaged row of %s", what) : 0;
}

/* ---- open ---- */

static int exec (struct enc_keystore *s, const char *sql, struct enc_error *err)
{
	return sqlite3_exec (s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : db_fail (s, "refused", err);
}

static int version (struct enc_keystore *s)
{
	enc_auto (stmt) sqlite3_stmt *st = NULL;

	if (sqlite3_prepare_v2 (s->db, "PRAGMA user_version", -1, &st, NULL) != SQLITE_OK || sqlite3_step (st) != SQLITE_ROW)
		return -1;
	return sqlite3_column_int (st, 0);
}

static int prepare (struct enc_keystore *s, struct enc_error *err)
{
	int rc = exec (s, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = EXTRA;"
			  "PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;", err);

	if (rc < 0)
		return rc;
	int have = version (s);
	if (have < 0)
		return db_fail (s, "cannot read", err);
	if (have > SCHEMA)
		return enc_fail (err, ENC_EINTEGRITY, "keys.db is of version %d, this program knows %d", have, SCHEMA);
	if (have == SCHEMA)
		return 0;
	if ((rc = enc_keystore_begin (s, err)) < 0 || (rc = exec (s, schema, err)) < 0)
		return rc;
	return enc_keystore_commit (s, err);
}

int enc_keystore_open (const char *folder, struct enc_keystore **ret, struct enc_error *err)
{
	enc_auto (enc_keystore) struct enc_keystore *s = calloc (1, sizeof *s);
	enc_auto_free char *path = enc_strf ("%s/keys.db", folder);
	int rc;

	if (!s || !path)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	mode_t old = umask (077);
	int opened = sqlite3_open_v2 (path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW, NULL);
	(void) umask (old);
	if (opened != SQLITE_OK)
		return enc_fail (err, ENC_ESYS, "%s: %s", path, s->db ? sqlite3_errmsg (s->db) : "no memory");
	if ((rc = prepare (s, err)) < 0)
		return rc;
	*ret = ENC_TAKE (s);
	return 0;
}

void enc_keystore_free (struct enc_keystore *s)
{
	if (!s)
		return;
	(void) sqlite3_close (s->db);
	free (s);
}

int enc_keystore_begin (struct enc_keystore *s, struct enc_error *err)
{
	int rc = exec (s, "BEGIN IMMEDIATE", err);

	if (rc == 0)
		s->open = true;
	return rc;
}

int enc_keystore_commit (struct enc_keystore *s, struct enc_error *err)
{
	int rc = exec (s, "COMMIT", err);

	if (rc == 0)
		s->open = false;
	return rc;
}

void enc_keystore_end (struct enc_keystore *s)
{
	if (s->open)
		(void) exec (s, "ROLLBACK", NULL);
	s->open = false;
}

/* ---- rows ---- */

int enc_keystore_value (struct enc_keystore *s, const char *name, struct enc_buf *ret, struct enc_error *err)
{
	enc_auto (stmt) sqlite3_stmt *st = NULL;
	int rc = find (s, "SELECT value FROM value WHERE name = ?", name, &st, err);

	return rc < 0 ? rc : damaged (get_blob (st, 0, ret), name, err);
}

int enc_keystore_set_value (struct enc_keystore *s, const char *name, const struct enc_buf *value, struct enc_error *err)
{
	return change (s, err, "INSERT OR REPLACE INTO value VALUES (?, ?)", "tb", name, value->data, value->len);
}

int enc_keystore_lease (struct enc_keystore *s, const char *enclave, struct enc_lease_row *ret, struct enc_error *err)
{
	enc_auto (stmt) sqlite3_stmt *st = NULL;
	struct enc_lease_row row = { 0 };
	int rc = find (s, "SELECT enclave, name, not_after, ended, members_version, members_hash FROM lease WHERE enclave = ?", enclave,
		&st, err);

	if (rc < 0)
		return rc;
	row.not_after = get_int (st, 2);
	row.ended = get_int (st, 3) != 0;
	row.members_version = get_int (st, 4);
	if (get_text (st, 0, row.enclave, sizeof row.enclave) < 0 || get_text (st, 1, row.name, sizeof row.name) < 0 ||
		get_fixed (st, 5, row.members_hash, sizeof row.members_hash) < 0)
		return damaged (-1, enclave, err);
	*ret = row;
	return 0;
}

int enc_keystore_set_lease (struct enc_keystore *s, const struct enc_lease_row *row, struct enc_error *err)
{
	return change (s, err, "INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?, ?, ?)", "ttiiib", row->enclave, row->name, row->not_after,
		(uint64_t) row->ended, row->members_version, row->members_hash, sizeof row->members_hash);
}

int enc_keystore_kek (struct enc_keystore *s, const char *enclave, struct enc_buf *ret, struct enc_error *err)
{
	enc_auto (stmt) sqlite3_stmt *st = NULL;
	int rc = find (s, "SELECT wrap FROM kek WHERE enclave = ?", enclave, &st, err);

	return rc < 0 ? rc : damaged (get_blob (st, 0, ret), enclave, err);
}

int enc_keystore_set_kek (struct enc_keystore *s, const char *enclave, const struct enc_buf *wrap, struct enc_error *err)
{
	return change (s, err, "INSERT OR REPLACE INTO kek VALUES (?, ?)", "tb", enclave, wrap->data, wrap->len);
}

int enc_keystore_drop_kek (struct enc_keystore *s, const char *enclave, struct enc_error *err)
{
	return change (s, err, "DELETE FROM kek WHERE enclave = ?1 AND NOT EXISTS (SELECT 1 FROM key WHERE enclave = ?1 AND state <> 2)", "t",
		enclave);
}

void enc_key_row_done (struct enc_key_row *row)
{
	enc_buf_done (&row->wrap);
}

int enc_keystore_key (struct enc_keystore *s, const char *id, struct enc_key_row *ret, struct enc_error *err)
{
	enc_auto (stmt) sqlite3_stmt *st = NULL;
	enc_auto_done (enc_key_row_done) struct enc_key_row row = { .wrap = ENC_BUF_INIT (BLOB_MAX) };
	int rc = find (s, "SELECT id, enclave, purpose, version, bytes, state, wrap FROM key WHERE id = ?", id, &st, err);

	if (rc < 0)
		return rc;
	row.version = (uint32_t) get_int (st, 3);
	row.bytes = (uint32_t) get_int (st, 4);
	row.state = (enum enc_key_state) get_int (st, 5);
	if (get_text (st, 0, row.id, sizeof row.id) < 0 || get_text (st, 1, row.enclave, sizeof row.enclave) < 0 ||
		get_text (st, 2, row.purpose, sizeof row.purpose) < 0 || get_blob (st, 6, &row.wrap) < 0 ||
		row.state > ENC_KEY_DESTROYED)
		return damaged (-1, id, err);
	*ret = row;
	row.wrap = ENC_BUF_INIT (0);
	return 0;
}

int enc_keystore_set_key (struct enc_keystore *s, const struct enc_key_row *row, struct enc_error *err)
{
	return change (s, err, "INSERT OR REPLACE INTO key VALUES (?, ?, ?, ?, ?, ?, ?)", "tttiiib", row->id, row->enclave, row->purpose,
		(uint64_t) row->version, (uint64_t) row->bytes, (uint64_t) row->state, row->wrap.data, row->wrap.len);
}

void enc_node_row_done (struct enc_node_row *row)
{
	enc_buf_done (&row->baseline);
}

int enc_keystore_node (struct enc_keystore *s, const char *node, struct enc_node_row *ret, struct enc_error *err)
{
	enc_auto (stmt) sqlite3_stmt *st = NULL;
	enc_auto_done (enc_node_row_done) struct enc_node_row row = { .baseline = ENC_BUF_INIT (BLOB_MAX) };
	int rc = find (s, "SELECT node, identity, serial, baseline, boot, generation FROM node WHERE node = ?", node, &st, err);

	if (rc < 0)
		return rc;
	row.generation = get_int (st, 5);
	if (get_text (st, 0, row.node, sizeof row.node) < 0 || get_fixed (st, 1, row.identity, sizeof row.identity) < 0 ||
		get_text (st, 2, row.serial, sizeof row.serial) < 0 || get_blob (st, 3, &row.baseline) < 0 ||
		get_fixed (st, 4, row.boot, sizeof row.boot) < 0)
		return damaged (-1, node, err);
	*ret = row;
	row.baseline = ENC_BUF_INIT (0);
	return 0;
}

int enc_keystore_set_node (struct enc_keystore *s, const struct enc_node_row *row, struct enc_error *err)
{
	return change (s, err, "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?)", "tbtbbi", row->node, row->identity,
		sizeof row->identity, row->serial, row->baseline.data, row->baseline.len, row->boot, sizeof row->boot, row->generation);
}

void enc_attest_record_done (struct enc_attest_record *row)
{
	enc_buf_done (&row->rows);
}

int enc_keystore_attest (struct enc_keystore *s, const char *node, struct enc_attest_record *ret, struct enc_error *err)
{
	enc_auto (stmt) sqlite3_stmt *st = NULL;
	enc_auto_done (enc_attest_record_done) struct enc_attest_record row = { .rows = ENC_BUF_INIT (BLOB_MAX) };
	int rc = find (s, "SELECT node, boot, boot_key, time, rows FROM attest WHERE node = ?", node, &st, err);

	if (rc < 0)
		return rc;
	row.time = get_int (st, 3);
	if (get_text (st, 0, row.node, sizeof row.node) < 0 || get_fixed (st, 1, row.boot, sizeof row.boot) < 0 ||
		get_fixed (st, 2, row.boot_key, sizeof row.boot_key) < 0 || get_blob (st, 4, &row.rows) < 0)
		return damaged (-1, node, err);
	*ret = row;
	row.rows = ENC_BUF_INIT (0);
	return 0;
}

int enc_keystore_set_attest (struct enc_keystore *s, const struct enc_attest_record *row, struct enc_error *err)
{
	return change (s, err, "INSERT OR REPLACE INTO attest VALUES (?, ?, ?, ?, ?)", "tbbib", row->node, row->boot, sizeof row->boot,
		row->boot_key, sizeof row->boot_key, row->time, row->rows.data, row->rows.len);
}

int enc_keystore_drop_attest (struct enc_keystore *s, const char *node, struct enc_error *err)
{
	return change (s, err, "DELETE FROM attest WHERE node = ?", "t", node);
}
