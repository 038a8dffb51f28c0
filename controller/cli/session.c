#include "controller/cli/session.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <openssl/ssl.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "crypto/tls.h"
#include "base/enc.h"

/* Remote callers bring a certificate of the site's CA for TLS. */
#define CLIENT_CERTIFICATE "/etc/enclave/client.pem"
#define CLIENT_KEY "/etc/enclave/client.key"
#define CLIENT_CA "/etc/enclave/controller-ca.pem"

enum { CALL_TIMEOUT_MS = 60000 };

static int url_split (const char *url, char host[256], unsigned *port, struct enc_error *err)
{
	uint64_t n = 0;
	const char *start = url + strlen ("https://"), *colon = strrchr (url, ':');
	if (strncmp (url, "https://", 8) != 0 || !colon || colon < start || (size_t) (colon - start) >= 256 ||
	    enc_parse_u64 (colon + 1, 1, 65535, &n, NULL) < 0)
		return enc_fail (err, ENC_EUSAGE, "--url: want https://HOST:PORT");
	(void) snprintf (host, 256, "%.*s", (int) (colon - start), start);
	*port = (unsigned) n;
	return 0;
}

int enc_session_call (const struct enc_session *s, const char *method, const char *path, const struct enc_json *body, struct enc_json **ret,
		      struct enc_error *err)
{
	struct enc_http_client_conf conf = { .unix_path = s->url ? NULL : s->socket, .max_body = 8 * 1024 * 1024 };
	const struct enc_http_call call = { .method = method, .path = path, .body = body, .timeout_ms = CALL_TIMEOUT_MS };
	const struct enc_tls_files files = { CLIENT_CERTIFICATE, CLIENT_KEY, CLIENT_CA };
	char host[256];
	int rc;
	if (s->url) {
		if ((rc = url_split (s->url, host, &conf.port, err)) < 0)
			return rc;
		conf.host = host;
		conf.tls_name = ENC_CERT_SERVICE;
		if (!(conf.tls = enc_tls_client (&files, err)))
			return err && err->code ? -err->code : -ENC_EFAILED;
	}
	rc = enc_http_once (&conf, &call, ret, err);
	if (conf.tls)
		SSL_CTX_free (conf.tls);
	if (rc == -ENC_EUNAVAIL && err && !err->next[0])
		(void) enc_error_next (err, rc, "systemctl status enclaved");
	return rc;
}

int enc_session_get (const struct enc_session *s, struct enc_json **ret, struct enc_error *err, const char *fmt, ...)
{
	char path[2048];
	va_list ap;
	va_start (ap, fmt);
	int n = vsnprintf (path, sizeof path, fmt, ap);
	va_end (ap);
	if (n < 0 || (size_t) n >= sizeof path)
		return enc_fail (err, ENC_EUSAGE, "the request is too long");
	return enc_session_call (s, "GET", path, NULL, ret, err);
}

int enc_session_document (const struct enc_session *s ENC_UNUSED, const struct enc_json *document, struct enc_error *err)
{
	enc_auto_free char *text = enc_json_write (document, NULL, err);
	if (!text)
		return -ENC_EFAILED;
	(void) printf ("%s\n", text);
	return 0;
}

int enc_session_failed (const struct enc_session *s, const struct enc_error *err)
{
	if (s->json) {
		enc_auto (enc_json) struct enc_json *document = enc_json_of_error (err);
		enc_auto_free char *text = enc_json_write (document, NULL, NULL);
		(void) printf ("%s\n", text ? text : "{\"error\":{\"code\":\"failed\",\"step\":null,\"object\":null,\"text\":\"no memory\",\"next\":null}}");
	} else {
		enc_auto_free char *text = enc_text_printable (err->text), *next = enc_text_printable (err->next);
		(void) fprintf (stderr, "enclavectl: %s\n", text ? text : "failed");
		if (next && next[0])
			(void) fprintf (stderr, "  Next: %s\n", next);
	}
	return enc_code_exit (err->code);
}

static const char *const colours[] = {
	[ENC_COLOUR_NONE] = "", [ENC_COLOUR_GOOD] = "\033[32m", [ENC_COLOUR_BAD] = "\033[31m", [ENC_COLOUR_WARN] = "\033[33m",
	[ENC_COLOUR_DIM] = "\033[2m",
};

const char *enc_colour_on (const struct enc_session *s, enum enc_colour colour)
{
	return s->colour ? colours[colour] : "";
}

const char *enc_colour_off (const struct enc_session *s)
{
	return s->colour ? "\033[0m" : "";
}
