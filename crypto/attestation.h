/* Attestations (docs/protocol.md section 4): a node's statement of what it measured in this boot, signed by its identity key.
 * Wire body of an envelope of type 3. */
#ifndef ENC_CRYPTO_ATTESTATION_H
#define ENC_CRYPTO_ATTESTATION_H

#include "crypto/envelope.h"
#include "crypto/grant.h"
#include "crypto/seal.h"

enum {
	ENC_ATTEST_ROWS_MAX = 256,
	ENC_ATTEST_ROW_NAME = 64,  /* with NUL */
	ENC_ATTEST_QUOTE_MAX = 8192,
};

struct enc_attest_row {
	char name[ENC_ATTEST_ROW_NAME];
	uint8_t digest[32];
};

/* Rows are sorted by name, without doubles. Heap behind `rows` and `quote` only after enc_attestation_read(). */
struct enc_attestation {
	char node[ENC_NODE_SIZE];
	uint8_t boot[ENC_BOOT_SIZE];
	char boot_id[37];
	uint8_t challenge[16];
	uint64_t time;                      /* Unix seconds on the node */
	uint8_t boot_key[ENC_SEAL_POINT];
	char driver[16];                    /* "none" or "tpm2" */
	size_t quote_len;
	const uint8_t *quote;
	size_t rows_n;
	struct enc_attest_row *rows;
};

/* Append the signed envelope. ENC_EINVAL names what is wrong (unsorted or double rows, unknown driver …). */
ENC_MUST_USE int enc_attestation_sign (const struct enc_attestation *a, const struct enc_sign_key *identity, struct enc_buf *out,
	struct enc_error *err);

/* Check the signature and read. Free with enc_attestation_done(). `quote` borrows from the envelope. */
ENC_MUST_USE int enc_attestation_read (struct enc_view envelope, const struct enc_sign_pub *identity, struct enc_attestation *ret,
	struct enc_error *err);
ENC_MUST_USE int enc_attestation_decode (struct enc_view body, struct enc_attestation *ret, struct enc_error *err);
void enc_attestation_done (struct enc_attestation *a);

/* Put the names of rows that differ from the baseline into `out` (missing ones and ones that the baseline does not know too);
 * both are sorted. Returns how many there are, of which the first `max` are put. */
size_t enc_attest_differs (const struct enc_attestation *a, const struct enc_attest_row *baseline, size_t baseline_n,
	const char **out, size_t max);

/* Rows alone, as keyd stores a baseline: list of {str name, bytes digest[32]}. */
ENC_MUST_USE int enc_attest_rows_put (const struct enc_attest_row *rows, size_t n, struct enc_buf *out, struct enc_error *err);
ENC_MUST_USE int enc_attest_rows_get (struct enc_view *v, struct enc_attest_row **ret, size_t *ret_n, struct enc_error *err);

#endif
