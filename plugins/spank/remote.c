/* The last gate, in the process that is about to become the user's task. Order: is this node still what the prolog saw, is the user
 * still a member, then what the task may see, then what it is told. */
#include <string.h>

#include "base/file.h"
#include "plugins/client/ticket.h"
#include "plugins/spank/env.h"
#include "plugins/spank/hosts.h"
#include "plugins/spank/isolate.h"
#include "plugins/spank/plugin.h"
#include "base/recipe.h"

#include "base/enc.h"

enum { CONF_MAX = 1024 * 1024, BATCH_STEP = 0xfffffffb };

struct task {
	uint32_t job, step;
	uid_t uid;
};

static int gate (const struct enc_client_view *view, const struct task *t, struct enc_error *err)
{
	struct enc_ticket want = { .version = ENC_PLUGIN_VERSION, .generation = view->facts.generation, .uid = t->uid };
	int rc;

	memcpy (want.enclave_id, view->facts.enclave_id, sizeof want.enclave_id);
	if ((rc = enc_client_judge (view, ENC_ACT_RUN, NULL, t->uid, NULL, err)) < 0)
		return rc;
	if ((rc = enc_client_stack (&enc_client_conf, &view->facts, err)) < 0)
		return rc;
	return enc_ticket_check (&enc_client_conf, t->job, "gate", &want, err);
}

static int set_one (const char *name, const char *value, bool user_wins, void *arg)
{
	spank_err_t rc = spank_setenv ((spank_t)arg, name, value, !user_wins);

	return rc == ESPANK_SUCCESS || (user_wins && rc == ESPANK_ENV_EXISTS) ? 0 : -1;
}

static int unset_one (const char *name, void *arg)
{
	return spank_unsetenv ((spank_t)arg, name) == ESPANK_SUCCESS ? 0 : -1;
}

static const char *variable (spank_t sp, const char *name, char *ret, size_t size)
{
	if (spank_getenv (sp, name, ret, (int)size) != ESPANK_SUCCESS)
		ret[0] = '\0';
	return ret;
}

/* Numbers that Slurm does not give stay 0. */
static void read_ranks (spank_t sp, struct enc_env_in *in)
{
	int local = 0;

	(void)spank_get_item (sp, S_TASK_GLOBAL_ID, &in->rank);
	(void)spank_get_item (sp, S_TASK_ID, &local);
	(void)spank_get_item (sp, S_JOB_TOTAL_TASK_COUNT, &in->world);
	(void)spank_get_item (sp, S_JOB_LOCAL_TASK_COUNT, &in->local_world);
	(void)spank_get_item (sp, S_JOB_NODEID, &in->node_rank);
	(void)spank_get_item (sp, S_JOB_NNODES, &in->nodes);
	(void)spank_get_item (sp, S_STEP_CPUS_PER_TASK, &in->cpus);
	(void)spank_get_item (sp, S_SLURM_RESTART_COUNT, &in->restarts);
	in->local_rank = (uint32_t)local;
}

static int read_places (spank_t sp, struct enc_env_in *in, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf file = ENC_BUF_INIT (CONF_MAX + 1);
	enc_auto_free char *text = NULL;
	char list[4096], own[65], first[65], address[64];
	int rc;

	if (!variable (sp, "SLURM_STEP_NODELIST", list, sizeof list)[0])
		(void)variable (sp, "SLURM_JOB_NODELIST", list, sizeof list);
	if ((rc = enc_file_read_trusted (enc_client_conf.nodes, CONF_MAX, &file, err)) < 0)
		return enc_wrap (err, rc, "the enclave's nodes");
	if (!(text = enc_buf_take_str (&file)))
		return enc_fail (err, ENC_ENOMEM, "no memory");
	if ((rc = enc_hosts_nth (list, 0, first, sizeof first, err)) < 0)
		return rc;
	if ((rc = enc_hosts_address (text, first, in->master, sizeof in->master, err)) < 0)
		return rc;
	if (in->nodes > 1 && strncmp (in->master, "127.", 4) == 0)
		return enc_fail (err, ENC_EFAILED, "node %s has a loopback address; the other nodes would wait for ever", first);
	/* Without an interface the libraries choose one; that is no reason to stop. */
	if (enc_hosts_nth (list, in->node_rank, own, sizeof own, NULL) == 0 && enc_hosts_address (text, own, address, sizeof address, NULL) == 0)
		ENC_IGNORE (enc_hosts_interface (address, in->interface, sizeof in->interface, NULL));
	return 0;
}

static int tell (spank_t sp, const struct task *t, const struct enc_client_view *view, const struct enc_options *options, struct enc_error *err)
{
	struct enc_env_in in = { .batch = t->step == BATCH_STEP, .job = t->job, .enclave = view->members.enclave_name, .options = options };
	const struct enc_env_out out = { .set = set_one, .unset = unset_one, .arg = sp };
	enc_auto_free char *recipe = NULL;
	char **env = NULL;
	int rc;

	if (options->recipe[0] && (rc = enc_recipe_read (enc_client_conf.recipes, options->recipe, &recipe, err)) < 0)
		return rc;
	in.recipe = recipe;
	read_ranks (sp, &in);
	if (!in.batch && (rc = read_places (sp, &in, err)) < 0)
		return rc;
	(void)variable (sp, "SLURM_CPUS_PER_TASK", in.cpus_per_task, sizeof in.cpus_per_task);
	(void)spank_unsetenv (sp, "SLURM_RLIMIT_CORE"); /* Slurm would try to raise it again */
	(void)spank_get_item (sp, S_JOB_ENV, &env);
	return enc_env_apply (&in, env, &out, err);
}

int enc_plugin_task (spank_t sp, const struct enc_options *options)
{
	struct enc_client_view view;
	struct enc_error err = { 0 };
	struct task t;
	int rc;

	if (spank_get_item (sp, S_JOB_ID, &t.job) != ESPANK_SUCCESS || spank_get_item (sp, S_JOB_STEPID, &t.step) != ESPANK_SUCCESS ||
		spank_get_item (sp, S_JOB_UID, &t.uid) != ESPANK_SUCCESS) {
		(void)enc_fail (&err, ENC_EFAILED, "job and user are not known");
		return enc_plugin_refuse (&err);
	}
	if (enc_client_open (&enc_client_conf, &view, &err) < 0)
		return enc_plugin_refuse (&err);
	if ((rc = gate (&view, &t, &err)) == 0 && (rc = enc_options_fit (options, &enc_client_conf, &view.members, &err)) == 0)
		rc = tell (sp, &t, &view, options, &err);
	enc_client_close (&view);
	if (rc == 0)
		rc = enc_isolate (&enc_client_conf, t.job, options->net == ENC_NET_NONE && t.step != BATCH_STEP, &err);
	return rc < 0 ? enc_plugin_refuse (&err) : 0;
}
