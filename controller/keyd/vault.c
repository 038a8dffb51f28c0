#include "controller/keyd/vault.h"

#include "crypto/kdf.h"
#include "crypto/secmem.h"
#include "base/enc.h"

enum { ROOT_BYTES = 32, KEK_BYTES = 32, WRAP_MAX = ENC_WRAP_KEY_MAX + ENC_WRAP_OVERHEAD, CA_DAYS = 3650, ROOT_VERSION = 1 };

struct enc_vault {
	struct enc_keystore *store;
	char *site;
	uint32_t argon2_mib;
	bool initialised;
	struct enc_secret root;
	struct enc_sign_key *signer;
	struct enc_cert_key *ca_key;
	struct enc_buf vkey; /* texts with NUL */
	struct enc_buf ca;
};

static const struct enc_wrap_id root_id = { "root", "", "", ROOT_VERSION };
static const struct enc_wrap_id sign_id = { "sign", "", "", 1 };
static const struct enc_wrap_id ca_id = { "ca", "", "", 1 };

static struct enc_wrap_id kek_id (const char *enclave)
{
	return (struct enc_wrap_id){ "enclave", "", enclave, 1 };
}

static struct enc_wrap_parent root_parent (const struct enc_vault *v)
{
	return (struct enc_wrap_parent){ v->root.data, ROOT_VERSION };
}

/* ---- public texts ---- */

static int load_text (struct enc_vault *v, const char *name, struct enc_buf *out, struct enc_error *err)
{
	enc_buf_clear (out);
	int rc = enc_keystore_value (v->store, name, out, err);

	enc_buf_put_u8 (out, 0);
	return rc < 0 ? rc : enc_buf_check (out, err);
}

static int load_public (struct enc_vault *v, struct enc_error *err)
{
	int rc = load_text (v, "vkey", &v->vkey, err);

	if (rc == -ENC_ENOTFOUND)
		return 0;
	if (rc == 0)
		rc = load_text (v, "ca_pem", &v->ca, err);
	if (rc == -ENC_ENOTFOUND)
		return enc_fail (err, ENC_EINTEGRITY, "keys.db has a verifier key but no CA");
	v->initialised = rc == 0;
	return rc;
}

int enc_vault_new (struct enc_keystore *store, const char *site, uint32_t argon2_mib, struct enc_vault **ret, struct enc_error *err)
{
	enc_auto (enc_vault) struct enc_vault *v = calloc (1, sizeof *v);
	int rc;

	if (!v || !(v->site = enc_strdup (site)))
		return enc_fail (err, ENC_ENOMEM, "no memory");
	v->store = store;
	v->argon2_mib = argon2_mib;
	v->vkey = ENC_BUF_INIT (ENC_VKEY_TEXT_MAX + 1);
	v->ca = ENC_BUF_INIT (ENC_CERT_PEM_MAX);
	if ((rc = load_public (v, err)) < 0)
		return rc;
	*ret = ENC_TAKE (v);
	return 0;
}

void enc_vault_free (struct enc_vault *v)
{
	if (!v)
		return;
	enc_vault_seal (v);
	enc_buf_done (&v->vkey);
	enc_buf_done (&v->ca);
	free (v->site);
	free (v);
}

enum enc_vault_state enc_vault_state (const struct enc_vault *v)
{
	if (!v->initialised)
		return ENC_VAULT_UNINITIALISED;
	return v->root.data ? ENC_VAULT_UNSEALED : ENC_VAULT_SEALED;
}

const char *enc_vault_state_name (const struct enc_vault *v)
{
	static const char *const names[] = { "uninitialised", "sealed", "unsealed" };

	return names[enc_vault_state (v)];
}

const struct enc_secret *enc_vault_root (const struct enc_vault *v)
{
	return v->root.data ? &v->root : NULL;
}

const struct enc_sign_key *enc_vault_signer (const struct enc_vault *v)
{
	return v->signer;
}

const struct enc_cert_key *enc_vault_ca_key (const struct enc_vault *v)
{
	return v->ca_key;
}

const char *enc_vault_vkey (const struct enc_vault *v)
{
	return v->initialised ? (const char *) v->vkey.data : "";
}

const char *enc_vault_ca (const struct enc_vault *v)
{
	return v->initialised ? (const char *) v->ca.data : "";
}

void enc_vault_seal (struct enc_vault *v)
{
	enc_secret_done (&v->root);
	enc_sign_key_free (ENC_TAKE (v->signer));
	enc_cert_key_free (ENC_TAKE (v->ca_key));
}

/* ---- wraps in the store ---- */

static int store_wrap (struct enc_vault *v, const char *name, const struct enc_wrap_parent *parent, const struct enc_wrap_id *id,
	const struct enc_secret *secret)
{
	enc_auto_done (enc_buf_done) struct enc_buf wrap = ENC_BUF_INIT (WRAP_MAX);
	int rc = enc_key_wrap (parent, id, secret->data, secret->len, &wrap);

	return rc < 0 ? rc : enc_keystore_set_value (v->store, name, &wrap, NULL);
}

static int load_wrap (struct enc_vault *v, const char *name, const struct enc_wrap_parent *parent, const struct enc_wrap_id *id,
	struct enc_secret *ret)
{
	enc_auto_done (enc_buf_done) struct enc_buf wrap = ENC_BUF_INIT (WRAP_MAX);
	int rc = enc_keystore_value (v->store, name, &wrap, NULL);

	return rc < 0 ? rc : enc_key_unwrap (parent, id, wrap.data, wrap.len, ret);
}

/* ---- init ---- */

static int make_root (struct enc_vault *v, const struct enc_secret *passphrase, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf params = ENC_BUF_INIT (ENC_KDF_WIRE);
	enc_auto (enc_secmem) uint8_t *key = NULL;
	struct enc_kdf kdf;
	int rc;

	if ((rc = enc_kdf_new (v->argon2_mib, &kdf, err)) < 0 || (rc = enc_kdf_derive (&kdf, passphrase->data, passphrase->len, &key, err)) < 0 ||
		(rc = enc_secmem_random (ROOT_BYTES, &v->root.data, err)) < 0)
		return rc;
	v->root.len = ROOT_BYTES;
	enc_kdf_put (&kdf, &params);
	if ((rc = enc_buf_check (&params, err)) < 0 || (rc = enc_keystore_set_value (v->store, "kdf", &params, err)) < 0)
		return rc;
	const struct enc_wrap_parent parent = { key, 0 };
	return enc_wrap (err, store_wrap (v, "root", &parent, &root_id, &v->root), "root key");
}

static int make_signer (struct enc_vault *v, struct enc_error *err)
{
	enc_auto (enc_secmem) uint8_t *seed = NULL;
	enc_auto_free char *name = enc_strf ("%s/keyd", v->site);
	char text[ENC_VKEY_TEXT_MAX];
	struct enc_vkey vkey;
	int rc;

	if (!name)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	if ((rc = enc_secmem_random (ENC_SIGN_SEED_SIZE, &seed, err)) < 0)
		return rc;
	if (!(v->signer = enc_sign_key_new (ENC_SIGN_ED25519, seed, err)))
		return -ENC_ESYS;
	if ((rc = enc_vkey_init (&vkey, name, enc_sign_key_pub (v->signer), err)) < 0)
		return rc;
	enc_vkey_format (&vkey, text);
	enc_auto_done (enc_buf_done) struct enc_buf line = ENC_BUF_INIT (sizeof text);
	enc_buf_put (&line, text, strlen (text));
	const struct enc_wrap_parent parent = root_parent (v);
	rc = store_wrap (v, "sign", &parent, &sign_id, &(struct enc_secret){ seed, ENC_SIGN_SEED_SIZE });
	return rc < 0 ? enc_wrap (err, rc, "signing key") : enc_keystore_set_value (v->store, "vkey", &line, err);
}

static int make_ca (struct enc_vault *v, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf pem = ENC_BUF_INIT (ENC_CERT_PEM_MAX);
	enc_auto_done (enc_secret_done) struct enc_secret der = { 0 };
	enc_auto_free char *name = enc_strf ("%s enclave CA", v->site);
	int rc;

	if (!name)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	if ((rc = enc_cert_key_new (&v->ca_key, err)) < 0 || (rc = enc_cert_ca (v->ca_key, name, CA_DAYS, &pem, err)) < 0 ||
		(rc = enc_cert_key_der (v->ca_key, &der, err)) < 0)
		return rc;
	const struct enc_wrap_parent parent = root_parent (v);
	rc = store_wrap (v, "ca", &parent, &ca_id, &der);
	return rc < 0 ? enc_wrap (err, rc, "CA key") : enc_keystore_set_value (v->store, "ca_pem", &pem, err);
}

static int make_all (struct enc_vault *v, const struct enc_secret *passphrase, struct enc_error *err)
{
	int rc = enc_keystore_begin (v->store, err);

	if (rc == 0)
		rc = make_root (v, passphrase, err);
	if (rc == 0)
		rc = make_signer (v, err);
	if (rc == 0)
		rc = make_ca (v, err);
	if (rc == 0)
		rc = enc_keystore_commit (v->store, err);
	enc_keystore_end (v->store);
	return rc == 0 ? load_public (v, err) : rc;
}

int enc_vault_init (struct enc_vault *v, const struct enc_secret *passphrase, struct enc_error *err)
{
	if (v->initialised)
		return enc_error_next (err, enc_fail (err, ENC_ECONFLICT, "the root key exists already"), "enclavectl key unseal");
	int rc = make_all (v, passphrase, err);

	if (rc < 0)
		enc_vault_seal (v);
	return rc;
}

/* ---- unseal ---- */

static int open_children (struct enc_vault *v, struct enc_error *err)
{
	enc_auto_done (enc_secret_done) struct enc_secret seed = { 0 }, der = { 0 };
	const struct enc_wrap_parent parent = root_parent (v);
	struct enc_vkey vkey;
	int rc;

	if (load_wrap (v, "sign", &parent, &sign_id, &seed) < 0 || load_wrap (v, "ca", &parent, &ca_id, &der) < 0 ||
		seed.len != ENC_SIGN_SEED_SIZE)
		return enc_fail (err, ENC_EINTEGRITY, "keys.db does not belong to this root key");
	if (!(v->signer = enc_sign_key_new (ENC_SIGN_ED25519, seed.data, err)))
		return -ENC_ESYS;
	if ((rc = enc_cert_key_of_der (der.data, der.len, &v->ca_key, err)) < 0 ||
		(rc = enc_vkey_parse (enc_vault_vkey (v), strlen (enc_vault_vkey (v)), &vkey, err)) < 0)
		return rc;
	if (!enc_mem_equal (vkey.pub.key, enc_sign_key_pub (v->signer)->key, vkey.pub.len))
		return enc_fail (err, ENC_EINTEGRITY, "keys.db holds the verifier key of another signing key");
	return 0;
}

int enc_vault_adopt (struct enc_vault *v, const struct enc_secret *root, struct enc_error *err)
{
	int rc;

	if (!v->initialised)
		return enc_fail (err, ENC_EINTEGRITY, "a root key is there but keys.db knows none");
	if (v->root.data)
		return 0;
	if (root->len != ROOT_BYTES)
		return enc_fail (err, ENC_EINTEGRITY, "a root key of %zu bytes", root->len);
	if ((rc = enc_secmem_get (ROOT_BYTES, &v->root.data, err)) < 0)
		return rc;
	v->root.len = ROOT_BYTES;
	memcpy (v->root.data, root->data, ROOT_BYTES);
	if ((rc = open_children (v, err)) < 0)
		enc_vault_seal (v);
	return rc;
}

int enc_vault_unseal (struct enc_vault *v, const struct enc_secret *passphrase, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf params = ENC_BUF_INIT (ENC_KDF_WIRE);
	enc_auto_done (enc_secret_done) struct enc_secret root = { 0 };
	enc_auto (enc_secmem) uint8_t *key = NULL;
	struct enc_kdf kdf;
	int rc;

	if (!v->initialised)
		return enc_error_next (err, enc_fail (err, ENC_ECONFLICT, "there is no root key yet"), "enclavectl key init");
	if ((rc = enc_keystore_value (v->store, "kdf", &params, err)) < 0 || (rc = enc_kdf_read (params.data, params.len, &kdf, err)) < 0 ||
		(rc = enc_kdf_derive (&kdf, passphrase->data, passphrase->len, &key, err)) < 0)
		return rc;
	const struct enc_wrap_parent parent = { key, 0 };
	if ((rc = load_wrap (v, "root", &parent, &root_id, &root)) == -ENC_EINTEGRITY)
		return enc_fail (err, ENC_EDENIED, "the passphrase is wrong");
	if (rc < 0)
		return enc_fail (err, (enum enc_code) -rc, "the root key cannot be read");
	return enc_vault_adopt (v, &root, err);
}

/* ---- keys of enclaves ---- */

static int open_kek (struct enc_vault *v, const char *enclave, struct enc_secret *ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf wrap = ENC_BUF_INIT (WRAP_MAX);
	const struct enc_wrap_parent parent = root_parent (v);
	const struct enc_wrap_id id = kek_id (enclave);
	int rc = enc_keystore_kek (v->store, enclave, &wrap, err);

	if (rc < 0)
		return rc;
	if ((rc = enc_key_unwrap (&parent, &id, wrap.data, wrap.len, ret)) < 0)
		return enc_fail (err, (enum enc_code) -rc, "the key of enclave %s does not open", enclave);
	return 0;
}

static int open_or_make_kek (struct enc_vault *v, const char *enclave, struct enc_secret *ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf wrap = ENC_BUF_INIT (WRAP_MAX);
	enc_auto_done (enc_secret_done) struct enc_secret kek = { 0 };
	const struct enc_wrap_parent parent = root_parent (v);
	const struct enc_wrap_id id = kek_id (enclave);
	int rc = open_kek (v, enclave, ret, err);

	if (rc != -ENC_ENOTFOUND)
		return rc;
	if ((rc = enc_secmem_random (KEK_BYTES, &kek.data, err)) < 0)
		return rc;
	kek.len = KEK_BYTES;
	if ((rc = enc_key_wrap (&parent, &id, kek.data, kek.len, &wrap)) < 0 ||
		(rc = enc_keystore_set_kek (v->store, enclave, &wrap, err)) < 0)
		return rc;
	*ret = kek;
	kek = (struct enc_secret){ 0 };
	return 0;
}

static int wrap_key (const struct enc_secret *kek, struct enc_key_row *row, const struct enc_secret *secret, struct enc_error *err)
{
	const struct enc_wrap_parent parent = { kek->data, 1 };
	const struct enc_wrap_id id = { row->purpose, row->id, row->enclave, row->version };

	enc_buf_done (&row->wrap);
	row->wrap = ENC_BUF_INIT (WRAP_MAX);
	int rc = enc_key_wrap (&parent, &id, secret->data, secret->len, &row->wrap);
	return rc < 0 ? enc_fail (err, (enum enc_code) -rc, "key %s cannot be wrapped", row->id) : 0;
}

int enc_vault_make_key (struct enc_vault *v, struct enc_key_row *row, struct enc_error *err)
{
	enc_auto_done (enc_secret_done) struct enc_secret kek = { 0 }, secret = { 0 };
	int rc = open_or_make_kek (v, row->enclave, &kek, err);

	if (rc < 0 || (rc = enc_secmem_random (row->bytes, &secret.data, err)) < 0)
		return rc;
	secret.len = row->bytes;
	return wrap_key (&kek, row, &secret, err);
}

int enc_vault_open_key (struct enc_vault *v, const struct enc_key_row *row, struct enc_secret *ret, struct enc_error *err)
{
	enc_auto_done (enc_secret_done) struct enc_secret kek = { 0 };
	int rc = open_kek (v, row->enclave, &kek, err);

	if (rc == -ENC_ENOTFOUND)
		return enc_fail (err, ENC_EINTEGRITY, "the key of enclave %s is gone", row->enclave);
	if (rc < 0)
		return rc;
	const struct enc_wrap_parent parent = { kek.data, 1 };
	const struct enc_wrap_id id = { row->purpose, row->id, row->enclave, row->version };
	if ((rc = enc_key_unwrap (&parent, &id, row->wrap.data, row->wrap.len, ret)) < 0)
		return enc_fail (err, (enum enc_code) -rc, "key %s does not open", row->id);
	return 0;
}

int enc_vault_move_key (struct enc_vault *v, struct enc_key_row *row, const char *enclave, struct enc_error *err)
{
	enc_auto_done (enc_secret_done) struct enc_secret kek = { 0 }, secret = { 0 };
	int rc = enc_vault_open_key (v, row, &secret, err);

	if (rc < 0 || (rc = open_or_make_kek (v, enclave, &kek, err)) < 0)
		return rc;
	if ((rc = enc_str_copy (row->enclave, sizeof row->enclave, enclave, err)) < 0)
		return rc;
	return wrap_key (&kek, row, &secret, err);
}
