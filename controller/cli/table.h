/* Aligned tables for people, by libsmartcols; one column list per view. Values are made printable. */
#ifndef ENC_CLI_TABLE_H
#define ENC_CLI_TABLE_H

#include "base/json.h"

enum enc_column_kind {
	ENC_COLUMN_END = 0,
	ENC_COLUMN_TEXT,    /* string or number; "–" for null */
	ENC_COLUMN_COUNT,   /* number of items of a list */
	ENC_COLUMN_LIST,    /* strings joined by blanks; objects show their "name", "user" or "role" */
	ENC_COLUMN_NODES,   /* strings or objects with "name", as a host list */
	ENC_COLUMN_SPAN,    /* seconds, as "6.2 s" */
	ENC_COLUMN_UNTIL,   /* a time, as the span from now */
	ENC_COLUMN_FREE,    /* a time, as the span from now; "now" when it has come */
	ENC_COLUMN_SIZE,
	ENC_COLUMN_YES,     /* true: "yes" */
};

struct enc_column {
	const char *title;
	const char *pointer; /* JSON pointer in the row, such as "/evidence/state" */
	enum enc_column_kind kind;
};

/* Print one row for each item of `list`. */
int enc_table_print (const struct enc_column *columns, const struct enc_json *list, struct enc_error *err) ENC_MUST_USE;
/* The same cells as "Title  value" lines for one object. */
int enc_sheet_print (const struct enc_column *columns, const struct enc_json *object, struct enc_error *err) ENC_MUST_USE;

#endif
