/* The closed list of what keyd does, who may ask, and what must be shown first. A request passes, in this order: known op, caller,
 * sealed or not, clock, receipt, head; then its handler compares the rest. */
#include "controller/keyd/ops.h"

#include "base/enctime.h"
#include "base/file.h"
#include "base/log.h"
#include "base/peer.h"
#include "base/point.h"
#include "crypto/envelope.h"
#include "base/enc.h"


enum { CLOCK_FLOOR = 1767225600, /* 2026-01-01: nothing of ours is older */ CLOCK_BACK_S = 120, CLOCK_STEP_S = 60 };

static const struct enc_keyd_op ops[] = {
	/* op         verb               head needs                                                              head may             flags */
	{ "status", NULL, 0, 0, ENC_OP_EVERYBODY, enc_keyd_status },
	{ "init", NULL, 0, 0, ENC_OP_ROOT, enc_keyd_init },
	{ "unseal", NULL, 0, 0, ENC_OP_ROOT, enc_keyd_unseal },
	{ "seal", NULL, 0, 0, ENC_OP_ROOT, enc_keyd_seal },
	{ "nonce", NULL, 0, 0, 0, enc_keyd_nonce },
	{ "certify", "node.enroll", ENC_HEAD_NODE | ENC_HEAD_OBJECT | ENC_HEAD_DOCUMENT, 0, ENC_OP_UNSEALED, enc_keyd_certify },
	{ "certify", "server.certify", ENC_HEAD_OBJECT | ENC_HEAD_DOCUMENT, 0, ENC_OP_UNSEALED, enc_keyd_certify_server },
	{ "baseline", "node.baseline", ENC_HEAD_NODE | ENC_HEAD_BOOT | ENC_HEAD_DOCUMENT, 0, 0, enc_keyd_baseline },
	{ "attest", NULL, 0, 0, 0, enc_keyd_attest },
	{ "lease", "enclave.lease", ENC_HEAD_ENCLAVE | ENC_HEAD_OBJECT | ENC_HEAD_NOT_AFTER, ENC_HEAD_DOCUMENT, ENC_OP_UNSEALED, enc_keyd_lease },
	{ "lease", "enclave.end", ENC_HEAD_ENCLAVE, 0, 0, enc_keyd_lease_end },
	{ "key", "key.create", ENC_HEAD_ENCLAVE | ENC_HEAD_OBJECT, 0, ENC_OP_UNSEALED, enc_keyd_key },
	{ "grant", "node.grant", ENC_HEAD_NODE | ENC_HEAD_BOOT | ENC_HEAD_GENERATION | ENC_HEAD_DOCUMENT | ENC_HEAD_NOT_AFTER,
		ENC_HEAD_ENCLAVE, ENC_OP_UNSEALED, enc_keyd_grant },
	{ "members", "enclave.members", ENC_HEAD_ENCLAVE | ENC_HEAD_DOCUMENT | ENC_HEAD_NOT_AFTER, 0, ENC_OP_UNSEALED, enc_keyd_members },
	/* These only take away, and work while sealed too. */
	{ "destroy", "key.destroy", ENC_HEAD_ENCLAVE | ENC_HEAD_OBJECT, 0, 0, enc_keyd_destroy },
	{ "lock", "key.lock", ENC_HEAD_ENCLAVE | ENC_HEAD_OBJECT, 0, 0, enc_keyd_lock },
};

const char *enc_keyd_op_name (size_t i)
{
	for (size_t k = 0; k < ENC_ARRAY_LEN (ops); k++)
		if ((k == 0 || !enc_streq (ops[k].op, ops[k - 1].op)) && i-- == 0)
			return ops[k].op;
	return NULL;
}

static const struct enc_keyd_op *find_op (const char *op, const char *verb)
{
	for (size_t k = 0; k < ENC_ARRAY_LEN (ops); k++)
		if (enc_streq (ops[k].op, op) && (!verb || enc_streq (ops[k].verb, verb)))
			return &ops[k];
	return NULL;
}

bool enc_keyd_admits (const struct enc_keyd *k, uid_t uid)
{
	for (size_t i = 0; i < k->callers_n; i++)
		if (k->callers[i].uid == uid)
			return true;
	return uid == 0;
}

static bool may_call (const struct enc_keyd *k, uid_t uid, const struct enc_keyd_op *op)
{
	if (op->flags & ENC_OP_ROOT)
		return uid == 0;
	if (op->flags & ENC_OP_EVERYBODY)
		return enc_keyd_admits (k, uid);
	for (size_t i = 0; i < k->callers_n; i++)
		if (k->callers[i].uid == uid && enc_strs_has (k->callers[i].ops, op->op))
			return true;
	return false;
}

/* ---- clock ---- */

/* Leases and grants end by this clock: one that jumped back would let them live again, so the highest time seen is kept. */
static int check_clock (struct enc_keyd *k, uint64_t *ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf seen = ENC_BUF_INIT (8), now_text = ENC_BUF_INIT (8);
	int64_t now = k->wall_s ();
	uint64_t last = 0;
	int rc = enc_keystore_value (k->store, "clock", &seen, err);

	if (rc < 0 && rc != -ENC_ENOTFOUND)
		return rc;
	struct enc_view v = enc_view_of (seen.data, seen.len);
	if (rc == 0)
		last = enc_view_u64 (&v);
	if (now < CLOCK_FLOOR || (uint64_t) now + CLOCK_BACK_S < last)
		return enc_error_next (err, enc_fail (err, ENC_EFAILED, "the clock of this host went back"), "set the clock, then try again");
	if ((uint64_t) now > last + CLOCK_STEP_S) {
		enc_buf_put_u64 (&now_text, (uint64_t) now);
		if ((rc = enc_keystore_set_value (k->store, "clock", &now_text, err)) < 0)
			return rc;
	}
	*ret = (uint64_t) now;
	return 0;
}

/* ---- dispatch ---- */

static int check_sealed (struct enc_keyd *k, const struct enc_keyd_op *op, struct enc_error *err)
{
	if (!(op->flags & ENC_OP_UNSEALED) || enc_vault_state (k->vault) == ENC_VAULT_UNSEALED)
		return 0;
	return enc_error_next (err, enc_fail (err, ENC_EUNAVAIL, "the key service is %s", enc_vault_state_name (k->vault)),
		"as root on the vault: enclavectl key %s", enc_vault_state (k->vault) == ENC_VAULT_SEALED ? "unseal" : "init");
}

/* The receipt, and which of the op's verbs its head has. */
static int check_receipt (struct enc_keyd_call *c, const struct enc_keyd_op **op, struct enc_error *err)
{
	int rc = enc_claim_check (c->k, c->body, &c->claim, err);

	if (rc < 0)
		return rc;
	const struct enc_keyd_op *row = find_op ((*op)->op, c->claim.verb);
	if (!row)
		return enc_error_pointer (err, enc_fail (err, ENC_EDENIED, "the record is about %s, not about %s", c->claim.verb, (*op)->op),
			"/head/verb");
	*op = row;
	if ((rc = check_sealed (c->k, row, err)) < 0)
		return rc;
	return enc_claim_fits (&c->claim, c->body, row->need, row->may, err);
}

/* Fault points: keyd.OP when all was checked, keyd.OP.done when all is done and stored and nobody was told. */
static int run_op (struct enc_keyd_call *c, const struct enc_keyd_op *op, struct enc_error *err)
{
	char name[48];
	int rc;

	(void) snprintf (name, sizeof name, "keyd.%s", op->op);
	if ((rc = enc_point (name, err)) < 0 || (rc = op->handler (c, err)) < 0)
		return rc;
	(void) snprintf (name, sizeof name, "keyd.%s.done", op->op);
	return enc_point (name, err);
}

static int handle (struct enc_keyd_call *c, struct enc_error *err)
{
	const char *name = enc_json_get_str (c->body, "op", "");
	const struct enc_keyd_op *op = find_op (name, NULL);
	int rc;

	if (!op)
		return enc_error_pointer (err, enc_fail (err, ENC_EUSAGE, "no such op"), "/op");
	if (!may_call (c->k, c->req->uid, op))
		return enc_fail (err, ENC_EDENIED, "uid %u may not call %s", (unsigned) c->req->uid, op->op);
	if (!op->verb && (rc = check_sealed (c->k, op, err)) < 0)
		return rc;
	if ((rc = check_clock (c->k, &c->now, err)) < 0)
		return rc;
	if (op->verb && (rc = check_receipt (c, &op, err)) < 0)
		return rc;
	return run_op (c, op, err);
}

int enc_keyd_handle (struct enc_keyd *k, const struct enc_keyd_request *req, struct enc_json **ret, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *answer = enc_json_object ();
	struct enc_keyd_call c = { .k = k, .req = req, .body = req->body, .answer = answer };
	struct enc_error local = { 0 };

	if (!err)
		err = &local;
	if (!answer)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	int rc = handle (&c, err);
	enc_keystore_end (k->store); /* what a handler did not commit did not happen */
	if (rc < 0) {
		enc_log_err (ENC_LOG_WARN, err, "refused %s of uid %u", enc_json_get_str (req->body, "op", "?"), (unsigned) req->uid);
		return rc;
	}
	*ret = ENC_TAKE (answer);
	return 0;
}

/* ---- shared by handlers ---- */

int enc_keyd_live_lease (struct enc_keyd_call *c, const char *enclave, uint64_t until, struct enc_lease_row *ret, struct enc_error *err)
{
	int rc = enc_keystore_lease (c->k->store, enclave, ret, err);

	if (rc == -ENC_ENOTFOUND)
		return enc_fail (err, ENC_EDENIED, "enclave %s has no lease", enclave);
	if (rc < 0)
		return rc;
	if (ret->ended || ret->not_after <= c->now)
		return enc_fail (err, ENC_EDENIED, "the lease of enclave %s has ended", ret->name);
	if (until > ret->not_after)
		return enc_fail (err, ENC_EDENIED, "asked for longer than the lease of enclave %s", ret->name);
	return 0;
}

int enc_keyd_find_node (struct enc_keyd_call *c, const char *name, struct enc_node_row *ret, struct enc_error *err)
{
	int rc = enc_keystore_node (c->k->store, name, ret, err);

	if (rc == -ENC_ENOTFOUND)
		return enc_error_next (err, enc_fail (err, ENC_ENOTFOUND, "node %s is not enrolled", name), "enclavectl node enroll %s", name);
	return rc;
}

int enc_keyd_bytes (const struct enc_json *body, const char *key, size_t max, struct enc_buf *ret, struct enc_error *err)
{
	const char *text = NULL;
	int rc = enc_json_need_str (body, key, &text, err);

	if (rc < 0)
		return rc;
	*ret = ENC_BUF_INIT (max);
	if ((rc = enc_get_base64 (text, strlen (text), ret, err)) < 0)
		return enc_error_pointer (err, rc, "/%s", key);
	return 0;
}

void enc_keyd_set_bytes (struct enc_json *answer, const char *key, const struct enc_buf *bytes)
{
	enc_auto_free char *text = enc_base64 (bytes->data, bytes->len);

	enc_json_set_str (answer, key, text);
}

/* ---- open ---- */

static int open_callers (struct enc_keyd *k, struct enc_error *err)
{
	const struct enc_keyd_caller *list = k->conf->callers.v;

	k->callers = calloc (k->conf->callers.n + 1, sizeof *k->callers);
	if (!k->callers)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	for (size_t i = 0; i < k->conf->callers.n; i++) {
		uid_t uid = (uid_t) list[i].uid;
		gid_t gid = 0;

		if (list[i].user) {
			int rc = enc_uid_of_user (list[i].user, &uid, &gid, err);
			if (rc < 0)
				return enc_wrap (err, rc, "callers");
		}
		k->callers[k->callers_n++] = (struct enc_keyd_allowed){ uid, &list[i].ops };
	}
	return 0;
}

static int open_log_key (struct enc_keyd *k, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (ENC_VKEY_TEXT_MAX + 1);
	int rc = enc_file_read_trusted (k->conf->log_vkey, ENC_VKEY_TEXT_MAX + 1, &text, err);

	if (rc == 0)
		rc = enc_vkey_parse ((const char *) text.data, text.len, &k->log, err);
	return enc_wrap (err, rc, "the log's verifier key %s", k->conf->log_vkey);
}

int enc_keyd_open (struct enc_keyd *k, const struct enc_keyd_conf *conf, struct enc_error *err)
{
	int rc;

	k->conf = conf;
	if (!k->wall_s)
		k->wall_s = enc_now_s;
	if (!k->mono)
		k->mono = enc_mono;
	if (!(k->nonces = enc_nonces_new ()))
		return enc_fail (err, ENC_ENOMEM, "no memory");
	if ((rc = open_callers (k, err)) < 0 || (rc = open_log_key (k, err)) < 0 ||
		(rc = enc_keystore_open (conf->state, &k->store, err)) < 0)
		return rc;
	return enc_vault_new (k->store, conf->site, (uint32_t) conf->argon2_mib, &k->vault, err);
}

void enc_keyd_done (struct enc_keyd *k)
{
	enc_vault_free (k->vault);
	enc_keystore_free (k->store);
	enc_nonces_free (k->nonces);
	free (k->callers);
	*k = (struct enc_keyd){ 0 };
}
