/* The member document: built from the store, signed by keyd, carried to the nodes by their agents. The plugins decide from it. */
#include "controller/enclaved/steps.h"

#include "base/point.h"
#include "controller/enclaved/view.h"
#include "crypto/members.h"
#include "base/enc.h"

enum { PUSH_MS = 60000 };

static void member_done (struct enc_member *m)
{
	for (size_t i = 0; i < m->keys_n; i++)
		free (m->keys[i]);
	free (m->keys);
}

static void built_done (struct enc_members *m)
{
	for (size_t i = 0; i < m->members_n; i++)
		member_done (&m->members[i]);
	free (m->members);
	m->members = NULL;
	m->members_n = 0;
}

static int fill_keys (struct enc_member *m, const char *json, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *list = NULL;

	if (!json)
		return 0;
	list = enc_json_parse (json, strlen (json), 65536, err);
	if (!list)
		return -ENC_EINVAL;
	m->keys = calloc (enc_json_len (list) + 1, sizeof *m->keys);
	if (!m->keys)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	for (size_t i = 0; i < enc_json_len (list) && i < ENC_MEMBER_KEYS_MAX; i++) {
		m->keys[i] = enc_strdup (enc_json_str (enc_json_at (list, i)));
		if (!m->keys[i])
			return enc_fail (err, ENC_ENOMEM, "out of memory");
		m->keys_n++;
	}
	return 0;
}

static int fill_members (struct enc_members *m, const struct enc_member_rows *rows, struct enc_error *err)
{
	m->members = calloc (rows->n + 1, sizeof *m->members);
	if (!m->members)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	for (size_t i = 0; i < rows->n; i++) {
		struct enc_member *to = &m->members[i];
		const struct enc_member_row *from = &rows->v[i];
		int rc;

		(void) snprintf (to->user, sizeof to->user, "%s", from->user);
		(void) snprintf (to->role, sizeof to->role, "%s", from->role);
		to->uid = from->uid;
		to->gid = from->gid;
		m->members_n++;
		if ((rc = fill_keys (to, from->keys, err)) < 0)
			return rc;
	}
	return 0;
}

static int document_of (struct enc_run *run, const struct enc_enclave *e, const struct enc_member_rows *rows, char **ret, struct enc_error *err)
{
	const struct enc_policy *policy = enc_policies_find (&run->ctl->policies, e->policy);
	enc_auto_done (enc_buf_done) struct enc_buf wire = ENC_BUF_INIT (60000);
	enc_auto_done (built_done) struct enc_members m = {
		.version = e->members_version,
		.not_before = (uint64_t) enc_now_s () - 60,
		.not_after = (uint64_t) e->expires_at,
		.flags = !policy || policy->second_factor ? ENC_MEMBERS_SECOND_FACTOR : 0,
	};
	int rc;

	(void) snprintf (m.enclave_id, sizeof m.enclave_id, "%s", e->id);
	(void) snprintf (m.enclave_name, sizeof m.enclave_name, "%s", e->name);
	if ((rc = fill_members (&m, rows, err)) < 0 || (rc = enc_members_put (&m, &wire, err)) < 0)
		return rc;
	*ret = enc_base64 (wire.data, wire.len);
	return *ret ? 0 : enc_fail (err, ENC_ENOMEM, "out of memory");
}

static int digest_hex (const char *base64, char ret[65], struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf wire = ENC_BUF_INIT (65536);
	enc_auto_free char *hex = NULL;
	uint8_t digest[32];
	int rc = enc_get_base64 (base64, strlen (base64), &wire, err);

	if (rc < 0)
		return rc;
	enc_doc_digest (wire.data, wire.len, digest);
	hex = enc_hex (digest, sizeof digest);
	return hex ? enc_str_copy (ret, 65, hex, err) : enc_fail (err, ENC_ENOMEM, "out of memory");
}

static int order_members (struct enc_run *run, const struct enc_enclave *e, const char *doc, size_t count, char **ret, struct enc_error *err)
{
	struct enc_order o = { .head = enc_head ("enclave.members"), .record = enc_record ("enclave", "members", "intent"),
			       .request = enc_request ("members") };
	enc_auto (enc_json) struct enc_json *answer = NULL;
	const char *envelope;
	char digest[65];
	int rc = digest_hex (doc, digest, err);

	if (rc < 0)
		return rc;
	enc_json_set_str (o.head, "enclave", e->id);
	enc_json_set_str (o.head, "document", digest);
	enc_json_set_i64 (o.head, "not_after", e->expires_at);
	enc_record_actor (o.record, NULL);
	enc_record_enclave (o.record, e);
	enc_json_set_i64 (enc_record_data (o.record), "count", (int64_t) count);
	enc_json_set_strf (enc_record_data (o.record), "version", "%u", e->members_version);
	enc_json_set_str (o.request, "document", doc);
	if ((rc = enc_order (run->ctl, &o, &answer, NULL, err)) < 0 || (rc = enc_json_need_str (answer, "members", &envelope, err)) < 0)
		return enc_wrap (err, rc, "member document");
	*ret = enc_strdup (envelope);
	return *ret ? 0 : enc_fail (err, ENC_ENOMEM, "out of memory");
}

/* The document that carries them also brings the lease's end, should that have moved. */
static void edit_lease (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, void *arg)
{
	const struct enc_enclave *e = arg;

	doc->not_after = (uint64_t) e->expires_at;
}

int enc_members_push (struct enc_run *run, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	struct enc_change change = { .edit = edit_lease, .arg = &e, .grant = ENC_GRANT_MUST, .what = "members" };
	int rc = enc_run_enclave (run, &e, err);

	return rc < 0 ? rc : enc_run_change (run, ENC_ROLES_ALL, &change, err);
}

int enc_members_again (struct enc_run *run, ENC_UNUSED void *arg, struct enc_json **ret, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc;

	run->dir = ENC_UP;
	(void) enc_fiber_bound (run->ctl->fibers, enc_deadline_ms (PUSH_MS));
	if ((rc = enc_members_sign (run, err)) == 0 && (rc = enc_members_push (run, err)) == 0 && (rc = enc_run_enclave (run, &e, err)) == 0)
		*ret = enc_view_members (run->ctl, &e);
	(void) enc_fiber_bound (run->ctl->fibers, ENC_FOREVER);
	return rc;
}

int enc_members_sign (struct enc_run *run, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	enc_auto_done (enc_member_rows_done) struct enc_member_rows rows = { 0 };
	enc_auto_free char *doc = NULL, *envelope = NULL;
	int rc;

	/* The number is used up before it is signed: keyd signs each once, and an answer may get lost. */
	if ((rc = enc_db_exec (run->ctl->db, err, "UPDATE enclaves SET members_version=members_version+1 WHERE id=?", "s", run->enclave_id)) < 0 ||
	    (rc = enc_run_enclave (run, &e, err)) < 0 || (rc = enc_members_of (run->ctl->db, e.id, &rows, err)) < 0 ||
	    (rc = document_of (run, &e, &rows, &doc, err)) < 0 || (rc = order_members (run, &e, doc, rows.n, &envelope, err)) < 0)
		return rc;
	if ((rc = enc_point ("members.signed", err)) < 0)
		return rc;
	return enc_db_exec (run->ctl->db, err, "UPDATE enclaves SET members_doc=? WHERE id=?", "ss", envelope, e.id);
}
