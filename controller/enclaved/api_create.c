/* create and plan: everything is decided before anything is changed. */
#include "controller/enclaved/api.h"

#include "base/hostlist.h"
#include "controller/enclaved/plan.h"
#include "controller/enclaved/steps.h"
#include "base/enc.h"

/* Within what a caller of the API waits for an answer. */
enum { COMING_MS = 40000, COMING_POLL_MS = 500 };

static const char *const kind_names[] = { "scratch", "project", NULL };
static const char *const service_names[] = { "host", "libvirt", NULL };
static const char *const member_roles[] = { "member", "steward", NULL };

struct want_member {
	char *user;
	int role;
};

struct want_volume {
	char *name;
	uint64_t size_bytes;
	int kind;
};

struct want {
	char *name, *agreement, *purpose, *owner, *policy, *feature, *gres;
	struct enc_json *nodes;
	uint64_t ttl_s, deadline_s;
	int on_busy, entry, service;
	struct enc_list members, volumes;
	struct enc_strs datasets;
	bool dry_run;
};

static const struct enc_field member_fields[] = {
	ENC_FIELD (struct want_member, user, "user", ENC_T_USER, .flags = ENC_REQUIRED),
	ENC_FIELD (struct want_member, role, "role", ENC_T_ENUM, .names = member_roles, .dflt = "\"member\""),
	ENC_FIELD_END
};

static const struct enc_field volume_fields[] = {
	ENC_FIELD (struct want_volume, name, "name", ENC_T_NAME, .flags = ENC_REQUIRED),
	ENC_FIELD (struct want_volume, size_bytes, "size_bytes", ENC_T_SIZE, .flags = ENC_REQUIRED, .min = 1 << 20),
	ENC_FIELD (struct want_volume, kind, "kind", ENC_T_ENUM, .names = kind_names, .dflt = "\"project\""),
	ENC_FIELD_END
};

/* "" is the policy's choice. */
static const char *const on_busy_or_none[] = { "", "wait", "requeue", "cancel", "fail", NULL };
static const char *const entry_or_none[] = { "", "live", "reboot", NULL };

#define W(member, key, type, ...) ENC_FIELD (struct want, member, key, type, ##__VA_ARGS__)
static const struct enc_field want_fields[] = {
	W (name, "name", ENC_T_NAME, .flags = ENC_REQUIRED),
	W (nodes, "nodes", ENC_T_JSON, .flags = ENC_REQUIRED, .help = "a number, or a host list"),
	W (agreement, "agreement", ENC_T_TEXT, .flags = ENC_REQUIRED, .min = 1, .max = 64),
	W (purpose, "purpose", ENC_T_TEXT, .flags = ENC_REQUIRED, .min = 1, .max = 256),
	W (owner, "owner", ENC_T_USER, .flags = ENC_REQUIRED),
	W (policy, "policy", ENC_T_NAME),
	W (feature, "feature", ENC_T_TEXT, .max = 64),
	W (gres, "gres", ENC_T_TEXT, .max = 64),
	W (ttl_s, "ttl_s", ENC_T_DURATION),
	W (deadline_s, "deadline_s", ENC_T_DURATION, .max = 30 * 86400),
	W (on_busy, "on_busy", ENC_T_ENUM, .names = on_busy_or_none, .dflt = "\"\""),
	W (entry, "entry", ENC_T_ENUM, .names = entry_or_none, .dflt = "\"\""),
	W (service, "service", ENC_T_ENUM, .names = service_names, .dflt = "\"host\""),
	W (members, "members", ENC_T_OBJS, .sub = member_fields, .sub_size = sizeof (struct want_member), .max = 200),
	W (volumes, "volumes", ENC_T_OBJS, .sub = volume_fields, .sub_size = sizeof (struct want_volume), .max = 16),
	W (datasets, "datasets", ENC_T_NAMES, .max = 16),
	W (dry_run, "dry_run", ENC_T_BOOL),
	ENC_FIELD_END
};

/* All of one order while it is looked at. */
struct order {
	struct want w;
	const struct enc_policy *policy;
	struct enc_decision d;
	struct enc_plan_wish wish;
	struct enc_strs names;
	struct enc_plan plan;
};

static void order_done (struct order *o)
{
	enc_fields_done (want_fields, &o->w);
	enc_strs_done (&o->names);
	enc_plan_done (&o->plan);
}

static int bad (struct enc_error *err, const char *pointer, const char *text)
{
	return enc_error_pointer (err, enc_fail (err, ENC_EUSAGE, "%s", text), "%s", pointer);
}

/* A number as JSON or as text, or a host list. */
static int read_nodes (struct order *o, struct enc_error *err)
{
	const char *text = enc_json_str (o->w.nodes);
	uint64_t count = enc_json_u64 (o->w.nodes, 0);
	int rc;

	if (text && enc_parse_u64 (text, 0, 10000, &count, NULL) < 0) {
		if ((rc = enc_hostlist_expand (text, 1000, &o->names, err)) < 0)
			return enc_error_pointer (err, rc, "/nodes");
		o->wish.names = &o->names;
		count = o->names.n;
	}
	if (count == 0 || count > 10000)
		return bad (err, "/nodes", "at least one node is needed");
	o->wish.count = (uint32_t) count;
	o->wish.feature = o->w.feature;
	o->wish.gres = o->w.gres;
	return 0;
}

/* Without an owner his training is not asked for yet: whether he exists comes first. */
static int decide (struct enc_api *a, struct order *o, const char *owner, struct enc_error *err)
{
	const char *name = o->w.policy ? o->w.policy : a->c->conf->policy;
	struct enc_facts f = { .action = ENC_ACT_CREATE, .user = a->actor->user, .now = enc_now (), .owner = owner, .ttl_s = o->w.ttl_s,
			       
			       .nodes = owner ? o->wish.count : 0, .entry = o->w.entry - 1, .on_busy = o->w.on_busy - 1, .deadline_s = o->w.deadline_s };

	o->policy = enc_policies_find (&a->c->policies, name);
	f.training_until = owner ? enc_training_until (a->c, owner) : 0;
	enc_facts_agreement (a->c, o->w.agreement, &f);
	enc_policy_decide (&a->c->policies, o->policy, &f, &o->d);
	return enc_decision_error (&o->d, err);
}

static int know_user (struct enc_api *a, const char *user, struct enc_error *err)
{
	enc_auto_free char *keys = NULL;
	uint32_t uid, gid;

	return enc_site_user_find (a->c->conf->users, user, &uid, &gid, &keys, err);
}

static int know_people (struct enc_api *a, const struct order *o, struct enc_error *err)
{
	const struct want_member *m = o->w.members.v;
	int rc = know_user (a, o->w.owner, err);

	for (size_t i = 0; rc == 0 && i < o->w.members.n; i++)
		rc = know_user (a, m[i].user, err);
	return rc;
}

/* Before the policy's own limit: that there are not so many is the plainer answer. */
static int there_are (struct enc_api *a, const struct order *o, struct enc_error *err)
{
	int64_t all = enc_db_int (a->c->db, 0, "SELECT count(*) FROM nodes WHERE declared='general'", "");

	if ((int64_t) o->wish.count <= all)
		return 0;
	return enc_error_next (err, enc_fail (err, ENC_EBUSY, "%u nodes were asked for, and there are %lld", o->wish.count, (long long) all),
			       "enclavectl node list");
}

static int not_yet (const struct order *o, struct enc_error *err)
{
	if (o->w.datasets.n)
		return bad (err, "/datasets", "datasets cannot be attached yet");
	if (o->w.service == 1)
		return bad (err, "/service", "service nodes are hosts; libvirt is not there yet");
	return 0;
}

/* By the policy's default too: a live entry that is written down as a reboot would be a lie in the log. */
static int not_yet_entry (const struct order *o, struct enc_error *err)
{
	if (o->d.entry != ENC_ENTRY_REBOOT)
		return 0;
	return enc_error_next (err, bad (err, "/entry", "entry by reboot is not there yet"), "--entry live, where the policy allows it");
}

static int choose (struct enc_api *a, struct order *o, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *slurm = NULL;
	int rc = enc_ctl_slurm (a->c, &slurm, err);

	if (rc < 0)
		return rc;
	enc_plan_done (&o->plan);
	o->plan = (struct enc_plan){ 0 };
	return enc_plan_choose (a->c, slurm, &o->wish, &o->plan, err);
}

/* Usage, then rights, then people, then names and nodes: the codes of the command line in their order. */
static int examine (struct enc_api *a, struct order *o, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave other = { 0 };
	int rc;

	if ((rc = enc_json_decode (want_fields, a->body, &o->w, err)) < 0 || (rc = read_nodes (o, err)) < 0 || (rc = not_yet (o, err)) < 0 ||
	    (rc = decide (a, o, NULL, err)) < 0 || (rc = not_yet_entry (o, err)) < 0 || (rc = know_people (a, o, err)) < 0 ||
	    (rc = there_are (a, o, err)) < 0 || (rc = decide (a, o, o->w.owner, err)) < 0)
		return rc;
	if (enc_enclave_named (a->c->db, o->w.name, &other, NULL) == 0) {
		rc = enc_error_object (err, enc_fail (err, ENC_ECONFLICT, "the name %s is in use", o->w.name), "%s", o->w.name);
		return enc_error_next (err, rc, "choose another name");
	}
	o->wish.soon = o->d.on_busy == ENC_BUSY_WAIT;
	return choose (a, o, err);
}

/* Nodes on their way back are seconds away: the order is taken when they are there. */
static int wait_coming (struct enc_api *a, struct order *o, struct enc_error *err)
{
	int64_t ms = (int64_t) o->d.deadline_s * 1000;
	int64_t until = enc_deadline_ms (ms < COMING_MS ? ms : COMING_MS);
	int rc = 0;

	while (rc == 0 && o->plan.coming) {
		if (enc_passed (until))
			return enc_error_next (err, enc_fail (err, ENC_EBUSY, "nodes are still on their way back from another enclave"), "enclavectl node list");
		if ((rc = enc_fiber_sleep (a->c->fibers, COMING_POLL_MS, err)) == 0)
			rc = choose (a, o, err);
	}
	return rc;
}

/* ---- plan ---- */

static struct enc_json *plan_json (struct order *o, int rc, const struct enc_error *why)
{
	struct enc_json *j = enc_json_object ();
	struct enc_json *policy = enc_json_set_object (j, "policy"), *ready, *steps, *refusals;

	enc_json_set_bool (j, "allowed", rc == 0);
	enc_json_set_str (policy, "name", o->policy ? o->policy->name : NULL);
	enc_json_set_str (policy, "version", o->policy ? o->policy->version : NULL);
	enc_json_set_str (policy, "rule", o->d.rule);
	enc_json_set (j, "nodes", o->plan.nodes ? ENC_TAKE (o->plan.nodes) : enc_json_array ());
	ready = enc_json_set_object (j, "ready_at");
	enc_json_set_time (ready, "wait", rc == 0 ? o->plan.ready_wait * ENC_NS_S : 0);
	enc_json_set_time (ready, "requeue", rc == 0 ? enc_now () : 0);
	enc_json_set_time (ready, "cancel", rc == 0 ? enc_now () : 0);
	steps = enc_json_set_array (j, "steps");
	for (const struct enc_step *s = enc_steps; s->name; s++)
		enc_json_add_str (steps, s->name);
	refusals = enc_json_set_array (j, "refusals");
	if (rc < 0) {
		struct enc_json *r = enc_json_add_object (refusals);

		enc_json_set_str (r, "code", enc_code_name (rc));
		enc_json_set_str (r, "object", why->object[0] ? why->object : NULL);
		enc_json_set_str (r, "text", why->text);
		enc_json_set_str (r, "next", why->next[0] ? why->next : NULL);
	}
	return j;
}

static int answer_plan (struct enc_api *a, struct order *o, int rc, struct enc_error *err)
{
	int code = enc_code_exit (rc);

	/* Who may not ask, or asks wrongly, learns nothing of the cluster. */
	if (rc < 0 && (code == ENC_EUSAGE || !o->d.allowed || code == ENC_EUNAVAIL))
		return rc;
	a->answer = plan_json (o, rc, err);
	return 0;
}

int enc_api_plan (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (order_done) struct order o = { 0 };
	int rc = examine (a, &o, err);

	return answer_plan (a, &o, rc, err);
}

/* ---- create ---- */

static int put_member (struct enc_api *a, const struct enc_enclave *e, const char *user, const char *role, struct enc_error *err)
{
	struct enc_member_row m = { .since = enc_now_s () };
	enc_auto_free char *keys = NULL;
	int rc;

	if ((rc = enc_site_user_find (a->c->conf->users, user, &m.uid, &m.gid, &keys, err)) < 0 || (rc = enc_id_new (m.id, err)) < 0)
		return rc;
	m.keys = keys;
	(void) snprintf (m.enclave_id, sizeof m.enclave_id, "%s", e->id);
	(void) snprintf (m.user, sizeof m.user, "%s", user);
	(void) snprintf (m.role, sizeof m.role, "%s", role);
	return enc_member_put (a->c->db, &m, err);
}

/* Sizes are whole blocks, up to which they are rounded: a device and its file system have no others. */
enum { VOLUME_BLOCK = 4096 };

static int put_volume (struct enc_api *a, const struct order *o, const struct enc_enclave *e, const struct want_volume *w, struct enc_error *err)
{
	struct enc_volume v = { .kind = w->kind ? ENC_VOLUME_PROJECT : ENC_VOLUME_SCRATCH, .size_bytes = (int64_t) w->size_bytes };
	const char *name = w->name, *driver = enc_volume_driver_names[v.kind == ENC_VOLUME_SCRATCH ? o->policy->scratch_driver : 0];
	int rc;

	v.size_bytes = (v.size_bytes + VOLUME_BLOCK - 1) / VOLUME_BLOCK * VOLUME_BLOCK;
	/* A locked volume of that name and owner comes back with what is on it. */
	if (v.kind == ENC_VOLUME_PROJECT && enc_volume_locked (a->c->db, name, e->owner, &v, NULL) == 0) {
		(void) snprintf (v.enclave_id, sizeof v.enclave_id, "%s", e->id);
		return enc_volume_put (a->c->db, &v, err);
	}
	if ((rc = enc_id_new (v.id, err)) < 0 || (v.kind == ENC_VOLUME_PROJECT && (rc = enc_id_new (v.key, err)) < 0))
		return rc;
	(void) snprintf (v.name, sizeof v.name, "%s", name);
	(void) snprintf (v.owner, sizeof v.owner, "%s", e->owner);
	(void) snprintf (v.driver, sizeof v.driver, "%s", driver);
	(void) snprintf (v.state, sizeof v.state, "locked");
	(void) snprintf (v.enclave_id, sizeof v.enclave_id, "%s", e->id);
	return enc_volume_put (a->c->db, &v, err);
}

static int put_volumes (struct enc_api *a, const struct order *o, const struct enc_enclave *e, struct enc_error *err)
{
	enc_auto_free char *data_name = enc_strf ("%.26s-data", e->name);
	char scratch_name[] = "scratch";
	const struct want_volume *w = o->w.volumes.v, scratch_default = { scratch_name, o->policy->scratch_bytes, 0 },
				 project_default = { data_name, o->policy->project_bytes, 1 };
	bool scratch = false, project = false;
	int rc = data_name ? 0 : enc_fail (err, ENC_ENOMEM, "no memory");

	for (size_t i = 0; rc == 0 && i < o->w.volumes.n; i++) {
		scratch = scratch || w[i].kind == 0;
		project = project || w[i].kind == 1;
		rc = put_volume (a, o, e, &w[i], err);
	}
	if (rc == 0 && !scratch)
		rc = put_volume (a, o, e, &scratch_default, err);
	if (rc == 0 && !project)
		rc = put_volume (a, o, e, &project_default, err);
	return rc;
}

static int fill_enclave (struct enc_api *a, const struct order *o, struct enc_enclave *e, struct enc_error *err)
{
	int rc;

	if ((rc = enc_id_new (e->id, err)) < 0 || (rc = enc_id_new (e->munge_key, err)) < 0 || (rc = enc_slot_take (a->c->db, &e->slot, err)) < 0)
		return rc;
	(void) snprintf (e->name, sizeof e->name, "%s", o->w.name);
	(void) snprintf (e->state, sizeof e->state, ENC_STATE_CREATING);
	(void) snprintf (e->owner, sizeof e->owner, "%s", o->w.owner);
	(void) snprintf (e->creator, sizeof e->creator, "%s", a->actor->user);
	(void) snprintf (e->agreement, sizeof e->agreement, "%s", o->w.agreement);
	(void) snprintf (e->policy, sizeof e->policy, "%s", o->policy->name);
	(void) snprintf (e->policy_version, sizeof e->policy_version, "%s", o->policy->version);
	(void) snprintf (e->entry, sizeof e->entry, "%s", enc_entry_names[o->d.entry]);
	(void) snprintf (e->on_busy, sizeof e->on_busy, "%s", enc_on_busy_names[o->d.on_busy]);
	(void) snprintf (e->service, sizeof e->service, "host");
	/* Opaque: it stands in reservations and cluster names that everybody sees. */
	(void) snprintf (e->cluster, sizeof e->cluster, "e%.10s", e->id);
	e->purpose = enc_strdup (o->w.purpose);
	e->created_at = enc_now_s ();
	e->expires_at = e->created_at + (int64_t) o->d.ttl_s;
	e->deadline_s = (uint32_t) o->d.deadline_s;
	e->record_first = e->record_last = -1;
	return e->purpose ? 0 : enc_fail (err, ENC_ENOMEM, "out of memory");
}

static int put_all (struct enc_api *a, const struct order *o, const struct enc_enclave *e, char op[static ENC_ID_SIZE], struct enc_error *err)
{
	const struct want_member *m = o->w.members.v;
	int rc;

	if ((rc = enc_enclave_put (a->c->db, e, err)) < 0 || (rc = enc_plan_claim (a->c, &o->plan, e, err)) < 0 ||
	    (rc = put_member (a, e, e->owner, "owner", err)) < 0 || (rc = put_volumes (a, o, e, err)) < 0)
		return rc;
	for (size_t i = 0; i < o->w.members.n; i++)
		if (!enc_streq (m[i].user, e->owner) && (rc = put_member (a, e, m[i].user, member_roles[m[i].role], err)) < 0)
			return rc;
	return enc_operation_new (a->c, "create", a->actor->user, e, op, err);
}

/* All or nothing, and no wait in between. */
static int store_order (struct enc_api *a, const struct order *o, const struct enc_enclave *e, char op[static ENC_ID_SIZE], struct enc_error *err)
{
	int rc;

	if ((rc = enc_db_begin (a->c->db, err)) < 0)
		return rc;
	if ((rc = put_all (a, o, e, op, err)) < 0 || (rc = enc_db_commit (a->c->db, err)) < 0)
		enc_db_rollback (a->c->db);
	return rc;
}

static int record_create (struct enc_api *a, const struct order *o, const struct enc_enclave *e, int64_t *ret_index, struct enc_error *err)
{
	struct enc_json *record = enc_api_record (a, "enclave", "create", "ok");
	struct enc_json *policy = enc_json_set_object (record, "policy");

	enc_record_enclave (record, e);
	enc_json_set_str (record, "agreement", e->agreement);
	enc_json_set_str (policy, "name", e->policy);
	enc_json_set_str (policy, "version", e->policy_version);
	enc_json_set_str (policy, "rule", o->d.rule);
	enc_json_set_i64 (enc_record_data (record), "nodes", (int64_t) o->plan.compute.n);
	enc_json_set_i64 (enc_record_data (record), "ttl_s", (int64_t) o->d.ttl_s);
	enc_json_set_str (enc_record_data (record), "entry", e->entry);
	enc_json_set_str (record, "text", e->purpose);
	return enc_record_now (a->c, record, ret_index, err);
}

int enc_api_create (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (order_done) struct order o = { 0 };
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	char op[ENC_ID_SIZE] = "";
	int rc = examine (a, &o, err);

	if (o.w.dry_run)
		return answer_plan (a, &o, rc, err);
	/* The log first: an order that is not on record is not taken. */
	if (rc < 0 || (rc = wait_coming (a, &o, err)) < 0 || (rc = fill_enclave (a, &o, &e, err)) < 0 || (rc = record_create (a, &o, &e, &e.record_first, err)) < 0)
		return rc;
	e.record_last = e.record_first;
	if ((rc = enc_slot_take (a->c->db, &e.slot, err)) < 0 || (rc = store_order (a, &o, &e, op, err)) < 0 ||
	    (rc = enc_life_create (a->c, e.id, op, err)) < 0)
		return rc;
	enc_api_accepted (a, op);
	enc_json_set_str (a->answer, "name", e.name);
	enc_json_set_str (a->answer, "id", e.id);
	return 0;
}

/* What a create with this body would be answered, by which rule; people and nodes are not looked at. */
int enc_api_policy_explain (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (order_done) struct order o = { 0 };
	struct enc_json *facts;
	int rc;

	if ((rc = enc_api_may (a, ENC_ACT_POLICY, err)) < 0 || (rc = enc_json_decode (want_fields, a->body, &o.w, err)) < 0 ||
	    (rc = read_nodes (&o, err)) < 0)
		return rc;
	rc = decide (a, &o, o.w.owner, err);
	enc_error_clear (err);
	a->answer = enc_json_object ();
	enc_json_set_bool (a->answer, "allowed", rc == 0);
	enc_json_set_str (a->answer, "rule", o.d.rule);
	enc_json_set_str (a->answer, "policy", o.policy ? o.policy->name : NULL);
	enc_json_set_str (a->answer, "version", o.policy ? o.policy->version : NULL);
	facts = enc_json_set_object (a->answer, "facts");
	enc_json_set_str (facts, "user", a->actor->user);
	enc_json_set_str (facts, "role", a->actor->role);
	enc_json_set_str (facts, "agreement", o.w.agreement);
	enc_json_set_str (facts, "owner", o.w.owner);
	enc_json_set_i64 (facts, "nodes", o.wish.count);
	enc_json_set_str (a->answer, "text", rc == 0 ? NULL : o.d.text);
	return 0;
}
