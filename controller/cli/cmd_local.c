/* Commands that need no controller, or only part of one: policy files, doctor. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "controller/cli/command.h"
#include "policies/policy.h"
#include "base/enc.h"

enum { POLICY_MAX = 262144 };

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
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (POLICY_MAX);
	struct enc_error why = { 0 };
	struct enc_policies only = { 0 };
	int rc = enc_file_read (path, POLICY_MAX, &text, err);
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
