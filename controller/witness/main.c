/* enclave-witness: cosigns the checkpoints of the logs that it knows, and only those that continue what it cosigned before. HTTP as
 * C2SP tlog-witness says; one process, one loop: checking and remembering cannot be parted. */
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

#include "base/daemon.h"
#include "base/enctime.h"
#include "base/file.h"
#include "base/http.h"
#include "base/log.h"
#include "base/peer.h"
#include "controller/witness/ledger.h"
#include "crypto/secmem.h"
#include "crypto/tls.h"
#include "base/enc.h"

enum { ARENA = 64 * 1024, PORT = 7450 };

struct witness_conf {
	char *name, *state, *socket, *listen, *certificate, *key, *ca;
	uint32_t port;
	struct enc_strs logs;
};

static const struct enc_field fields[] = {
	ENC_FIELD (struct witness_conf, name, "name", ENC_T_STR, .flags = ENC_REQUIRED, .max = ENC_NOTE_NAME_MAX,
		   .help = "name of the witness, like a URL without scheme; cannot be changed later"),
	ENC_FIELD (struct witness_conf, state, "state", ENC_T_PATH, .dflt = "\"/var/lib/enclave-witness\"", .help = "folder of its memory"),
	ENC_FIELD (struct witness_conf, socket, "socket", ENC_T_PATH, .help = "a Unix socket to listen on"),
	ENC_FIELD (struct witness_conf, listen, "listen", ENC_T_STR, .help = "an address to listen on; needs certificate and key"),
	ENC_FIELD (struct witness_conf, port, "port", ENC_T_U32, .min = 1, .max = 65535, .dflt = "7450", .help = "and its port"),
	ENC_FIELD (struct witness_conf, certificate, "certificate", ENC_T_PATH, .help = "PEM file of the TLS server"),
	ENC_FIELD (struct witness_conf, key, "key", ENC_T_PATH, .help = "PEM file of its private key"),
	ENC_FIELD (struct witness_conf, ca, "ca", ENC_T_PATH, .help = "if given, clients must have a certificate of this CA"),
	ENC_FIELD (struct witness_conf, logs, "logs", ENC_T_PATHS, .flags = ENC_REQUIRED | ENC_NONEMPTY, .max = ENC_LEDGER_LOGS,
		   .help = "files with the verifier keys of the logs"),
	ENC_FIELD_END,
};

static struct witness_conf conf;
static struct {
	struct enc_ledger *ledger;
	struct enc_http_server *http;
	SSL_CTX *tls;
	struct enc_vkey logs[ENC_LEDGER_LOGS];
	int unix_fd, tcp_fd;
} witness = { .unix_fd = -1, .tcp_fd = -1 };

/* ---- requests ---- */

static const char *content_type (int status)
{
	return status == 409 ? "text/x.tlog.size" : "text/plain; charset=utf-8";
}

static void on_add (struct enc_http_req *req, void *arg ENC_UNUSED)
{
	struct enc_ledger_answer answer;
	struct enc_error err = { 0 };
	size_t len = 0;
	const char *body = enc_http_body_text (req, &len);

	enc_ledger_add (witness.ledger, body ? body : "", len, (uint64_t) (enc_now () / ENC_NS_S), &answer, &err);
	if (answer.status != 200)
		enc_log_err (err.code == ENC_EINTEGRITY || answer.status >= 500 ? ENC_LOG_ERROR : ENC_LOG_NOTICE, &err, "refused %s at %llu (%d)",
			     answer.origin[0] ? answer.origin : "a checkpoint", (unsigned long long) answer.size, answer.status);
	enc_http_reply_text (req, answer.status, content_type (answer.status), answer.text, strlen (answer.text));
}

static void on_last (struct enc_http_req *req, void *arg ENC_UNUSED)
{
	size_t len = 0;
	const char *note = enc_ledger_last (witness.ledger, enc_http_capture (req, 0), &len);

	enc_http_reply_text (req, note ? 200 : 404, content_type (200), note, len);
}

static const struct enc_http_route routes[] = {
	{ "POST", "/add-checkpoint", on_add, ENC_HTTP_RAW, NULL },
	{ "GET", "/checkpoint/{}", on_last, 0, NULL },
	{ NULL, NULL, NULL, 0, NULL },
};

/* ---- life ---- */

static int on_check (struct enc_daemon *d ENC_UNUSED, struct enc_error *err)
{
	if (!enc_note_name_ok (conf.name, strlen (conf.name)))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/name: printable, no blanks, no '+'"), "/name");
	if (!conf.socket && !conf.listen)
		return enc_fail (err, ENC_EINVAL, "nothing to listen on: socket, or listen with certificate and key");
	if (conf.listen && (!conf.certificate || !conf.key))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/listen: not without certificate and key"), "/listen");
	return 0;
}

static int load_logs (struct enc_error *err)
{
	for (size_t i = 0; i < conf.logs.n; i++) {
		enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (ENC_VKEY_TEXT_MAX + 1);
		int rc = enc_file_read_trusted (conf.logs.v[i], ENC_VKEY_TEXT_MAX, &text, err);

		if (rc == 0)
			rc = enc_vkey_parse ((const char *) text.data, text.len, &witness.logs[i], err);
		if (rc == 0 && witness.logs[i].pub.alg != ENC_SIGN_ED25519)
			rc = enc_fail (err, ENC_EINVAL, "not the key of a log that can be checked here");
		if (rc < 0)
			return enc_wrap (err, rc, "%s", conf.logs.v[i]);
	}
	return 0;
}

static int on_open (struct enc_daemon *d ENC_UNUSED, struct enc_error *err)
{
	int rc = enc_secmem_init (ARENA, err);

	if (rc < 0 || (rc = load_logs (err)) < 0)
		return rc;
	if (conf.listen) {
		const struct enc_tls_files files = { conf.certificate, conf.key, conf.ca };

		if (!(witness.tls = enc_tls_public_server (&files, err)))
			return -ENC_EFAILED;
		if ((rc = witness.tcp_fd = enc_tcp_listen (conf.listen, conf.port, err)) < 0)
			return rc;
	}
	if (conf.socket && (rc = witness.unix_fd = enc_unix_listen (conf.socket, 0666, (uid_t) -1, (gid_t) -1, err)) < 0)
		return rc;
	return 0;
}

static int on_start (struct enc_daemon *d, struct enc_error *err)
{
	const struct enc_http_conf http = { .routes = routes, .idle_s = 120 };
	int rc = 0;

	witness.ledger = enc_ledger_open (conf.state, conf.name, witness.logs, conf.logs.n, err);
	if (!witness.ledger)
		return err->code ? -err->code : -ENC_EFAILED;
	if (!(witness.http = enc_http_server_new (enc_daemon_base (d), &http, err)))
		return -ENC_EFAILED;
	if (witness.unix_fd >= 0)
		rc = enc_http_server_listen (witness.http, ENC_TAKE_FD (witness.unix_fd), NULL, err);
	if (rc == 0 && witness.tcp_fd >= 0)
		rc = enc_http_server_listen (witness.http, ENC_TAKE_FD (witness.tcp_fd), witness.tls, err);
	if (rc == 0)
		enc_daemon_status ("%s, %zu logs", conf.name, conf.logs.n);
	return rc;
}

static void on_stop (struct enc_daemon *d ENC_UNUSED)
{
	enc_http_server_free (ENC_TAKE (witness.http));
	enc_ledger_free (ENC_TAKE (witness.ledger));
	SSL_CTX_free (ENC_TAKE (witness.tls));
	enc_secmem_done ();
}

int main (int argc, char **argv)
{
	const struct enc_daemon_spec spec = {
		.name = "enclave-witness",
		.summary = "cosigns checkpoints of audit logs",
		.fields = fields,
		.conf = &conf,
		.user = "enclave-witness",
		.flags = ENC_D_NETWORK,
		.check = on_check,
		.open = on_open,
		.start = on_start,
		.stop = on_stop,
	};

	return enc_daemon_main (&spec, argc, argv);
}
