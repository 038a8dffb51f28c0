/* Entry points of spank_enclave.so. The process that loads it says by its context which part is meant. */
#include "plugins/spank/plugin.h"

#include "base/cleanup.h"

#include "base/enc.h"

SPANK_PLUGIN (enclave, 1)

/* The plugin's one piece of state: what Slurm's option parser called back with. */
static struct {
	struct enc_options options;
	bool bad;
} ctx;

int enc_plugin_refuse (const struct enc_error *err)
{
	const char *next = err->next[0] ? "; next: " : "";

	if (spank_context () == S_CTX_REMOTE)
		slurm_spank_log ("enclave: %s%s%s", err->text, next, err->next);
	else
		slurm_error ("enclave: %s%s%s", err->text, next, err->next);
	return -1;
}

static int take_option (int which, const char *text, int remote)
{
	struct enc_error err = { 0 };

	(void)remote;
	if (enc_options_take (&ctx.options, (enum enc_option)which, text, &err) == 0)
		return 0;
	ctx.bad = true;
	return enc_plugin_refuse (&err);
}

int slurm_spank_init (spank_t sp, int ac, char *argv[])
{
	(void)ac;
	(void)argv;
	for (int i = 0; i < ENC_OPT_COUNT; i++) {
		union { const char *in; char *out; } name = { enc_option_rows[i].name }, info = { enc_option_rows[i].arginfo }, usage = { enc_option_rows[i].usage };
		struct spank_option o = { .name = name.out, .arginfo = info.out, .usage = usage.out, .has_arg = 1, .val = i, .cb = take_option };
		if (spank_context () != S_CTX_SLURMD && spank_option_register (sp, &o) != ESPANK_SUCCESS)
			return -1;
	}
	return 0;
}

int slurm_spank_init_post_opt (spank_t sp, int ac, char *argv[])
{
	spank_context_t where = spank_context ();

	(void)ac;
	(void)argv;
	if (ctx.bad)
		return -1;
	return where == S_CTX_LOCAL || where == S_CTX_ALLOCATOR ? enc_plugin_submit (sp, &ctx.options) : 0;
}

int slurm_spank_job_prolog (spank_t sp, int ac, char *argv[])
{
	(void)ac;
	(void)argv;
	return enc_plugin_job_prolog (sp);
}

int slurm_spank_task_init_privileged (spank_t sp, int ac, char *argv[])
{
	(void)ac;
	(void)argv;
	return ctx.bad ? -1 : enc_plugin_task (sp, &ctx.options);
}
