/* What the witnesses of the log say, and whether the log that is there now continues one that an auditor saw before. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "controller/cli/command.h"
#include "crypto/tlog/policy.h"
#include "crypto/tlog/tree.h"
#include "crypto/checkpoint.h"
#include "base/enc.h"

/* ---- witness ---- */

static const struct enc_column witness_columns[] = {
	{ "WITNESS", "/name", ENC_COLUMN_TEXT }, { "STATE", "/state", ENC_COLUMN_TEXT }, { "COSIGNED", "/size", ENC_COLUMN_TEXT },
	{ "AGE (s)", "/age_s", ENC_COLUMN_TEXT }, { "WHAT", "/text", ENC_COLUMN_TEXT },   { .kind = ENC_COLUMN_END },
};

int enc_view_witness (const struct enc_session *s, const struct enc_json *answer, struct enc_error *err)
{
	const struct enc_json *w = enc_json_get (answer, "witnesses");
	long long required = (long long) enc_json_get_i64 (w, "required", 0), age = (long long) enc_json_get_i64 (w, "age_s", -1);
	int rc = enc_table_print (witness_columns, enc_json_get (answer, "list"), err);

	if (rc < 0)
		return rc;
	if (required == 0)
		(void) printf ("%sNo witness is asked for%s: whoever has the log's key could show two people two logs.\n", enc_colour_on (s, ENC_COLOUR_WARN),
			       enc_colour_off (s));
	else if (age < 0)
		(void) printf ("%sNo quorum of %lld has cosigned yet%s\n", enc_colour_on (s, ENC_COLOUR_BAD), required, enc_colour_off (s));
	else
		(void) printf ("%lld of %lld records cosigned by %lld witnesses (%lld asked for), %lld s ago\n", (long long) enc_json_get_i64 (w, "size", 0),
			       (long long) enc_json_get_i64 (answer, "size", 0), (long long) enc_json_get_i64 (w, "cosigned", 0), required, age);
	return 0;
}

/* ---- consistency ---- */

static int read_head (const char *path, const struct enc_vkey *vkey, struct enc_tree_head *ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (ENC_NOTE_MAX);
	int rc = enc_file_read (path, ENC_NOTE_MAX, &text, err);

	if (rc == 0)
		rc = enc_checkpoint_open ((const char *) text.data, text.len, vkey, ret, err);
	return enc_wrap (err, rc, "%s", path);
}

static int read_path (const struct enc_json *list, struct enc_path *ret, struct enc_error *err)
{
	ret->n = 0;
	for (size_t i = 0; i < enc_json_len (list); i++) {
		const char *text = enc_json_str (enc_json_at (list, i));

		if (ret->n == ENC_TREE_LEVELS || !text || enc_hash_from_b64 (text, strlen (text), &ret->hash[ret->n]) < 0)
			return enc_fail (err, ENC_EINTEGRITY, "the log service gives no proof that can be read");
		ret->n++;
	}
	return 0;
}

/* The newest head as the service has it, checked here by the log's key. */
static int fetch_head (const struct enc_session *s, const struct enc_vkey *vkey, struct enc_tree_head *ret, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *answer = NULL;
	const char *note;
	int rc = enc_session_get (s, &answer, err, "/v1/audit/head");

	if (rc < 0)
		return rc;
	note = enc_json_get_str (answer, "checkpoint", "");
	return enc_checkpoint_open (note, strlen (note), vkey, ret, err);
}

static int prove (const struct enc_session *s, const struct enc_tree_head *old, const struct enc_tree_head *now, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *answer = NULL;
	struct enc_path path = { 0 };
	int rc = 0;

	if (old->size > now->size)
		return enc_fail (err, ENC_EINTEGRITY, "the log had %llu records and has %llu: it was cut back", (unsigned long long) old->size,
				 (unsigned long long) now->size);
	if (old->size > 0 && old->size < now->size)
		rc = enc_session_get (s, &answer, err, "/v1/audit/consistency?from=%llu&to=%llu", (unsigned long long) old->size,
				      (unsigned long long) now->size);
	if (rc == 0)
		rc = read_path (enc_json_get (answer, "proof"), &path, err);
	if (rc < 0 || old->size == 0)
		return rc;
	return enc_tree_check_grown (old, now, &path) == 0
		       ? 0
		       : enc_fail (err, ENC_EINTEGRITY, "the log of %llu records does not continue the one of %llu: it was forked",
				   (unsigned long long) now->size, (unsigned long long) old->size);
}

int enc_cmd_audit_consistency (const struct enc_session *s, const struct enc_command *c ENC_UNUSED, const struct enc_json *args,
			       struct enc_json **ret, struct enc_error *err)
{
	const char *to = enc_json_get_str (args, "to", NULL);
	struct enc_tree_head old, now;
	struct enc_vkey vkey;
	char root[ENC_HASH_B64_SIZE];
	int rc = enc_cli_vkey (args, &vkey, err);

	if (rc < 0 || (rc = read_head (enc_json_get_str (args, "from", ""), &vkey, &old, err)) < 0 ||
	    (rc = to ? read_head (to, &vkey, &now, err) : fetch_head (s, &vkey, &now, err)) < 0)
		return rc;
	rc = prove (s, &old, &now, err);
	if (rc < 0 && rc != -ENC_EINTEGRITY)
		return rc;
	enc_hash_b64 (&now.root, root);
	*ret = enc_json_object ();
	enc_json_set_str (*ret, "result", rc == 0 ? "complete" : "altered");
	enc_json_set_u64 (*ret, "from", old.size);
	enc_json_set_u64 (*ret, "to", now.size);
	enc_json_set_str (*ret, "root", root);
	return rc;
}
