#ifndef ENC_WITNESS_LEDGER_H
#define ENC_WITNESS_LEDGER_H

#include "base/cleanup.h"
#include "base/error.h"
#include "crypto/cosignature.h"
#include "crypto/checkpoint.h"

/* What a witness remembers: of each log the last checkpoint that it cosigned. It cosigns
 * only what continues that one (C2SP tlog-witness, add-checkpoint).
 *
 *   STATE/lock            held while it runs: two processes would check against two memories
 *   STATE/key             "ed25519 NAME SEED", 0600
 *   STATE/witness.vkey    the public half, for everybody
 *   STATE/log-HASH        last cosigned checkpoint; HASH = SHA-256 of the origin, hex */

#define ENC_LEDGER_LOGS 32u
#define ENC_LEDGER_BODY_MAX 65536

struct enc_ledger;

/* Open, or make, the state of the witness `name`. `logs` are the keys of the logs that it
 * knows (borrowed). ENC_EBUSY: another process has it. ENC_EINTEGRITY: the state is damaged,
 * or was another witness's: what was cosigned before is unknown, and it must not go on. */
struct enc_ledger *enc_ledger_open (
	const char *state, const char *name, const struct enc_vkey *logs, size_t n_logs, struct enc_error *err) ENC_MUST_USE;
void enc_ledger_free (struct enc_ledger *ledger);
ENC_DEFINE_AUTO (enc_ledger, struct enc_ledger, enc_ledger_free);

const struct enc_vkey *enc_ledger_vkey (const struct enc_ledger *ledger);

/* One add-checkpoint. `status` is the HTTP status; `text` the signature line (200), or the
 * size last cosigned (409), else empty. A 200 is given after the new state is on disk. `err`
 * says why not, for the journal. */
struct enc_ledger_answer {
	int status;
	char text[ENC_COSIGN_LINE_MAX];
	char origin[ENC_NOTE_NAME_MAX + 1]; /* empty: not known */
	uint64_t size;			    /* that was asked for */
};
void enc_ledger_add (struct enc_ledger *ledger, const char *body, size_t len, uint64_t now, struct enc_ledger_answer *ret,
	struct enc_error *err);

/* The last cosigned checkpoint of a log by the hex SHA-256 of its origin, with the cosignature; NULL: none. */
const char *enc_ledger_last (const struct enc_ledger *ledger, const char *hash, size_t *ret_len);

#endif
