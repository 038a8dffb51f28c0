#ifndef ENC_CRYPTO_TLOG_POLICY_H
#define ENC_CRYPTO_TLOG_POLICY_H

#include "base/cleanup.h"
#include "crypto/cosignature.h"

/* C2SP tlog-policy: which logs and witnesses are known, and which of the witnesses must have
 * cosigned a checkpoint. Lines `log VKEY [URL]`, `witness NAME VKEY [URL]`,
 * `group NAME all|any|K NAME...`, `quorum NAME|none`. */

#define ENC_POLICY_MAX 65536
#define ENC_POLICY_LOGS 32u
#define ENC_POLICY_WITNESSES 32u
#define ENC_POLICY_GROUPS 32u
#define ENC_POLICY_NAME 128
#define ENC_POLICY_URL 256

struct enc_tlog_policy;
struct enc_tlog_witness {
	char name[ENC_POLICY_NAME];
	struct enc_vkey vkey;
	char url[ENC_POLICY_URL]; /* empty: none given */
};

/* NULL with the line in `err` when it is not a policy. Free with enc_tlog_policy_free(). */
struct enc_tlog_policy *enc_tlog_policy_parse (const char *text, size_t len, struct enc_error *err) ENC_MUST_USE;
void enc_tlog_policy_free (struct enc_tlog_policy *policy);
ENC_DEFINE_AUTO (enc_tlog_policy, struct enc_tlog_policy, enc_tlog_policy_free);

/* The i-th log's key; NULL beyond the last. A policy may name none. */
const struct enc_vkey *enc_tlog_policy_log (const struct enc_tlog_policy *policy, size_t i);
size_t enc_tlog_policy_witnesses (const struct enc_tlog_policy *policy);
const struct enc_tlog_witness *enc_tlog_policy_witness (const struct enc_tlog_policy *policy, size_t i);

/* The fewest witnesses that can meet the quorum; 0 when none is asked for. */
unsigned enc_tlog_policy_required (const struct enc_tlog_policy *policy);

/* What the cosignatures of one checkpoint are worth. */
struct enc_tlog_quorum {
	unsigned cosigned;			  /* witnesses of the policy that cosigned */
	int met;				  /* the quorum has */
	uint64_t time;				  /* the latest second at which a quorum vouched; 0 when not met */
	uint64_t times[ENC_POLICY_WITNESSES];	  /* by witness; 0: has not cosigned */
};

/* Whether witnesses that cosigned at these times (0: not at all) meet the quorum. */
void enc_tlog_policy_weigh (const struct enc_tlog_policy *policy, struct enc_tlog_quorum *quorum);
/* The same of a checkpoint, whose log signature the caller has checked. Unknown keys are
 * passed over; ENC_EINTEGRITY when one of a known witness is wrong. */
int enc_tlog_policy_judge (const struct enc_tlog_policy *policy, const struct enc_note *note, struct enc_tlog_quorum *ret,
	struct enc_error *err) ENC_MUST_USE;

#endif
