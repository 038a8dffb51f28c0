/* Between fields.c and fields_kinds.c alone. */
#ifndef ENC_BASE_FIELDS_KINDS_H
#define ENC_BASE_FIELDS_KINDS_H

#include "base/fields.h"

/* Where decoding stands, as a chain towards the root (whose `up` is NULL): the JSON pointer without memory. */
struct enc_place {
	const struct enc_place *up;
	const char *key; /* NULL: index */
	size_t index;
};

struct enc_kind {
	size_t size; /* of the member, 0 = any */
	int (*decode) (const struct enc_field *f, const struct enc_json *j, void *member, const struct enc_place *at, struct enc_error *err);
	struct enc_json *(*encode) (const struct enc_field *f, const void *member);
	bool (*empty) (const struct enc_field *f, const void *member);
	void (*done) (const struct enc_field *f, void *member);
	const char *schema_type;
	const char *schema_pattern;
};

/* The kind of a field; a member of another size than the kind needs is a programming error and aborts. */
const struct enc_kind *enc_field_kind (const struct enc_field *f);
int enc_field_bad (const struct enc_place *at, struct enc_error *err, const char *what);
int enc_fields_decode_at (const struct enc_field *table, const struct enc_json *j, void *ret, const struct enc_place *at,
			  struct enc_error *err);
struct enc_json *enc_field_schema (const struct enc_field *f);

#endif
