/* Members: changed in the store, signed into a new document, brought to the nodes; the operation ends when they have it. */
#include "controller/enclaved/api.h"

#include "controller/enclaved/steps.h"
#include "base/enc.h"

enum { WAIT_MS = 50000 };

int enc_api_members (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc = enc_api_enclave (a, ENC_ACT_MEMBER_LIST, false, &e, err);

	if (rc == 0)
		a->answer = enc_view_members (a->c, &e);
	return rc;
}

/* ---- the work behind both ---- */

struct change {
	struct enc_json *record; /* of the outcome, NULL: none */
	int64_t start;
};

static int push_members (struct enc_run *run, void *arg, struct enc_json **ret, struct enc_error *err)
{
	struct change *ch = arg;
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc;

	run->dir = ENC_UP;
	(void) enc_fiber_bound (run->ctl->fibers, enc_deadline_ms (60000));
	rc = enc_run_enclave (run, &e, err);
	/* Before it is open the login row signs the document with whoever is a member then. */
	if (rc == 0 && enc_streq (e.state, ENC_STATE_OPEN) && (rc = enc_members_sign (run, err)) == 0)
		rc = enc_members_push (run, err);
	(void) enc_fiber_bound (run->ctl->fibers, ENC_FOREVER);
	if (rc == 0)
		*ret = enc_view_members (run->ctl, &e);
	if (ch->record) {
		enc_json_set_str (ch->record, "outcome", rc < 0 ? "failed" : "ok");
		enc_json_set_i64 (enc_record_data (ch->record), "ms", (enc_mono () - ch->start) / ENC_NS_MS);
		enc_record_soon (run->ctl, ENC_TAKE (ch->record));
	}
	free (ch);
	return rc;
}

static int start_change (struct enc_api *a, const struct enc_enclave *e, const char *kind, struct enc_json *record, struct enc_error *err)
{
	struct change *ch = calloc (1, sizeof *ch);
	char op[ENC_ID_SIZE] = "";
	int rc;

	if (!ch) {
		enc_json_free (record);
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	ch->record = record;
	ch->start = enc_mono ();
	if ((rc = enc_operation_new (a->c, kind, a->actor->user, e, op, err)) < 0 ||
	    (rc = enc_life_run (a->c, e->id, op, push_members, ch, err)) < 0) {
		enc_json_free (record);
		free (ch);
		return rc;
	}
	/* Usually done within a second; who asked wants to know that the nodes have it. */
	if ((rc = enc_api_wait (a, op, WAIT_MS, err)) < 0)
		return rc;
	a->answer = enc_view_members (a->c, e);
	enc_json_set_str (a->answer, "operation", op);
	a->status = 202;
	return 0;
}

static struct enc_json *member_record (struct enc_api *a, const struct enc_enclave *e, const char *action, const char *user)
{
	struct enc_json *record = enc_api_record (a, "member", action, "ok");

	enc_record_enclave (record, e);
	enc_record_obj (record, "user", user);
	return record;
}

/* ---- add ---- */

struct add {
	char *user;
	int role;
};

static const char *const roles[] = { "member", "steward", NULL };
static const struct enc_field add_fields[] = {
	ENC_FIELD (struct add, user, "user", ENC_T_USER, .flags = ENC_REQUIRED),
	ENC_FIELD (struct add, role, "role", ENC_T_ENUM, .names = roles, .dflt = "\"member\""),
	ENC_FIELD_END
};

static void add_done (struct add *d)
{
	enc_fields_done (add_fields, d);
}

/* The new member must be trained, and the agreement must hold; removing needs neither. */
static int may_add (struct enc_api *a, const struct enc_enclave *e, const char *user, struct enc_error *err)
{
	struct enc_facts f = { .action = ENC_ACT_MEMBER_ADD, .user = a->actor->user, .now = enc_now (), .owner = user,
			       .is_owner = enc_streq (e->owner, a->actor->user), .training_until = enc_training_until (a->c, user) };
	struct enc_decision d;

	f.is_member = enc_db_int (a->c->db, 0, "SELECT count(*) FROM members WHERE enclave_id=? AND user=?", "ss", e->id, a->actor->user) > 0;
	enc_facts_agreement (a->c, e->agreement, &f);
	enc_policy_decide (&a->c->policies, enc_policies_find (&a->c->policies, e->policy), &f, &d);
	return enc_decision_error (&d, err);
}

int enc_api_member_add (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	enc_auto_done (add_done) struct add in = { 0 };
	struct enc_member_row m = { .since = enc_now_s () };
	const struct enc_json *wrapped = enc_json_get (a->body, "member");
	enc_auto_free char *keys = NULL;
	struct enc_json *record;
	int rc;

	if ((rc = enc_json_decode (add_fields, wrapped ? wrapped : a->body, &in, err)) < 0 || (rc = enc_api_enclave (a, ENC_ACT_MEMBER_LIST, false, &e, err)) < 0 ||
	    (rc = enc_site_user_find (a->c->conf->users, in.user, &m.uid, &m.gid, &keys, err)) < 0 || (rc = may_add (a, &e, in.user, err)) < 0 ||
	    (rc = enc_id_new (m.id, err)) < 0)
		return rc;
	record = member_record (a, &e, "add", in.user);
	enc_json_set_str (enc_record_data (record), "role", roles[in.role]);
	if ((rc = enc_record_now (a->c, record, NULL, err)) < 0)
		return rc;
	m.keys = keys;
	(void) snprintf (m.enclave_id, sizeof m.enclave_id, "%s", e.id);
	(void) snprintf (m.user, sizeof m.user, "%s", in.user);
	(void) snprintf (m.role, sizeof m.role, "%s", roles[in.role]);
	if ((rc = enc_member_put (a->c->db, &m, err)) < 0)
		return rc;
	return start_change (a, &e, "member-add", NULL, err);
}

/* ---- remove ---- */

int enc_api_member_remove (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	const char *user = enc_http_capture (a->req, 1);
	int rc;

	if (!enc_user_name_ok (user))
		return enc_error_pointer (err, enc_fail (err, ENC_EUSAGE, "not a user name"), "user");
	if ((rc = enc_api_enclave (a, ENC_ACT_MEMBER_REMOVE, false, &e, err)) < 0)
		return rc;
	if (enc_streq (user, e.owner))
		return enc_error_next (err, enc_fail (err, ENC_ECONFLICT, "%s owns this enclave", user), "enclavectl destroy %s", e.name);
	if ((rc = enc_db_exec (a->c->db, err, "DELETE FROM members WHERE enclave_id=? AND user=?", "ss", e.id, user)) < 0)
		return rc;
	if (enc_db_changes (a->c->db) == 0)
		return enc_error_object (err, enc_fail (err, ENC_ENOTFOUND, "there is no member %s", user), "%s", user);
	return start_change (a, &e, "member-remove", member_record (a, &e, "remove", user), err);
}
