/* Field tables: the kinds of fields as one table of {decode, encode, done}, and the walk over a struct's table. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "base/enctime.h"
#include "base/fields_kinds.h"
#include "base/enc.h"

static void *member_of (const struct enc_field *f, void *of)
{
	return (char *) of + f->offset;
}

static const void *const_member_of (const struct enc_field *f, const void *of)
{
	return (const char *) of + f->offset;
}

/* "/key" with '~' and '/' escaped, or "/index"; a long key of unknown origin is cut. */
static size_t put_step (const struct enc_place *at, char *out, size_t size)
{
	size_t n = 1;
	out[0] = '/';
	if (!at->key)
		return (size_t) snprintf (out, size, "/%zu", at->index);
	for (const char *s = at->key; *s && n + 2 < size; s++) {
		if (*s == '~' || *s == '/')
			out[n++] = '~';
		out[n++] = *s;
		if (*s == '~' || *s == '/')
			out[n - 1] = *s == '~' ? '0' : '1';
	}
	return n;
}

int enc_field_bad (const struct enc_place *at, struct enc_error *err, const char *what)
{
	char pointer[sizeof (((struct enc_error *) 0)->pointer)];
	size_t n = sizeof (pointer) - 1;
	/* From the innermost step backwards; a pointer that is too long loses its beginning. */
	pointer[n] = 0;
	for (; at && at->up; at = at->up) {
		char step[80];
		size_t len = put_step (at, step, sizeof (step));
		if (len > n)
			break;
		n -= len;
		memcpy (pointer + n, step, len);
	}
	enc_auto_free char *safe = enc_text_printable (pointer + n);
	const char *shown = safe && safe[0] ? safe : "the document";
	return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "%s: %s", shown, what), "%s", safe ? safe : "");
}

static int take_default (const struct enc_field *f, void *ret, const struct enc_place *at, struct enc_error *err)
{
	if (!f->dflt)
		return 0;
	enc_auto (enc_json) struct enc_json *j = enc_json_parse (f->dflt, strlen (f->dflt), ENC_JSON_MAX_DEFAULT, err);
	if (!j)
		return enc_wrap (err, -ENC_EFAILED, "default of %s", f->key);
	return enc_field_kind (f)->decode (f, j, member_of (f, ret), at, err);
}

static int decode_field (const struct enc_field *f, const struct enc_json *object, void *ret, const struct enc_place *up,
			 struct enc_error *err)
{
	struct enc_place at = { .up = up, .key = f->key };
	const struct enc_json *value = enc_json_get (object, f->key);
	enum enc_json_type type = enc_json_type (value);
	bool json_null = type == ENC_JSON_NULL && f->type == ENC_T_JSON && !(f->flags & ENC_REQUIRED);
	if ((type == ENC_JSON_NONE || type == ENC_JSON_NULL) && !json_null) {
		if (f->flags & ENC_REQUIRED)
			return enc_field_bad (&at, err, type == ENC_JSON_NONE ? "missing" : "must not be null");
		return take_default (f, ret, &at, err);
	}
	return enc_field_kind (f)->decode (f, value, member_of (f, ret), &at, err);
}

static bool known (const struct enc_field *table, const char *key)
{
	for (; table->type != ENC_T_END; table++)
		if (strcmp (table->key, key) == 0)
			return true;
	return false;
}

int enc_fields_decode_at (const struct enc_field *table, const struct enc_json *j, void *ret, const struct enc_place *at,
			  struct enc_error *err)
{
	if (enc_json_type (j) != ENC_JSON_OBJECT)
		return enc_field_bad (at, err, "not an object");
	struct enc_json_iter it = { 0 };
	while (enc_json_next (j, &it))
		if (!known (table, it.key)) {
			struct enc_place here = { .up = at, .key = it.key };
			return enc_field_bad (&here, err, "unknown key");
		}
	for (const struct enc_field *f = table; f->type != ENC_T_END; f++) {
		int rc = decode_field (f, j, ret, at, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* One past the last byte the table knows, to clear no more than that. */
static size_t extent (const struct enc_field *table)
{
	size_t end = 0;
	for (const struct enc_field *f = table; f->type != ENC_T_END; f++)
		if (f->offset + f->size > end)
			end = f->offset + f->size;
	return end;
}

int enc_json_decode (const struct enc_field *table, const struct enc_json *j, void *ret, struct enc_error *err)
{
	static const struct enc_place root = { 0 };
	memset (ret, 0, extent (table));
	int rc = enc_fields_decode_at (table, j, ret, &root, err);
	if (rc < 0)
		enc_fields_done (table, ret);
	return rc;
}

int enc_json_decode_text (const struct enc_field *table, const char *text, size_t len, size_t max, void *ret, struct enc_error *err)
{
	struct enc_error local;
	if (!err)
		err = &local;
	enc_auto (enc_json) struct enc_json *j = enc_json_parse (text, len, max, err);
	if (!j) {
		memset (ret, 0, extent (table));
		return -err->code;
	}
	int rc = enc_json_decode (table, j, ret, err);
	if (rc < 0) {
		/* A missing key has no line of its own: show that of what should hold it. */
		char pointer[sizeof (err->pointer)];
		memcpy (pointer, err->pointer, sizeof (pointer));
		unsigned line = enc_json_line (text, len, pointer);
		char *slash = strrchr (pointer, '/');
		if (!line && slash) {
			*slash = 0;
			line = enc_json_line (text, len, pointer);
		}
		(void) enc_wrap (err, rc, "line %u", line ? line : 1);
	}
	return rc;
}

int enc_fields_defaults (const struct enc_field *table, void *ret, struct enc_error *err)
{
	static const struct enc_place root = { 0 };
	memset (ret, 0, extent (table));
	for (const struct enc_field *f = table; f->type != ENC_T_END; f++) {
		struct enc_place at = { .up = &root, .key = f->key };
		int rc = take_default (f, ret, &at, err);
		if (rc < 0) {
			enc_fields_done (table, ret);
			return rc;
		}
	}
	return 0;
}

void enc_json_encode_into (const struct enc_field *table, const void *from, struct enc_json *object)
{
	for (const struct enc_field *f = table; f->type != ENC_T_END; f++) {
		const struct enc_kind *kind = enc_field_kind (f);
		const void *member = const_member_of (f, from);
		if (!(f->flags & ENC_OMIT && kind->empty (f, member)))
			enc_json_set (object, f->key, kind->encode (f, member));
	}
}

struct enc_json *enc_json_encode (const struct enc_field *table, const void *from)
{
	struct enc_json *object = enc_json_object ();
	if (object)
		enc_json_encode_into (table, from, object);
	return object;
}

void enc_fields_done (const struct enc_field *table, void *of)
{
	for (const struct enc_field *f = table; f->type != ENC_T_END; f++) {
		void *member = member_of (f, of);
		enc_field_kind (f)->done (f, member);
		memset (member, 0, f->size);
	}
}

struct enc_json *enc_fields_schema (const struct enc_field *table)
{
	struct enc_json *schema = enc_json_object ();
	if (!schema)
		return NULL;
	enc_json_set_str (schema, "type", "object");
	enc_json_set_bool (schema, "additionalProperties", false);
	struct enc_json *properties = enc_json_set_object (schema, "properties");
	struct enc_json *required = enc_json_set_array (schema, "required");
	for (const struct enc_field *f = table; f->type != ENC_T_END; f++) {
		enc_json_set (properties, f->key, enc_field_schema (f));
		if (f->flags & ENC_REQUIRED)
			enc_json_add_str (required, f->key);
	}
	return schema;
}
