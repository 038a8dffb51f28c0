#ifndef ENC_AUDITD_RECORD_H
#define ENC_AUDITD_RECORD_H

#include "base/buf.h"
#include "base/enctime.h"
#include "base/json.h"
#include "crypto/event.h"

/* From what a producer says to the body that is stored: checked against the
 * vocabulary, completed by what only auditd knows, in canonical form. */

#define ENC_RECORD_VERSION 1
#define ENC_RECORD_SALT 16

struct enc_record_source {
	const char *origin;   /* of the log */
	const char *boot;     /* boot id of this host */
	const char *producer; /* by its uid, never by its word */
	int internal;	      /* auditd itself */
};

struct enc_record {
	struct enc_buf body;
	const struct enc_event *event;
	char time[ENC_TIME_SIZE];
	char *text; /* free text for the side store, NULL when there is none */
	uint8_t salt[ENC_RECORD_SALT];
};

/* Make the record that stands at `index`. Release with enc_record_done().
 * ENC_EINVAL with a pointer, ENC_EDENIED for events that are auditd's own,
 * ENC_ELIMIT when the body is too long. */
int enc_record_make (const struct enc_record_source *from, const struct enc_json *given, uint64_t index,
	struct enc_record *ret, struct enc_error *err) ENC_MUST_USE;
void enc_record_done (struct enc_record *record);

#endif
