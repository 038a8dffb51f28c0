#include "controller/enclaved/db.h"

#include <sqlite3.h>
#include <stdarg.h>
#include "base/str.h"
#include "base/enc.h"

struct enc_db {
	sqlite3 *h;
};

struct enc_rows {
	sqlite3 *h;
	sqlite3_stmt *s;
};

static int db_fail (struct enc_error *err, sqlite3 *h, const char *what)
{
	return enc_fail (err, ENC_EFAILED, "store: %s: %s", what, h ? sqlite3_errmsg (h) : "out of memory");
}

static int run_script (struct enc_db *db, const char *sql, struct enc_error *err)
{
	if (sqlite3_exec (db->h, sql, NULL, NULL, NULL) != SQLITE_OK)
		return db_fail (err, db->h, "cannot run a statement");
	return 0;
}

/* The schema's version is counted by the migrations table; a store newer than this program is refused, not guessed at. */
static int migrate (struct enc_db *db, const char *const *migrations, struct enc_error *err)
{
	int64_t have, want = 0;
	int rc;

	while (migrations[want])
		want++;
	if ((rc = run_script (db, "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, at INTEGER NOT NULL)", err)) < 0)
		return rc;
	have = enc_db_int (db, 0, "SELECT max(version) FROM migrations", "");
	if (have > want)
		return enc_fail (err, ENC_EFAILED, "store: schema version %d is newer than this program's %d", (int) have, (int) want);
	for (; have < want; have++) {
		if ((rc = enc_db_begin (db, err)) < 0)
			return rc;
		if ((rc = run_script (db, migrations[have], err)) < 0 ||
		    (rc = enc_db_exec (db, err, "INSERT INTO migrations VALUES (?, unixepoch())", "i", have + 1)) < 0 ||
		    (rc = enc_db_commit (db, err)) < 0) {
			enc_db_rollback (db);
			return rc;
		}
	}
	return 0;
}

struct enc_db *enc_db_open (const char *path, const char *const *migrations, struct enc_error *err)
{
	enc_auto (enc_db) struct enc_db *db = calloc (1, sizeof *db);
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;

	if (!db) {
		(void) enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	if (sqlite3_open_v2 (path, &db->h, flags, NULL) != SQLITE_OK) {
		(void) db_fail (err, db->h, path);
		return NULL;
	}
	(void) sqlite3_busy_timeout (db->h, 1000);
	if (run_script (db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; PRAGMA cache_size=-1024", err) < 0 ||
	    migrate (db, migrations, err) < 0)
		return NULL;
	return ENC_TAKE (db);
}

void enc_db_free (struct enc_db *db)
{
	if (!db)
		return;
	(void) sqlite3_close (db->h);
	free (db);
}

int enc_db_version (struct enc_db *db)
{
	return (int) enc_db_int (db, 0, "SELECT max(version) FROM migrations", "");
}

static int bind_all (sqlite3_stmt *s, const char *types, va_list ap)
{
	for (int i = 0; types[i]; i++) {
		int rc;

		if (types[i] == 'i')
			rc = sqlite3_bind_int64 (s, i + 1, va_arg (ap, int64_t));
		else
			rc = sqlite3_bind_text (s, i + 1, va_arg (ap, const char *), -1, SQLITE_TRANSIENT);
		if (rc != SQLITE_OK)
			return rc;
	}
	return SQLITE_OK;
}

static int vquery (struct enc_db *db, struct enc_rows **ret, struct enc_error *err, const char *sql, const char *types, va_list ap)
{
	enc_auto (enc_rows) struct enc_rows *r = calloc (1, sizeof *r);

	if (!r)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	r->h = db->h;
	if (sqlite3_prepare_v2 (db->h, sql, -1, &r->s, NULL) != SQLITE_OK || bind_all (r->s, types, ap) != SQLITE_OK)
		return db_fail (err, db->h, sql);
	*ret = ENC_TAKE (r);
	return 0;
}

int enc_db_query (struct enc_db *db, struct enc_rows **ret, struct enc_error *err, const char *sql, const char *types, ...)
{
	va_list ap;
	int rc;

	va_start (ap, types);
	rc = vquery (db, ret, err, sql, types, ap);
	va_end (ap);
	return rc;
}

int enc_db_exec (struct enc_db *db, struct enc_error *err, const char *sql, const char *types, ...)
{
	enc_auto (enc_rows) struct enc_rows *r = NULL;
	va_list ap;
	int rc;

	va_start (ap, types);
	rc = vquery (db, &r, err, sql, types, ap);
	va_end (ap);
	if (rc < 0)
		return rc;
	while ((rc = enc_rows_next (r, err)) > 0)
		;
	return rc;
}

int64_t enc_db_changes (struct enc_db *db)
{
	return sqlite3_changes (db->h);
}

int64_t enc_db_last (struct enc_db *db)
{
	return sqlite3_last_insert_rowid (db->h);
}

int enc_db_begin (struct enc_db *db, struct enc_error *err)
{
	return run_script (db, "BEGIN IMMEDIATE", err);
}

int enc_db_commit (struct enc_db *db, struct enc_error *err)
{
	return run_script (db, "COMMIT", err);
}

void enc_db_rollback (struct enc_db *db)
{
	(void) sqlite3_exec (db->h, "ROLLBACK", NULL, NULL, NULL);
}

int enc_rows_next (struct enc_rows *r, struct enc_error *err)
{
	int rc = sqlite3_step (r->s);

	if (rc == SQLITE_ROW)
		return 1;
	if (rc == SQLITE_DONE)
		return 0;
	if (rc == SQLITE_CONSTRAINT)
		return enc_fail (err, ENC_ECONFLICT, "store: %s", sqlite3_errmsg (r->h));
	return db_fail (err, r->h, "cannot read or write");
}

const char *enc_rows_text (struct enc_rows *r, int col)
{
	const char *s = (const char *) sqlite3_column_text (r->s, col);

	return s ? s : "";
}

int64_t enc_rows_int (struct enc_rows *r, int col)
{
	return sqlite3_column_int64 (r->s, col);
}

void enc_rows_free (struct enc_rows *r)
{
	if (!r)
		return;
	(void) sqlite3_finalize (r->s);
	free (r);
}

int64_t enc_db_int (struct enc_db *db, int64_t fallback, const char *sql, const char *types, ...)
{
	enc_auto (enc_rows) struct enc_rows *r = NULL;
	va_list ap;
	int rc;

	va_start (ap, types);
	rc = vquery (db, &r, NULL, sql, types, ap);
	va_end (ap);
	if (rc < 0 || enc_rows_next (r, NULL) <= 0)
		return fallback;
	return enc_rows_int (r, 0);
}

/* ---- structs as rows ---- */

static const void *field_at (const void *of, const struct enc_col *c)
{
	return (const char *) of + c->offset;
}

static void *field_of (void *of, const struct enc_col *c)
{
	return (char *) of + c->offset;
}

static int bind_col (sqlite3_stmt *s, int at, const struct enc_col *c, const void *from)
{
	const void *p = field_at (from, c);

	switch (c->type) {
	case ENC_COL_TEXT:
		return sqlite3_bind_text (s, at, p, -1, SQLITE_TRANSIENT);
	case ENC_COL_HEAP:
		return sqlite3_bind_text (s, at, *(char *const *) p, -1, SQLITE_TRANSIENT);
	case ENC_COL_I64:
		return sqlite3_bind_int64 (s, at, *(const int64_t *) p);
	case ENC_COL_U32:
		return sqlite3_bind_int64 (s, at, *(const uint32_t *) p);
	case ENC_COL_U8:
		return sqlite3_bind_int64 (s, at, *(const uint8_t *) p);
	case ENC_COL_END:
	default:
		return SQLITE_MISUSE;
	}
}

int enc_db_put (struct enc_db *db, const char *table, const struct enc_col *cols, const void *from, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf sql = ENC_BUF_INIT (8192);
	enc_auto (enc_rows) struct enc_rows *r = calloc (1, sizeof *r);
	enc_auto_free char *text = NULL;
	int rc;

	if (!r)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	enc_buf_putf (&sql, "INSERT OR REPLACE INTO %s (", table);
	for (int i = 0; cols[i].type; i++)
		enc_buf_putf (&sql, "%s%s", i ? "," : "", cols[i].name);
	enc_buf_putf (&sql, ") VALUES (");
	for (int i = 0; cols[i].type; i++)
		enc_buf_putf (&sql, "%s?", i ? "," : "");
	enc_buf_putf (&sql, ")");
	text = enc_buf_take_str (&sql);
	if (!text)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	r->h = db->h;
	if (sqlite3_prepare_v2 (db->h, text, -1, &r->s, NULL) != SQLITE_OK)
		return db_fail (err, db->h, table);
	for (int i = 0; cols[i].type; i++)
		if (bind_col (r->s, i + 1, &cols[i], from) != SQLITE_OK)
			return db_fail (err, db->h, cols[i].name);
	rc = enc_rows_next (r, err);
	return rc < 0 ? rc : 0;
}

static int read_col (struct enc_rows *r, int at, const struct enc_col *c, void *ret, struct enc_error *err)
{
	void *p = field_of (ret, c);
	const char *s;

	switch (c->type) {
	case ENC_COL_TEXT:
		return enc_str_copy (p, c->size, enc_rows_text (r, at), err);
	case ENC_COL_HEAP:
		s = enc_rows_text (r, at);
		*(char **) p = *s ? enc_strdup (s) : NULL;
		return *s && !*(char **) p ? enc_fail (err, ENC_ENOMEM, "out of memory") : 0;
	case ENC_COL_I64:
		*(int64_t *) p = enc_rows_int (r, at);
		return 0;
	case ENC_COL_U32:
		*(uint32_t *) p = (uint32_t) enc_rows_int (r, at);
		return 0;
	case ENC_COL_U8:
		*(uint8_t *) p = (uint8_t) enc_rows_int (r, at);
		return 0;
	case ENC_COL_END:
	default:
		return 0;
	}
}

static int read_row (struct enc_rows *r, const struct enc_col *cols, void *ret, struct enc_error *err)
{
	for (int i = 0; cols[i].type; i++) {
		int rc = read_col (r, i, &cols[i], ret, err);

		if (rc < 0)
			return enc_wrap (err, rc, "store: %s", cols[i].name);
	}
	return 0;
}

static char *select_text (const char *table, const struct enc_col *cols, const char *where)
{
	enc_auto_done (enc_buf_done) struct enc_buf sql = ENC_BUF_INIT (8192);

	enc_buf_putf (&sql, "SELECT ");
	for (int i = 0; cols[i].type; i++)
		enc_buf_putf (&sql, "%s%s", i ? "," : "", cols[i].name);
	enc_buf_putf (&sql, " FROM %s %s", table, where);
	return enc_buf_take_str (&sql);
}

int enc_db_get (struct enc_db *db, const char *table, const struct enc_col *cols, void *ret, struct enc_error *err, const char *where,
		const char *types, ...)
{
	enc_auto_free char *sql = select_text (table, cols, where);
	enc_auto (enc_rows) struct enc_rows *r = NULL;
	va_list ap;
	int rc;

	if (!sql)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	va_start (ap, types);
	rc = vquery (db, &r, err, sql, types, ap);
	va_end (ap);
	if (rc < 0)
		return rc;
	if ((rc = enc_rows_next (r, err)) < 0)
		return rc;
	if (rc == 0)
		return enc_fail (err, ENC_ENOTFOUND, "there is no such entry in %s", table);
	return read_row (r, cols, ret, err);
}

int enc_db_all (struct enc_db *db, const char *table, const struct enc_col *cols, size_t size, void **ret, size_t *ret_n,
		struct enc_error *err, const char *where, const char *types, ...)
{
	enc_auto_free char *sql = select_text (table, cols, where);
	enc_auto (enc_rows) struct enc_rows *r = NULL;
	char *v = NULL;
	size_t n = 0, cap = 0;
	va_list ap;
	int rc;

	if (!sql)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	va_start (ap, types);
	rc = vquery (db, &r, err, sql, types, ap);
	va_end (ap);
	while (rc >= 0 && (rc = enc_rows_next (r, err)) > 0) {
		if (n == cap) {
			size_t more = cap ? 2 * cap : 8;
			char *w = reallocarray (v, more, size);

			if (!w) {
				rc = enc_fail (err, ENC_ENOMEM, "out of memory");
				break;
			}
			v = w;
			cap = more;
		}
		memset (v + n * size, 0, size);
		rc = read_row (r, cols, v + n * size, err);
		n++;
	}
	if (rc < 0) {
		enc_cols_free (cols, size, v, n);
		return rc;
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

void enc_cols_done (const struct enc_col *cols, void *of)
{
	for (int i = 0; cols[i].type; i++) {
		if (cols[i].type == ENC_COL_HEAP) {
			free (*(char **) field_of (of, &cols[i]));
			*(char **) field_of (of, &cols[i]) = NULL;
		}
	}
}

void enc_cols_free (const struct enc_col *cols, size_t size, void *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		enc_cols_done (cols, (char *) v + i * size);
	free (v);
}
