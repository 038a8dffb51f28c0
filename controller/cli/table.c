#include "controller/cli/table.h"

#include <inttypes.h>
#include <libsmartcols/libsmartcols.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/hostlist.h"
#include "base/str.h"
#include "base/enc.h"

enum { CELL_MAX = 4096 };
static const char nothing[] = "–";

static const char *item_name (const struct enc_json *item)
{
	static const char *const keys[] = { "name", "user", "role", "node" };
	if (enc_json_str (item))
		return enc_json_str (item);
	for (size_t i = 0; i < ENC_ARRAY_LEN (keys); i++)
		if (enc_json_get_str (item, keys[i], NULL))
			return enc_json_get_str (item, keys[i], NULL);
	return "?";
}

static void cell_text (const struct enc_json *v, struct enc_buf *b)
{
	switch (enc_json_type (v)) {
	case ENC_JSON_STRING: {
		enc_auto_free char *text = enc_text_printable (enc_json_str (v));
		enc_buf_putf (b, "%s", text ? text : "?");
		break;
	}
	case ENC_JSON_INT:
		enc_buf_putf (b, "%" PRId64, enc_json_i64 (v, 0));
		break;
	case ENC_JSON_DOUBLE:
		enc_buf_putf (b, "%.1f", enc_json_double (v, 0));
		break;
	case ENC_JSON_BOOL:
		enc_buf_putf (b, "%s", enc_json_bool (v) ? "yes" : "no");
		break;
	case ENC_JSON_NONE:
	case ENC_JSON_NULL:
	case ENC_JSON_ARRAY:
	case ENC_JSON_OBJECT:
	default:
		enc_buf_putf (b, "%s", nothing);
	}
}

static void cell_count (const struct enc_json *v, struct enc_buf *b)
{
	enc_buf_putf (b, "%zu", enc_json_len (v));
}

static void cell_list (const struct enc_json *v, struct enc_buf *b)
{
	for (size_t i = 0; i < enc_json_len (v); i++) {
		enc_auto_free char *text = enc_text_printable (item_name (enc_json_at (v, i)));
		enc_buf_putf (b, "%s%s", i ? " " : "", text ? text : "?");
	}
	if (!enc_json_len (v))
		enc_buf_putf (b, "%s", nothing);
}

static void cell_nodes (const struct enc_json *v, struct enc_buf *b)
{
	struct enc_strs names = { 0 };
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < enc_json_len (v); i++)
		rc = enc_strs_add (&names, item_name (enc_json_at (v, i)), NULL);
	enc_auto_free char *text = names.n ? enc_hostlist_compress (&names) : NULL;
	enc_buf_putf (b, "%s", text ? text : nothing);
	enc_strs_done (&names);
}

static void cell_span (const struct enc_json *v, struct enc_buf *b)
{
	char span[ENC_SPAN_SIZE];
	double s = enc_json_double (v, -1);
	enc_buf_putf (b, "%s", s < 0 ? nothing : enc_span_format ((int64_t) (s * (double) ENC_NS_S), span));
}

static void cell_until (const struct enc_json *v, struct enc_buf *b)
{
	char span[ENC_SPAN_SIZE];
	int64_t at;
	if (!enc_json_str (v) || enc_time_parse (enc_json_str (v), &at, NULL) < 0)
		enc_buf_putf (b, "%s", nothing);
	else if (at > enc_now ())
		enc_buf_putf (b, "in %s", enc_span_format (at - enc_now (), span));
	else
		enc_buf_putf (b, "%s ago", enc_span_format (enc_now () - at, span));
}

static void cell_free (const struct enc_json *v, struct enc_buf *b)
{
	int64_t at;
	if (enc_json_str (v) && enc_time_parse (enc_json_str (v), &at, NULL) == 0 && at <= enc_now ())
		enc_buf_putf (b, "now");
	else
		cell_until (v, b);
}

static void cell_size (const struct enc_json *v, struct enc_buf *b)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	double n = enc_json_double (v, 0);
	size_t u = 0;
	while (n >= 1024 && u + 1 < ENC_ARRAY_LEN (units)) {
		n /= 1024;
		u++;
	}
	enc_buf_putf (b, n < 10 && u ? "%.1f %s" : "%.0f %s", n, units[u]);
}

static void cell_yes (const struct enc_json *v, struct enc_buf *b)
{
	enc_buf_putf (b, "%s", enc_json_bool (v) ? "yes" : "no");
}

typedef void cell_fn (const struct enc_json *v, struct enc_buf *b);
static cell_fn *const cells[] = {
	[ENC_COLUMN_TEXT] = cell_text, [ENC_COLUMN_COUNT] = cell_count, [ENC_COLUMN_LIST] = cell_list, [ENC_COLUMN_NODES] = cell_nodes,
	[ENC_COLUMN_SPAN] = cell_span, [ENC_COLUMN_UNTIL] = cell_until, [ENC_COLUMN_FREE] = cell_free, [ENC_COLUMN_SIZE] = cell_size, [ENC_COLUMN_YES] = cell_yes,
};

static char *cell (const struct enc_column *c, const struct enc_json *row)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (CELL_MAX);
	cells[c->kind] (enc_json_find (row, c->pointer), &b);
	char *text = enc_buf_take_str (&b);
	return text ? text : strdup ("…");
}

int enc_table_print (const struct enc_column *columns, const struct enc_json *list, struct enc_error *err)
{
	struct libscols_table *t = scols_new_table ();
	int bad = !t;
	for (const struct enc_column *c = columns; !bad && c->kind != ENC_COLUMN_END; c++)
		bad = !scols_table_new_column (t, c->title, 0, 0);
	for (size_t i = 0; !bad && i < enc_json_len (list); i++) {
		struct libscols_line *line = scols_table_new_line (t, NULL);
		bad = !line;
		for (size_t k = 0; !bad && columns[k].kind != ENC_COLUMN_END; k++)
			bad = scols_line_refer_data (line, k, cell (&columns[k], enc_json_at (list, i))) != 0;
	}
	if (!bad)
		bad = scols_print_table (t) != 0;
	scols_unref_table (t);
	return bad ? enc_fail (err, ENC_EFAILED, "the table could not be printed") : 0;
}

int enc_sheet_print (const struct enc_column *columns, const struct enc_json *object, struct enc_error *err ENC_UNUSED)
{
	for (const struct enc_column *c = columns; c->kind != ENC_COLUMN_END; c++) {
		enc_auto_free char *text = cell (c, object);
		(void) printf ("%-11s %s\n", c->title, text ? text : "?");
	}
	return 0;
}
