#ifndef ENC_AUDITD_COSIGNED_H
#define ENC_AUDITD_COSIGNED_H

#include "base/cleanup.h"
#include "base/json.h"
#include "controller/auditd/trail.h"
#include "crypto/tlog/policy.h"

/* What the witnesses said of our checkpoints. cosignd brings it; nothing is believed that is
 * not signed by a witness of the policy over a head that we signed and gave out.
 *
 *   STATE/log/cosigned    checkpoints with the cosignatures of a quorum, one after the other; not every one */

struct enc_cosigned;

/* `policy` is taken over; NULL: no witnesses. ENC_EINTEGRITY: a quorum has cosigned more than the log holds. */
struct enc_cosigned *enc_cosigned_open (struct enc_trail *log, struct enc_tlog_policy *policy, struct enc_error *err) ENC_MUST_USE;
void enc_cosigned_free (struct enc_cosigned *c);
ENC_DEFINE_AUTO (enc_cosigned, struct enc_cosigned, enc_cosigned_free);

/* Another policy from now on; taken over. What was heard of the old witnesses is forgotten, what a quorum cosigned stays. */
void enc_cosigned_set_policy (struct enc_cosigned *c, struct enc_tlog_policy *policy);

/* A head that is being given to cosignd. */
void enc_cosigned_gave (struct enc_cosigned *c, const struct enc_tree_head *head);

/* A checkpoint of ours with the line of one witness. ENC_ENOTFOUND: no such witness, or not a head that was given out;
 * ENC_EINTEGRITY, ENC_EINVAL: not what it should be. */
int enc_cosigned_add (struct enc_cosigned *c, const char *witness, const char *note, size_t len, struct enc_error *err) ENC_MUST_USE;

/* cosignd could not get a cosignature. Returns 1 when the state of this witness is another than before. */
enum enc_cosign_state { ENC_COSIGN_NEW, ENC_COSIGN_OK, ENC_COSIGN_DOWN, ENC_COSIGN_REFUSED, ENC_COSIGN_CONFLICT };
extern const char *const enc_cosign_state_names[]; /* NULL-ended */
int enc_cosigned_tell (
	struct enc_cosigned *c, const char *witness, enum enc_cosign_state state, const char *text, uint64_t size, struct enc_error *err);

/* Write the newest quorum down, if it is time to (or `now` asks for it). Failures are only told: the records do not rest on it. */
int enc_cosigned_flush (struct enc_cosigned *c, int now, struct enc_error *err) ENC_MUST_USE;

/* The newest checkpoint that a quorum cosigned. NULL: none yet, or no witness is asked for. */
struct enc_cosigned_head {
	struct enc_tree_head head;
	const char *text; /* valid until the next call */
	size_t len;
};
const struct enc_cosigned_head *enc_cosigned_last (struct enc_cosigned *c);
/* Seconds since a quorum vouched last; UINT64_MAX: never. 0 when none is asked for. */
uint64_t enc_cosigned_age (const struct enc_cosigned *c);

/* `witnesses` of a search: {"required","cosigned","age_s"}. */
void enc_cosigned_put (struct enc_cosigned *c, struct enc_json *out);
/* The same for monitoring: `witness_age_s`, and `witness_alarm`, when one says that the log is not what it cosigned. */
void enc_cosigned_alarm (const struct enc_cosigned *c, struct enc_json *out);
/* All that `audit witness` shows. */
void enc_cosigned_list (struct enc_cosigned *c, struct enc_json *out);

#endif
