/* Grants (docs/protocol.md section 4): keyd's order that lets one node, in one boot, loosen what one document says.
 * Wire body of an envelope of type 1. */
#ifndef ENC_CRYPTO_GRANT_H
#define ENC_CRYPTO_GRANT_H

#include "crypto/envelope.h"

#define ENC_NODE_SIZE 65 /* node name with NUL, as on the wire */
#define ENC_BOOT_SIZE 16 /* boot nonce */

struct enc_grant {
	char node[ENC_NODE_SIZE];
	uint8_t boot[ENC_BOOT_SIZE];
	uint64_t generation;
	char enclave[27];        /* id; "" for pools general and service */
	uint8_t document[32];    /* SHA-256 of the node document */
	uint8_t pool;            /* enum enc_pool of node-agent/proto/document.h */
	uint64_t not_before;     /* Unix seconds */
	uint64_t not_after;
	uint64_t record;         /* index of the record that this grant rests on */
};

enum { ENC_GRANT_POOL_MAX = 4 };

/* Append the signed envelope to `out`. ENC_EINVAL names the field that is wrong. */
ENC_MUST_USE int enc_grant_sign (const struct enc_grant *g, const struct enc_sign_key *key, struct enc_buf *out,
	struct enc_error *err);

/* Check the signature and read. `ret` is untouched on failure. Nothing is compared with this node yet. */
ENC_MUST_USE int enc_grant_read (struct enc_view envelope, const struct enc_sign_pub *keyd, struct enc_grant *ret,
	struct enc_error *err);

/* The body alone, for tests and fuzzing. */
ENC_MUST_USE int enc_grant_decode (struct enc_view body, struct enc_grant *ret, struct enc_error *err);

/* What a node knows of itself when it judges a grant. */
struct enc_grant_facts {
	const char *node;
	const uint8_t *boot;       /* ENC_BOOT_SIZE bytes */
	uint64_t generation;       /* of the document at hand */
	uint64_t last_generation;  /* highest one that was obeyed in this boot; 0 none */
	const uint8_t *document;   /* 32 bytes: hash of the document at hand */
	uint64_t now;              /* Unix seconds on the node's clock */
};

/* True (0) when the grant is for this node, boot, document and generation and holds now. ENC_EDENIED says which part is not;
 * the clock is given ENC_GRANT_SKEW_S towards not_before. */
enum { ENC_GRANT_SKEW_S = 60 };
ENC_MUST_USE int enc_grant_fits (const struct enc_grant *g, const struct enc_grant_facts *facts, struct enc_error *err);

#endif
