/* recipe list|show|run: folders of this machine with a recipe.conf and, but for estimates alone, a batch script. No controller is asked. */
#include <pwd.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/recipe.h"
#include "base/str.h"
#include "controller/cli/command.h"
#include "base/enc.h"

#define SBATCH "/usr/bin/sbatch"
#define INSIDE "/run/enclave/enclave.json" /* privd puts it on nodes that are in an enclave */

enum { RECIPES_MAX = 256, SUBMIT_MS = 60000 };

int enc_cmd_recipe_show (const struct enc_session *s ENC_UNUSED, const struct enc_command *c ENC_UNUSED, const struct enc_json *args,
			 struct enc_json **ret, struct enc_error *err)
{
	const char *name = enc_json_get_str (args, "name", "");
	enc_auto_free char *text = NULL;
	int rc = enc_recipe_read (ENC_CLI_RECIPES, name, &text, err);
	if (rc < 0)
		return rc;
	*ret = enc_json_object ();
	enc_json_set_str (*ret, "name", name);
	char *rest = text;
	for (char *line = strsep (&rest, "\n"); line; line = strsep (&rest, "\n")) {
		char *equal = strchr (line, '=');
		if (!equal || line[0] == '#')
			continue;
		*equal = 0;
		line[strcspn (line, " \t")] = 0;
		enc_json_set_str (*ret, line, equal + 1 + strspn (equal + 1, " \t"));
	}
	return 0;
}

int enc_cmd_recipe_list (const struct enc_session *s ENC_UNUSED, const struct enc_command *c ENC_UNUSED, const struct enc_json *args ENC_UNUSED,
			 struct enc_json **ret, struct enc_error *err)
{
	enc_auto_close int dir = enc_open_dir (ENC_CLI_RECIPES, err);
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	int rc = dir < 0 ? dir : enc_dir_list (dir, RECIPES_MAX, &names, err);
	if (rc < 0)
		return rc;
	*ret = enc_json_object ();
	struct enc_json *list = enc_json_set_array (*ret, "recipes");
	for (size_t i = 0; i < names.n; i++)
		if (enc_name_ok (names.v[i]))
			enc_json_add_str (list, names.v[i]);
	return 0;
}

/* ---- recipe run ---- */

/* The script's path; ENC_EINVAL for a recipe that has none. */
static int script_of (const char *name, char **ret, struct enc_error *err)
{
	enc_auto_free char *text = NULL;
	char script[64];
	int rc = enc_recipe_read (ENC_CLI_RECIPES, name, &text, err);
	if (rc < 0)
		return rc;
	if (!enc_recipe_value (text, "script", script, sizeof script))
		return enc_error_next (err, enc_fail (err, ENC_EINVAL, "recipe %s is a memory estimate alone and has no program", name), "enclavectl estimate %s", name);
	if (strchr (script, '/') || script[0] == '.')
		return enc_fail (err, ENC_EINVAL, "recipe %s: its script is not a plain name", name);
	*ret = enc_strf (ENC_CLI_RECIPES "/%s/%s", name, script);
	return *ret ? 0 : enc_fail (err, ENC_ENOMEM, "no memory for a recipe");
}

/* sbatch hands its environment to the job, and the script asks for these. */
static int submitter (struct enc_cmd *cmd, struct enc_error *err)
{
	const struct passwd *me = getpwuid (getuid ());
	if (!me)
		return enc_fail (err, ENC_ENOTFOUND, "your user id %u has no name here", (unsigned) getuid ());
	enc_cmd_env (cmd, "USER", me->pw_name);
	enc_cmd_env (cmd, "LOGNAME", me->pw_name);
	enc_cmd_env (cmd, "HOME", me->pw_dir);
	enc_cmd_env (cmd, "SHELL", me->pw_shell);
	enc_cmd_chdir (cmd, me->pw_dir);
	return 0;
}

/* Words that begin with a dash are sbatch's until the first that does not; that one and the rest are the script's. */
static int submit (const char *script, const struct enc_json *words, struct enc_cmd_result *result, struct enc_error *err)
{
	enc_auto (enc_cmd) struct enc_cmd *cmd = enc_cmd_new (SBATCH);
	bool scripts = false;
	int rc = submitter (cmd, err);
	if (rc < 0)
		return rc;
	enc_cmd_deadline_ms (cmd, SUBMIT_MS);
	enc_cmd_arg (cmd, "--parsable");
	for (size_t i = 0; i < enc_json_len (words); i++) {
		const char *word = enc_json_str (enc_json_at (words, i));
		if (!scripts && word[0] != '-') {
			enc_cmd_arg (cmd, script);
			scripts = true;
		}
		enc_cmd_arg (cmd, word);
	}
	if (!scripts)
		enc_cmd_arg (cmd, script);
	return enc_cmd_run (cmd, result, err);
}

int enc_cmd_recipe_run (const struct enc_session *s ENC_UNUSED, const struct enc_command *c ENC_UNUSED, const struct enc_json *args, struct enc_json **ret,
			struct enc_error *err)
{
	const char *name = enc_json_get_str (args, "name", "");
	enc_auto_free char *script = NULL;
	struct enc_cmd_result result = { 0 };
	int rc = script_of (name, &script, err);
	if (rc == 0 && access (INSIDE, F_OK) < 0)
		rc = enc_error_next (err, enc_fail (err, ENC_EDENIED, "this machine is in no enclave: recipes run inside one"), "enclavectl list, then ssh to its login node");
	if (rc == 0)
		rc = submit (script, enc_json_get (args, "words"), &result, err);
	enc_auto_free char *said = rc == 0 ? enc_buf_take_str (&result.out) : NULL;
	if (rc == 0 && said) {
		said[strcspn (said, ";\n")] = 0; /* sbatch --parsable: JOB[;CLUSTER] */
		*ret = enc_json_object ();
		enc_json_set_str (*ret, "recipe", name);
		enc_json_set_str (*ret, "job", said);
	}
	enc_cmd_result_done (&result);
	return rc;
}
