#include "controller/enclaved/node_events.h"

#include <string.h>
#include "base/enctime.h"
#include "controller/enclaved/record.h"
#include "crypto/event.h"
#include "policies/policy.h"
#include "node-agent/proto/document.h"
#include "base/enc.h"

/* A node gives its last events of a stay while it is on its way back, when its certificate is already there. */
enum { LATE_S = 3600 };

enum { ENCLAVE = 1, LOGIN = 2, ACTOR = 4, MEMBER = 8, SESSION = 16, PEER = 32, VOLUME = 64, JOB = 128 };

/* One row a kind. ENCLAVE: only inside one; LOGIN: only from its login node; MEMBER: of a member alone; SESSION: of a session of this
 * node; the rest: which members it may carry. */
static const struct rule {
	const char *cls, *action;
	unsigned flags;
} rules[] = {
	{ "node", "tighten", 0 },
	{ "node", "tamper", 0 },
	{ "fence", "set", 0 },
	{ "volume", "open", VOLUME },
	{ "volume", "close", VOLUME },
	{ "auth", "login", ENCLAVE | LOGIN | ACTOR | MEMBER | PEER },
	{ "auth", "failed", ENCLAVE | LOGIN | ACTOR | PEER },
	{ "session", "start", ENCLAVE | LOGIN | ACTOR | MEMBER | SESSION | PEER },
	{ "session", "end", ENCLAVE | ACTOR | SESSION | PEER },
	{ "job", "start", ENCLAVE | ACTOR | JOB },
	{ "job", "end", ENCLAVE | ACTOR | JOB },
	{ "job", "refused", ENCLAVE | ACTOR | JOB },
};

struct said {
	struct enc_db *db;
	const char *node;
	const struct rule *rule;
	const char *user, *session, *enclave_id;
	bool holds;          /* that enclave holds the node now */
	struct enc_node row;
};

static const char *text_at (const struct enc_json *event, const char *pointer)
{
	const char *s = enc_json_str (enc_json_find (event, pointer));

	return s ? s : "";
}

static const struct rule *rule_of (const struct enc_json *event)
{
	const char *cls = enc_json_get_str (event, "class", ""), *action = enc_json_get_str (event, "action", "");

	for (size_t i = 0; i < ENC_ARRAY_LEN (rules); i++)
		if (enc_streq (rules[i].cls, cls) && enc_streq (rules[i].action, action))
			return &rules[i];
	return NULL;
}

/* ---- judging ---- */

static int judge_enclave (struct said *s, struct enc_error *err)
{
	if (!s->enclave_id[0])
		return s->rule->flags & ENCLAVE ? enc_fail (err, ENC_EDENIED, "of no enclave") : 0;
	s->holds = enc_streq (s->row.enclave_id, s->enclave_id);
	if (s->holds || enc_db_int (s->db, 0, "SELECT count(*) FROM certificates WHERE node=? AND enclave_id=? AND at>?", "ssi", s->node, s->enclave_id,
				    enc_now_s () - LATE_S) > 0)
		return 0;
	return enc_fail (err, ENC_EDENIED, "of another enclave");
}

static int judge_role (const struct said *s, struct enc_error *err)
{
	if (!(s->rule->flags & LOGIN) || (s->holds && (s->row.role & ENC_ROLE_LOGIN)))
		return 0;
	return enc_fail (err, ENC_EDENIED, "not from the login node");
}

static int judge_member (const struct said *s, struct enc_error *err)
{
	if (!(s->rule->flags & MEMBER) ||
	    enc_db_int (s->db, 0, "SELECT count(*) FROM members WHERE enclave_id=? AND user=?", "ss", s->enclave_id, s->user) > 0)
		return 0;
	return enc_fail (err, ENC_EDENIED, "of somebody who is no member");
}

/* A start may come twice (we may have died between log and store); an end is of one that has started. */
static int judge_session (const struct said *s, struct enc_error *err)
{
	bool starts = enc_streq (s->rule->action, "start");
	int64_t others, mine;

	if (!(s->rule->flags & SESSION))
		return 0;
	if (!enc_id_ok (s->session))
		return enc_fail (err, ENC_EDENIED, "of no session");
	mine = enc_db_int (s->db, 0, "SELECT count(*) FROM sessions WHERE id=? AND node=? AND user=? AND enclave_id=?", "ssss", s->session, s->node,
			   s->user, s->enclave_id);
	others = enc_db_int (s->db, 0, "SELECT count(*) FROM sessions WHERE id=?", "s", s->session) - mine;
	return others || (!starts && !mine) ? enc_fail (err, ENC_EDENIED, "of a session that is not its own") : 0;
}

static int judge (struct said *s, const struct enc_json *event, struct enc_error *err)
{
	const char *told = text_at (event, "/obj/node");
	int rc;

	/* Whom it names beside itself is a lie, or somebody else's event. */
	if (told[0] && !enc_streq (told, s->node))
		return enc_fail (err, ENC_EDENIED, "of another node");
	if ((rc = judge_enclave (s, err)) < 0 || (rc = judge_role (s, err)) < 0 || (rc = judge_member (s, err)) < 0)
		return rc;
	return judge_session (s, err);
}

/* ---- the record ---- */

static void take (struct enc_json *record, const struct enc_json *event, const char *group, const char *const *names)
{
	for (int i = 0; names[i]; i++) {
		const struct enc_json *v = enc_json_get (enc_json_get (event, group), names[i]);

		if (v && enc_json_type (v) != ENC_JSON_NULL) {
			struct enc_json *to = enc_json_get (record, group);

			enc_json_set (to ? to : enc_json_set_object (record, group), names[i], enc_json_copy (v));
		}
	}
}

static void take_members (struct enc_json *record, const struct said *s, const struct enc_json *event)
{
	static const char *const actor[] = { "user", "session", "mfa", NULL }, *const peer[] = { "ip", "port", NULL };
	static const char *const volume[] = { "volume", NULL }, *const job[] = { "job", NULL };

	if (s->rule->flags & ACTOR)
		take (record, event, "actor", actor);
	if (s->rule->flags & PEER)
		take (record, event, "peer", peer);
	if (s->rule->flags & VOLUME)
		take (record, event, "obj", volume);
	if (s->rule->flags & JOB)
		take (record, event, "obj", job);
}

static struct enc_json *make (const struct said *s, const char *boot, const struct enc_json *event)
{
	struct enc_json *record = enc_record (s->rule->cls, s->rule->action, enc_json_get_str (event, "outcome", "ok"));
	struct enc_json *src = enc_json_set_object (record, "src");

	take_members (record, s, event);
	if (enc_json_type (enc_json_get (event, "data")) == ENC_JSON_OBJECT)
		enc_json_set (record, "data", enc_json_copy (enc_json_get (event, "data")));
	/* A node gives its reason in words; the log takes one. */
	enc_record_reason (record, enc_json_str (enc_json_find (record, "/data/reason")));
	enc_record_obj (record, "node", s->node);
	enc_json_set_str (src, "node", s->node);
	enc_json_set_str (src, "boot", boot);
	enc_json_set_i64 (src, "counter", enc_json_get_i64 (event, "counter", 0));
	return record;
}

/* Whose node it was: told by the node where it knows, else the enclave that holds it, if it held it already when that happened. */
static void set_enclave (const struct said *s, const struct enc_json *event, struct enc_json *record)
{
	const char *id = s->enclave_id, *time = enc_json_get_str (event, "time", NULL);
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int64_t at = 0;

	if (!id[0] && time && enc_time_parse (time, &at, NULL) == 0 && at >= s->row.held_since * ENC_NS_S)
		id = s->row.enclave_id;
	if (id[0] && enc_enclave_load (s->db, id, &e, NULL) == 0)
		enc_record_enclave (record, &e);
}

int enc_node_event_record (struct enc_db *db, const char *node, const char *boot, const struct enc_json *event, struct enc_json **ret,
			   struct enc_error *err)
{
	struct said s = { .db = db, .node = node, .rule = rule_of (event), .user = text_at (event, "/actor/user"),
			  .session = text_at (event, "/actor/session"), .enclave_id = text_at (event, "/obj/enclave_id") };
	struct enc_json *record;
	int rc;

	if (!s.rule)
		return enc_fail (err, ENC_EDENIED, "of a kind that is not a node's to tell");
	if ((rc = enc_node_load (db, node, &s.row, err)) < 0)
		return rc;
	if ((rc = judge (&s, event, err)) == 0) {
		record = make (&s, boot, event);
		set_enclave (&s, event, record);
		*ret = record;
	}
	enc_node_done (&s.row);
	return rc;
}

struct enc_json *enc_node_event_refusal (const char *node, const struct enc_json *event, const struct enc_error *why)
{
	const struct enc_event *known = enc_event_find (enc_json_get_str (event, "class", ""), enc_json_get_str (event, "action", ""));
	struct enc_json *record = enc_record ("node", "refused", "denied");
	char kind[33] = "unknown";

	if (known)
		(void) snprintf (kind, sizeof kind, "%s.%s", known->cls, known->action);
	enc_record_actor (record, NULL);
	enc_record_obj (record, "node", node);
	enc_json_set_str (enc_record_data (record), "kind", kind);
	enc_record_reason (record, why->text);
	return record;
}
