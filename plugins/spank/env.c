#include "plugins/spank/env.h"

#include <ctype.h>
#include <string.h>

#include "base/str.h"
#include "base/recipe.h"

#include "base/enc.h"

enum { FORBIDDEN_MAX = 256, VALUE = 128 };

/* There is no network: programs are told so, instead of waiting for what cannot answer. */
static const struct { const char *name, *value; bool user_wins; } fixed[] = {
	{ "HF_HUB_OFFLINE", "1", false },
	{ "TRANSFORMERS_OFFLINE", "1", false },
	{ "HF_DATASETS_OFFLINE", "1", false },
	{ "HF_HUB_DISABLE_TELEMETRY", "1", false },
	{ "DO_NOT_TRACK", "1", false },
	{ "WANDB_MODE", "offline", false },
	{ "PIP_NO_INDEX", "1", false },
	{ "HF_HOME", "/enclave/models/hf", true },
	{ "TORCH_HOME", "/enclave/models/torch", true },
	{ "TMPDIR", "/tmp", false }, /* the job's own */
	{ "XDG_CACHE_HOME", "/tmp/.cache", false },
	{ "TORCHINDUCTOR_CACHE_DIR", "/tmp/.cache/torchinductor", false },
	{ "TRITON_CACHE_DIR", "/tmp/.cache/triton", false },
	{ "ENCLAVE_SCRATCH", "/tmp", false },
};

static const char *const kept[] = { "SLURM_", "ENCLAVE_", "SRUN_", "SBATCH_" };
static const char *const tails[] = { "_TOKEN", "_KEY", "_SECRET", "_PASSWORD", "_PASSWD", "_CREDENTIALS", "_PROXY", "_API_KEY" };
static const char *const wholes[] = { "SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_CONNECTION", "SSH_CLIENT", "KRB5CCNAME", "TOKEN", "PASSWORD" };

static bool same (const char *a, const char *b, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (toupper ((unsigned char)a[i]) != b[i])
			return false;
	return true;
}

bool enc_env_forbidden (const char *name, size_t len)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (kept); i++)
		if (len >= strlen (kept[i]) && memcmp (name, kept[i], strlen (kept[i])) == 0)
			return false;
	for (size_t i = 0; i < ENC_ARRAY_LEN (tails); i++)
		if (len > strlen (tails[i]) && same (name + len - strlen (tails[i]), tails[i], strlen (tails[i])))
			return true;
	for (size_t i = 0; i < ENC_ARRAY_LEN (wholes); i++)
		if (len == strlen (wholes[i]) && same (name, wholes[i], len))
			return true;
	return false;
}

/* Collected before anything is taken away: the array may move under us. */
static int take_away (char *const *env, const struct enc_env_out *out, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	int rc = 0;

	for (; env && *env && rc == 0; env++) {
		size_t len = strcspn (*env, "=");
		enc_auto_free char *name = enc_env_forbidden (*env, len) ? strndup (*env, len) : NULL;
		if (name && names.n == FORBIDDEN_MAX)
			return enc_fail (err, ENC_ELIMIT, "too many variables that may not come along; unset tokens and keys before you submit");
		if (name)
			rc = enc_strs_add (&names, name, err);
	}
	for (size_t i = 0; rc == 0 && i < names.n; i++)
		if (out->unset (names.v[i], out->arg) < 0)
			rc = enc_fail (err, ENC_EFAILED, "a variable cannot be taken away");
	return rc;
}

static int set_number (const struct enc_env_out *out, const char *name, uint32_t value, bool user_wins)
{
	char text[16];

	(void)snprintf (text, sizeof text, "%u", value);
	return out->set (name, text, user_wins, out->arg);
}

static int set_fixed (const struct enc_env_out *out)
{
	int rc = 0;

	for (size_t i = 0; rc >= 0 && i < ENC_ARRAY_LEN (fixed); i++)
		rc = out->set (fixed[i].name, fixed[i].value, fixed[i].user_wins, out->arg);
	return rc;
}

static int set_ranks (const struct enc_env_in *in, const struct enc_env_out *out)
{
	const struct { const char *name; uint32_t value; bool user_wins; } rows[] = {
		{ "RANK", in->rank, false },
		{ "LOCAL_RANK", in->local_rank, false },
		{ "WORLD_SIZE", in->world, false },
		{ "LOCAL_WORLD_SIZE", in->local_world, false },
		{ "NODE_RANK", in->node_rank, false },
		{ "MASTER_PORT", ENC_PORT_FIRST + in->job % ENC_PORTS, true },
		{ "OMP_NUM_THREADS", in->cpus > 0 ? in->cpus : 1, true },
	};
	char nccl[20];
	int rc = out->set ("MASTER_ADDR", in->master, false, out->arg);

	for (size_t i = 0; rc >= 0 && i < ENC_ARRAY_LEN (rows); i++)
		rc = set_number (out, rows[i].name, rows[i].value, rows[i].user_wins);
	if (rc < 0 || !in->interface[0])
		return rc;
	(void)snprintf (nccl, sizeof nccl, "=%s", in->interface);
	rc = out->set ("GLOO_SOCKET_IFNAME", in->interface, true, out->arg);
	return rc < 0 ? rc : out->set ("NCCL_SOCKET_IFNAME", nccl, true, out->arg);
}

static void upper_name (char *ret, size_t size, const char *prefix, const char *name)
{
	(void)snprintf (ret, size, "%s%s", prefix, name);
	for (char *c = ret; *c; c++)
		*c = *c == '-' ? '_' : (char)toupper ((unsigned char)*c);
}

static int set_options (const struct enc_env_in *in, const struct enc_env_out *out)
{
	const struct enc_options *o = in->options;
	char name[VALUE], value[VALUE];
	int rc = out->set ("ENCLAVE", in->enclave, false, out->arg);

	for (size_t i = 0; rc >= 0 && i < o->data_n; i++) {
		upper_name (name, sizeof name, "ENCLAVE_DATA_", o->data[i]);
		(void)snprintf (value, sizeof value, "/enclave/data/%s", o->data[i]);
		rc = out->set (name, value, false, out->arg);
	}
	if (rc >= 0 && o->recipe[0])
		rc = out->set ("ENCLAVE_RECIPE", o->recipe, false, out->arg);
	for (size_t i = 0; rc >= 0 && i < o->keys_n; i++) {
		upper_name (name, sizeof name, "ENCLAVE_RECIPE_", o->keys[i].key);
		rc = out->set (name, o->keys[i].value, false, out->arg);
	}
	return rc;
}

static int set_recipe (const struct enc_env_in *in, const struct enc_env_out *out)
{
	char signal[16];
	int rc = 0;

	if (!in->recipe)
		return 0;
	rc = enc_recipe_env (in->recipe, out->set, out->arg);
	if (rc >= 0 && enc_recipe_value (in->recipe, "checkpoint.signal", signal, sizeof signal))
		rc = out->set ("ENCLAVE_CKPT_SIGNAL", signal, false, out->arg);
	return rc;
}

int enc_env_apply (const struct enc_env_in *in, char *const *env, const struct enc_env_out *out, struct enc_error *err)
{
	int rc = take_away (env, out, err);

	if (rc < 0)
		return rc;
	/* A recipe's defaults come before the plugin's own, and both after the user's. */
	if ((rc = set_recipe (in, out)) >= 0 && (rc = set_fixed (out)) >= 0 && (rc = set_options (in, out)) >= 0)
		rc = set_number (out, "ENCLAVE_RESTART", in->restarts, false);
	if (rc >= 0 && !in->batch)
		rc = set_ranks (in, out);
	/* Slurm 22.05's srun does not take over --cpus-per-task from the batch job. */
	if (rc >= 0 && in->batch && in->cpus_per_task[0])
		rc = out->set ("SRUN_CPUS_PER_TASK", in->cpus_per_task, true, out->arg);
	return rc < 0 ? enc_fail (err, ENC_EFAILED, "the task's environment cannot be set") : 0;
}
