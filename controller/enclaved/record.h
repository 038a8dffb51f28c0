/* What enclaved says to the log, and the orders to keyd that rest on it.
 *
 * Loosening says it first and does nothing if the log does not answer (enc_record_now, enc_order). Tightening never waits: its
 * records go through a spool in the store, which a fiber empties in order (enc_record_soon). */
#ifndef ENC_ENCLAVED_RECORD_H
#define ENC_ENCLAVED_RECORD_H

#include "controller/enclaved/ctl.h"

/* Who acts. For what the controller does on its own account, user is "enclaved". */
struct enc_actor {
	char user[33], role[24];
	int64_t uid;
};

/* A record being built. Members are set by the calls below; NULL values are left out. */
struct enc_json *enc_record (const char *cls, const char *action, const char *outcome);
void enc_record_actor (struct enc_json *record, const struct enc_actor *actor);
void enc_record_obj (struct enc_json *record, const char *key, const char *value);
void enc_record_enclave (struct enc_json *record, const struct enc_enclave *e);
/* The "data" member, made when first asked for; borrowed. */
struct enc_json *enc_record_data (struct enc_json *record);
/* A word that data.reason takes: anything else becomes '-'. */
void enc_record_reason (struct enc_json *record, const char *text);

/* Durable when it returns 0; from a fiber. The record is taken over. `ret_index` may be NULL. */
ENC_MUST_USE int enc_record_now (struct enc_ctl *c, struct enc_json *record, int64_t *ret_index, struct enc_error *err);
/* Into the spool, and to the log when it can take it; from anywhere. The record is taken over. */
void enc_record_soon (struct enc_ctl *c, struct enc_json *record);
/* The fiber that empties the spool; runs for ever. */
void enc_record_spool (void *ctl);

/* One act of keyd: fetch a nonce, put the record with its head into the log, and call keyd with the receipt.
 * `head` (nonce is added), `record` and `request` are taken over. `ret` and `ret_index` may be NULL. */
struct enc_order {
	struct enc_json *head, *record, *request;
};
ENC_MUST_USE int enc_order (struct enc_ctl *c, struct enc_order *o, struct enc_json **ret, int64_t *ret_index, struct enc_error *err);
/* Free what was built of an order that is not given after all. */
void enc_order_done (struct enc_order *o);
/* A head with its verb. */
struct enc_json *enc_head (const char *verb);
/* Append with receipt: record body text and proof (heap). */
ENC_MUST_USE int enc_record_receipt (struct enc_ctl *c, struct enc_json *record, int64_t *ret_index, char **ret_body, char **ret_proof,
				     struct enc_error *err);

#endif
