/* Between the table of ops and the handlers. */
#ifndef ENC_KEYD_OPS_H
#define ENC_KEYD_OPS_H

#include "controller/keyd/claim.h"

enum {
	ENC_OP_UNSEALED = 1,  /* signs or unwraps: not while sealed */
	ENC_OP_ROOT = 2,      /* uid 0 alone, whatever the configuration says */
	ENC_OP_EVERYBODY = 4, /* every admitted user */
};

struct enc_keyd_call {
	struct enc_keyd *k;
	const struct enc_keyd_request *req;
	const struct enc_json *body; /* of req */
	struct enc_claim claim;      /* zero for ops without a receipt */
	uint64_t now;                /* Unix seconds, checked */
	struct enc_json *answer;     /* to be filled */
};

typedef int enc_keyd_handler_fn (struct enc_keyd_call *c, struct enc_error *err);

/* One row for each op and verb. An op with a verb needs a receipt whose head has that verb. */
struct enc_keyd_op {
	const char *op;
	const char *verb;
	unsigned need, may;      /* members of the head */
	unsigned flags;
	enc_keyd_handler_fn *handler;
};

enc_keyd_handler_fn enc_keyd_status, enc_keyd_init, enc_keyd_unseal, enc_keyd_seal, enc_keyd_nonce;
enc_keyd_handler_fn enc_keyd_certify, enc_keyd_certify_server, enc_keyd_baseline, enc_keyd_attest;
enc_keyd_handler_fn enc_keyd_lease, enc_keyd_lease_end, enc_keyd_key, enc_keyd_destroy, enc_keyd_lock;
enc_keyd_handler_fn enc_keyd_grant, enc_keyd_members;

/* ---- what handlers share ---- */

/* The lease of `enclave`, if it is live and lasts until `until` at least (0: now). ENC_EDENIED. */
ENC_MUST_USE int enc_keyd_live_lease (struct enc_keyd_call *c, const char *enclave, uint64_t until, struct enc_lease_row *ret,
	struct enc_error *err);

/* The attestation of exactly this boot, fresh and equal to the baseline; ENC_EDENIED says what is not so and names the rows. */
ENC_MUST_USE int enc_keyd_attested (struct enc_keyd_call *c, const struct enc_node_row *node, const uint8_t *boot,
	struct enc_attest_record *ret, struct enc_error *err);

/* An enrolled node. ENC_ENOTFOUND with a text. */
ENC_MUST_USE int enc_keyd_find_node (struct enc_keyd_call *c, const char *name, struct enc_node_row *ret, struct enc_error *err);

/* A member of the request as bytes of base64, at most `max`. ENC_EINVAL with its pointer. */
ENC_MUST_USE int enc_keyd_bytes (const struct enc_json *body, const char *key, size_t max, struct enc_buf *ret, struct enc_error *err);
void enc_keyd_set_bytes (struct enc_json *answer, const char *key, const struct enc_buf *bytes);

#endif
