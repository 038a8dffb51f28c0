/* keys, storage, scheduler, join, login: what is built inside the fence. */
#include "controller/enclaved/steps.h"

#include "base/enc.h"

enum { VOLUME_KEY_BYTES = 64, MUNGE_KEY_BYTES = 64 };

/* ---- keys ---- */

struct key_act {
	const char *verb, *op, *action; /* keyd's verb and op, the record's action */
	const char *key, *purpose;
	int bytes;                      /* for create */
};

static int key_order (struct enc_run *run, const struct enc_enclave *e, const struct key_act *act, struct enc_error *err)
{
	struct enc_order o = { .head = enc_head (act->verb), .record = enc_record ("key", act->action, "intent"),
			       .request = enc_request (act->op) };

	enc_json_set_str (o.head, "object", act->key);
	enc_json_set_str (o.head, "enclave", e->id);
	enc_record_actor (o.record, NULL);
	enc_record_enclave (o.record, e);
	enc_record_obj (o.record, "key", act->key);
	enc_json_set_str (enc_record_data (o.record), "purpose", act->purpose);
	enc_json_set_str (o.request, "enclave", e->id);
	enc_json_set_str (o.request, "key", act->key);
	if (act->bytes) {
		enc_json_set_str (o.request, "purpose", act->purpose);
		enc_json_set_i64 (o.request, "bytes", act->bytes);
		enc_json_set_i64 (enc_record_data (o.record), "bits", act->bytes * 8);
	}
	return enc_order (run->ctl, &o, NULL, NULL, err);
}

int enc_row_keys_do (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	enc_auto_done (enc_volumes_done) struct enc_volumes volumes = { 0 };
	int rc;

	if ((rc = enc_run_enclave (run, &e, err)) < 0 || (rc = enc_volumes_of (run->ctl->db, e.id, &volumes, err)) < 0)
		return rc;
	for (size_t i = 0; i < volumes.n; i++) {
		struct key_act act = { "key.create", "key", "create", volumes.v[i].key, "volume", VOLUME_KEY_BYTES };

		if (volumes.v[i].kind != ENC_VOLUME_PROJECT)
			continue;
		if ((rc = key_order (run, &e, &act, err)) < 0)
			return enc_error_object (err, rc, "%s", volumes.v[i].name);
		volumes.v[i].key_made = 1;
		if ((rc = enc_volume_put (run->ctl->db, &volumes.v[i], err)) < 0)
			return rc;
	}
	if ((rc = key_order (run, &e, &(struct key_act){ "key.create", "key", "create", e.munge_key, "munge", MUNGE_KEY_BYTES }, err)) < 0)
		return rc;
	if ((rc = enc_db_exec (run->ctl->db, err, "UPDATE enclaves SET munge_made=1 WHERE id=?", "s", e.id)) < 0)
		return rc;
	/* Signed here, the member document travels with the orders of the rows that follow, and needs none of its own. Who is added
	 * meanwhile comes with the next version, once the enclave is open. */
	return enc_members_sign (run, err);
}

static bool to_erase (const struct enc_enclave *e, const char *volume)
{
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };

	if (!e->erase)
		return false;
	if (enc_streq (e->erase, "all"))
		return true;
	return enc_strs_split (&names, e->erase, ',', 64, NULL) == 0 && enc_strs_has (&names, volume);
}

static int close_volume (struct enc_run *run, const struct enc_enclave *e, struct enc_volume *v, struct enc_error *err)
{
	bool erase = v->kind == ENC_VOLUME_SCRATCH || to_erase (e, v->name);
	struct key_act lock = { "key.lock", "lock", "lock", v->key, "volume", 0 };
	struct key_act destroy = { "key.destroy", "destroy", "destroy", v->key, "volume", 0 };
	int rc;

	if (v->kind == ENC_VOLUME_PROJECT && v->key_made) {
		rc = key_order (run, e, erase ? &destroy : &lock, err);
		if (rc < 0 && rc != -ENC_ENOTFOUND)
			return enc_error_object (err, rc, "%s", v->name);
	}
	(void) snprintf (v->state, sizeof v->state, "%s", erase ? "erased" : "locked");
	return enc_volume_put (run->ctl->db, v, err);
}

int enc_row_keys_undo (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	enc_auto_done (enc_volumes_done) struct enc_volumes volumes = { 0 };
	int rc;

	if ((rc = enc_run_enclave (run, &e, err)) < 0 || (rc = enc_volumes_of (run->ctl->db, e.id, &volumes, err)) < 0)
		return rc;
	for (size_t i = 0; i < volumes.n; i++)
		if ((rc = close_volume (run, &e, &volumes.v[i], err)) < 0)
			return rc;
	rc = key_order (run, &e, &(struct key_act){ "key.destroy", "destroy", "destroy", e.munge_key, "munge", 0 }, err);
	return rc == -ENC_ENOTFOUND ? 0 : rc;
}

int enc_row_keys_check (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;

	if (enc_db_int (run->ctl->db, 1, "SELECT count(*) FROM volumes WHERE enclave_id=? AND kind=2 AND key_made=0", "s", run->enclave_id) ||
	    enc_db_int (run->ctl->db, 0, "SELECT munge_made AND members_doc IS NOT NULL FROM enclaves WHERE id=?", "s", run->enclave_id) != 1)
		return enc_fail (err, ENC_EFAILED, "not all keys are made");
	return 0;
}

/* ---- storage ---- */

static void fill_volume (struct enc_doc_volume *to, const struct enc_volume *v, uint32_t gid)
{
	memset (to, 0, sizeof *to);
	(void) snprintf (to->name, sizeof to->name, "%s", v->name);
	(void) snprintf (to->driver, sizeof to->driver, "%s", v->driver);
	(void) snprintf (to->id, sizeof to->id, "%s", v->id);
	if (v->kind == ENC_VOLUME_PROJECT)
		(void) snprintf (to->key, sizeof to->key, "%s", v->key);
	to->kind = v->kind;
	to->size_bytes = (uint64_t) v->size_bytes;
	to->owner_gid = gid;
}

struct storage {
	const struct enc_volumes *volumes;
	uint32_t gid;
};

/* Scratch on every node; data where users are. The scheduler node writes job scripts to its scratch and never sees the data's key. */
static void edit_volumes (struct enc_doc *doc, const struct enc_node *node, void *arg)
{
	const struct storage *s = arg;

	doc->volumes_n = 0;
	for (size_t i = 0; i < s->volumes->n && doc->volumes_n < ENC_DOC_VOLUMES_MAX; i++)
		if (node->role != ENC_ROLE_SCHEDULER || s->volumes->v[i].kind == ENC_VOLUME_SCRATCH)
			fill_volume (&doc->volumes[doc->volumes_n++], &s->volumes->v[i], s->gid);
}

static void edit_no_volumes (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, ENC_UNUSED void *arg)
{
	doc->volumes_n = 0;
}

static int volumes_state (struct enc_run *run, const char *state, struct enc_error *err)
{
	return enc_db_exec (run->ctl->db, err, "UPDATE volumes SET state=? WHERE enclave_id=? AND state!='erased'", "ss", state, run->enclave_id);
}

int enc_row_storage_do (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	enc_auto_done (enc_volumes_done) struct enc_volumes volumes = { 0 };
	struct storage s = { .volumes = &volumes };
	struct enc_change change = { .edit = edit_volumes, .arg = &s, .grant = ENC_GRANT_MUST, .what = "open volumes" };
	int rc;

	if ((rc = enc_run_enclave (run, &e, err)) < 0 || (rc = enc_volumes_of (run->ctl->db, e.id, &volumes, err)) < 0)
		return rc;
	s.gid = (uint32_t) enc_db_int (run->ctl->db, 0, "SELECT gid FROM members WHERE enclave_id=? AND user=?", "ss", e.id, e.owner);
	if ((rc = enc_run_change (run, ENC_ROLES_ALL, &change, err)) < 0)
		return rc;
	return volumes_state (run, "open", err);
}

int enc_row_storage_undo (void *ctx, struct enc_error *err)
{
	static const struct enc_change change = { .edit = edit_no_volumes, .grant = ENC_GRANT_IF_CAN, .what = "close volumes" };
	int rc = enc_run_change (ctx, ENC_ROLES_ALL, &change, err);

	return rc < 0 ? rc : volumes_state (ctx, "locked", err);
}

/* ---- roles: scheduler, join, login ---- */

static void edit_role_up (struct enc_doc *doc, const struct enc_node *node, ENC_UNUSED void *arg)
{
	doc->roles |= node->role;
}

static void edit_role_down (struct enc_doc *doc, const struct enc_node *node, ENC_UNUSED void *arg)
{
	doc->roles &= (uint8_t) ~node->role;
}

static const struct enc_change role_up = { .edit = edit_role_up, .grant = ENC_GRANT_MUST, .what = "start the enclave's services" };
static const struct enc_change role_down = { .edit = edit_role_down, .grant = ENC_GRANT_IF_CAN, .what = "stop the enclave's services" };

int enc_row_scheduler_do (void *ctx, struct enc_error *err)
{
	return enc_run_change (ctx, ENC_ROLE_SCHEDULER, &role_up, err);
}

int enc_row_scheduler_undo (void *ctx, struct enc_error *err)
{
	return enc_run_change (ctx, ENC_ROLE_SCHEDULER, &role_down, err);
}

int enc_row_join_do (void *ctx, struct enc_error *err)
{
	return enc_run_change (ctx, ENC_ROLE_COMPUTE, &role_up, err);
}

int enc_row_join_undo (void *ctx, struct enc_error *err)
{
	return enc_run_change (ctx, ENC_ROLE_COMPUTE, &role_down, err);
}

/* How the enclave's own scheduler sees a node, from its node's last report; "" when it says nothing. */
static bool is_there (const struct enc_json *slurm, const char *node)
{
	/* A node that comes back to an open enclave may be given a job before anybody looks. */
	static const char *const there[] = { "idle", "mixed", "allocated", "completing" };
	const struct enc_json *list = enc_json_get (slurm, "nodes");

	for (size_t i = 0; i < enc_json_len (list); i++) {
		const struct enc_json *n = enc_json_at (list, i);

		if (!enc_streq (enc_json_get_str (n, "name", NULL), node))
			continue;
		for (size_t k = 0; k < ENC_ARRAY_LEN (there); k++)
			if (enc_streq (enc_json_get_str (n, "state", ""), there[k]))
				return true;
	}
	return false;
}

static int all_idle (struct enc_run *run, const struct enc_nodes *compute, const struct enc_nodes *scheduler, bool *ret, struct enc_error *err)
{
	enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
	enc_auto (enc_json) struct enc_json *report = NULL;
	int rc;

	*ret = false;
	if (scheduler->n != 1)
		return enc_fail (err, ENC_EFAILED, "the enclave has no scheduler node");
	if ((rc = enc_observed_load (run->ctl->db, scheduler->v[0].name, &seen, err)) < 0 || !seen.report)
		return rc;
	report = enc_json_parse (seen.report, strlen (seen.report), ENC_JSON_MAX_DEFAULT, err);
	if (!report)
		return -ENC_EPROTO;
	*ret = true;
	for (size_t i = 0; i < compute->n; i++)
		*ret = *ret && is_there (enc_json_find (report, "/evidence/slurm"), compute->v[i].name);
	return 0;
}

int enc_row_join_check (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes compute = { 0 }, scheduler = { 0 };
	bool idle = false;
	int rc;

	if ((rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &compute, err)) < 0 ||
	    (rc = enc_run_nodes_all (run, ENC_ROLE_SCHEDULER, &scheduler, err)) < 0 || (rc = enc_row_joined (run, err)) < 0)
		return rc;
	for (;;) {
		if ((rc = all_idle (run, &compute, &scheduler, &idle, err)) < 0)
			return rc;
		if (idle)
			return 0;
		rc = enc_run_wait (run, "the nodes to register with the enclave's scheduler", "enclavectl show NAME", err);
		if (rc < 0)
			return enc_wrap (err, rc, "not all nodes are idle in the enclave's scheduler");
	}
}

/* ---- members and login ---- */

int enc_row_login_do (void *ctx, struct enc_error *err)
{
	return enc_run_change (ctx, ENC_ROLE_LOGIN, &role_up, err);
}

int enc_row_login_undo (void *ctx, struct enc_error *err)
{
	return enc_run_change (ctx, ENC_ROLE_LOGIN, &role_down, err);
}
