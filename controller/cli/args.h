/* Arguments of a command by table: `NAME` words in order, options in any place. The usage text comes from the same table. */
#ifndef ENC_CLI_ARGS_H
#define ENC_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/json.h"

enum enc_arg_kind {
	ENC_ARG_END = 0,
	ENC_ARG_FLAG,     /* --now */
	ENC_ARG_TEXT,
	ENC_ARG_NAME,     /* enclave, volume, dataset, recipe */
	ENC_ARG_USER,
	ENC_ARG_NODE,
	ENC_ARG_NODES,    /* a number, or a host list */
	ENC_ARG_DURATION, /* "14d"; put as integer seconds under KEY_s */
	ENC_ARG_NUMBER,
	ENC_ARG_CHOICE,   /* one of `choices`, separated by '|' */
	ENC_ARG_MEMBER,   /* USER[:ROLE] → {"user","role"} */
	ENC_ARG_VOLUME,   /* NAME:SIZE[:scratch|project] → {"name","size_bytes","kind"} */
	ENC_ARG_PATH,
};

enum {
	ENC_ARG_REQUIRED = 1,
	ENC_ARG_LIST = 2,   /* may be given again; a JSON array */
	ENC_ARG_WORD = 4,   /* a positional word, in the table's order */
};

struct enc_arg {
	const char *name;    /* "nodes" for --nodes; of a word: what usage shows, such as "NAME" */
	const char *key;     /* member of the parsed object; NULL: name */
	enum enc_arg_kind kind;
	unsigned flags;
	const char *choices; /* of ENC_ARG_CHOICE */
	const char *value;   /* what usage shows for the value; NULL: "VALUE" */
};

/* Parse words into an object of typed members. Unknown, doubled and missing arguments are -ENC_EUSAGE. A value that is malformed goes to the
 * controller as it came, since every refusal is to be on record there; `doubt` then says what is wrong with it, for when the controller
 * cannot be asked. Caller frees. */
struct enc_json *enc_args_parse (const struct enc_arg *table, int argc, char **argv, struct enc_error *doubt, struct enc_error *err) ENC_MUST_USE;

/* "create NAME --nodes N|HOSTLIST …" to stdout-ready text; heap. */
char *enc_args_usage (const char *command, const struct enc_arg *table) ENC_MUST_USE;

#endif
