/* What the agent tells the controller: what privd holds, what the last run came to, and plain facts of the host. */
#ifndef ENC_AGENTD_REPORT_H
#define ENC_AGENTD_REPORT_H

#include "base/json.h"
#include "node-agent/agentd/converge.h"

struct enc_report_in {
	const char *node;
	const struct enc_converge *converge; /* NULL on an observer */
	const struct enc_json *extra;        /* evidence of areas that privd has no part in ("slurm", "probe" of an observer); may be NULL */
	const char *attestation_for;         /* the challenge whose attestation was acknowledged already, or NULL */
	struct enc_json *receipts;           /* sessions whose receipts the door waits for; taken over, may be NULL */
	uint64_t generation;                 /* of an observer, which has no converge */
};

/* The body of POST /v1/agent/report; NULL when memory is short. */
struct enc_json *enc_report_build (const struct enc_report_in *in) ENC_MUST_USE;

/* Highest counter among the events that privd still spools in `state`, 0 if there is none. */
uint64_t enc_report_last_event (const struct enc_json *state);

#endif
