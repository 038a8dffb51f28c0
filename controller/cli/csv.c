#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "controller/cli/csv.h"
#include "base/enc.h"

static const char *const columns[] = { "index", "time", "class", "action", "outcome", "user", "role", "mfa", "session", "ip", "enclave",
				       "enclave_id", "dataset", "job", "node", "object", "target", "text" };

void enc_csv_cell (struct enc_buf *out, const char *text)
{
	enc_auto_free char *shown = text ? enc_text_printable (text) : NULL;

	enc_buf_put (out, "\"", 1);
	if (shown && *text && strchr ("=+-@\t\r", *text))
		enc_buf_put (out, "'", 1);
	for (const char *p = shown; p && *p; p++)
		enc_buf_put (out, *p == '"' ? "\"\"" : p, *p == '"' ? 2 : 1);
	enc_buf_put (out, "\"", 1);
}

static void end_cell (struct enc_buf *out, size_t i)
{
	enc_buf_put (out, i + 1 < ENC_ARRAY_LEN (columns) ? "," : "\r\n", i + 1 < ENC_ARRAY_LEN (columns) ? 1 : 2);
}

void enc_csv_header (struct enc_buf *out)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (columns); i++) {
		enc_csv_cell (out, columns[i]);
		end_cell (out, i);
	}
}

void enc_csv_record (struct enc_buf *out, const struct enc_json *record)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (columns); i++) {
		const struct enc_json *value = enc_json_get (record, columns[i]);
		const char *text = enc_json_str (value);
		bool empty = !value || enc_json_type (value) == ENC_JSON_NULL;
		enc_auto_free char *number = text || empty ? NULL : enc_json_write (value, NULL, NULL);

		enc_csv_cell (out, text ? text : number);
		end_cell (out, i);
	}
}
