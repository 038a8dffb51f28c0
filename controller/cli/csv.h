/* Records as CSV for spreadsheets (RFC 4180), which must not run what a stranger typed: a cell that would be a formula is made text. */
#ifndef ENC_CLI_CSV_H
#define ENC_CLI_CSV_H

#include "base/buf.h"
#include "base/json.h"

/* One cell: always quoted; with an apostrophe before it when it begins with = + - @ tab or carriage return. NULL: an empty cell. */
void enc_csv_cell (struct enc_buf *out, const char *text);
/* The line of column names, and one line for a record of `audit search`. */
void enc_csv_header (struct enc_buf *out);
void enc_csv_record (struct enc_buf *out, const struct enc_json *record);

#endif
