/* A claim is what the head of a record says, once the receipt was checked: the record is durable in our log, its nonce is one of
 * ours, fresh and now used up, and the head has exactly the members that its verb needs. */
#ifndef ENC_KEYD_CLAIM_H
#define ENC_KEYD_CLAIM_H

#include "controller/keyd/keyd.h"

/* Members of a head beside verb and nonce, which every head has. */
enum {
	ENC_HEAD_OBJECT = 1,
	ENC_HEAD_NODE = 2,
	ENC_HEAD_BOOT = 4,
	ENC_HEAD_GENERATION = 8,
	ENC_HEAD_ENCLAVE = 16,
	ENC_HEAD_DOCUMENT = 32,
	ENC_HEAD_NOT_AFTER = 64,
};

struct enc_claim {
	unsigned has;                  /* which members are there */
	char verb[33];
	char object[129];
	char node[ENC_NODE_SIZE];
	uint8_t boot[ENC_BOOT_SIZE];
	uint64_t generation;
	char enclave[ENC_ID_SIZE];
	uint8_t document[32];
	uint8_t nonce[ENC_NONCE_BYTES];
	uint64_t not_after;
	uint64_t record;               /* index */
};

/* Check the receipt in `body` ("record", "proof") and read the head. The nonce is used up when the receipt holds.
 * ENC_EINTEGRITY: not by our log, altered, not covered. ENC_EDENIED: no head, not an act that goes ahead, nonce. */
ENC_MUST_USE int enc_claim_check (struct enc_keyd *k, const struct enc_json *body, struct enc_claim *ret, struct enc_error *err);

/* The head has all of `need`, nothing but `need` and `may`, and each of its members that the request has too is equal there.
 * ENC_EDENIED names the member. */
ENC_MUST_USE int enc_claim_fits (const struct enc_claim *c, const struct enc_json *body, unsigned need, unsigned may,
	struct enc_error *err);

/* The head's hash is that of these bytes, its object is that text. ENC_EDENIED. */
ENC_MUST_USE int enc_claim_document (const struct enc_claim *c, const void *data, size_t len, struct enc_error *err);
ENC_MUST_USE int enc_claim_object (const struct enc_claim *c, const char *object, struct enc_error *err);

#endif
