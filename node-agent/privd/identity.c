#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/enctime.h"
#include "base/file.h"
#include "crypto/envelope.h"
#include "node-agent/privd/privd.h"

#include "base/enc.h"

static int boot_nonce (struct enc_privd *p, struct enc_error *err)
{
	enc_auto_free char *path = enc_strf ("%s/boot", p->conf.run_dir), *hex = NULL, *line = NULL;
	struct enc_file_attr attr = ENC_FILE_ATTR (0600);
	char text[40];
	int rc;

	if (!path)
		return enc_fail (err, ENC_ENOMEM, "boot nonce: no memory");
	if (access (path, F_OK) == 0) {
		if ((rc = enc_file_read_line (path, text, sizeof text, err)) < 0)
			return rc;
		return enc_wrap (err, enc_hex_fixed (text, p->boot, sizeof p->boot, err), "%s", path);
	}
	if ((rc = enc_random (p->boot, sizeof p->boot, err)) < 0)
		return rc;
	if (!(hex = enc_hex (p->boot, sizeof p->boot)) || !(line = enc_strf ("%s\n", hex)))
		return enc_fail (err, ENC_ENOMEM, "boot nonce: no memory");
	return enc_file_write (path, line, strlen (line), &attr, err);
}

/* The node's identity is made once, here, and never leaves: another node's cannot be told from this file's copy, so a copy is an alarm
 * (two live connections) and not a way in. */
static int identity_key (struct enc_privd *p, struct enc_error *err)
{
	enc_auto_free char *path = enc_strf ("%s/identity", p->conf.state_dir);
	enc_auto_done (enc_buf_done) struct enc_buf bytes = ENC_BUF_SECRET (ENC_SIGN_SEED_SIZE);
	struct enc_file_attr attr = ENC_FILE_ATTR (0600);
	uint8_t seed[ENC_SIGN_SEED_SIZE];
	int rc;

	if (!path)
		return enc_fail (err, ENC_ENOMEM, "identity: no memory");
	if (access (path, F_OK) == 0) {
		if ((rc = enc_file_read_trusted (path, sizeof seed, &bytes, err)) < 0)
			return rc;
		if (bytes.len != sizeof seed)
			return enc_fail (err, ENC_EINTEGRITY, "%s is damaged", path);
		p->identity = enc_sign_key_new (ENC_SIGN_ED25519, bytes.data, err);
		return p->identity ? 0 : -ENC_EUNAVAIL;
	}
	if (!(p->identity = enc_sign_key_new (ENC_SIGN_ED25519, NULL, err)))
		return -ENC_EUNAVAIL;
	enc_sign_key_seed (p->identity, seed);
	rc = enc_file_write (path, seed, sizeof seed, &attr, err);
	enc_wipe (seed, sizeof seed);
	return rc;
}

int enc_privd_identity (struct enc_privd *p, struct enc_error *err)
{
	int rc;

	if ((rc = boot_nonce (p, err)) < 0 || (rc = enc_boot_id (p->boot_id, err)) < 0 || (rc = identity_key (p, err)) < 0)
		return rc;
	return enc_boot_key_new (&p->boot_key, err);
}

int enc_privd_keyd (struct enc_privd *p, struct enc_error *err)
{
	int rc;

	if (p->has_keyd)
		return 0;
	if ((rc = enc_vkey_load (p->conf.keyd_vkey, &p->keyd, err)) < 0)
		return enc_wrap (err, rc, "the key service's verifier key");
	p->has_keyd = true;
	return 0;
}
