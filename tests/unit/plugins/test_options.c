/* Options, recipes and the environment of a task. */
#include "tests/unit/base/test.h"

#include "plugins/spank/env.h"
#include "base/recipe.h"
#include "stage.h"

static struct enc_error err;
static char sets[32] = "cxr-images";
static char (*datasets)[32] = &sets;

static struct enc_members enclave (void)
{
	return (struct enc_members){ .enclave_name = "cxr", .datasets_n = 1, .datasets = datasets };
}

T (options_are_read_whole)
{
	struct enc_options o = { 0 };

	ok (enc_options_take (&o, ENC_OPT_ENCLAVE, "cxr", &err));
	ok (enc_options_take (&o, ENC_OPT_RECIPE, "cxr-mllm,size=tiny,patch=16", &err));
	ok (enc_options_take (&o, ENC_OPT_DATA, "cxr-images:ro,cxr-images", &err));
	ok (enc_options_take (&o, ENC_OPT_NET, "none", &err));
	ok (enc_options_take (&o, ENC_OPT_PLAN, "strict", &err));
	assert_string_equal (o.recipe, "cxr-mllm");
	assert_int_equal (o.keys_n, 2);
	assert_string_equal (o.keys[1].value, "16");
	assert_int_equal (o.data_n, 1);
	assert_int_equal (o.net, ENC_NET_NONE);
}

T (an_option_twice_is_taken_when_equal_and_refused_when_not)
{
	struct enc_options o = { 0 };

	ok (enc_options_take (&o, ENC_OPT_RECIPE, "smoke", &err));
	ok (enc_options_take (&o, ENC_OPT_RECIPE, "smoke", &err));
	fails (enc_options_take (&o, ENC_OPT_RECIPE, "cxr-mllm", &err), ENC_EUSAGE);
	assert_string_equal (o.recipe, "smoke");
}

T (invariant_15_bad_options_change_nothing_and_are_named)
{
	static const struct { enum enc_option which; const char *text; } rows[] = {
		{ ENC_OPT_ENCLAVE, "" }, { ENC_OPT_ENCLAVE, NULL }, { ENC_OPT_ENCLAVE, "Cxr" }, { ENC_OPT_ENCLAVE, "../cxr" }, { ENC_OPT_ENCLAVE, "cxr-" },
		{ ENC_OPT_RECIPE, "a/b" }, { ENC_OPT_RECIPE, "smoke,size" }, { ENC_OPT_RECIPE, "smoke,=1" }, { ENC_OPT_RECIPE, "smoke,size=" },
		{ ENC_OPT_RECIPE, "smoke,size=$(id)" }, { ENC_OPT_RECIPE, "smoke,size=1,size=2" }, { ENC_OPT_RECIPE, "smoke,," }, { ENC_OPT_RECIPE, ",size=1" },
		{ ENC_OPT_DATA, "cxr:rw" }, { ENC_OPT_DATA, "cxr:" }, { ENC_OPT_DATA, "cxr:ro:ro" }, { ENC_OPT_DATA, ".." }, { ENC_OPT_DATA, "a,,b" },
		{ ENC_OPT_DATA, "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q" }, { ENC_OPT_NET, "all" }, { ENC_OPT_PLAN, "maybe" } };
	char too_long[ENC_OPT_TEXT_MAX + 2];

	memset (too_long, 'a', sizeof too_long);
	too_long[sizeof too_long - 1] = '\0';
	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++) {
		static const struct enc_options none;
		struct enc_options o = { 0 };

		fails (enc_options_take (&o, rows[i].which, rows[i].text, &err), ENC_EUSAGE);
		assert_memory_equal (&o, &none, sizeof o);
		assert_non_null (strstr (err.text, enc_option_rows[rows[i].which].name));
		fails (enc_options_take (&o, rows[i].which, too_long, &err), ENC_EUSAGE);
	}
}

T (invariant_11_another_enclave_or_dataset_is_as_unknown_as_none)
{
	struct enc_client_conf conf = { .recipes = ENC_SOURCE_DIR "/ops/recipes" };
	struct enc_members m = enclave ();
	struct enc_options o = { 0 }, other = { 0 }, data = { 0 };
	struct enc_error stranger = { 0 };

	ok (enc_options_take (&o, ENC_OPT_ENCLAVE, "cxr", &err));
	ok (enc_options_fit (&o, &conf, &m, &err));
	ok (enc_options_take (&other, ENC_OPT_ENCLAVE, "other", &err));
	fails (enc_options_fit (&other, &conf, &m, &err), ENC_ENOTFOUND);
	(void)enc_client_stranger (&stranger);
	assert_memory_equal (&err, &stranger, sizeof err);
	ok (enc_options_take (&data, ENC_OPT_DATA, "mammo", &err));
	fails (enc_options_fit (&data, &conf, &m, &err), ENC_ENOTFOUND);
}

T (an_unknown_recipe_names_the_nearest_and_a_key_must_be_the_recipes)
{
	struct enc_client_conf conf = { .recipes = ENC_SOURCE_DIR "/ops/recipes" };
	struct enc_members m = enclave ();
	static const struct { const char *text; int code; const char *next; } rows[] = { { "cxr-mllm", 0, "" }, { "cxr-mllm,size=base,patch=32", 0, "" },
		{ "cxr-mlm", ENC_ENOTFOUND, "cxr-mllm" }, { "smoked", ENC_ENOTFOUND, "smoke" }, { "zzzzzzzzzzzz", ENC_ENOTFOUND, "recipe list" },
		{ "cxr-mllm,colour=red", ENC_ENOTFOUND, "" }, { "smoke,size=tiny", ENC_ENOTFOUND, "" } };

	/* Recipes are believed only where nobody else can write; a source tree may lie elsewhere. */
	if (enc_path_trusted (ENC_SOURCE_DIR "/ops/recipes/cxr-mllm/recipe.conf", &err) < 0) {
		print_message ("SKIPPED, NOT RUN: %s\n", err.text);
		skip ();
	}
	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++) {
		struct enc_options o = { 0 };

		err = (struct enc_error){ 0 };
		ok (enc_options_take (&o, ENC_OPT_RECIPE, rows[i].text, &err));
		err = (struct enc_error){ 0 };
		assert_int_equal (enc_options_fit (&o, &conf, &m, &err), -rows[i].code);
		assert_non_null (strstr (err.next, rows[i].next));
	}
}

T (a_plan_that_does_not_fit_warns_or_refuses)
{
	struct enc_client_conf conf = { .recipes = ENC_SOURCE_DIR "/ops/recipes" };
	static const struct { const char *recipe, *plan; int code; const char *said; } rows[] = {
		{ "llm-lora,params=7B,batch=8,gpu=40GiB", NULL, 0, "largest batch 7" }, { "llm-lora,params=7B,batch=8,gpu=40GiB", "warn", 0, "does not fit" },
		{ "llm-lora,params=7B,batch=8,gpu=40GiB", "off", 0, "" }, { "llm-lora,params=7B,batch=8,gpu=40GiB", "strict", ENC_EFAILED, "largest batch 7" },
		{ "llm-lora,batch=7,gpu=40GiB", "strict", 0, "tight" }, { "llm-lora,batch=4,gpu=40GiB", "strict", 0, "" }, { "llm-lora,batch=4", NULL, 0, "" },
		{ "llm-lora,batch=4", "strict", ENC_EUSAGE, "" }, { "llm-lora,gpu=lots", NULL, ENC_EUSAGE, "" }, { "smoke", NULL, 0, "" }, { "smoke", "strict", ENC_EUSAGE, "" } };

	if (enc_path_trusted (ENC_SOURCE_DIR "/ops/recipes/llm-lora/recipe.conf", &err) < 0) {
		print_message ("SKIPPED, NOT RUN: %s\n", err.text);
		skip ();
	}
	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++) {
		struct enc_options o = { 0 };
		char said[256];

		ok (enc_options_take (&o, ENC_OPT_RECIPE, rows[i].recipe, &err));
		if (rows[i].plan)
			ok (enc_options_take (&o, ENC_OPT_PLAN, rows[i].plan, &err));
		err = (struct enc_error){ 0 };
		assert_int_equal (enc_options_plan (&o, &conf, said, sizeof said, &err), -rows[i].code);
		assert_non_null (strstr (said, rows[i].said));
		assert_int_equal (said[0] == '\0', rows[i].said[0] == '\0');
	}
}

/* A small environment of its own. */
static char have[128][160];
static size_t have_n;

static char *find (const char *name)
{
	for (size_t i = 0; i < have_n; i++)
		if (strncmp (have[i], name, strlen (name)) == 0 && have[i][strlen (name)] == '=')
			return have[i];
	return NULL;
}

static int set (const char *name, const char *value, bool user_wins, void *arg)
{
	char *at = find (name);

	(void)arg;
	if (at && user_wins)
		return 0;
	(void)snprintf (at ? at : have[have_n++], sizeof have[0], "%s=%s", name, value);
	return 0;
}

static int unset (const char *name, void *arg)
{
	char *at = find (name);

	(void)arg;
	if (at)
		at[0] = '\0';
	return 0;
}

static void apply (const struct enc_env_in *in, const char *const *start)
{
	const struct enc_env_out out = { .set = set, .unset = unset };
	char *env[64] = { 0 };

	have_n = 0;
	for (size_t i = 0; start[i]; i++)
		(void)snprintf (have[have_n++], sizeof have[0], "%s", start[i]);
	for (size_t i = 0; i < have_n; i++)
		env[i] = have[i];
	ok (enc_env_apply (in, env, &out, &err));
}

static void is (const char *pair)
{
	char name[64];

	(void)snprintf (name, sizeof name, "%.*s", (int)strcspn (pair, "="), pair);
	if (!find (name))
		fail_msg ("no %s", pair);
	assert_string_equal (find (name), pair);
}

static struct enc_env_in task (const struct enc_options *o)
{
	return (struct enc_env_in){ .job = 4501, .rank = 5, .local_rank = 1, .world = 8, .local_world = 4, .node_rank = 1, .nodes = 2, .cpus = 3,
		.master = "10.77.4.2", .interface = "enclave0", .enclave = "cxr", .options = o };
}

T (a_task_is_told_its_rank_and_where_the_others_are)
{
	static const char *const start[] = { "RANK=77", "MASTER_ADDR=elsewhere", NULL };
	static const char *const want[] = { "RANK=5", "LOCAL_RANK=1", "WORLD_SIZE=8", "LOCAL_WORLD_SIZE=4", "NODE_RANK=1", "MASTER_ADDR=10.77.4.2", "MASTER_PORT=61001",
		"GLOO_SOCKET_IFNAME=enclave0", "NCCL_SOCKET_IFNAME==enclave0", "OMP_NUM_THREADS=3", "HF_HUB_OFFLINE=1", "WANDB_MODE=offline", "TMPDIR=/tmp", "ENCLAVE=cxr" };
	struct enc_options o = { 0 };
	struct enc_env_in in = task (&o);

	apply (&in, start);
	for (size_t i = 0; i < ENC_ARRAY_LEN (want); i++)
		is (want[i]);
}

T (the_user_wins_where_it_does_no_harm_and_a_recipe_before_the_plugin)
{
	static const char *const start[] = { "MASTER_PORT=5000", "OMP_NUM_THREADS=7", "HF_HUB_OFFLINE=0", NULL }, *const nothing[] = { NULL };
	struct enc_options o = { 0 };
	struct enc_env_in in = task (&o);

	ok (enc_options_take (&o, ENC_OPT_RECIPE, "cxr-mllm,size=tiny", &err));
	ok (enc_options_take (&o, ENC_OPT_DATA, "cxr-images", &err));
	in.recipe = "env.default.OMP_NUM_THREADS = 1\nenv.set.PYTHONNOUSERSITE = 1\nenv.set.bad-name = 1\ncheckpoint.signal = USR2\n";
	apply (&in, start);
	is ("MASTER_PORT=5000");
	is ("OMP_NUM_THREADS=7");
	is ("HF_HUB_OFFLINE=1");
	is ("PYTHONNOUSERSITE=1");
	is ("ENCLAVE_CKPT_SIGNAL=USR2");
	is ("ENCLAVE_RECIPE_SIZE=tiny");
	is ("ENCLAVE_DATA_CXR_IMAGES=/enclave/data/cxr-images");
	apply (&in, nothing);
	is ("OMP_NUM_THREADS=1");
}

T (a_batch_script_has_no_rank_but_passes_on_the_cpus)
{
	static const char *const start[] = { NULL };
	struct enc_options o = { 0 };
	struct enc_env_in in = task (&o);

	in.batch = true;
	(void)snprintf (in.cpus_per_task, sizeof in.cpus_per_task, "4");
	apply (&in, start);
	is ("SRUN_CPUS_PER_TASK=4");
	assert_null (find ("RANK"));
	assert_null (find ("OMP_NUM_THREADS"));
}

T (invariant_06_tokens_keys_and_ways_out_do_not_come_along)
{
	static const char *const start[] = { "HTTPS_PROXY=http://p", "http_proxy=x", "no_proxy=x", "GITHUB_TOKEN=x", "WANDB_API_KEY=x", "AWS_SECRET_ACCESS_KEY=x", "DB_PASSWORD=x",
		"SSH_AUTH_SOCK=/x", "hf_token=x", "PATH=/usr/bin", "KEYBOARD=us", "SLURM_JWT_TOKEN_KEY=kept", "ENCLAVE_CKPT_KEY=kept", NULL };
	struct enc_options o = { 0 };
	struct enc_env_in in = task (&o);

	apply (&in, start);
	for (size_t i = 0; i < 9; i++)
		assert_string_equal (have[i], "");
	is ("PATH=/usr/bin");
	is ("KEYBOARD=us");
	is ("ENCLAVE_CKPT_KEY=kept");
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		RUN (options_are_read_whole),
		RUN (an_option_twice_is_taken_when_equal_and_refused_when_not),
		RUN (invariant_15_bad_options_change_nothing_and_are_named),
		RUN (invariant_11_another_enclave_or_dataset_is_as_unknown_as_none),
		RUN (an_unknown_recipe_names_the_nearest_and_a_key_must_be_the_recipes), RUN (a_plan_that_does_not_fit_warns_or_refuses),
		RUN (a_task_is_told_its_rank_and_where_the_others_are),
		RUN (the_user_wins_where_it_does_no_harm_and_a_recipe_before_the_plugin),
		RUN (a_batch_script_has_no_rank_but_passes_on_the_cpus),
		RUN (invariant_06_tokens_keys_and_ways_out_do_not_come_along),
	};

	return cmocka_run_group_tests_name ("options", tests, NULL, NULL);
}
