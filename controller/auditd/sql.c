#include "controller/auditd/sql.h"

#include <stdio.h>

#include "base/enc.h"

int enc_sql_fail (sqlite3 *db, const char *what, struct enc_error *err)
{
	return enc_fail (err, ENC_EUNAVAIL, "%s: %s", what, db ? sqlite3_errmsg (db) : "no memory");
}

int enc_sql_exec (sqlite3 *db, const char *sql, struct enc_error *err)
{
	return sqlite3_exec (db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : enc_sql_fail (db, "side store", err);
}

int enc_sql_open (const char *state, const char *name, int durable, sqlite3 **ret, struct enc_error *err)
{
	char path[4096];
	sqlite3 *db = NULL;
	int rc;

	if (snprintf (path, sizeof (path), "%s/%s", state, name) >= (int)sizeof (path))
		return enc_fail (err, ENC_EINVAL, "path too long");
	if (sqlite3_open_v2 (path, &db,
		    SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW,
		    NULL) != SQLITE_OK) {
		rc = enc_sql_fail (db, name, err);
		(void)sqlite3_close (db);
		return rc;
	}
	(void)sqlite3_busy_timeout (db, 0);
	/* One process, one connection: the exclusive mode needs no shared memory file. */
	rc = enc_sql_exec (
		db, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA temp_store=MEMORY;", err);
	if (rc == 0)
		rc = enc_sql_exec (db, durable ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=OFF", err);
	if (rc < 0) {
		(void)sqlite3_close (db);
		return rc;
	}
	*ret = db;
	return 0;
}

int enc_sql_prepare (sqlite3 *db, const char *sql, sqlite3_stmt **ret, struct enc_error *err)
{
	return sqlite3_prepare_v3 (db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL) == SQLITE_OK
		       ? 0
		       : enc_sql_fail (db, "side store", err);
}

int enc_sql_run (sqlite3 *db, sqlite3_stmt *stmt, struct enc_error *err)
{
	int step = sqlite3_step (stmt);

	(void)sqlite3_reset (stmt);
	return step == SQLITE_DONE ? 0 : enc_sql_fail (db, "side store", err);
}
