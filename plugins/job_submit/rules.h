/* The rules for a job's description, for submitting and for changing it. Pure; the plugin fills in what Slurm gave it. */
#ifndef ENC_PLUGINS_RULES_H
#define ENC_PLUGINS_RULES_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

#define ENC_PARTITION "protected"

/* NULL and false: not said. The same struct for both, since a change says only what changes. */
struct enc_job_text {
	const char *partition;
	const char *std_out, *std_err, *std_in, *work_dir;
	const char *name, *comment, *wckey, *account, *admin_comment, *mail_user;
	const char *burst_buffer, *container, *clusters, *x11_cookie;
	bool mail, reboot, x11;
};

/* ENC_EDENIED says what is refused, and `next` what to write instead. */
ENC_MUST_USE int enc_job_rules (const struct enc_job_text *job, struct enc_error *err);

/* A change also must not give the job to somebody else, and its proof stays. `to`: the user asked for, (uid_t)-1 none. */
ENC_MUST_USE int enc_job_same_owner (uid_t owner, uid_t to, bool new_proof, struct enc_error *err);

#endif
