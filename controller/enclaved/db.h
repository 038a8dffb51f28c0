/* SQLite, thinly: statements with bound values, rows, transactions, and structs that are rows.
 *
 * Opened in WAL mode with synchronous=FULL: what a call has stored survives a power cut once it returned (outside a transaction). */
#ifndef ENC_ENCLAVED_DB_H
#define ENC_ENCLAVED_DB_H

#include <stddef.h>
#include <stdint.h>
#include "base/cleanup.h"
#include "base/error.h"

struct enc_db;
struct enc_rows;

/* One step of the schema; version i is reached by running sql[i-1]. Ended by NULL. */
struct enc_db *enc_db_open (const char *path, const char *const *migrations, struct enc_error *err) ENC_MUST_USE;
void enc_db_free (struct enc_db *db);
ENC_DEFINE_AUTO (enc_db, struct enc_db, enc_db_free);
int enc_db_version (struct enc_db *db);

/* `types` has one letter for each value that follows: s const char * (NULL is null), i int64_t. */
ENC_MUST_USE int enc_db_exec (struct enc_db *db, struct enc_error *err, const char *sql, const char *types, ...);
/* Rows changed by the last enc_db_exec(). */
int64_t enc_db_changes (struct enc_db *db);
/* Row id of the last insert. */
int64_t enc_db_last (struct enc_db *db);
ENC_MUST_USE int enc_db_begin (struct enc_db *db, struct enc_error *err);
ENC_MUST_USE int enc_db_commit (struct enc_db *db, struct enc_error *err);
void enc_db_rollback (struct enc_db *db);

/* A query; do not change the database nor wait while it is open. */
ENC_MUST_USE int enc_db_query (struct enc_db *db, struct enc_rows **ret, struct enc_error *err, const char *sql, const char *types, ...);
/* 1: a row is there, 0: the end, negative: a failure. */
ENC_MUST_USE int enc_rows_next (struct enc_rows *r, struct enc_error *err);
const char *enc_rows_text (struct enc_rows *r, int col); /* "" for null; valid until the next row */
int64_t enc_rows_int (struct enc_rows *r, int col);
void enc_rows_free (struct enc_rows *r);
ENC_DEFINE_AUTO (enc_rows, struct enc_rows, enc_rows_free);
/* The first column of the first row; `fallback` when there is none or on failure. */
int64_t enc_db_int (struct enc_db *db, int64_t fallback, const char *sql, const char *types, ...);

/* ---- structs as rows: a table of columns ---- */

enum enc_col_type { ENC_COL_END = 0, ENC_COL_TEXT /* char[n] */, ENC_COL_HEAP /* char *, owned, "" is NULL */, ENC_COL_I64, ENC_COL_U32, ENC_COL_U8 };
struct enc_col {
	const char *name;
	enum enc_col_type type;
	size_t offset, size;
};
#define ENC_COL(struct_, member_, type_)                                                                               \
	{ .name = #member_, .type = (type_), .offset = offsetof (struct_, member_), .size = sizeof (((struct_ *) 0)->member_) }
#define ENC_COL_END_ { .type = ENC_COL_END }

/* INSERT OR REPLACE of the whole row. */
ENC_MUST_USE int enc_db_put (struct enc_db *db, const char *table, const struct enc_col *cols, const void *from, struct enc_error *err);
/* Read one row by "SELECT <columns> FROM table <where>"; ENC_ENOTFOUND. `ret` should be zero, free with enc_cols_done(). */
ENC_MUST_USE int enc_db_get (struct enc_db *db, const char *table, const struct enc_col *cols, void *ret, struct enc_error *err,
			     const char *where, const char *types, ...);
/* All rows into a heap array of `size`d structs. */
ENC_MUST_USE int enc_db_all (struct enc_db *db, const char *table, const struct enc_col *cols, size_t size, void **ret, size_t *ret_n,
			     struct enc_error *err, const char *where, const char *types, ...);
void enc_cols_done (const struct enc_col *cols, void *of);
void enc_cols_free (const struct enc_col *cols, size_t size, void *v, size_t n);

#endif
