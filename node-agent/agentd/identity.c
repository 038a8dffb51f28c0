#include "node-agent/agentd/identity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "crypto/tls.h"
#include "base/enc.h"

enum { TOKEN_MAX = 256, PATH_SIZE = 4200 };

static void path_of (const char *dir, const char *name, char out[PATH_SIZE])
{
	(void) snprintf (out, PATH_SIZE, "%.4000s/%s", dir, name);
}

bool enc_identity_has_certificate (const char *dir)
{
	char path[PATH_SIZE];
	path_of (dir, "cert.pem", path);
	return access (path, R_OK) == 0;
}

char *enc_identity_token (const char *dir, struct enc_error *err)
{
	char path[PATH_SIZE], token[TOKEN_MAX];
	path_of (dir, "token", path);
	if (enc_file_read_line (path, token, sizeof token, err) < 0)
		return NULL;
	return strdup (token);
}

int enc_identity_drop_token (const char *dir, struct enc_error *err)
{
	char path[PATH_SIZE];
	path_of (dir, "token", path);
	if (unlink (path) < 0 && errno != ENOENT)
		return enc_fail_sys (err, "cannot remove the spent token");
	return 0;
}

/* The key is made once; a certificate that is replaced later keeps it only within one boot's enrolment. */
static struct enc_cert_key *key_get (const char *dir, struct enc_error *err)
{
	char path[PATH_SIZE];
	enc_auto_done (enc_buf_done) struct enc_buf pem = ENC_BUF_SECRET (ENC_CERT_PEM_MAX);
	enc_auto (enc_cert_key) struct enc_cert_key *key = NULL;
	path_of (dir, "key.pem", path);
	if (access (path, F_OK) == 0) {
		if (enc_file_read (path, ENC_CERT_PEM_MAX, &pem, err) < 0 || enc_cert_key_of_pem (pem.data, pem.len, &key, err) < 0)
			return NULL;
		return ENC_TAKE (key);
	}
	struct enc_file_attr attr = ENC_FILE_ATTR (0600);
	if (enc_cert_key_new (&key, err) < 0 || enc_cert_key_pem (key, &pem, err) < 0 || enc_file_write (path, pem.data, pem.len, &attr, err) < 0)
		return NULL;
	return ENC_TAKE (key);
}

char *enc_identity_csr (const char *dir, const char *node, struct enc_error *err)
{
	enc_auto (enc_cert_key) struct enc_cert_key *key = key_get (dir, err);
	enc_auto_done (enc_buf_done) struct enc_buf pem = ENC_BUF_INIT (ENC_CERT_PEM_MAX);
	if (!key || enc_cert_request (key, node, &pem, err) < 0)
		return NULL;
	return enc_buf_take_str (&pem);
}

int enc_identity_store (const char *dir, const char *certificate, struct enc_error *err)
{
	char path[PATH_SIZE];
	struct enc_file_attr attr = ENC_FILE_ATTR (0600);
	path_of (dir, "cert.pem", path);
	int rc = enc_file_write (path, certificate, strlen (certificate), &attr, err);
	return rc < 0 ? rc : enc_identity_drop_token (dir, err);
}

struct ssl_ctx_st *enc_identity_tls (const char *dir, const char *ca_file, bool with_certificate, struct enc_error *err)
{
	char cert[PATH_SIZE], key[PATH_SIZE];
	path_of (dir, "cert.pem", cert);
	path_of (dir, "key.pem", key);
	const struct enc_tls_files files = { .certificate = with_certificate ? cert : NULL, .key = with_certificate ? key : NULL, .ca = ca_file };
	return enc_tls_client (&files, err);
}
