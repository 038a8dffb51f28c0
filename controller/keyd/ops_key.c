/* Leases and the keys under them. */
#include "controller/keyd/ops.h"

#include "base/enc.h"

enum { KEY_BYTES_MIN = 16, KEY_BYTES_MAX = 1024, KEYS_MAX = 64 };

/* ---- leases ---- */

/* The ids of volumes that are taken over from an earlier enclave, joined by commas as the head's hash covers them. */
static int attach_list (struct enc_keyd_call *c, struct enc_strs *ids, struct enc_error *err)
{
	const struct enc_json *list = enc_json_get (c->body, "keys");
	int rc;

	if (enc_json_len (list) > KEYS_MAX)
		return enc_error_pointer (err, enc_fail (err, ENC_ELIMIT, "too many keys"), "/keys");
	for (size_t i = 0; i < enc_json_len (list); i++) {
		const char *id = enc_json_str (enc_json_at (list, i));

		if (!id || !enc_id_ok (id) || enc_strs_has (ids, id))
			return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "bad key id"), "/keys/%zu", i);
		if ((rc = enc_strs_add (ids, id, err)) < 0)
			return rc;
	}
	if ((ids->n > 0) != ((c->claim.has & ENC_HEAD_DOCUMENT) != 0))
		return enc_error_pointer (err, enc_fail (err, ENC_EDENIED, "the record is about other keys than the request"), "/head/document");
	if (ids->n == 0)
		return 0;
	enc_auto_free char *joined = enc_strs_join (ids, ",");
	return joined ? enc_claim_document (&c->claim, joined, strlen (joined), err) : enc_fail (err, ENC_ENOMEM, "no memory");
}

/* A volume follows its owner to a new enclave only when no other one lives that could use it. */
static int attach (struct enc_keyd_call *c, const char *id, struct enc_error *err)
{
	enc_auto_done (enc_key_row_done) struct enc_key_row row = { 0 };
	struct enc_lease_row other;
	int rc = enc_keystore_key (c->k->store, id, &row, err);

	if (rc == -ENC_ENOTFOUND || (rc == 0 && row.state == ENC_KEY_DESTROYED))
		return enc_fail (err, ENC_ENOTFOUND, "key %s does not exist any more", id);
	if (rc < 0)
		return rc;
	if (!enc_streq (row.purpose, "volume"))
		return enc_fail (err, ENC_EDENIED, "key %s is not a volume's", id);
	if (!enc_streq (row.enclave, c->claim.enclave)) {
		if (enc_keystore_lease (c->k->store, row.enclave, &other, NULL) == 0 && !other.ended && other.not_after > c->now)
			return enc_fail (err, ENC_EBUSY, "key %s belongs to enclave %s, which is open", id, other.name);
		char from[ENC_ID_SIZE];
		memcpy (from, row.enclave, sizeof from);
		if ((rc = enc_vault_move_key (c->k->vault, &row, c->claim.enclave, err)) < 0)
			return rc;
		row.state = ENC_KEY_LIVE;
		if ((rc = enc_keystore_set_key (c->k->store, &row, err)) < 0)
			return rc;
		return enc_keystore_drop_kek (c->k->store, from, err);
	}
	row.state = ENC_KEY_LIVE;
	return enc_keystore_set_key (c->k->store, &row, err);
}

static int check_term (struct enc_keyd_call *c, const char *name, struct enc_error *err)
{
	if (!enc_name_ok (name))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "bad name"), "/name");
	if (c->claim.not_after <= c->now || c->claim.not_after - c->now > c->k->conf->lease_max_s)
		return enc_error_pointer (err, enc_fail (err, ENC_EDENIED, "a lease must end between now and %llu s from now",
			(unsigned long long) c->k->conf->lease_max_s), "/not_after");
	return 0;
}

int enc_keyd_lease (struct enc_keyd_call *c, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs ids = { 0 };
	struct enc_lease_row row = { 0 };
	const char *name = NULL;
	int rc;

	if ((rc = enc_json_need_str (c->body, "name", &name, err)) < 0 || (rc = enc_claim_object (&c->claim, name, err)) < 0 ||
		(rc = check_term (c, name, err)) < 0 || (rc = attach_list (c, &ids, err)) < 0)
		return rc;
	rc = enc_keystore_lease (c->k->store, c->claim.enclave, &row, err);
	if (rc < 0 && rc != -ENC_ENOTFOUND)
		return rc;
	if (rc == 0 && (row.ended || !enc_streq (row.name, name)))
		return enc_fail (err, ENC_ECONFLICT, "the lease of enclave %s %s", row.name, row.ended ? "has ended for good" : "is under that name");
	if ((rc = enc_str_copy (row.enclave, sizeof row.enclave, c->claim.enclave, err)) < 0 ||
		(rc = enc_str_copy (row.name, sizeof row.name, name, err)) < 0 || (rc = enc_keystore_begin (c->k->store, err)) < 0)
		return rc;
	row.not_after = c->claim.not_after;
	if ((rc = enc_keystore_set_lease (c->k->store, &row, err)) < 0)
		return rc;
	for (size_t i = 0; i < ids.n; i++)
		if ((rc = attach (c, ids.v[i], err)) < 0)
			return rc;
	return enc_keystore_commit (c->k->store, err);
}

int enc_keyd_lease_end (struct enc_keyd_call *c, struct enc_error *err)
{
	struct enc_lease_row row;
	int rc = enc_keystore_lease (c->k->store, c->claim.enclave, &row, err);

	if (rc == -ENC_ENOTFOUND)
		return 0; /* ending what never was is done */
	if (rc < 0)
		return rc;
	row.ended = true;
	return enc_keystore_set_lease (c->k->store, &row, err);
}

/* ---- keys ---- */

static int check_order (struct enc_keyd_call *c, struct enc_key_row *row, struct enc_error *err)
{
	const char *id = NULL, *purpose = NULL;
	uint64_t bytes = 0;
	int rc;

	if ((rc = enc_json_need_str (c->body, "key", &id, err)) < 0 || (rc = enc_json_need_str (c->body, "purpose", &purpose, err)) < 0 ||
		(rc = enc_json_need_u64 (c->body, "bytes", KEY_BYTES_MAX, &bytes, err)) < 0 || (rc = enc_claim_object (&c->claim, id, err)) < 0)
		return rc;
	if (!enc_id_ok (id))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "bad key id"), "/key");
	if (!enc_streq (purpose, "volume") && !enc_streq (purpose, "munge"))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "unknown purpose"), "/purpose");
	if (bytes < KEY_BYTES_MIN)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "a key has %d to %d bytes", KEY_BYTES_MIN, KEY_BYTES_MAX), "/bytes");
	*row = (struct enc_key_row){ .version = 1, .bytes = (uint32_t) bytes, .state = ENC_KEY_LIVE };
	if ((rc = enc_str_copy (row->id, sizeof row->id, id, err)) < 0 ||
		(rc = enc_str_copy (row->purpose, sizeof row->purpose, purpose, err)) < 0)
		return rc;
	return enc_str_copy (row->enclave, sizeof row->enclave, c->claim.enclave, err);
}

int enc_keyd_key (struct enc_keyd_call *c, struct enc_error *err)
{
	enc_auto_done (enc_key_row_done) struct enc_key_row row = { 0 }, have = { 0 };
	struct enc_lease_row lease;
	int rc;

	if ((rc = check_order (c, &row, err)) < 0 || (rc = enc_keyd_live_lease (c, c->claim.enclave, 0, &lease, err)) < 0)
		return rc;
	rc = enc_keystore_key (c->k->store, row.id, &have, err);
	if (rc < 0 && rc != -ENC_ENOTFOUND)
		return rc;
	if (rc == 0) {
		if (have.state == ENC_KEY_LIVE && enc_streq (have.enclave, row.enclave) && enc_streq (have.purpose, row.purpose) &&
			have.bytes == row.bytes)
			return 0; /* made before: the same order again */
		return enc_fail (err, ENC_ECONFLICT, "key %s exists and is another one", row.id);
	}
	if ((rc = enc_keystore_begin (c->k->store, err)) < 0 || (rc = enc_vault_make_key (c->k->vault, &row, err)) < 0 ||
		(rc = enc_keystore_set_key (c->k->store, &row, err)) < 0)
		return rc;
	return enc_keystore_commit (c->k->store, err);
}

/* The key that destroy and lock are about: this enclave's. ENC_ENOTFOUND without a text when there is none. */
static int own_key (struct enc_keyd_call *c, struct enc_key_row *row, struct enc_error *err)
{
	const char *id = NULL;
	int rc;

	if ((rc = enc_json_need_str (c->body, "key", &id, err)) < 0 || (rc = enc_claim_object (&c->claim, id, err)) < 0 ||
		(rc = enc_keystore_key (c->k->store, id, row, err)) < 0)
		return rc;
	if (!enc_streq (row->enclave, c->claim.enclave))
		return enc_fail (err, ENC_EDENIED, "key %s belongs to another enclave", id);
	return 0;
}

int enc_keyd_destroy (struct enc_keyd_call *c, struct enc_error *err)
{
	enc_auto_done (enc_key_row_done) struct enc_key_row row = { 0 };
	int rc = own_key (c, &row, err);

	if (rc == -ENC_ENOTFOUND || (rc == 0 && row.state == ENC_KEY_DESTROYED)) {
		enc_json_set_str (c->answer, "state", "destroyed");
		return 0;
	}
	if (rc < 0)
		return rc;
	enc_buf_done (&row.wrap);
	row.state = ENC_KEY_DESTROYED;
	if ((rc = enc_keystore_begin (c->k->store, err)) < 0 || (rc = enc_keystore_set_key (c->k->store, &row, err)) < 0 ||
		(rc = enc_keystore_drop_kek (c->k->store, row.enclave, err)) < 0 || (rc = enc_keystore_commit (c->k->store, err)) < 0)
		return rc;
	enc_json_set_str (c->answer, "state", "destroyed");
	return 0;
}

int enc_keyd_lock (struct enc_keyd_call *c, struct enc_error *err)
{
	enc_auto_done (enc_key_row_done) struct enc_key_row row = { 0 };
	int rc = own_key (c, &row, err);

	if (rc == -ENC_ENOTFOUND)
		return enc_fail (err, ENC_ENOTFOUND, "key %s does not exist", c->claim.object);
	if (rc < 0)
		return rc;
	if (row.state == ENC_KEY_LIVE) {
		row.state = ENC_KEY_LOCKED;
		if ((rc = enc_keystore_set_key (c->k->store, &row, err)) < 0)
			return rc;
	}
	enc_json_set_str (c->answer, "state", row.state == ENC_KEY_DESTROYED ? "destroyed" : "locked");
	return 0;
}
