/* What keyd signs for nodes: grants with the keys they release, and member documents. */
#include "controller/keyd/ops.h"

#include "crypto/hash.h"
#include "crypto/members.h"
#include "crypto/seal.h"
#include "node-agent/proto/document.h"
#include "base/enc.h"

enum { KEYS_MAX = ENC_DOC_VOLUMES_MAX + 1 };

struct order {
	struct enc_doc *doc;
	struct enc_buf bytes;
	struct enc_node_row node;
	struct enc_attest_record attest; /* of this boot, where the pool needs it */
};

static void order_done (struct order *o)
{
	free (o->doc);
	enc_buf_done (&o->bytes);
	enc_node_row_done (&o->node);
	enc_attest_record_done (&o->attest);
}

static int denied (struct enc_error *err, const struct enc_doc *doc, const char *what)
{
	return enc_error_object (err, enc_fail (err, ENC_EDENIED, "the document for node %s: %s", doc->node, what), "%s", doc->node);
}

/* ---- what each pool may and must have ---- */

/* Outside an enclave nothing of one may be on: a grant for "general" cannot smuggle a door or a volume. */
static int check_bare (const struct enc_doc *doc, struct enc_error *err)
{
	if (doc->enclave_id[0])
		return denied (err, doc, "an enclave in a pool outside of enclaves");
	if (doc->overlay || doc->roles || doc->door || doc->volumes_n || doc->munge_key[0])
		return denied (err, doc, "overlay, role, door, volume or key in a pool outside of enclaves");
	return 0;
}

static int check_general (struct enc_keyd_call *c, struct order *o, struct enc_error *err)
{
	int rc = check_bare (o->doc, err);

	if (rc < 0)
		return rc;
	if (c->claim.not_after > c->now + c->k->conf->grant_max_s)
		return denied (err, o->doc, "asked for longer than a grant may last");
	return 0;
}

/* The airlock is tight: its grant can loosen nothing. */
static int check_airlock (struct enc_keyd_call *c, struct order *o, struct enc_error *err)
{
	const struct enc_doc *doc = o->doc;

	if (doc->overlay || doc->roles || doc->door || doc->volumes_n || doc->fence != ENC_FENCE_AIRLOCK || doc->units != ENC_UNITS_DOWN)
		return denied (err, doc, "the airlock is fenced and has nothing else");
	if (c->claim.not_after > c->now + c->k->conf->grant_max_s)
		return denied (err, doc, "asked for longer than a grant may last");
	return 0;
}

static int check_enclave (struct enc_keyd_call *c, struct order *o, struct enc_error *err)
{
	struct enc_lease_row lease;
	int rc;

	if (!o->doc->enclave_id[0] || o->doc->fence == ENC_FENCE_NONE || o->doc->units == ENC_UNITS_SITE)
		return denied (err, o->doc, "a node of an enclave is fenced, and the site's units are down");
	if ((rc = enc_keyd_live_lease (c, o->doc->enclave_id, c->claim.not_after, &lease, err)) < 0)
		return rc;
	if (o->doc->not_after > lease.not_after || !enc_streq (o->doc->enclave_name, lease.name))
		return denied (err, o->doc, "name or end are not those of the lease");
	return enc_keyd_attested (c, &o->node, c->claim.boot, &o->attest, err);
}

static int check_none (struct enc_keyd_call *c ENC_UNUSED, struct order *o, struct enc_error *err)
{
	return denied (err, o->doc, "quarantine needs no grant");
}

static int (*const pool_checks[]) (struct enc_keyd_call *c, struct order *o, struct enc_error *err) = {
	[ENC_POOL_GENERAL] = check_general, [ENC_POOL_SERVICE] = check_general, [ENC_POOL_AIRLOCK] = check_airlock,
	[ENC_POOL_ENCLAVE] = check_enclave, [ENC_POOL_QUARANTINE] = check_none,
};

/* ---- grant ---- */

static int read_order (struct enc_keyd_call *c, struct order *o, struct enc_error *err)
{
	int rc;

	if ((rc = enc_keyd_bytes (c->body, "document", ENC_DOC_SIZE_MAX, &o->bytes, err)) < 0 ||
		(rc = enc_claim_document (&c->claim, o->bytes.data, o->bytes.len, err)) < 0)
		return rc;
	if (!(o->doc = calloc (1, sizeof *o->doc)))
		return enc_fail (err, ENC_ENOMEM, "no memory");
	if ((rc = enc_doc_decode (o->bytes.data, o->bytes.len, o->doc, err)) < 0)
		return enc_wrap (err, rc, "document");
	if (!enc_streq (o->doc->node, c->claim.node))
		return enc_error_pointer (err, denied (err, o->doc, "the record is about another node"), "/head/node");
	if (o->doc->generation != c->claim.generation)
		return enc_error_pointer (err, denied (err, o->doc, "the record is about another generation"), "/head/generation");
	if (!enc_streq (o->doc->enclave_id, c->claim.enclave))
		return enc_error_pointer (err, denied (err, o->doc, "the record is about another enclave"), "/head/enclave");
	return enc_keyd_find_node (c, o->doc->node, &o->node, err);
}

/* Grants of a boot only go forward; the same document may be granted again, as after a lost answer. */
static int check_generation (struct enc_keyd_call *c, struct order *o, struct enc_error *err)
{
	if (enc_mem_equal (o->node.boot, c->claim.boot, sizeof o->node.boot) && c->claim.generation < o->node.generation)
		return denied (err, o->doc, "a newer generation was granted in this boot");
	if (c->claim.not_after <= c->now)
		return denied (err, o->doc, "the grant would have ended already");
	memcpy (o->node.boot, c->claim.boot, sizeof o->node.boot);
	o->node.generation = c->claim.generation;
	return 0;
}

static bool document_names (const struct enc_doc *doc, const char *key)
{
	if (enc_streq (doc->munge_key, key))
		return true;
	for (size_t i = 0; i < doc->volumes_n; i++)
		if (enc_streq (doc->volumes[i].key, key))
			return true;
	return false;
}

/* The key as it may go to this node: named in the document, of its enclave, neither locked nor destroyed. */
static int find_key (struct enc_keyd_call *c, struct order *o, const char *id, struct enc_key_row *row, struct enc_error *err)
{
	if (!id || !enc_id_ok (id))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "bad key id"), "/keys");
	if (o->doc->pool != ENC_POOL_ENCLAVE || !document_names (o->doc, id))
		return denied (err, o->doc, "a key that it does not name");
	int rc = enc_keystore_key (c->k->store, id, row, err);
	if (rc == -ENC_ENOTFOUND)
		return enc_fail (err, ENC_ENOTFOUND, "key %s does not exist", id);
	if (rc < 0)
		return rc;
	if (!enc_streq (row->enclave, o->doc->enclave_id))
		return denied (err, o->doc, "a key of another enclave");
	if (row->state != ENC_KEY_LIVE)
		return enc_fail (err, ENC_EDENIED, "key %s is %s", id, row->state == ENC_KEY_LOCKED ? "locked" : "destroyed");
	return 0;
}

static int seal_key (struct enc_keyd_call *c, struct order *o, const struct enc_key_row *row, struct enc_buf *out, struct enc_error *err)
{
	enc_auto_done (enc_secret_done) struct enc_secret secret = { 0 };
	const struct enc_seal_id id = { o->doc->node, c->claim.boot, o->doc->generation, row->id, c->claim.record };
	int rc = enc_vault_open_key (c->k->vault, row, &secret, err);

	return rc < 0 ? rc : enc_seal (o->attest.boot_key, &id, &secret, out, err);
}

static int seal_keys (struct enc_keyd_call *c, struct order *o, struct enc_error *err)
{
	const struct enc_json *keys = enc_json_get (c->body, "keys");
	struct enc_json *list = enc_json_set_array (c->answer, "sealed");
	int rc;

	if (enc_json_len (keys) > KEYS_MAX)
		return enc_error_pointer (err, enc_fail (err, ENC_ELIMIT, "too many keys"), "/keys");
	for (size_t i = 0; i < enc_json_len (keys); i++) {
		enc_auto_done (enc_key_row_done) struct enc_key_row row = { 0 };
		enc_auto_done (enc_buf_done) struct enc_buf sealed = ENC_BUF_INIT (ENC_SEALED_MAX);

		if ((rc = find_key (c, o, enc_json_str (enc_json_at (keys, i)), &row, err)) < 0 ||
			(rc = seal_key (c, o, &row, &sealed, err)) < 0)
			return rc;
		struct enc_json *item = enc_json_add_object (list);
		enc_json_set_str (item, "key", row.id);
		enc_keyd_set_bytes (item, "data", &sealed);
	}
	return 0;
}

static int sign_grant (struct enc_keyd_call *c, struct order *o, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (ENC_ENVELOPE_MAX);
	struct enc_grant g = { .generation = o->doc->generation, .pool = o->doc->pool, .not_before = c->now, .not_after = c->claim.not_after,
		.record = c->claim.record };
	int rc;

	memcpy (g.boot, c->claim.boot, sizeof g.boot);
	memcpy (g.document, c->claim.document, sizeof g.document);
	if ((rc = enc_str_copy (g.node, sizeof g.node, o->doc->node, err)) < 0 ||
		(rc = enc_str_copy (g.enclave, sizeof g.enclave, o->doc->enclave_id, err)) < 0 ||
		(rc = enc_grant_sign (&g, enc_vault_signer (c->k->vault), &out, err)) < 0)
		return rc;
	enc_keyd_set_bytes (c->answer, "grant", &out);
	return 0;
}

int enc_keyd_grant (struct enc_keyd_call *c, struct enc_error *err)
{
	enc_auto_done (order_done) struct order o = { 0 };
	int rc;

	if ((rc = read_order (c, &o, err)) < 0 || (rc = check_generation (c, &o, err)) < 0)
		return rc;
	if (o.doc->pool >= ENC_ARRAY_LEN (pool_checks))
		return denied (err, o.doc, "unknown pool");
	if ((rc = pool_checks[o.doc->pool] (c, &o, err)) < 0 || (rc = seal_keys (c, &o, err)) < 0 || (rc = sign_grant (c, &o, err)) < 0)
		return rc;
	return enc_keystore_set_node (c->k->store, &o.node, err);
}

/* ---- members ---- */

static int sign_members (struct enc_keyd_call *c, const struct enc_buf *bytes, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (ENC_ENVELOPE_MAX);
	int rc = enc_envelope_sign (enc_vault_signer (c->k->vault), ENC_ENVELOPE_MEMBERS, bytes, &out, err);

	if (rc == 0)
		enc_keyd_set_bytes (c->answer, "members", &out);
	return rc;
}

/* Versions only rise; the same document may be signed again. */
static int check_version (const struct enc_lease_row *lease, const struct enc_members *m, const struct enc_hash *hash, struct enc_error *err)
{
	if (m->version < lease->members_version ||
		(m->version == lease->members_version && !enc_mem_equal (hash->b, lease->members_hash, sizeof hash->b)))
		return enc_fail (err, ENC_ECONFLICT, "member document %llu of enclave %s: version %llu was signed already",
			(unsigned long long) m->version, lease->name, (unsigned long long) lease->members_version);
	return 0;
}

int enc_keyd_members (struct enc_keyd_call *c, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf bytes = { 0 };
	enc_auto_done (enc_members_done) struct enc_members m = { 0 };
	struct enc_lease_row lease;
	struct enc_hash hash;
	int rc;

	if ((rc = enc_keyd_bytes (c->body, "document", ENC_ENVELOPE_BODY_MAX, &bytes, err)) < 0 ||
		(rc = enc_claim_document (&c->claim, bytes.data, bytes.len, err)) < 0 ||
		(rc = enc_members_get (enc_view_of (bytes.data, bytes.len), &m, err)) < 0)
		return rc;
	if (!enc_streq (m.enclave_id, c->claim.enclave) || m.not_after != c->claim.not_after)
		return enc_error_pointer (err, enc_fail (err, ENC_EDENIED, "the record is about another member document"), "/head");
	if ((rc = enc_keyd_live_lease (c, m.enclave_id, m.not_after, &lease, err)) < 0)
		return rc;
	if (!enc_streq (m.enclave_name, lease.name))
		return enc_fail (err, ENC_EDENIED, "the member document names the enclave %s", m.enclave_name);
	enc_sha256 (bytes.data, bytes.len, &hash);
	if ((rc = check_version (&lease, &m, &hash, err)) < 0 || (rc = sign_members (c, &bytes, err)) < 0)
		return rc;
	lease.members_version = m.version;
	memcpy (lease.members_hash, hash.b, sizeof lease.members_hash);
	return enc_keystore_set_lease (c->k->store, &lease, err);
}
