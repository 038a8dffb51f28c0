/* Field tables: one table per struct, read like a schema; it decodes, encodes, frees and documents.
 *
 *   struct grant { char *node; uint64_t ttl_s; struct enc_strs peers; };
 *   static const struct enc_field grant_fields[] = {
 *           ENC_FIELD (struct grant, node, "node", ENC_T_NODE, .flags = ENC_REQUIRED),
 *           ENC_FIELD (struct grant, ttl_s, "ttl_s", ENC_T_DURATION, .max = 86400, .dflt = "3600"),
 *           ENC_FIELD (struct grant, peers, "peers", ENC_T_NODES, .max = 5000),
 *           ENC_FIELD_END };
 *   enc_auto_done (…) struct grant g = { 0 };
 *   rc = enc_json_decode (grant_fields, json, &g, err);   …   enc_fields_done (grant_fields, &g);
 *
 * Decoding refuses unknown keys, wrong types, values out of range and required members that are absent: ENC_EINVAL with the JSON
 * pointer in err->pointer and in the text ("/peers/3: not a node name"). On failure the struct is zeroed and owns nothing. */
#ifndef ENC_BASE_FIELDS_H
#define ENC_BASE_FIELDS_H

#include "base/json.h"
#include "base/str.h"

enum enc_field_type {
	ENC_T_END = 0,
	/* char *, heap, NULL when absent. min and max are bytes; max 0 means the default in brackets. */
	ENC_T_STR,  /* any UTF-8 [4096] */
	ENC_T_TEXT, /* one line for people: no control or invisible characters (enc_text_ok) [1024] */
	ENC_T_PATH, /* absolute, no "..", no "//" [4096] */
	ENC_T_NAME, /* enclave, volume, dataset, recipe */
	ENC_T_USER,
	ENC_T_NODE,
	ENC_T_ID,   /* 26 characters base32 */
	/* numbers; max 0 means the type's largest. JSON integers. */
	ENC_T_U64,      /* uint64_t */
	ENC_T_I64,      /* int64_t */
	ENC_T_U32,      /* uint32_t */
	ENC_T_INT,      /* int */
	ENC_T_BOOL,     /* bool */
	ENC_T_DOUBLE,   /* double */
	ENC_T_DURATION, /* uint64_t seconds: integer, or a string "14d"; written as integer */
	ENC_T_SIZE,     /* uint64_t bytes: integer, or a string "100G"; written as integer */
	ENC_T_TIME,     /* int64_t wall ns: RFC 3339 string; 0 is written as null */
	ENC_T_ENUM,     /* int: index into .names (NULL-ended) */
	/* bytes */
	ENC_T_HEX,      /* uint8_t[n], exactly n bytes in hex, n = sizeof member */
	ENC_T_B64,      /* uint8_t[n], exactly n bytes in base64 */
	/* lists; max is the number of items [1024] */
	ENC_T_STRS,  /* struct enc_strs of any UTF-8 */
	ENC_T_NAMES, ENC_T_USERS, ENC_T_NODES, ENC_T_PATHS, /* struct enc_strs */
	ENC_T_OBJ,  /* embedded struct with table .sub */
	ENC_T_OBJS, /* struct enc_list of structs with table .sub */
	ENC_T_JSON  /* struct enc_json *, any value, a reference */
};

enum {
	ENC_REQUIRED = 1,   /* must be there and not null */
	ENC_OMIT = 2,       /* not written when zero, empty or NULL (default: written as null, 0, false or []) */
	ENC_NONEMPTY = 4,   /* a list with at least one item, a string with at least one byte */
	ENC_HIDDEN = 8      /* never written by --check-config */
};

struct enc_field {
	const char *key;
	enum enc_field_type type;
	unsigned flags;
	size_t offset;
	size_t size; /* of the member; checked against the type */
	int64_t min;
	uint64_t max;
	const char *dflt;              /* JSON text taken when the key is absent or null */
	const char *const *names;      /* of ENC_T_ENUM */
	const struct enc_field *sub;   /* of ENC_T_OBJ, ENC_T_OBJS */
	size_t sub_size;               /* of ENC_T_OBJS: sizeof one item */
	const char *help;              /* one line, for man page and --check-config */
};

/* The tail is designated initialisers: .flags .min .max .dflt .names .sub .sub_size .help */
#define ENC_FIELD(struct_, member_, key_, type_, ...)                                                                  \
	{ .key = (key_), .type = (type_), .offset = offsetof (struct_, member_), .size = sizeof (((struct_ *) 0)->member_), ##__VA_ARGS__ }
#define ENC_FIELD_END { .type = ENC_T_END }

/* An array of structs; v is one heap block of n items. */
struct enc_list {
	void *v;
	size_t n;
};

ENC_MUST_USE int enc_json_decode (const struct enc_field *table, const struct enc_json *j, void *ret, struct enc_error *err);
/* Parse and decode in one call; an error has the line. For messages and files of unknown origin. */
ENC_MUST_USE int enc_json_decode_text (const struct enc_field *table, const char *text, size_t len, size_t max, void *ret,
				       struct enc_error *err);
/* A new object; NULL only when memory is short (also a marked value is possible, as in json.h). */
struct enc_json *enc_json_encode (const struct enc_field *table, const void *from) ENC_MUST_USE;
/* Set the table's members into an object that is there. */
void enc_json_encode_into (const struct enc_field *table, const void *from, struct enc_json *object);
/* All defaults set, nothing else: what decoding {} gives, required members left zero. */
ENC_MUST_USE int enc_fields_defaults (const struct enc_field *table, void *ret, struct enc_error *err);
/* Free what the struct owns and zero it. */
void enc_fields_done (const struct enc_field *table, void *of);
/* A JSON Schema of the table (2020-12 subset), for policies/schema and docs. */
struct enc_json *enc_fields_schema (const struct enc_field *table) ENC_MUST_USE;

#endif
