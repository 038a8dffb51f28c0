/* On an enclave's scheduler node: ask the local enclave-schedd (--role enclave) what the dedicated slurmctld says, for the report. */
#ifndef ENC_AGENTD_SCHEDULER_LINK_H
#define ENC_AGENTD_SCHEDULER_LINK_H

#include "base/json.h"

struct event_base;
struct enc_scheduler_link;

/* `slurm` (taken over by the callee): {"nodes":[…],"jobs":[…]} or {"error":TEXT}. */
typedef void enc_scheduler_fn (struct enc_json *slurm, void *arg);

struct enc_scheduler_link *enc_scheduler_link_new (struct event_base *base, const char *path, enc_scheduler_fn *done, void *arg,
						   struct enc_error *err) ENC_MUST_USE;
void enc_scheduler_link_free (struct enc_scheduler_link *s);
/* Ask; one question at a time, more are dropped. */
void enc_scheduler_link_ask (struct enc_scheduler_link *s);

#endif
