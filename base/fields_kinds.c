/* The kinds of fields. Each kind has a decoder, an encoder, a test for emptiness and a destructor; the table at the end joins them. */
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "base/enctime.h"
#include "base/fields_kinds.h"
#include "base/enc.h"

#define LIST_MAX 1024

/* ---- strings ---- */

static bool path_ok (const char *s)
{
	if (s[0] != '/' || !enc_text_ok (s) || strstr (s, "//"))
		return false;
	const char *dots = s;
	while ((dots = strstr (dots, "/.."))) {
		if (dots[3] == 0 || dots[3] == '/')
			return false;
		dots += 3;
	}
	return true;
}

static bool any_ok (const char *s ENC_UNUSED)
{
	return true;
}

/* What each kind of string wants; lists of strings use the row of their items. */
static const struct string_rule {
	bool (*ok) (const char *s);
	uint64_t max;
	const char *what;
} rules[] = {
	[ENC_T_STR] = { any_ok, 4096, "not a string" },
	[ENC_T_TEXT] = { enc_text_ok, 1024, "not one line of plain text" },
	[ENC_T_PATH] = { path_ok, 4096, "not an absolute path without '..'" },
	[ENC_T_NAME] = { enc_name_ok, 31, "not a name: a-z, 0-9 and '-', first a letter, at most 31" },
	[ENC_T_USER] = { enc_user_name_ok, 32, "not a user name" },
	[ENC_T_NODE] = { enc_node_name_ok, 63, "not a node name" },
	[ENC_T_ID] = { enc_id_ok, ENC_ID_LEN, "not an id of 26 characters" },
	[ENC_T_STRS] = { any_ok, 4096, "not a string" },
	[ENC_T_NAMES] = { enc_name_ok, 31, "not a name: a-z, 0-9 and '-', first a letter, at most 31" },
	[ENC_T_USERS] = { enc_user_name_ok, 32, "not a user name" },
	[ENC_T_NODES] = { enc_node_name_ok, 63, "not a node name" },
	[ENC_T_PATHS] = { path_ok, 4096, "not an absolute path without '..'" },
};

static int check_string (const struct enc_json *j, const struct string_rule *rule, uint64_t max, const struct enc_place *at,
			 struct enc_error *err)
{
	const char *s = enc_json_str (j);
	if (!s)
		return enc_field_bad (at, err, "not a string");
	if (strlen (s) > (max ? max : rule->max))
		return enc_field_bad (at, err, "too long");
	return rule->ok (s) ? 0 : enc_field_bad (at, err, rule->what);
}

static int decode_string (const struct enc_field *f, const struct enc_json *j, void *member, const struct enc_place *at,
			  struct enc_error *err)
{
	int rc = check_string (j, &rules[f->type], f->max, at, err);
	if (rc < 0)
		return rc;
	const char *s = enc_json_str (j);
	if ((int64_t) strlen (s) < f->min || (f->flags & ENC_NONEMPTY && !s[0]))
		return enc_field_bad (at, err, "too short");
	char *copy = strdup (s);
	if (!copy)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	*(char **) member = copy;
	return 0;
}

static struct enc_json *encode_string (const struct enc_field *f ENC_UNUSED, const void *member)
{
	return enc_json_new_str (*(char *const *) member);
}

static bool string_empty (const struct enc_field *f ENC_UNUSED, const void *member)
{
	return *(char *const *) member == NULL;
}

static void string_done (const struct enc_field *f ENC_UNUSED, void *member)
{
	free (*(char **) member);
}

/* ---- lists of strings ---- */

static int decode_strings (const struct enc_field *f, const struct enc_json *j, void *member, const struct enc_place *up,
			   struct enc_error *err)
{
	struct enc_strs *l = (struct enc_strs *) member;
	size_t n = enc_json_len (j);
	if (enc_json_type (j) != ENC_JSON_ARRAY)
		return enc_field_bad (up, err, "not a list");
	if (n > (f->max ? f->max : LIST_MAX))
		return enc_field_bad (up, err, "too many items");
	if ((int64_t) n < f->min || (f->flags & ENC_NONEMPTY && n == 0))
		return enc_field_bad (up, err, "too few items");
	for (size_t i = 0; i < n; i++) {
		struct enc_place at = { .up = up, .index = i };
		int rc = check_string (enc_json_at (j, i), &rules[f->type], 0, &at, err);
		if (rc == 0)
			rc = enc_strs_add (l, enc_json_str (enc_json_at (j, i)), err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static struct enc_json *encode_strings (const struct enc_field *f ENC_UNUSED, const void *member)
{
	const struct enc_strs *l = (const struct enc_strs *) member;
	struct enc_json *array = enc_json_array ();
	for (size_t i = 0; array && i < l->n; i++)
		enc_json_add_str (array, l->v[i]);
	return array;
}

static bool strings_empty (const struct enc_field *f ENC_UNUSED, const void *member)
{
	return ((const struct enc_strs *) member)->n == 0;
}

static void strings_done (const struct enc_field *f ENC_UNUSED, void *member)
{
	enc_strs_done ((struct enc_strs *) member);
}

/* ---- numbers ---- */

static int store_unsigned (const struct enc_field *f, uint64_t v, uint64_t most, void *member, const struct enc_place *at,
			   struct enc_error *err)
{
	if (v > (f->max ? f->max : most) || v > most || (f->min > 0 && v < (uint64_t) f->min))
		return enc_field_bad (at, err, "out of range");
	if (f->size == sizeof (uint32_t))
		*(uint32_t *) member = (uint32_t) v;
	else
		*(uint64_t *) member = v;
	return 0;
}

static int decode_unsigned (const struct enc_field *f, const struct enc_json *j, void *member, const struct enc_place *at,
			    struct enc_error *err)
{
	uint64_t most = f->type == ENC_T_U32 ? UINT32_MAX : UINT64_MAX;
	if (enc_json_type (j) != ENC_JSON_INT)
		return enc_field_bad (at, err, "not a whole number");
	if (enc_json_i64 (j, 0) < 0)
		return enc_field_bad (at, err, "out of range");
	return store_unsigned (f, enc_json_u64 (j, 0), most, member, at, err);
}

static int decode_signed (const struct enc_field *f, const struct enc_json *j, void *member, const struct enc_place *at,
			  struct enc_error *err)
{
	bool narrow = f->type == ENC_T_INT;
	if (enc_json_type (j) != ENC_JSON_INT)
		return enc_field_bad (at, err, "not a whole number");
	int64_t v = enc_json_i64 (j, 0), least = f->min ? f->min : narrow ? INT_MIN : INT64_MIN;
	int64_t most = f->max && f->max <= INT64_MAX ? (int64_t) f->max : narrow ? INT_MAX : INT64_MAX;
	if (enc_json_u64 (j, 0) > INT64_MAX || v < least || v > most)
		return enc_field_bad (at, err, "out of range");
	if (narrow)
		*(int *) member = (int) v;
	else
		*(int64_t *) member = v;
	return 0;
}

/* Durations and sizes: a number, or text with a unit. */
static int decode_united (const struct enc_field *f, const struct enc_json *j, void *member, const struct enc_place *at,
			  struct enc_error *err)
{
	const char *s = enc_json_str (j);
	if (!s)
		return decode_unsigned (f, j, member, at, err);
	uint64_t v;
	struct enc_error why;
	int rc = f->type == ENC_T_DURATION ? enc_parse_duration (s, &v, &why) : enc_parse_size (s, &v, &why);
	if (rc < 0)
		return enc_field_bad (at, err, why.text);
	return store_unsigned (f, v, UINT64_MAX, member, at, err);
}

static uint64_t unsigned_of (const struct enc_field *f, const void *member)
{
	return f->size == sizeof (uint32_t) ? *(const uint32_t *) member : *(const uint64_t *) member;
}

static struct enc_json *of_u64 (uint64_t v)
{
	enc_auto (enc_json) struct enc_json *holder = enc_json_array ();
	if (!holder)
		return NULL;
	enc_json_add_u64 (holder, v);
	return enc_json_ref (enc_json_at (holder, 0));
}

static struct enc_json *encode_unsigned (const struct enc_field *f, const void *member)
{
	return of_u64 (unsigned_of (f, member));
}

static struct enc_json *encode_signed (const struct enc_field *f, const void *member)
{
	return enc_json_new_i64 (f->type == ENC_T_INT ? *(const int *) member : *(const int64_t *) member);
}

static bool all_zero (const struct enc_field *f, const void *member)
{
	const uint8_t *at = (const uint8_t *) member;
	for (size_t i = 0; i < f->size; i++)
		if (at[i])
			return false;
	return true;
}

static void nothing_done (const struct enc_field *f ENC_UNUSED, void *member ENC_UNUSED)
{
}

static int decode_bool (const struct enc_field *f ENC_UNUSED, const struct enc_json *j, void *member, const struct enc_place *at,
			struct enc_error *err)
{
	if (enc_json_type (j) != ENC_JSON_BOOL)
		return enc_field_bad (at, err, "not true or false");
	*(bool *) member = enc_json_bool (j);
	return 0;
}

/* A scalar that has no constructor of its own, through an object. */
static struct enc_json *taken_from (struct enc_json *object)
{
	struct enc_json *value = enc_json_ref (enc_json_get (object, "v"));
	enc_json_free (object);
	return value;
}

static struct enc_json *encode_bool (const struct enc_field *f ENC_UNUSED, const void *member)
{
	struct enc_json *o = enc_json_object ();
	enc_json_set_bool (o, "v", *(const bool *) member);
	return taken_from (o);
}

static int decode_double (const struct enc_field *f, const struct enc_json *j, void *member, const struct enc_place *at,
			  struct enc_error *err)
{
	enum enc_json_type type = enc_json_type (j);
	if (type != ENC_JSON_INT && type != ENC_JSON_DOUBLE)
		return enc_field_bad (at, err, "not a number");
	double v = enc_json_double (j, 0);
	if ((f->max && v > (double) f->max) || (f->min && v < (double) f->min))
		return enc_field_bad (at, err, "out of range");
	*(double *) member = v;
	return 0;
}

static struct enc_json *encode_double (const struct enc_field *f ENC_UNUSED, const void *member)
{
	struct enc_json *o = enc_json_object ();
	enc_json_set_double (o, "v", *(const double *) member);
	return taken_from (o);
}

static int decode_time (const struct enc_field *f ENC_UNUSED, const struct enc_json *j, void *member, const struct enc_place *at,
			struct enc_error *err)
{
	struct enc_error why;
	const char *s = enc_json_str (j);
	if (!s || enc_time_parse (s, (int64_t *) member, &why) < 0)
		return enc_field_bad (at, err, "not a time such as 2026-12-01T04:50:00Z");
	return 0;
}

static struct enc_json *encode_time (const struct enc_field *f ENC_UNUSED, const void *member)
{
	struct enc_json *o = enc_json_object ();
	enc_json_set_time (o, "v", *(const int64_t *) member);
	return taken_from (o);
}

static int decode_enum (const struct enc_field *f, const struct enc_json *j, void *member, const struct enc_place *at,
			struct enc_error *err)
{
	const char *s = enc_json_str (j);
	for (int i = 0; s && f->names[i]; i++)
		if (strcmp (f->names[i], s) == 0) {
			*(int *) member = i;
			return 0;
		}
	char what[160] = "none of:";
	for (int i = 0; f->names[i]; i++) {
		size_t len = strlen (what);
		(void) snprintf (what + len, sizeof (what) - len, " %s", f->names[i]);
	}
	return enc_field_bad (at, err, what);
}

static struct enc_json *encode_enum (const struct enc_field *f, const void *member)
{
	int v = *(const int *) member;
	for (int i = 0; f->names[i]; i++)
		if (i == v)
			return enc_json_new_str (f->names[i]);
	return NULL; /* not one of the names: the document must not be written */
}

/* ---- bytes ---- */

static int decode_bytes (const struct enc_field *f, const struct enc_json *j, void *member, const struct enc_place *at,
			 struct enc_error *err)
{
	const char *s = enc_json_str (j);
	struct enc_error why;
	int rc = f->type == ENC_T_HEX ? enc_hex_fixed (s, member, f->size, &why) : enc_base64_fixed (s, member, f->size, &why);
	return rc < 0 ? enc_field_bad (at, err, s ? why.text : "not a string") : 0;
}

static struct enc_json *encode_bytes (const struct enc_field *f, const void *member)
{
	enc_auto_free char *s = f->type == ENC_T_HEX ? enc_hex (member, f->size) : enc_base64 (member, f->size);
	return s ? enc_json_new_str (s) : NULL;
}

/* ---- structs ---- */

static int decode_object (const struct enc_field *f, const struct enc_json *j, void *member, const struct enc_place *at,
			  struct enc_error *err)
{
	return enc_fields_decode_at (f->sub, j, member, at, err);
}

static struct enc_json *encode_object (const struct enc_field *f, const void *member)
{
	return enc_json_encode (f->sub, member);
}

static bool object_empty (const struct enc_field *f, const void *member)
{
	return all_zero (f, member);
}

static void object_done (const struct enc_field *f, void *member)
{
	enc_fields_done (f->sub, member);
}

static int decode_objects (const struct enc_field *f, const struct enc_json *j, void *member, const struct enc_place *up,
			   struct enc_error *err)
{
	struct enc_list *l = (struct enc_list *) member;
	size_t n = enc_json_len (j);
	if (enc_json_type (j) != ENC_JSON_ARRAY)
		return enc_field_bad (up, err, "not a list");
	if (n > (f->max ? f->max : LIST_MAX))
		return enc_field_bad (up, err, "too many items");
	if ((int64_t) n < f->min || (f->flags & ENC_NONEMPTY && n == 0))
		return enc_field_bad (up, err, "too few items");
	if (n == 0)
		return 0;
	l->v = calloc (n, f->sub_size);
	if (!l->v)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	for (size_t i = 0; i < n; i++) {
		struct enc_place at = { .up = up, .index = i };
		l->n = i + 1; /* counted at once: what a failing item owns is freed with the rest */
		int rc = enc_fields_decode_at (f->sub, enc_json_at (j, i), (char *) l->v + i * f->sub_size, &at, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static struct enc_json *encode_objects (const struct enc_field *f, const void *member)
{
	const struct enc_list *l = (const struct enc_list *) member;
	struct enc_json *array = enc_json_array ();
	for (size_t i = 0; array && i < l->n; i++)
		enc_json_add (array, enc_json_encode (f->sub, (const char *) l->v + i * f->sub_size));
	return array;
}

static bool objects_empty (const struct enc_field *f ENC_UNUSED, const void *member)
{
	return ((const struct enc_list *) member)->n == 0;
}

static void objects_done (const struct enc_field *f, void *member)
{
	struct enc_list *l = (struct enc_list *) member;
	for (size_t i = 0; i < l->n; i++)
		enc_fields_done (f->sub, (char *) l->v + i * f->sub_size);
	free (l->v);
}

/* ---- any JSON ---- */

static int decode_json (const struct enc_field *f ENC_UNUSED, const struct enc_json *j, void *member,
			const struct enc_place *at ENC_UNUSED, struct enc_error *err ENC_UNUSED)
{
	*(struct enc_json **) member = enc_json_ref (j);
	return 0;
}

static struct enc_json *encode_json (const struct enc_field *f ENC_UNUSED, const void *member)
{
	struct enc_json *j = *(struct enc_json *const *) member;
	return j ? enc_json_ref (j) : enc_json_new_null ();
}

static void json_done (const struct enc_field *f ENC_UNUSED, void *member)
{
	enc_json_free (*(struct enc_json **) member);
}

/* ---- the table ---- */

#define STRING_KIND(pattern) { sizeof (char *), decode_string, encode_string, string_empty, string_done, "string", pattern }
#define STRINGS_KIND { sizeof (struct enc_strs), decode_strings, encode_strings, strings_empty, strings_done, "array", NULL }

static const struct enc_kind kinds[] = {
	[ENC_T_STR] = STRING_KIND (NULL),
	[ENC_T_TEXT] = STRING_KIND (NULL),
	[ENC_T_PATH] = STRING_KIND ("^/"),
	[ENC_T_NAME] = STRING_KIND ("^[a-z]([a-z0-9-]{0,29}[a-z0-9])?$"),
	[ENC_T_USER] = STRING_KIND ("^[a-z_][a-z0-9_-]{0,31}$"),
	[ENC_T_NODE] = STRING_KIND ("^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"),
	[ENC_T_ID] = STRING_KIND ("^[a-z2-7]{26}$"),
	[ENC_T_U64] = { sizeof (uint64_t), decode_unsigned, encode_unsigned, all_zero, nothing_done, "integer", NULL },
	[ENC_T_U32] = { sizeof (uint32_t), decode_unsigned, encode_unsigned, all_zero, nothing_done, "integer", NULL },
	[ENC_T_I64] = { sizeof (int64_t), decode_signed, encode_signed, all_zero, nothing_done, "integer", NULL },
	[ENC_T_INT] = { sizeof (int), decode_signed, encode_signed, all_zero, nothing_done, "integer", NULL },
	[ENC_T_BOOL] = { sizeof (bool), decode_bool, encode_bool, all_zero, nothing_done, "boolean", NULL },
	[ENC_T_DOUBLE] = { sizeof (double), decode_double, encode_double, all_zero, nothing_done, "number", NULL },
	[ENC_T_DURATION] = { sizeof (uint64_t), decode_united, encode_unsigned, all_zero, nothing_done, NULL, NULL },
	[ENC_T_SIZE] = { sizeof (uint64_t), decode_united, encode_unsigned, all_zero, nothing_done, NULL, NULL },
	[ENC_T_TIME] = { sizeof (int64_t), decode_time, encode_time, all_zero, nothing_done, "string", NULL },
	[ENC_T_ENUM] = { sizeof (int), decode_enum, encode_enum, all_zero, nothing_done, "string", NULL },
	[ENC_T_HEX] = { 0, decode_bytes, encode_bytes, all_zero, nothing_done, "string", "^([0-9a-f]{2})*$" },
	[ENC_T_B64] = { 0, decode_bytes, encode_bytes, all_zero, nothing_done, "string", NULL },
	[ENC_T_STRS] = STRINGS_KIND,
	[ENC_T_NAMES] = STRINGS_KIND,
	[ENC_T_USERS] = STRINGS_KIND,
	[ENC_T_NODES] = STRINGS_KIND,
	[ENC_T_PATHS] = STRINGS_KIND,
	[ENC_T_OBJ] = { 0, decode_object, encode_object, object_empty, object_done, "object", NULL },
	[ENC_T_OBJS] = { sizeof (struct enc_list), decode_objects, encode_objects, objects_empty, objects_done, "array", NULL },
	[ENC_T_JSON] = { sizeof (struct enc_json *), decode_json, encode_json, string_empty, json_done, NULL, NULL },
};

const struct enc_kind *enc_field_kind (const struct enc_field *f)
{
	/* A table that does not fit its struct would write beyond members: stop at the first use, in every build. */
	if (f->type <= ENC_T_END || f->type >= ENC_ARRAY_LEN (kinds) || (kinds[f->type].size && kinds[f->type].size != f->size))
		abort ();
	return &kinds[f->type];
}

static void schema_bounds (const struct enc_field *f, const char *type, struct enc_json *s)
{
	bool text = enc_streq (type, "string"), list = enc_streq (type, "array");
	if (f->min)
		enc_json_set_i64 (s, text ? "minLength" : list ? "minItems" : "minimum", f->min);
	if (f->max)
		enc_json_set_u64 (s, text ? "maxLength" : list ? "maxItems" : "maximum", f->max);
}

struct enc_json *enc_field_schema (const struct enc_field *f)
{
	const struct enc_kind *kind = enc_field_kind (f);
	if (f->type == ENC_T_OBJ)
		return enc_fields_schema (f->sub);
	struct enc_json *s = enc_json_object ();
	if (!s)
		return NULL;
	if (kind->schema_type)
		enc_json_set_str (s, "type", kind->schema_type);
	if (kind->schema_pattern)
		enc_json_set_str (s, "pattern", kind->schema_pattern);
	if (f->type == ENC_T_OBJS)
		enc_json_set (s, "items", enc_fields_schema (f->sub));
	if (f->type == ENC_T_ENUM) {
		struct enc_json *names = enc_json_set_array (s, "enum");
		for (size_t i = 0; f->names[i]; i++)
			enc_json_add_str (names, f->names[i]);
	} else {
		schema_bounds (f, kind->schema_type, s);
	}
	if (f->dflt) {
		struct enc_json *value = enc_json_parse (f->dflt, strlen (f->dflt), ENC_JSON_MAX_DEFAULT, NULL);
		enc_json_set (s, "default", value);
	}
	if (f->help)
		enc_json_set_str (s, "description", f->help);
	return s;
}
