#ifndef ENC_CRYPTO_EVENT_H
#define ENC_CRYPTO_EVENT_H

#include "base/error.h"
#include "base/json.h"

#include <stddef.h>

/* The vocabulary of the audit log: every event that any process may record,
 * and every field that a record may have. auditd refuses the rest. */

enum enc_event_flag {
	ENC_EVENT_SIGN = 1,	/* a checkpoint is made at once, without waiting for the interval */
	ENC_EVENT_RESERVE = 2,	/* may use the space kept back for when the disk is full */
	ENC_EVENT_INTERNAL = 4, /* auditd's own: refused from everybody else */
};

struct enc_event {
	const char *cls;
	const char *action;
	const char *severity; /* default: info, notice, warning, alert */
	unsigned flags;	      /* enum enc_event_flag */
	const char *needs;    /* required fields, separated by blanks: "obj.node data.level" */
	const char *data;     /* members that `data` may have, separated by blanks */
	const char *text;     /* what it means, for people */
};

/* NULL when there is no such event. */
const struct enc_event *enc_event_find (const char *cls, const char *action);
/* All of them, in the table's order; NULL past the end. */
const struct enc_event *enc_event_at (size_t i);

/* The fields of a record: "actor.user", "peer.ip" and so on. */
enum enc_event_type {
	ENC_EV_WORD,	/* [A-Za-z0-9._:/@+-]+ */
	ENC_EV_LINE,	/* one line of text without control or invisible characters */
	ENC_EV_CLAIMED, /* as LINE, but said by a stranger: cleaned, cut and marked instead of refused */
	ENC_EV_HEX,	/* exactly 64 lower-case hex digits */
	ENC_EV_TIME,	/* RFC 3339 UTC with Z */
	ENC_EV_INT,	/* integer, within ±(2^53-1) */
	ENC_EV_BOOL,
	ENC_EV_ITEMS, /* list of flat objects: word → word, line, integer or boolean */
	ENC_EV_TEXT,  /* free text, never stored in the log */
};
struct enc_event_field {
	const char *path;
	enum enc_event_type type;
	unsigned max; /* bytes; items for ENC_EV_ITEMS */
};
const struct enc_event_field *enc_event_field_at (size_t i);

/* Check a record as a producer gives it, before anything is added. Claimed
 * strings are cleaned in place and "cleaned":true is set. Returns its event in
 * `ret`. ENC_EINVAL with the pointer of what is unknown, missing or malformed. */
int enc_event_check (struct enc_json *record, const struct enc_event **ret, struct enc_error *err) ENC_MUST_USE;

#endif
