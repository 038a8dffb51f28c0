/* Writing values: compact, indented, and canonical (RFC 8785 for integers). The writer is ours, so that what is signed does not
 * depend on the habits of a library's version. */
#include <stdio.h>
#include <string.h>
#include "base/json_dom.h"
#include "base/str.h"
#include "base/enc.h"

#define SAFE_INT INT64_C (9007199254740991) /* 2^53 - 1 */
#define KEYS_MAX 65536

enum style { COMPACT, PRETTY, CANONICAL };

struct writer {
	struct enc_buf *out;
	enum style style;
	struct enc_error *err;
};

static int write_value (struct writer *w, const struct enc_json *j, unsigned depth);

/* RFC 8785 section 3.2.2.2: two-letter escapes where there are some, \u00xx for other controls, all else as it is. */
static void write_string (struct enc_buf *out, const char *s, size_t len)
{
	static const char plain[] = "\b\t\n\f\r\"\\", letter[] = "btnfr\"\\";
	enc_buf_put_u8 (out, '"');
	for (size_t i = 0; i < len; i++) {
		const char *at = s[i] ? strchr (plain, s[i]) : NULL;
		if (at) {
			enc_buf_put_u8 (out, '\\');
			enc_buf_put_u8 (out, (uint8_t) letter[at - plain]);
		} else if ((unsigned char) s[i] < 0x20) {
			enc_buf_putf (out, "\\u%04x", (unsigned char) s[i]);
		} else {
			enc_buf_put_u8 (out, (uint8_t) s[i]);
		}
	}
	enc_buf_put_u8 (out, '"');
}

static void new_line (struct writer *w, unsigned depth)
{
	if (w->style != PRETTY)
		return;
	enc_buf_put_u8 (w->out, '\n');
	for (unsigned i = 0; i < depth; i++)
		enc_buf_put (w->out, "  ", 2);
}

static int by_key (const void *a, const void *b)
{
	return strcmp (((const struct enc_json_iter *) a)->key, ((const struct enc_json_iter *) b)->key);
}

static bool ascii (const char *s)
{
	for (; *s; s++)
		if ((unsigned char) *s > 0x7E)
			return false;
	return true;
}

static int write_members (struct writer *w, struct enc_json_iter *member, size_t n, unsigned depth)
{
	for (size_t i = 0; i < n; i++) {
		/* For ASCII the order of bytes is the order of UTF-16 units that RFC 8785 asks for. */
		if (w->style == CANONICAL && !ascii (member[i].key))
			return enc_fail (w->err, ENC_EINVAL, "a key that is not ASCII cannot be written canonically");
		if (i)
			enc_buf_put_u8 (w->out, ',');
		new_line (w, depth + 1);
		write_string (w->out, member[i].key, strlen (member[i].key));
		enc_buf_put (w->out, ": ", w->style == PRETTY ? 2 : 1);
		int rc = write_value (w, member[i].value, depth + 1);
		if (rc < 0)
			return rc;
	}
	if (n)
		new_line (w, depth);
	return 0;
}

static int write_object (struct writer *w, const struct enc_json *j, unsigned depth)
{
	size_t n = enc_json_len (j), i = 0;
	enc_auto_free struct enc_json_iter *member = calloc (n + 1, sizeof (*member));
	if (!member)
		return enc_fail (w->err, ENC_ENOMEM, "out of memory");
	struct enc_json_iter it = { 0 };
	while (i < n && enc_json_next (j, &it))
		member[i++] = it;
	if (w->style == CANONICAL)
		qsort (member, i, sizeof (*member), by_key);
	enc_buf_put_u8 (w->out, '{');
	int rc = write_members (w, member, i, depth);
	enc_buf_put_u8 (w->out, '}');
	return rc;
}

static int write_array (struct writer *w, const struct enc_json *j, unsigned depth)
{
	size_t n = enc_json_len (j);
	enc_buf_put_u8 (w->out, '[');
	for (size_t i = 0; i < n; i++) {
		if (i)
			enc_buf_put_u8 (w->out, ',');
		new_line (w, depth + 1);
		int rc = write_value (w, enc_json_at (j, i), depth + 1);
		if (rc < 0)
			return rc;
	}
	if (n)
		new_line (w, depth);
	enc_buf_put_u8 (w->out, ']');
	return 0;
}

static int write_number (struct writer *w, const struct enc_json *j)
{
	struct json_object *o = enc_json_dom (j);
	if (enc_json_type (j) == ENC_JSON_DOUBLE) {
		if (w->style == CANONICAL)
			return enc_fail (w->err, ENC_EINVAL, "a number with a fraction cannot be written canonically");
		enc_buf_putf (w->out, "%s", json_object_to_json_string_ext (o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOZERO));
		return 0;
	}
	int64_t v = json_object_get_int64 (o);
	if (w->style == CANONICAL && (v > SAFE_INT || v < -SAFE_INT))
		return enc_fail (w->err, ENC_EINVAL, "a number beyond 2^53 cannot be written canonically");
	if (v == INT64_MAX)
		enc_buf_putf (w->out, "%llu", (unsigned long long) json_object_get_uint64 (o));
	else
		enc_buf_putf (w->out, "%lld", (long long) v);
	return 0;
}

static int write_value (struct writer *w, const struct enc_json *j, unsigned depth)
{
	struct json_object *o = enc_json_dom (j);
	if (depth > 2 * ENC_JSON_DEPTH)
		return enc_fail (w->err, ENC_ELIMIT, "JSON nested too deeply");
	switch (enc_json_type (j)) {
	case ENC_JSON_NONE:
		return enc_fail (w->err, ENC_ENOMEM, "out of memory");
	case ENC_JSON_NULL:
		enc_buf_put (w->out, "null", 4);
		return 0;
	case ENC_JSON_BOOL:
		enc_buf_putf (w->out, "%s", enc_json_bool (j) ? "true" : "false");
		return 0;
	case ENC_JSON_INT:
	case ENC_JSON_DOUBLE:
		return write_number (w, j);
	case ENC_JSON_STRING:
		write_string (w->out, json_object_get_string (o), (size_t) json_object_get_string_len (o));
		return 0;
	case ENC_JSON_ARRAY:
		return write_array (w, j, depth);
	case ENC_JSON_OBJECT:
		return write_object (w, j, depth);
	}
	return enc_fail (w->err, ENC_EFAILED, "unknown kind of JSON value");
}

static int write_all (const struct enc_json *j, enum style style, struct enc_buf *out, struct enc_error *err)
{
	struct writer w = { .out = out, .style = style, .err = err };
	if (enc_json_marked (j))
		return enc_fail (err, ENC_ENOMEM, "JSON value could not be built (memory, or text that is not UTF-8)");
	size_t before = out->len;
	int rc = write_value (&w, j, 0);
	if (rc == 0)
		rc = enc_buf_check (out, err);
	if (rc < 0 && out->len > before)
		out->len = before;
	return rc;
}

static char *write_string_of (const struct enc_json *j, enum style style, size_t *ret_len, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (SIZE_MAX / 4);
	if (write_all (j, style, &out, err) < 0)
		return NULL;
	size_t len = out.len;
	char *s = enc_buf_take_str (&out);
	if (!s)
		(void) enc_fail (err, ENC_ENOMEM, "out of memory");
	else if (ret_len)
		*ret_len = len;
	return s;
}

char *enc_json_write (const struct enc_json *j, size_t *ret_len, struct enc_error *err)
{
	return write_string_of (j, COMPACT, ret_len, err);
}

char *enc_json_pretty (const struct enc_json *j, struct enc_error *err)
{
	return write_string_of (j, PRETTY, NULL, err);
}

int enc_json_canonical (const struct enc_json *j, struct enc_buf *out, struct enc_error *err)
{
	return write_all (j, CANONICAL, out, err);
}

struct enc_json *enc_json_parse_canonical (const char *text, size_t len, size_t max, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *j = enc_json_parse (text, len, max, err);
	if (!j)
		return NULL;
	enc_auto_done (enc_buf_done) struct enc_buf again = ENC_BUF_INIT (max + 1);
	int rc = enc_json_canonical (j, &again, NULL);
	if (rc < 0 || again.len != len || memcmp (again.data, text, len) != 0) {
		(void) enc_fail (err, ENC_EINTEGRITY, "JSON is not in its canonical form");
		return NULL;
	}
	return ENC_TAKE (j);
}

/* ---- errors ---- */

static void set_or_null (struct enc_json *o, const char *key, const char *text)
{
	/* A text may have been cut or come from a peer: it must never spoil the document. */
	enc_auto_free char *safe = text[0] ? enc_text_printable (text) : NULL;
	enc_json_set_str (o, key, safe);
}

struct enc_json *enc_json_of_error (const struct enc_error *err)
{
	struct enc_json *root = enc_json_object (), *e = root ? enc_json_set_object (root, "error") : NULL;
	if (!e) {
		enc_json_free (root);
		return NULL;
	}
	enc_json_set_str (e, "code", enc_code_name (err->code ? err->code : ENC_EFAILED));
	set_or_null (e, "step", err->step);
	set_or_null (e, "object", err->object);
	set_or_null (e, "text", err->text);
	set_or_null (e, "next", err->next);
	if (err->pointer[0])
		set_or_null (e, "pointer", err->pointer);
	return root;
}

static void copy_text (char *out, size_t size, const struct enc_json *e, const char *key)
{
	const char *s = enc_json_get_str (e, key, "");
	(void) snprintf (out, size, "%s", s);
}

int enc_json_to_error (const struct enc_json *j, struct enc_error *err)
{
	const struct enc_json *e = enc_json_get (j, "error");
	if (enc_json_type (e) != ENC_JSON_OBJECT)
		return 0;
	enum enc_code code = enc_code_of_name (enc_json_get_str (e, "code", NULL));
	if (err) {
		enc_error_clear (err);
		err->code = (int) code;
		copy_text (err->text, sizeof (err->text), e, "text");
		copy_text (err->next, sizeof (err->next), e, "next");
		copy_text (err->object, sizeof (err->object), e, "object");
		copy_text (err->step, sizeof (err->step), e, "step");
		copy_text (err->pointer, sizeof (err->pointer), e, "pointer");
	}
	return -(int) code;
}
