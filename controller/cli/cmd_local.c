/* Commands that need no controller, or only part of one: recipes on this machine, policy files, doctor. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "controller/cli/command.h"
#include "policies/policy.h"
#include "base/enc.h"

enum { RECIPE_MAX = 256, CONF_MAX = 65536 };

/* ---- recipes: folders with a recipe.conf of key=value lines ---- */

static int recipe_load (const char *name, struct enc_json *ret, struct enc_error *err)
{
	enc_auto_free char *path = enc_strf (ENC_CLI_RECIPES "/%s/recipe.conf", name);
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (CONF_MAX + 1);
	int rc = path ? enc_file_read (path, CONF_MAX, &text, err) : enc_fail (err, ENC_ENOMEM, "no memory for a recipe");
	if (rc < 0)
		return -rc == ENC_ENOTFOUND ? enc_error_next (err, enc_fail (err, ENC_ENOTFOUND, "no recipe %s", name), "enclavectl recipe list") : rc;
	enc_json_set_str (ret, "name", name);
	enc_buf_put (&text, "", 1);
	char *rest = (char *) text.data;
	for (char *line = strsep (&rest, "\n"); line; line = strsep (&rest, "\n")) {
		char *equal = strchr (line, '=');
		if (!equal || line[0] == '#')
			continue;
		*equal = 0;
		line[strcspn (line, " \t")] = 0;
		enc_json_set_str (ret, line, equal + 1 + strspn (equal + 1, " \t"));
	}
	return 0;
}

int enc_cmd_recipe_show (const struct enc_session *s ENC_UNUSED, const struct enc_command *c ENC_UNUSED, const struct enc_json *args,
			 struct enc_json **ret, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *recipe = enc_json_object ();
	int rc = recipe_load (enc_json_get_str (args, "name", ""), recipe, err);
	if (rc == 0)
		*ret = ENC_TAKE (recipe);
	return rc;
}

int enc_cmd_recipe_list (const struct enc_session *s ENC_UNUSED, const struct enc_command *c ENC_UNUSED, const struct enc_json *args ENC_UNUSED,
			 struct enc_json **ret, struct enc_error *err)
{
	enc_auto_close int dir = enc_open_dir (ENC_CLI_RECIPES, err);
	struct enc_strs names = { 0 };
	int rc = dir < 0 ? dir : enc_dir_list (dir, RECIPE_MAX, &names, err);
	if (rc == 0) {
		*ret = enc_json_object ();
		struct enc_json *list = enc_json_set_array (*ret, "recipes");
		for (size_t i = 0; i < names.n; i++)
			if (enc_name_ok (names.v[i]))
				enc_json_add_str (list, names.v[i]);
	}
	enc_strs_done (&names);
	return rc;
}

/* ---- any small answer, as lines of "key  value" ---- */

int enc_view_text (const struct enc_session *s ENC_UNUSED, const struct enc_json *answer, struct enc_error *err ENC_UNUSED)
{
	struct enc_json_iter it = { 0 };
	while (enc_json_next (answer, &it)) {
		const char *text = enc_json_str (it.value);
		enc_auto_free char *written = text ? NULL : enc_json_write (it.value, NULL, NULL);
		if (text && strchr (text, '\n')) {
			(void) printf ("%s\n%s", it.key, text);
			continue;
		}
		enc_auto_free char *shown = text ? enc_text_printable (text) : NULL;
		(void) printf ("%-14s %s\n", it.key, shown ? shown : written ? written : "?");
	}
	return 0;
}

/* ---- policy check ---- */

int enc_cmd_policy_check (const struct enc_session *s ENC_UNUSED, const struct enc_command *c ENC_UNUSED, const struct enc_json *args,
			  struct enc_json **ret, struct enc_error *err)
{
	const char *path = enc_json_get_str (args, "file", "");
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (CONF_MAX * 4);
	struct enc_error why = { 0 };
	struct enc_policies only = { 0 };
	int rc = enc_file_read (path, CONF_MAX * 4, &text, err);
	if (rc < 0)
		return rc;
	rc = enc_policies_add (&only, (const char *) text.data, text.len, &why);
	enc_policies_done (&only);
	*ret = enc_json_object ();
	enc_json_set_bool (*ret, "ok", rc == 0);
	struct enc_json *errors = enc_json_set_array (*ret, "errors");
	if (rc == 0)
		return 0;
	struct enc_json *e = enc_json_add_object (errors);
	enc_json_set_u64 (e, "line", enc_json_line ((const char *) text.data, text.len, why.pointer));
	enc_json_set_str (e, "pointer", why.pointer);
	enc_json_set_str (e, "text", why.text);
	return enc_fail (err, ENC_EFAILED, "%s: %s", path, why.text);
}

/* The answer is the story; a refusal is also the exit status. */
int enc_cmd_policy_explain (const struct enc_session *s, const struct enc_command *c, const struct enc_json *args, struct enc_json **ret,
			    struct enc_error *err)
{
	int rc = enc_command_call (s, c, args, ret, err);
	if (rc < 0 || enc_json_get_bool (*ret, "allowed", false))
		return rc;
	return enc_fail (err, ENC_EDENIED, "%s", enc_json_get_str (*ret, "text", "it would be refused"));
}

/* ---- doctor ---- */

static bool any_bad (const struct enc_json *checks)
{
	bool bad = false;
	for (size_t i = 0; i < enc_json_len (checks); i++) {
		const char *state = enc_json_get_str (enc_json_at (checks, i), "state", "unknown");
		bad |= strcmp (state, "bad") == 0 || strcmp (state, "unknown") == 0;
	}
	return bad;
}

int enc_cmd_doctor (const struct enc_session *s, const struct enc_command *c, const struct enc_json *args, struct enc_json **ret,
		    struct enc_error *err)
{
	int rc = enc_command_call (s, c, args, ret, err);
	if (-rc == ENC_EUNAVAIL) { /* a dead controller is a finding, not a failure to look */
		*ret = enc_json_object ();
		struct enc_json *check = enc_json_add_object (enc_json_set_array (*ret, "checks"));
		enc_json_set_str (check, "id", "controller");
		enc_json_set_str (check, "state", "bad");
		enc_json_set_str (check, "text", err->text);
		enc_json_set_str (check, "next", "systemctl status enclaved");
		rc = 0;
	}
	if (rc == 0 && any_bad (enc_json_get (*ret, "checks")))
		return enc_fail (err, ENC_EFAILED, "something is wrong; see the list");
	return rc;
}

static const struct enc_column doctor_columns[] = {
	{ "CHECK", "/id", ENC_COLUMN_TEXT }, { "STATE", "/state", ENC_COLUMN_TEXT }, { "WHAT", "/text", ENC_COLUMN_TEXT },
	{ "NEXT", "/next", ENC_COLUMN_TEXT }, { .kind = ENC_COLUMN_END },
};

int enc_view_doctor (const struct enc_session *s ENC_UNUSED, const struct enc_json *answer, struct enc_error *err)
{
	return enc_table_print (doctor_columns, enc_json_get (answer, "checks"), err);
}
