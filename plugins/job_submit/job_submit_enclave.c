/* job_submit_enclave.so: the gate in the enclave's own slurmctld. It runs under slurmctld's locks and one mutex for all plugins: it
 * reads the member document when that changed, asks privd at most once in ENC_CACHE_FACTS_MS with a short deadline, and nothing else. */
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <string.h>

#include <src/common/slurm_xlator.h>
#include <src/common/log.h>
#include <src/common/xmalloc.h>
#include <src/common/xstring.h>
#include <src/slurmctld/slurmctld.h>

#include "plugins/client/ticket.h"
#include "plugins/job_submit/rules.h"

const char plugin_name[] = "Enclave job submit plugin";
const char plugin_type[] = "job_submit/enclave";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

enum { DEADLINE_MS = 250 };

/* slurmctld calls plugins one at a time. */
static struct enc_client_cache cache;

int init (void);
int fini (void);
int job_submit (job_desc_msg_t *job, uint32_t submit_uid, char **err_msg);
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
int job_modify (job_desc_msg_t *job, job_record_t *old, uint32_t submit_uid, char **err_msg);
#else
int job_modify (job_desc_msg_t *job, job_record_t *old, uint32_t submit_uid);
#endif

int init (void)
{
	return SLURM_SUCCESS;
}

int fini (void)
{
	enc_client_cache_done (&cache);
	return SLURM_SUCCESS;
}

static struct enc_job_text text_of (const job_desc_msg_t *job, bool change)
{
	return (struct enc_job_text){
		.partition = job->partition, .std_out = job->std_out, .std_err = job->std_err, .std_in = job->std_in, .work_dir = job->work_dir,
		.name = job->name, .comment = job->comment, .wckey = job->wckey, .account = job->account, .admin_comment = job->admin_comment,
		.mail_user = job->mail_user, .burst_buffer = job->burst_buffer, .container = job->container, .x11_cookie = job->x11_magic_cookie,
		.clusters = change ? NULL : job->clusters,
		.mail = job->mail_type != NO_VAL16 && job->mail_type != 0,
		.reboot = job->reboot != NO_VAL16 && job->reboot != 0,
		.x11 = job->x11 != NO_VAL16 && job->x11 != 0,
	};
}

/* The proof as the plugin gave it (slurmd adds "SPANK_" to the name later), NULL when the plugin did not run where the job comes from. */
static const char *proof_of (const job_desc_msg_t *job)
{
	static const char name[] = ENC_PROOF_NAME "=";

	for (uint32_t i = 0; i < job->spank_job_env_size && job->spank_job_env; i++)
		if (job->spank_job_env[i] && strncmp (job->spank_job_env[i], name, sizeof name - 1) == 0)
			return job->spank_job_env[i] + sizeof name - 1;
	return NULL;
}

static struct enc_client_conf quick (void)
{
	struct enc_client_conf conf = enc_client_conf;

	conf.deadline_ms = DEADLINE_MS;
	return conf;
}

static int may (uid_t uid, struct enc_error *err)
{
	struct enc_client_conf conf = quick ();
	int rc = enc_client_cached (&conf, &cache, err);

	return rc < 0 ? rc : enc_client_judge (&cache.view, ENC_ACT_SUBMIT, NULL, uid, NULL, err);
}

static int check_submit (const job_desc_msg_t *job, uint32_t submit_uid, struct enc_error *err)
{
	struct enc_job_text text = text_of (job, false);
	int rc = may (submit_uid, err);

	if (rc == 0 && job->user_id != submit_uid)
		rc = enc_fail (err, ENC_EDENIED, "jobs are submitted by the one they belong to");
	if (rc == 0 && (rc = enc_job_proof_check (&cache.view, proof_of (job), true, err)) < 0)
		rc = enc_error_next (err, rc, "submit on the enclave's login node");
	return rc == 0 ? enc_job_rules (&text, err) : rc;
}

/* The text goes to the user's terminal, and to the log without it: job names may be in it one day. */
static int refuse (const struct enc_error *err, uint32_t uid, char **err_msg)
{
	info ("enclave: a job of uid %u is refused: %s", uid, err->text);
	if (err_msg)
		*err_msg = xstrdup_printf ("enclave: %s%s%s", err->text, err->next[0] ? "; next: " : "", err->next);
	return ESLURM_ACCESS_DENIED;
}

int job_submit (job_desc_msg_t *job, uint32_t submit_uid, char **err_msg)
{
	struct enc_error err = { 0 };

	if (check_submit (job, submit_uid, &err) < 0)
		return refuse (&err, submit_uid, err_msg);
	if (!job->partition)
		job->partition = xstrdup (ENC_PARTITION);
	return SLURM_SUCCESS;
}

/* Holding, ending and requeueing pass through here too: the enclave's helper (SlurmUser) may do that, and no more than the owner. */
static int check_modify (const job_desc_msg_t *job, const job_record_t *old, uint32_t submit_uid, struct enc_error *err)
{
	struct enc_job_text text = text_of (job, true);
	bool helper = submit_uid == slurm_conf.slurm_user_id || submit_uid == 0;
	int rc = helper ? 0 : may (submit_uid, err);

	if (rc == 0 && !helper && old->user_id != submit_uid)
		rc = enc_client_stranger (err);
	if (rc == 0)
		rc = enc_job_same_owner (old->user_id, job->user_id == NO_VAL ? (uid_t)-1 : job->user_id, job->spank_job_env_size != 0, err);
	return rc == 0 ? enc_job_rules (&text, err) : rc;
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
int job_modify (job_desc_msg_t *job, job_record_t *old, uint32_t submit_uid, char **err_msg)
#else
int job_modify (job_desc_msg_t *job, job_record_t *old, uint32_t submit_uid)
#endif
{
	struct enc_error err = { 0 };
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 2, 0)
	char **err_msg = NULL;
#endif

	return check_modify (job, old, submit_uid, &err) < 0 ? refuse (&err, submit_uid, err_msg) : SLURM_SUCCESS;
}
