#include "plugins/prolog/job_env.h"

#include <syslog.h>

#include "base/str.h"

#include "base/enc.h"

static int number (const char *name, uint64_t min, uint64_t *ret, struct enc_error *err)
{
	const char *text = getenv (name);

	return text ? enc_parse_u64 (text, min, UINT32_MAX - 1, ret, err) : enc_fail (err, ENC_EUSAGE, "slurmd did not give %s", name);
}

int enc_job_env_take (struct enc_job_env *ret, struct enc_error *err)
{
	struct enc_job_env e = { 0 };
	const char *proof = getenv ("SPANK_" ENC_PROOF_NAME);
	uint64_t job, uid;
	int rc;

	if ((rc = number ("SLURM_JOB_ID", 1, &job, err)) < 0 || (rc = number ("SLURM_JOB_UID", 1, &uid, err)) < 0)
		return rc;
	if (proof && (rc = enc_str_copy (e.proof, sizeof e.proof, proof, err)) < 0)
		return rc;
	e.job = (uint32_t)job;
	e.uid = (uid_t)uid;
	(void)clearenv ();
	*ret = e;
	return 0;
}

void enc_job_env_say (const char *who, const struct enc_error *err)
{
	(void)fprintf (stderr, "%s: %s\n", who, err->text);
	openlog (who, LOG_PID, LOG_DAEMON);
	syslog (LOG_ERR, "%s", err->text);
}
