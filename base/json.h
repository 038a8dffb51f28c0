/* JSON values: strict parsing, light access, building, writing. json-c stands behind it and is seen nowhere else.
 *
 * Parsing accepts RFC 8259 and refuses: text over the byte cap, nesting over 16, duplicate keys (compared after unescaping),
 * text that is not UTF-8, NUL in strings, lone surrogates, integers beyond 64 bits, anything after the value.
 * Errors are ENC_EINVAL (ENC_ELIMIT for size and depth) with "line N: …" in the text and the place in err->pointer.
 *
 * Ownership: a root is freed by enc_json_free(); what getters return is borrowed from its root; what is set or added is taken
 * over by its parent, also when the call fails. JSON null is a value: enc_json_get() gives NULL only for "absent". */
#ifndef ENC_BASE_JSON_H
#define ENC_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"

#define ENC_JSON_DEPTH 16
#define ENC_JSON_MAX_DEFAULT (1024 * 1024)

struct enc_json;

enum enc_json_type {
	ENC_JSON_NONE, /* of a NULL pointer */
	ENC_JSON_NULL,
	ENC_JSON_BOOL,
	ENC_JSON_INT,
	ENC_JSON_DOUBLE,
	ENC_JSON_STRING,
	ENC_JSON_ARRAY,
	ENC_JSON_OBJECT
};

/* ---- parse and free ---- */

/* NULL on failure. `max` is the byte cap. */
struct enc_json *enc_json_parse (const char *text, size_t len, size_t max, struct enc_error *err) ENC_MUST_USE;
/* A whole file, its name in the error text. */
struct enc_json *enc_json_load (const char *path, size_t max, struct enc_error *err) ENC_MUST_USE;
/* The line (from 1) on which the value at a JSON pointer starts in `text`, 0 if it is not there. For messages about values
 * that parse but are refused later: an unknown key, a wrong range. */
unsigned enc_json_line (const char *text, size_t len, const char *pointer);
void enc_json_free (struct enc_json *j);
/* Another owner of the same value, freed once more; shared values must not be changed. NULL gives NULL. */
struct enc_json *enc_json_ref (const struct enc_json *j);
/* A deep copy, NULL when memory is short. */
struct enc_json *enc_json_copy (const struct enc_json *j) ENC_MUST_USE;
bool enc_json_equal (const struct enc_json *a, const struct enc_json *b);
ENC_DEFINE_AUTO (enc_json, struct enc_json, enc_json_free);

/* ---- read ---- */

enum enc_json_type enc_json_type (const struct enc_json *j);
/* Member of an object, item of an array; NULL if absent or `j` is something else (also NULL). */
struct enc_json *enc_json_get (const struct enc_json *j, const char *key);
struct enc_json *enc_json_at (const struct enc_json *j, size_t i);
/* Number of members or items, 0 for the rest. */
size_t enc_json_len (const struct enc_json *j);
/* By JSON pointer ("/nodes/0/name"; "" is j itself). */
struct enc_json *enc_json_find (const struct enc_json *j, const char *pointer);

/* Loop over an object: struct enc_json_iter it = { 0 }; while (enc_json_next (j, &it)) … it.key, it.value … */
struct enc_json_iter {
	const char *key;
	struct enc_json *value;
	void *at;
};
bool enc_json_next (const struct enc_json *object, struct enc_json_iter *it);

/* The value, or the fallback if it has another type. */
const char *enc_json_str (const struct enc_json *j); /* NULL */
bool enc_json_bool (const struct enc_json *j);       /* false */
int64_t enc_json_i64 (const struct enc_json *j, int64_t fallback);
uint64_t enc_json_u64 (const struct enc_json *j, uint64_t fallback);
double enc_json_double (const struct enc_json *j, double fallback); /* integers too */

/* Required members of an object; ENC_EINVAL with pointer "/key" if absent or of another type or out of range. */
ENC_MUST_USE int enc_json_need_str (const struct enc_json *j, const char *key, const char **ret, struct enc_error *err);
ENC_MUST_USE int enc_json_need_u64 (const struct enc_json *j, const char *key, uint64_t max, uint64_t *ret, struct enc_error *err);
ENC_MUST_USE int enc_json_need (const struct enc_json *j, const char *key, enum enc_json_type type, struct enc_json **ret,
				struct enc_error *err);
/* Optional members: the fallback when absent, null or of another type. */
const char *enc_json_get_str (const struct enc_json *j, const char *key, const char *fallback);
uint64_t enc_json_get_u64 (const struct enc_json *j, const char *key, uint64_t fallback);
int64_t enc_json_get_i64 (const struct enc_json *j, const char *key, int64_t fallback);
bool enc_json_get_bool (const struct enc_json *j, const char *key, bool fallback);

/* ---- build ----
 * No call needs checking: a failure (memory, text that is not UTF-8) marks the value, and writing it fails. */

struct enc_json *enc_json_object (void);
struct enc_json *enc_json_array (void);
struct enc_json *enc_json_new_str (const char *s); /* NULL gives null */
struct enc_json *enc_json_new_i64 (int64_t v);
struct enc_json *enc_json_new_null (void);

void enc_json_set (struct enc_json *object, const char *key, struct enc_json *value); /* takes value; replaces */
void enc_json_set_str (struct enc_json *object, const char *key, const char *s);      /* NULL gives null */
void enc_json_set_strf (struct enc_json *object, const char *key, const char *fmt, ...) ENC_PRINTF (3, 4);
void enc_json_set_u64 (struct enc_json *object, const char *key, uint64_t v);
void enc_json_set_i64 (struct enc_json *object, const char *key, int64_t v);
void enc_json_set_double (struct enc_json *object, const char *key, double v);
void enc_json_set_bool (struct enc_json *object, const char *key, bool v);
void enc_json_set_null (struct enc_json *object, const char *key);
/* RFC 3339 with Z; 0 gives null. */
void enc_json_set_time (struct enc_json *object, const char *key, int64_t wall_ns);
void enc_json_del (struct enc_json *object, const char *key);
/* A new empty child, borrowed, to be filled further. */
struct enc_json *enc_json_set_object (struct enc_json *object, const char *key);
struct enc_json *enc_json_set_array (struct enc_json *object, const char *key);

void enc_json_add (struct enc_json *array, struct enc_json *value); /* takes value */
void enc_json_add_str (struct enc_json *array, const char *s);
void enc_json_add_u64 (struct enc_json *array, uint64_t v);
struct enc_json *enc_json_add_object (struct enc_json *array);

/* ---- write ---- */

/* Compact, members in the order they were set. Heap with NUL; NULL on a marked value or no memory. `ret_len` may be NULL. */
char *enc_json_write (const struct enc_json *j, size_t *ret_len, struct enc_error *err) ENC_MUST_USE;
/* Indented, for people. */
char *enc_json_pretty (const struct enc_json *j, struct enc_error *err) ENC_MUST_USE;
/* RFC 8785 for what is signed and hashed: keys sorted, no blanks, shortest escapes. Only integers within ±(2^53-1), ASCII keys;
 * ENC_EINVAL else. Appends to `out`. */
ENC_MUST_USE int enc_json_canonical (const struct enc_json *j, struct enc_buf *out, struct enc_error *err);
/* Parse and demand that the text *is* the canonical form of its value: one signature, one text. ENC_EINTEGRITY if not. */
struct enc_json *enc_json_parse_canonical (const char *text, size_t len, size_t max, struct enc_error *err) ENC_MUST_USE;

/* ---- errors as JSON ---- */

/* {"error":{"code","step","object","text","next"}} and "pointer" when there is one; empty fields are null. */
struct enc_json *enc_json_of_error (const struct enc_error *err) ENC_MUST_USE;
/* If `j` is such a document fill `err` and return its negative code, else 0. */
int enc_json_to_error (const struct enc_json *j, struct enc_error *err);

#endif
