/* Values: reading, building, comparing. Parsing is in json_parse.c, writing in json_write.c. Only these include json-c. */
#include <stdio.h>
#include <string.h>
#include "base/enctime.h"
#include "base/json_dom.h"
#include "base/str.h"
#include "base/enc.h"

const char enc_json_null_value[1] = "n";
static const char broken[1] = "b";

void enc_json_free (struct enc_json *j)
{
	struct json_object *o = enc_json_dom (j);
	if (o)
		(void) json_object_put (o);
}

struct enc_json *enc_json_ref (const struct enc_json *j)
{
	struct json_object *o = enc_json_dom (j);
	if (o)
		(void) json_object_get (o);
	return (struct enc_json *) (uintptr_t) j;
}

enum enc_json_type enc_json_type (const struct enc_json *j)
{
	static const enum enc_json_type types[] = {
		[json_type_null] = ENC_JSON_NULL,     [json_type_boolean] = ENC_JSON_BOOL, [json_type_double] = ENC_JSON_DOUBLE,
		[json_type_int] = ENC_JSON_INT,       [json_type_object] = ENC_JSON_OBJECT, [json_type_array] = ENC_JSON_ARRAY,
		[json_type_string] = ENC_JSON_STRING,
	};
	return j ? types[json_object_get_type (enc_json_dom (j))] : ENC_JSON_NONE;
}

/* ---- read ---- */

struct enc_json *enc_json_get (const struct enc_json *j, const char *key)
{
	struct json_object *value = NULL;
	if (enc_json_type (j) != ENC_JSON_OBJECT || !json_object_object_get_ex (enc_json_dom (j), key, &value))
		return NULL;
	return enc_json_wrap (value);
}

struct enc_json *enc_json_at (const struct enc_json *j, size_t i)
{
	if (enc_json_type (j) != ENC_JSON_ARRAY || i >= json_object_array_length (enc_json_dom (j)))
		return NULL;
	return enc_json_wrap (json_object_array_get_idx (enc_json_dom (j), i));
}

size_t enc_json_len (const struct enc_json *j)
{
	if (enc_json_type (j) == ENC_JSON_OBJECT)
		return (size_t) json_object_object_length (enc_json_dom (j));
	return enc_json_type (j) == ENC_JSON_ARRAY ? json_object_array_length (enc_json_dom (j)) : 0;
}

bool enc_json_next (const struct enc_json *object, struct enc_json_iter *it)
{
	if (enc_json_type (object) != ENC_JSON_OBJECT)
		return false;
	struct lh_entry *e = it->at ? lh_entry_next ((struct lh_entry *) it->at) : json_object_get_object (enc_json_dom (object))->head;
	if (!e)
		return false;
	it->at = e;
	it->key = (const char *) lh_entry_k (e);
	it->value = enc_json_wrap ((struct json_object *) lh_entry_v (e));
	return true;
}

/* One token of a pointer: "~1" is '/', "~0" is '~'. */
static bool token_is (const char *token, size_t len, char *out, size_t size)
{
	size_t n = 0;
	for (size_t i = 0; i < len; i++) {
		if (n + 1 >= size)
			return false;
		if (token[i] == '~' && i + 1 < len && (token[i + 1] == '0' || token[i + 1] == '1'))
			out[n++] = token[++i] == '0' ? '~' : '/';
		else
			out[n++] = token[i];
	}
	out[n] = 0;
	return true;
}

struct enc_json *enc_json_find (const struct enc_json *j, const char *pointer)
{
	while (j && *pointer == '/') {
		const char *end = strchrnul (pointer + 1, '/');
		char key[256];
		if (!token_is (pointer + 1, (size_t) (end - pointer - 1), key, sizeof (key)))
			return NULL;
		uint64_t i;
		if (enc_json_type (j) == ENC_JSON_ARRAY)
			j = enc_parse_u64 (key, 0, UINT32_MAX, &i, NULL) == 0 ? enc_json_at (j, i) : NULL;
		else
			j = enc_json_get (j, key);
		pointer = end;
	}
	return *pointer ? NULL : (struct enc_json *) (uintptr_t) j;
}

const char *enc_json_str (const struct enc_json *j)
{
	return enc_json_type (j) == ENC_JSON_STRING ? json_object_get_string (enc_json_dom (j)) : NULL;
}

bool enc_json_bool (const struct enc_json *j)
{
	return enc_json_type (j) == ENC_JSON_BOOL && json_object_get_boolean (enc_json_dom (j));
}

/* json-c keeps integers as int64 or, above it, uint64, and clamps on reading. */
static bool above_i64 (const struct enc_json *j)
{
	return json_object_get_uint64 (enc_json_dom (j)) > INT64_MAX;
}

int64_t enc_json_i64 (const struct enc_json *j, int64_t fallback)
{
	if (enc_json_type (j) != ENC_JSON_INT || above_i64 (j))
		return fallback;
	return json_object_get_int64 (enc_json_dom (j));
}

uint64_t enc_json_u64 (const struct enc_json *j, uint64_t fallback)
{
	if (enc_json_type (j) != ENC_JSON_INT || json_object_get_int64 (enc_json_dom (j)) < 0)
		return fallback;
	return json_object_get_uint64 (enc_json_dom (j));
}

double enc_json_double (const struct enc_json *j, double fallback)
{
	enum enc_json_type type = enc_json_type (j);
	return type == ENC_JSON_INT || type == ENC_JSON_DOUBLE ? json_object_get_double (enc_json_dom (j)) : fallback;
}

static const char *const type_names[] = { "nothing", "null", "true or false", "a whole number", "a number", "a string", "a list", "an object" };

int enc_json_need (const struct enc_json *j, const char *key, enum enc_json_type type, struct enc_json **ret, struct enc_error *err)
{
	struct enc_json *value = enc_json_get (j, key);
	if (!value)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/%s: missing", key), "/%s", key);
	if (enc_json_type (value) != type)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/%s: not %s", key, type_names[type]), "/%s", key);
	*ret = value;
	return 0;
}

int enc_json_need_str (const struct enc_json *j, const char *key, const char **ret, struct enc_error *err)
{
	struct enc_json *value;
	int rc = enc_json_need (j, key, ENC_JSON_STRING, &value, err);
	if (rc == 0)
		*ret = enc_json_str (value);
	return rc;
}

int enc_json_need_u64 (const struct enc_json *j, const char *key, uint64_t max, uint64_t *ret, struct enc_error *err)
{
	struct enc_json *value;
	int rc = enc_json_need (j, key, ENC_JSON_INT, &value, err);
	if (rc < 0)
		return rc;
	uint64_t v = enc_json_u64 (value, 0);
	if (json_object_get_int64 (enc_json_dom (value)) < 0 || v > max)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/%s: out of range", key), "/%s", key);
	*ret = v;
	return 0;
}

const char *enc_json_get_str (const struct enc_json *j, const char *key, const char *fallback)
{
	const char *s = enc_json_str (enc_json_get (j, key));
	return s ? s : fallback;
}

uint64_t enc_json_get_u64 (const struct enc_json *j, const char *key, uint64_t fallback)
{
	return enc_json_u64 (enc_json_get (j, key), fallback);
}

int64_t enc_json_get_i64 (const struct enc_json *j, const char *key, int64_t fallback)
{
	return enc_json_i64 (enc_json_get (j, key), fallback);
}

bool enc_json_get_bool (const struct enc_json *j, const char *key, bool fallback)
{
	struct enc_json *value = enc_json_get (j, key);
	return enc_json_type (value) == ENC_JSON_BOOL ? enc_json_bool (value) : fallback;
}

bool enc_json_equal (const struct enc_json *a, const struct enc_json *b)
{
	if (!a || !b)
		return a == b;
	return json_object_equal (enc_json_dom (a), enc_json_dom (b)) != 0;
}

struct enc_json *enc_json_copy (const struct enc_json *j)
{
	struct json_object *copy = NULL;
	if (!enc_json_dom (j))
		return (struct enc_json *) (uintptr_t) j;
	return json_object_deep_copy (enc_json_dom (j), &copy, NULL) == 0 ? enc_json_wrap (copy) : NULL;
}

/* ---- build ---- */

void enc_json_mark (struct enc_json *j)
{
	struct json_object *o = enc_json_dom (j);
	if (o)
		json_object_set_userdata (o, (void *) (uintptr_t) broken, NULL);
}

bool enc_json_marked (const struct enc_json *j)
{
	struct json_object *o = enc_json_dom (j);
	if (!o)
		return j == NULL;
	if (json_object_get_userdata (o) == broken)
		return true;
	for (size_t i = 0; i < (enc_json_type (j) == ENC_JSON_ARRAY ? enc_json_len (j) : 0); i++)
		if (enc_json_marked (enc_json_at (j, i)))
			return true;
	struct enc_json_iter it = { 0 };
	while (enc_json_next (j, &it))
		if (enc_json_marked (it.value))
			return true;
	return false;
}

static struct enc_json *or_none (struct json_object *o)
{
	return o ? enc_json_wrap (o) : NULL;
}

struct enc_json *enc_json_object (void)
{
	return or_none (json_object_new_object ());
}

struct enc_json *enc_json_array (void)
{
	return or_none (json_object_new_array ());
}

struct enc_json *enc_json_new_null (void)
{
	return enc_json_wrap (NULL);
}

struct enc_json *enc_json_new_str (const char *s)
{
	if (!s)
		return enc_json_new_null ();
	size_t len = strlen (s);
	if (len > INT32_MAX / 2 || !enc_utf8_ok (s, len))
		return NULL;
	return or_none (json_object_new_string_len (s, (int) len));
}

struct enc_json *enc_json_new_i64 (int64_t v)
{
	return or_none (json_object_new_int64 (v));
}

void enc_json_set (struct enc_json *object, const char *key, struct enc_json *value)
{
	if (!value || enc_json_type (object) != ENC_JSON_OBJECT || !enc_utf8_ok (key, strlen (key)) ||
	    json_object_object_add (enc_json_dom (object), key, enc_json_dom (value)) < 0) {
		enc_json_mark (object);
		enc_json_free (value);
	}
}

void enc_json_set_str (struct enc_json *object, const char *key, const char *s)
{
	enc_json_set (object, key, enc_json_new_str (s));
}

void enc_json_set_strf (struct enc_json *object, const char *key, const char *fmt, ...)
{
	enc_auto_free char *s = NULL;
	va_list ap;
	va_start (ap, fmt);
	int n = vasprintf (&s, fmt, ap);
	va_end (ap);
	if (n < 0) {
		s = NULL;
		enc_json_mark (object);
	}
	enc_json_set_str (object, key, s);
}

void enc_json_set_u64 (struct enc_json *object, const char *key, uint64_t v)
{
	enc_json_set (object, key, or_none (json_object_new_uint64 (v)));
}

void enc_json_set_i64 (struct enc_json *object, const char *key, int64_t v)
{
	enc_json_set (object, key, enc_json_new_i64 (v));
}

void enc_json_set_double (struct enc_json *object, const char *key, double v)
{
	/* JSON has no NaN and no infinity; three decimals are what times need, and 0.1 stays "0.1". */
	char text[64];
	(void) snprintf (text, sizeof (text), "%.3f", v);
	if (!(v - v == 0)) {
		enc_json_set_null (object, key);
		return;
	}
	size_t len = strlen (text);
	while (len > 1 && text[len - 1] == '0' && text[len - 2] != '.')
		text[--len] = 0;
	enc_json_set (object, key, or_none (json_object_new_double_s (v, text)));
}

void enc_json_set_bool (struct enc_json *object, const char *key, bool v)
{
	enc_json_set (object, key, or_none (json_object_new_boolean (v)));
}

void enc_json_set_null (struct enc_json *object, const char *key)
{
	enc_json_set (object, key, enc_json_new_null ());
}

void enc_json_set_time (struct enc_json *object, const char *key, int64_t wall_ns)
{
	char text[ENC_TIME_SIZE];
	enc_json_set_str (object, key, wall_ns ? enc_time_format (wall_ns, wall_ns % ENC_NS_S != 0, text) : NULL);
}

void enc_json_del (struct enc_json *object, const char *key)
{
	if (enc_json_type (object) == ENC_JSON_OBJECT)
		json_object_object_del (enc_json_dom (object), key);
}

struct enc_json *enc_json_set_object (struct enc_json *object, const char *key)
{
	enc_json_set (object, key, enc_json_object ());
	return enc_json_get (object, key);
}

struct enc_json *enc_json_set_array (struct enc_json *object, const char *key)
{
	enc_json_set (object, key, enc_json_array ());
	return enc_json_get (object, key);
}

void enc_json_add (struct enc_json *array, struct enc_json *value)
{
	if (!value || enc_json_type (array) != ENC_JSON_ARRAY || json_object_array_add (enc_json_dom (array), enc_json_dom (value)) < 0) {
		enc_json_mark (array);
		enc_json_free (value);
	}
}

void enc_json_add_str (struct enc_json *array, const char *s)
{
	enc_json_add (array, enc_json_new_str (s));
}

void enc_json_add_u64 (struct enc_json *array, uint64_t v)
{
	enc_json_add (array, or_none (json_object_new_uint64 (v)));
}

struct enc_json *enc_json_add_object (struct enc_json *array)
{
	enc_json_add (array, enc_json_object ());
	return enc_json_at (array, enc_json_len (array) - 1);
}
