/* Ops about keyd itself: state, init, unseal, seal, nonces. The passphrase comes by descriptor and never in JSON. */
#include "controller/keyd/ops.h"

#include "base/file.h"
#include "base/log.h"
#include "crypto/secmem.h"
#include "crypto/secretfd.h"
#include "base/enc.h"

#define DRIVER "file"

static void put_state (struct enc_keyd_call *c)
{
	enc_json_set_str (c->answer, "state", enc_vault_state_name (c->k->vault));
	enc_json_set_str (c->answer, "driver", DRIVER);
	enc_json_set_u64 (c->answer, "version", 1);
	if (enc_vault_state (c->k->vault) == ENC_VAULT_UNINITIALISED)
		return;
	enc_json_set_str (c->answer, "keyd_vkey", enc_vault_vkey (c->k->vault));
	enc_json_set_str (c->answer, "ca", enc_vault_ca (c->k->vault));
}

int enc_keyd_status (struct enc_keyd_call *c, struct enc_error *err ENC_UNUSED)
{
	put_state (c);
	return 0;
}

static int passphrase (struct enc_keyd_call *c, struct enc_secret *ret, struct enc_error *err)
{
	if (!c->req->fds || c->req->fds->n != 1)
		return enc_fail (err, ENC_EUSAGE, "the passphrase must come as one descriptor");
	return enc_secret_of_fd (c->req->fds->fd[0], ret, err);
}

/* The public halves as files, for whoever sets up the other hosts. */
static int write_public (struct enc_keyd_call *c, struct enc_error *err)
{
	const struct enc_file_attr attr = ENC_FILE_ATTR (0644);
	enc_auto_free char *vkey = enc_strf ("%s/keyd.vkey", c->k->conf->state);
	enc_auto_free char *ca = enc_strf ("%s/ca.pem", c->k->conf->state);
	enc_auto_free char *line = enc_strf ("%s\n", enc_vault_vkey (c->k->vault));
	const char *pem = enc_vault_ca (c->k->vault);
	int rc;

	if (!vkey || !ca || !line)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	if ((rc = enc_file_write (vkey, line, strlen (line), &attr, err)) < 0)
		return rc;
	return enc_file_write (ca, pem, strlen (pem), &attr, err);
}

static void opened (struct enc_keyd_call *c, const char *how)
{
	if (c->k->root_changed)
		c->k->root_changed (enc_vault_root (c->k->vault));
	enc_log_notice ("%s", how);
	put_state (c);
}

int enc_keyd_init (struct enc_keyd_call *c, struct enc_error *err)
{
	enc_auto_done (enc_secret_done) struct enc_secret pass = { 0 };
	int rc = passphrase (c, &pass, err);

	if (rc < 0 || (rc = enc_vault_init (c->k->vault, &pass, err)) < 0)
		return rc;
	if ((rc = write_public (c, err)) < 0)
		enc_log_err (ENC_LOG_WARN, err, "the public keys could not be written beside keys.db");
	enc_error_clear (err);
	opened (c, "root key, CA and signing key made");
	return 0;
}

int enc_keyd_unseal (struct enc_keyd_call *c, struct enc_error *err)
{
	enc_auto_done (enc_secret_done) struct enc_secret pass = { 0 };
	bool before = enc_vault_state (c->k->vault) == ENC_VAULT_UNSEALED;
	int rc = passphrase (c, &pass, err);

	if (rc < 0 || (rc = enc_vault_unseal (c->k->vault, &pass, err)) < 0)
		return rc;
	if (before)
		put_state (c);
	else
		opened (c, "unsealed");
	return 0;
}

int enc_keyd_seal (struct enc_keyd_call *c, struct enc_error *err ENC_UNUSED)
{
	enc_vault_seal (c->k->vault);
	if (c->k->root_changed)
		c->k->root_changed (NULL);
	enc_log_notice ("sealed");
	put_state (c);
	return 0;
}

int enc_keyd_nonce (struct enc_keyd_call *c, struct enc_error *err)
{
	uint8_t nonce[ENC_NONCE_BYTES];
	int rc = enc_nonces_give (c->k->nonces, c->k->mono (), nonce, err);

	if (rc < 0)
		return rc;
	enc_auto_free char *hex = enc_hex (nonce, sizeof nonce);
	enc_json_set_str (c->answer, "nonce", hex);
	return 0;
}
