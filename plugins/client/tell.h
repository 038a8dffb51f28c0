/* What a plugin tells for the log, and the proof that the log has it. Both bounded in time. */
#ifndef ENC_PLUGINS_TELL_H
#define ENC_PLUGINS_TELL_H

#include "crypto/note.h"
#include "node-agent/proto/told.h"
#include "plugins/client/client.h"

/* Tell privd; `ret_counter` (may be NULL) is the record's number in this boot. ENC_EUNAVAIL, ENC_ETIMEOUT, ENC_EDENIED. */
ENC_MUST_USE int enc_client_tell (const struct enc_client_conf *conf, const struct enc_told *told, uint64_t *ret_counter, struct enc_error *err);
/* The same without waiting for an answer: for callers that hold a lock (slurmctld). */
void enc_client_tell_only (const struct enc_client_conf *conf, const struct enc_told *told);

/* Wait until the log has the record of that session, and check it: the log's signature, and that the record is this session's start on a node of
 * this enclave. ENC_ETIMEOUT within conf->receipt_ms, ENC_EINTEGRITY, ENC_EUNAVAIL. */
ENC_MUST_USE int enc_client_receipt (const struct enc_client_conf *conf, const char *session, const char *enclave_id, struct enc_error *err);

/* The part that reads nothing. */
ENC_MUST_USE int enc_client_receipt_is (struct enc_view record, struct enc_view proof, const struct enc_vkey *log, const char *session,
	const char *enclave_id, struct enc_error *err);

#endif
