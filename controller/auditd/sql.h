#ifndef ENC_AUDITD_SQL_H
#define ENC_AUDITD_SQL_H

#include "base/error.h"

#include <sqlite3.h>

/* The little that the two side stores share. */

/* Open STATE/NAME with WAL. `durable`: commits reach the disk. */
int enc_sql_open (const char *state, const char *name, int durable, sqlite3 **ret, struct enc_error *err) ENC_MUST_USE;
int enc_sql_exec (sqlite3 *db, const char *sql, struct enc_error *err) ENC_MUST_USE;
int enc_sql_prepare (sqlite3 *db, const char *sql, sqlite3_stmt **ret, struct enc_error *err) ENC_MUST_USE;
/* Run a statement that gives no rows, and reset it. */
int enc_sql_run (sqlite3 *db, sqlite3_stmt *stmt, struct enc_error *err) ENC_MUST_USE;
int enc_sql_fail (sqlite3 *db, const char *what, struct enc_error *err);

#endif
