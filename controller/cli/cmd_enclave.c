/* create, plan, destroy, watch, and what they show. */
#include <string.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/str.h"
#include "controller/cli/command.h"
#include "controller/cli/live.h"
#include "base/enc.h"

/* ---- orders ---- */

static struct enc_json *body_of (const struct enc_json *args, bool *ret_no_wait, bool *ret_dry)
{
	struct enc_json *body = enc_json_copy (args);
	*ret_no_wait = enc_json_get_bool (body, "no_wait", false);
	*ret_dry = enc_json_get_bool (body, "dry_run", false);
	enc_json_del (body, "no_wait");
	enc_json_del (body, "dry_run");
	return body;
}

int enc_cmd_plan (const struct enc_session *s, const struct enc_command *c ENC_UNUSED, const struct enc_json *args, struct enc_json **ret,
		  struct enc_error *err)
{
	bool no_wait, dry;
	enc_auto (enc_json) struct enc_json *body = body_of (args, &no_wait, &dry);
	return enc_session_call (s, "POST", "/v1/enclaves/plan", body, ret, err);
}

int enc_cmd_create (const struct enc_session *s, const struct enc_command *c, const struct enc_json *args, struct enc_json **ret,
		    struct enc_error *err)
{
	bool no_wait, dry;
	enc_auto (enc_json) struct enc_json *body = body_of (args, &no_wait, &dry);
	if (!dry)
		return enc_command_follow (s, "POST", "/v1/enclaves", body, !no_wait, enc_json_get_str (body, "name", ""), ret, err);
	int rc = enc_cmd_plan (s, c, args, ret, err);
	if (rc < 0 || s->json)
		return rc;
	enc_auto (enc_json) struct enc_json *plan = *ret;
	*ret = NULL;
	return enc_view_plan (s, plan, err);
}

/* "--erase a --erase b" is one text for the route. */
static void put_erase (struct enc_json *body, const struct enc_json *list)
{
	enc_auto_done (enc_buf_done) struct enc_buf names = ENC_BUF_INIT (4096);
	for (size_t i = 0; i < enc_json_len (list); i++)
		enc_buf_putf (&names, "%s%s", i ? "," : "", enc_json_str (enc_json_at (list, i)));
	enc_auto_free char *text = enc_buf_take_str (&names);
	enc_json_set_str (body, "erase", text);
}

int enc_cmd_destroy (const struct enc_session *s, const struct enc_command *c ENC_UNUSED, const struct enc_json *args, struct enc_json **ret,
		     struct enc_error *err)
{
	const char *name = enc_json_get_str (args, "name", "");
	const struct enc_json *erase = enc_json_get (args, "erase");
	enc_auto (enc_json) struct enc_json *body = enc_json_object ();
	enc_auto_free char *encoded = enc_url_encode (name), *path = encoded ? enc_strf ("/v1/enclaves/%s", encoded) : NULL;
	if (!path)
		return enc_fail (err, ENC_ENOMEM, "no memory for the request");
	enc_json_set_bool (body, "now", enc_json_get_bool (args, "now", false));
	if (erase)
		put_erase (body, erase);
	return enc_command_follow (s, "DELETE", path, body, !enc_json_get_bool (args, "no_wait", false), name, ret, err);
}

/* "USER:ROLE" stands in one word on the command line, and as two members in the request. */
int enc_cmd_member_add (const struct enc_session *s, const struct enc_command *c, const struct enc_json *args, struct enc_json **ret,
			struct enc_error *err)
{
	const struct enc_json *member = enc_json_get (args, "member");
	const char *raw = enc_json_str (member);
	enc_auto (enc_json) struct enc_json *flat = raw ? enc_json_object () : enc_json_copy (member);
	if (raw)
		enc_json_set_str (flat, "user", raw);
	enc_json_set (flat, "name", enc_json_copy (enc_json_get (args, "name")));
	return enc_command_call (s, c, flat, ret, err);
}

/* grow and shrink: follow, then show. */
int enc_cmd_change (const struct enc_session *s, const struct enc_command *c, const struct enc_json *args, struct enc_json **ret,
		    struct enc_error *err)
{
	const char *name = enc_json_get_str (args, "name", "");
	enc_auto (enc_json) struct enc_json *body = enc_json_copy (args);
	enc_auto_free char *encoded = enc_url_encode (name), *path = encoded ? enc_strf ("/v1/enclaves/%s/%s", encoded, c->verb) : NULL;
	enc_json_del (body, "name");
	if (!path)
		return enc_fail (err, ENC_ENOMEM, "no memory for the request");
	return enc_command_follow (s, "POST", path, body, true, name, ret, err);
}

int enc_cmd_watch (const struct enc_session *s, const struct enc_command *c ENC_UNUSED, const struct enc_json *args, struct enc_json **ret,
		   struct enc_error *err)
{
	const char *name = enc_json_get_str (args, "name", "");
	struct enc_session live = *s;
	enc_auto (enc_json) struct enc_json *show = NULL;
	struct enc_live view = { .s = &live };
	uint64_t after = 0;
	live.progress = s->json;
	enc_auto_free char *encoded = enc_url_encode (name);
	int rc = enc_session_get (s, &show, err, "/v1/enclaves/%s", encoded ? encoded : "");
	const char *id = enc_json_get_str (show, "operation", NULL);
	while (rc == 0 && id) {
		enc_auto (enc_json) struct enc_json *answer = NULL;
		rc = enc_session_get (s, &answer, err, "/v1/operations/%s/events?after=%llu", id, (unsigned long long) after);
		for (size_t i = 0; rc == 0 && i < enc_json_len (enc_json_get (answer, "events")); i++)
			enc_live_event (&view, enc_json_at (enc_json_get (answer, "events"), i));
		after = enc_json_get_u64 (answer, "last", after);
		if (rc < 0 || enc_json_get_bool (answer, "done", true))
			break;
	}
	enc_live_end (&view);
	if (rc < 0)
		return rc;
	enc_json_free (show);
	show = NULL;
	if ((rc = enc_session_get (s, &show, err, "/v1/enclaves/%s", encoded)) < 0)
		return rc;
	if (s->json)
		*ret = ENC_TAKE (show);
	else
		rc = enc_view_show (s, show, err);
	return rc;
}

/* ---- views ---- */

static const struct enc_column plan_nodes[] = {
	{ "NODE", "/name", ENC_COLUMN_TEXT }, { "STATE", "/state", ENC_COLUMN_TEXT }, { "FREE", "/free_at", ENC_COLUMN_FREE },
	{ "WHY CHOSEN", "/why", ENC_COLUMN_TEXT }, { .kind = ENC_COLUMN_END },
};
static const struct enc_column plan_head[] = {
	{ "Policy", "/policy/name", ENC_COLUMN_TEXT }, { "Rule", "/policy/rule", ENC_COLUMN_TEXT }, { "Allowed", "/allowed", ENC_COLUMN_YES },
	{ .kind = ENC_COLUMN_END },
};
static const struct enc_column plan_ready[] = {
	{ "Ready", "/ready_at/wait", ENC_COLUMN_FREE }, { "Steps", "/steps", ENC_COLUMN_LIST }, { .kind = ENC_COLUMN_END },
};

int enc_view_plan (const struct enc_session *s, const struct enc_json *answer, struct enc_error *err)
{
	const struct enc_json *refusals = enc_json_get (answer, "refusals");
	int rc = enc_sheet_print (plan_head, answer, err);
	if (rc == 0 && enc_json_len (enc_json_get (answer, "nodes")))
		rc = enc_table_print (plan_nodes, enc_json_get (answer, "nodes"), err);
	if (rc == 0)
		rc = enc_sheet_print (plan_ready, answer, err);
	for (size_t i = 0; rc == 0 && i < enc_json_len (refusals); i++) {
		const struct enc_json *r = enc_json_at (refusals, i);
		const char *next = enc_json_get_str (r, "next", NULL);
		(void) printf ("%sRefused%s     %s%s%s\n", enc_colour_on (s, ENC_COLOUR_BAD), enc_colour_off (s), enc_json_get_str (r, "text", "?"),
			       next ? "; next: " : "", next ? next : "");
	}
	if (rc == 0)
		(void) printf ("Nothing was changed. Run the same with \"create\".\n");
	return rc;
}

static const struct enc_column show_sheet[] = {
	{ "Enclave", "/name", ENC_COLUMN_TEXT },      { "Id", "/id", ENC_COLUMN_TEXT },           { "State", "/state", ENC_COLUMN_TEXT },
	{ "Step", "/step", ENC_COLUMN_TEXT },         { "Door", "/door", ENC_COLUMN_TEXT },       { "Owner", "/owner", ENC_COLUMN_TEXT },
	{ "Agreement", "/agreement", ENC_COLUMN_TEXT }, { "Purpose", "/purpose", ENC_COLUMN_TEXT }, { "Policy", "/policy/name", ENC_COLUMN_TEXT },
	{ "Entry", "/entry", ENC_COLUMN_TEXT },       { "Opened", "/opened_at", ENC_COLUMN_TEXT }, { "Expires", "/expires_at", ENC_COLUMN_UNTIL },
	{ "Nodes", "/nodes", ENC_COLUMN_NODES },      { "Partition", "/partition", ENC_COLUMN_TEXT }, { "Login", "/login/host", ENC_COLUMN_TEXT },
	{ "Members", "/members", ENC_COLUMN_LIST },   { "Running", "/jobs/running", ENC_COLUMN_TEXT }, { "Pending", "/jobs/pending", ENC_COLUMN_TEXT },
	{ "Evidence", "/evidence/state", ENC_COLUMN_TEXT }, { "Evidence age", "/evidence/age_s", ENC_COLUMN_SPAN },
	{ "Waits for", "/waiting/for", ENC_COLUMN_TEXT }, { "Next", "/waiting/next", ENC_COLUMN_TEXT }, { .kind = ENC_COLUMN_END },
};
static const struct enc_column show_volumes[] = {
	{ "VOLUME", "/name", ENC_COLUMN_TEXT },     { "KIND", "/kind", ENC_COLUMN_TEXT },     { "STATE", "/state", ENC_COLUMN_TEXT },
	{ "SIZE", "/size_bytes", ENC_COLUMN_SIZE }, { "CIPHER", "/cipher", ENC_COLUMN_TEXT }, { "BITS", "/key_bits", ENC_COLUMN_TEXT },
	{ "MOUNT", "/mount", ENC_COLUMN_TEXT },     { .kind = ENC_COLUMN_END },
};

int enc_view_show (const struct enc_session *s ENC_UNUSED, const struct enc_json *answer, struct enc_error *err)
{
	int rc = enc_sheet_print (show_sheet, answer, err);
	if (rc == 0 && enc_json_len (enc_json_get (answer, "volumes")))
		rc = enc_table_print (show_volumes, enc_json_get (answer, "volumes"), err);
	return rc;
}

int enc_view_created (const struct enc_session *s ENC_UNUSED, const struct enc_json *answer, struct enc_error *err ENC_UNUSED)
{
	const char *name = enc_json_get_str (answer, "name", NULL), *host = enc_json_get_str (enc_json_get (answer, "login"), "host", NULL);
	const struct enc_json *records = enc_json_get (answer, "records");
	if (!name) {
		(void) printf ("Ordered. Follow it: enclavectl list\n");
		return 0;
	}
	(void) printf ("Enclave %s is %s. Owner: %s. Next:\n  enclavectl member add %s USER\n", name, enc_json_get_str (answer, "state", "?"),
		       enc_json_get_str (answer, "owner", "?"), name);
	if (host)
		(void) printf ("  researchers: ssh USER@%s (port %lld), then sbatch -p %s job.sh\n", host,
			       (long long) enc_json_get_i64 (enc_json_get (answer, "login"), "port", 22), enc_json_get_str (answer, "partition", "protected"));
	(void) printf ("Records %lld–%lld.\n", (long long) enc_json_get_i64 (records, "first", -1), (long long) enc_json_get_i64 (records, "last", -1));
	return 0;
}

int enc_view_destroyed (const struct enc_session *s ENC_UNUSED, const struct enc_json *answer, struct enc_error *err ENC_UNUSED)
{
	const struct enc_json *nodes = enc_json_get (answer, "nodes"), *volumes = enc_json_get (answer, "volumes");
	char span[ENC_SPAN_SIZE];
	if (!enc_json_get (answer, "state")) {
		(void) printf ("Ordered. Follow it: enclavectl list\n");
		return 0;
	}
	for (size_t i = 0; i < enc_json_len (nodes); i++) {
		const struct enc_json *n = enc_json_at (nodes, i);
		(void) printf ("%s returned to %s, clean (certificate %lld)\n", enc_json_get_str (n, "name", "?"), enc_json_get_str (n, "pool", "?"),
			       (long long) enc_json_get_i64 (n, "certificate", -1));
	}
	for (size_t i = 0; i < enc_json_len (volumes); i++) {
		const struct enc_json *v = enc_json_at (volumes, i);
		const char *state = enc_json_get_str (v, "state", "?");
		(void) printf ("volume %s %s%s\n", enc_json_get_str (v, "name", "?"), state, strcmp (state, "locked") == 0 ? " (key kept until you erase it)" : "");
	}
	(void) printf ("%s is %s, %s.\n", enc_json_get_str (answer, "name", "?"), enc_json_get_str (answer, "state", "?"),
		       enc_span_format ((int64_t) (enc_json_double (enc_json_get (answer, "seconds"), 0) * (double) ENC_NS_S), span));
	return 0;
}

/* Without an id: everybody's. */
int enc_cmd_session_end (const struct enc_session *s, const struct enc_command *c, const struct enc_json *args, struct enc_json **ret, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *full = enc_json_copy (args);
	if (!enc_json_get (full, "id"))
		enc_json_set_str (full, "id", "all");
	return enc_command_call (s, c, full, ret, err);
}
