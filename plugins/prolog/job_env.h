/* What slurmd tells its prolog and epilog, read once; the environment is empty afterwards. */
#ifndef ENC_PLUGINS_JOB_ENV_H
#define ENC_PLUGINS_JOB_ENV_H

#include "plugins/client/ticket.h"

struct enc_job_env {
	uint32_t job;
	uid_t uid;
	char proof[ENC_PROOF_SIZE]; /* "" when there is none */
};

ENC_MUST_USE int enc_job_env_take (struct enc_job_env *ret, struct enc_error *err);
/* Into the system's log; slurmd keeps nothing of what its prolog says. */
void enc_job_env_say (const char *who, const struct enc_error *err);

#endif
