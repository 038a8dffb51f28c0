/* What a node may put into the log: a closed list of its own doings, about itself and the enclave that holds it. All else is refused,
 * and the try is a record. */
#ifndef ENC_ENCLAVED_NODE_EVENTS_H
#define ENC_ENCLAVED_NODE_EVENTS_H

#include "controller/enclaved/store.h"

/* The record to append for `event` of a report of `node` in `boot` (`node` is who the certificate says it is); freed by the caller.
 * Members that the kind of event does not have are left out. ENC_EDENIED: the event is of another kind, node, enclave, session or
 * user than this node's to tell; `err` says which, in words that may be put on record. */
ENC_MUST_USE int enc_node_event_record (struct enc_db *db, const char *node, const char *boot, const struct enc_json *event, struct enc_json **ret,
					struct enc_error *err);
/* The record of such a refusal; freed by the caller. */
struct enc_json *enc_node_event_refusal (const char *node, const struct enc_json *event, const struct enc_error *why);

#endif
