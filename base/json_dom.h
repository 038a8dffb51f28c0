/* Shared by json*.c alone: how values lie in json-c objects.
 *
 * JSON null is NULL inside json-c; towards callers it is a sentinel, so that "absent" and "null" differ. A failure while building
 * (memory, bad text) marks the container through its userdata; writing walks the tree and fails on a mark. */
#ifndef ENC_BASE_JSON_DOM_H
#define ENC_BASE_JSON_DOM_H

#include <json-c/json.h>
#include "base/json.h"

extern const char enc_json_null_value[1];

static inline struct enc_json *enc_json_wrap (struct json_object *o)
{
	return o ? (struct enc_json *) (void *) o : (struct enc_json *) (uintptr_t) enc_json_null_value;
}

/* The json-c object; NULL for NULL and for the null value. */
static inline struct json_object *enc_json_dom (const struct enc_json *j)
{
	return (uintptr_t) j == (uintptr_t) enc_json_null_value ? NULL : (struct json_object *) (uintptr_t) j;
}

/* Mark a value as broken. NULL is allowed. */
void enc_json_mark (struct enc_json *j);
/* True if any part is marked. */
bool enc_json_marked (const struct enc_json *j);

#endif
