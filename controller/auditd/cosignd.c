/* enclave-cosignd: carries checkpoints from auditd to the witnesses and their cosignatures back. It holds no key and can forge nothing:
 * auditd checks each line by the witness's own key. It stands apart so that auditd needs no network. Protocol: C2SP tlog-witness. */
#include <event2/event.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

#include "base/daemon.h"
#include "base/enctime.h"
#include "base/file.h"
#include "base/http.h"
#include "base/ipc_loop.h"
#include "base/log.h"
#include "base/str.h"
#include "crypto/tlog/policy.h"
#include "crypto/tls.h"
#include "base/enc.h"

enum { TICK_MS = 250, CALL_MS = 5000, BODY_MAX = 16384, PORT_HTTPS = 443, BACKOFF_MAX_S = 30 };

struct cosignd_conf {
	char *auditd, *witnesses, *certificate, *key, *ca;
	uint64_t refresh_s;
};

static const struct enc_field fields[] = {
	ENC_FIELD (struct cosignd_conf, auditd, "auditd", ENC_T_PATH, .dflt = "\"/run/enclave/auditd.sock\"", .help = "the log service"),
	ENC_FIELD (struct cosignd_conf, witnesses, "witnesses", ENC_T_PATH, .dflt = "\"/etc/enclave/witnesses\"",
		   .help = "file of the witness policy (C2SP tlog-policy) with a URL for each witness; read again on SIGHUP"),
	ENC_FIELD (struct cosignd_conf, certificate, "certificate", ENC_T_PATH, .help = "PEM file, for witnesses that ask for one"),
	ENC_FIELD (struct cosignd_conf, key, "key", ENC_T_PATH, .help = "PEM file of its private key"),
	ENC_FIELD (struct cosignd_conf, ca, "ca", ENC_T_PATH, .help = "PEM file: the CA of the witnesses' TLS certificates"),
	ENC_FIELD (struct cosignd_conf, refresh_s, "refresh_s", ENC_T_DURATION, .min = 1, .max = 3600, .dflt = "15",
		   .help = "an unchanged head is cosigned again after this"),
	ENC_FIELD_END,
};

struct witness {
	struct enc_tlog_witness is;
	struct enc_http_client *http;
	char *path; /* of add-checkpoint */
	uint64_t size;       /* that it cosigned last, as far as we know */
	int64_t cosigned_at; /* mono ns */
	int64_t not_before;  /* mono ns */
	unsigned failures;
	bool busy, again;    /* again: one more try after 409 */
	/* the submission under way */
	char *note;
	uint64_t to;
};

static struct cosignd_conf conf;
static struct {
	struct event_base *base;
	struct event *tick;
	struct enc_ipc_client *auditd;
	SSL_CTX *tls;
	struct witness *w;
	size_t n;
	char *note; /* the newest head */
	uint64_t size;
	bool asking;
	unsigned calls;  /* that will still come back */
	bool reload;
} c;

/* ---- telling auditd ---- */

static void told (int rc, const struct enc_json *answer ENC_UNUSED, struct enc_fds *fds ENC_UNUSED, const struct enc_error *err, void *arg ENC_UNUSED)
{
	c.calls--;
	if (rc < 0)
		enc_log_err (ENC_LOG_WARN, err, "the log does not take what a witness said");
}

static void tell (struct enc_json *request)
{
	struct enc_error err = { 0 };

	if (!c.auditd) { /* stopping */
		enc_json_free (request);
		return;
	}
	if (enc_ipc_client_call (c.auditd, request, CALL_MS, told, NULL, &err) < 0)
		enc_log_err (ENC_LOG_WARN, &err, "the log cannot be told");
	else
		c.calls++;
}

static struct enc_json *word (const struct witness *w)
{
	struct enc_json *o = enc_json_object ();

	enc_json_set_str (o, "op", "cosign");
	enc_json_set_str (o, "witness", w->is.name);
	return o;
}

static void tell_state (struct witness *w, const char *state, const char *text, uint64_t size)
{
	struct enc_json *o = word (w);
	enc_auto_free char *shown = enc_text_printable (text);

	if (shown && strlen (shown) > 140)
		shown[140] = '\0';
	enc_json_set_str (o, "state", state);
	enc_json_set_str (o, "text", shown);
	enc_json_set_u64 (o, "size", size);
	tell (o);
}

static void tell_line (struct witness *w, const char *lines, size_t len)
{
	enc_auto_done (enc_buf_done) struct enc_buf note = ENC_BUF_INIT (ENC_NOTE_MAX);
	struct enc_json *o = word (w);
	enc_auto_free char *text = NULL;

	enc_buf_put (&note, w->note, strlen (w->note));
	enc_buf_put (&note, lines, len);
	text = enc_buf_take_str (&note);
	enc_json_set_str (o, "note", text);
	tell (o);
}

/* ---- one submission ---- */

static void over (struct witness *w)
{
	free (ENC_TAKE (w->note));
	w->busy = false;
}

static void wait_longer (struct witness *w)
{
	int64_t s = INT64_C (1) << (w->failures < 5 ? w->failures : 5);

	w->failures++;
	w->not_before = enc_mono () + (s < BACKOFF_MAX_S ? s : BACKOFF_MAX_S) * ENC_NS_S;
}

static void failed (struct witness *w, const char *state, const char *text, uint64_t size)
{
	tell_state (w, state, text, size);
	wait_longer (w);
	over (w);
}

/* 409: the witness cosigned another size last. More than we have means that this log was set back. */
static void on_conflict (struct witness *w, const struct enc_http_answer *answer)
{
	enc_auto_free char *text = strndup (answer->text ? answer->text : "", answer->len < 24 ? answer->len : 24);
	uint64_t size = 0;

	if (text)
		text[strcspn (text, "\n")] = '\0';
	if (!text || enc_parse_u64 (text, 0, UINT64_C (1) << 53, &size, NULL) < 0) {
		failed (w, "refused", "409 without a size", 0);
	} else if (size > w->to) {
		failed (w, "conflict", "it cosigned more records than this log has: the log was set back", size);
	} else if (size == w->size) {
		failed (w, "conflict", "it cosigned another root for this size: the log was forked", size);
	} else {
		w->size = size;
		w->again = true;
		over (w);
	}
}

static void on_answer (int rc, const struct enc_http_answer *answer, const struct enc_error *err, void *arg)
{
	struct witness *w = arg;
	char text[64];

	c.calls--;
	if (answer && answer->status == 200 && answer->len > 0) {
		tell_line (w, answer->text, answer->len);
		w->size = w->to;
		w->cosigned_at = enc_mono ();
		w->failures = 0;
		over (w);
	} else if (answer && answer->status == 409) {
		on_conflict (w, answer);
	} else if (answer && answer->status == 422) {
		failed (w, "conflict", "no continuation of what it cosigned: the log was forked", w->size);
	} else if (answer && answer->status >= 400 && answer->status < 500) {
		(void) snprintf (text, sizeof text, "it answers %d", answer->status);
		failed (w, "refused", text, 0);
	} else {
		failed (w, "down", rc < 0 && err ? err->text : "no answer of use", 0);
	}
}

static void post (struct witness *w, uint64_t old, const struct enc_json *proof)
{
	enc_auto_done (enc_buf_done) struct enc_buf body = ENC_BUF_INIT (BODY_MAX);
	struct enc_error err = { 0 };

	enc_buf_putf (&body, "old %llu\n", (unsigned long long) old);
	for (size_t i = 0; i < enc_json_len (proof); i++)
		enc_buf_putf (&body, "%s\n", enc_json_str (enc_json_at (proof, i)));
	enc_buf_putf (&body, "\n%s", w->note);
	const struct enc_http_call call = { .method = "POST", .path = w->path, .text = (const char *) body.data, .text_len = body.len,
		.timeout_ms = CALL_MS, .done = on_answer, .arg = w };
	if (enc_buf_check (&body, &err) < 0 || enc_http_client_call (w->http, &call, &err) < 0) {
		failed (w, "down", err.text, 0);
		return;
	}
	c.calls++;
}

static void on_proof (int rc, const struct enc_json *answer, struct enc_fds *fds ENC_UNUSED, const struct enc_error *err, void *arg)
{
	struct witness *w = arg;

	c.calls--;
	if (rc < 0) {
		enc_log_err (ENC_LOG_WARN, err, "no consistency proof for %s", w->is.name);
		wait_longer (w);
		over (w);
		return;
	}
	post (w, w->size, enc_json_get (answer, "proof"));
}

static void ask_proof (struct witness *w)
{
	struct enc_json *o = enc_json_object ();
	struct enc_error err = { 0 };

	enc_json_set_str (o, "op", "consistency");
	enc_json_set_u64 (o, "from", w->size);
	enc_json_set_u64 (o, "to", w->to);
	if (enc_ipc_client_call (c.auditd, o, CALL_MS, on_proof, w, &err) < 0)
		over (w);
	else
		c.calls++;
}

static void submit (struct witness *w)
{
	w->busy = true;
	w->again = false;
	w->to = c.size;
	w->note = enc_strdup (c.note);
	if (!w->note)
		over (w);
	else if (w->size > w->to)
		failed (w, "conflict", "it cosigned more records than this log has: the log was set back", w->size);
	else if (w->size == 0 || w->size == w->to)
		post (w, w->size, NULL);
	else
		ask_proof (w);
}

static bool is_due (const struct witness *w)
{
	int64_t now = enc_mono ();

	if (w->busy || !c.note || now < w->not_before)
		return false;
	return w->again || w->cosigned_at == 0 || w->size != c.size || now - w->cosigned_at > (int64_t) conf.refresh_s * ENC_NS_S;
}

/* ---- the policy ---- */

/* An https URL with host, port and prefix, or "unix:PATH" on one host. */
static int open_witness (struct witness *w, struct enc_error *err)
{
	enc_auto_free char *url = enc_strdup (w->is.url);
	struct enc_http_client_conf http = { .port = PORT_HTTPS, .tls = c.tls, .connect_ms = CALL_MS, .max_body = BODY_MAX };
	char *host = url, *slash, *port;
	uint64_t number = 0;

	if (!url)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if (strncmp (url, "unix:/", 6) == 0) {
		http.unix_path = url + 5;
		w->path = enc_strdup ("/add-checkpoint");
		w->http = enc_http_client_new (c.base, &http, err);
		return w->http ? 0 : -ENC_EFAILED;
	}
	if (strncmp (url, "https://", 8) != 0 || !c.tls)
		return enc_fail (err, ENC_EINVAL, "witness %s: an https URL is needed, and `ca`", w->is.name);
	host += 8;
	slash = strchr (host, '/');
	if (slash)
		*slash++ = '\0';
	w->path = enc_strf ("/%s%sadd-checkpoint", slash ? slash : "", slash && *slash && slash[strlen (slash) - 1] != '/' ? "/" : "");
	port = strrchr (host, ':');
	if (port && !strchr (port, ']')) {
		*port++ = '\0';
		if (enc_parse_u64 (port, 1, 65535, &number, err) < 0)
			return enc_wrap (err, -ENC_EINVAL, "witness %s", w->is.name);
		http.port = (unsigned) number;
	}
	if (*host == '[' && host[strlen (host) - 1] == ']') {
		host[strlen (host) - 1] = '\0';
		host++;
	}
	http.host = host;
	w->http = w->path ? enc_http_client_new (c.base, &http, err) : NULL;
	return w->http ? 0 : -ENC_EFAILED;
}

static void close_witnesses (struct witness *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		enc_http_client_free (list[i].http);
		free (list[i].path);
		free (list[i].note);
	}
	free (list);
}

/* One without a URL is cosigned for by other ways. */
static int open_witnesses (const struct enc_tlog_policy *policy, struct witness **ret, size_t *ret_n, struct enc_error *err)
{
	int rc = 0;

	*ret_n = 0;
	if (!(*ret = calloc (enc_tlog_policy_witnesses (policy) + 1, sizeof **ret)))
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	for (size_t i = 0; rc == 0 && i < enc_tlog_policy_witnesses (policy); i++) {
		struct witness *w = &(*ret)[*ret_n];

		w->is = *enc_tlog_policy_witness (policy, i);
		if (w->is.url[0] == '\0')
			continue;
		(*ret_n)++;
		rc = open_witness (w, err);
	}
	return rc;
}

/* The witnesses there are stay until all of the new ones are known to be good. */
static int load_policy (struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (ENC_POLICY_MAX);
	enc_auto (enc_tlog_policy) struct enc_tlog_policy *policy = NULL;
	struct witness *w = NULL;
	size_t n = 0;
	int rc = enc_file_read_trusted (conf.witnesses, ENC_POLICY_MAX, &text, err);

	if (rc < 0)
		return rc;
	if (!(policy = enc_tlog_policy_parse ((const char *) text.data, text.len, err)))
		return enc_wrap (err, -ENC_EINVAL, "%s", conf.witnesses);
	if ((rc = open_witnesses (policy, &w, &n, err)) < 0) {
		close_witnesses (w, n);
		return rc;
	}
	close_witnesses (c.w, c.n);
	c.w = w;
	c.n = n;
	return 0;
}

/* ---- the loop ---- */

static void on_head (int rc, const struct enc_json *answer, struct enc_fds *fds ENC_UNUSED, const struct enc_error *err ENC_UNUSED, void *arg ENC_UNUSED)
{
	const char *note = enc_json_get_str (answer, "checkpoint", NULL);

	c.calls--;
	c.asking = false;
	if (rc < 0 || !note || !*note)
		return;
	free (c.note);
	c.note = enc_strdup (note);
	c.size = enc_json_get_u64 (answer, "size", 0);
	for (size_t i = 0; i < c.n; i++)
		if (is_due (&c.w[i]))
			submit (&c.w[i]);
}

static void on_tick (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg ENC_UNUSED)
{
	struct enc_json *o;
	struct enc_error err = { 0 };

	if (c.reload && c.calls == 0) { /* no answer is on its way to a witness that goes */
		c.reload = false;
		if (load_policy (&err) < 0)
			enc_log_err (ENC_LOG_ERROR, &err, "the witness policy cannot be used; the one before stays in force");
	}
	if (c.asking || c.reload)
		return;
	o = enc_json_object ();
	enc_json_set_str (o, "op", "head");
	c.asking = enc_ipc_client_call (c.auditd, o, CALL_MS, on_head, NULL, &err) == 0;
	c.calls += c.asking;
}

static int on_open (struct enc_daemon *d ENC_UNUSED, struct enc_error *err)
{
	const struct enc_tls_files files = { conf.certificate, conf.key, conf.ca };

	if (!conf.ca)
		return 0;
	c.tls = enc_tls_public_client (&files, err);
	return c.tls ? 0 : -ENC_EFAILED;
}

static int on_start (struct enc_daemon *d, struct enc_error *err)
{
	const struct timeval every = { .tv_usec = TICK_MS * 1000 };
	int rc;

	c.base = enc_daemon_base (d);
	if ((rc = load_policy (err)) < 0)
		return rc;
	c.auditd = enc_ipc_client_new (c.base, conf.auditd, 0, err);
	c.tick = event_new (c.base, -1, EV_PERSIST, on_tick, NULL);
	if (!c.auditd || !c.tick || event_add (c.tick, &every) < 0)
		return err->code ? -err->code : enc_fail (err, ENC_ENOMEM, "out of memory");
	enc_daemon_status ("%zu witnesses", c.n);
	return 0;
}

static void on_reload (struct enc_daemon *d ENC_UNUSED)
{
	c.reload = true;
}

static void on_stop (struct enc_daemon *d ENC_UNUSED)
{
	if (c.tick)
		event_free (ENC_TAKE (c.tick));
	enc_ipc_client_free (ENC_TAKE (c.auditd));
	close_witnesses (ENC_TAKE (c.w), c.n);
	SSL_CTX_free (ENC_TAKE (c.tls));
	free (ENC_TAKE (c.note));
}

int main (int argc, char **argv)
{
	const struct enc_daemon_spec spec = {
		.name = "enclave-cosignd",
		.summary = "carries checkpoints to the witnesses",
		.fields = fields,
		.conf = &conf,
		.user = "enclave-cosign",
		.flags = ENC_D_NETWORK,
		.open = on_open,
		.start = on_start,
		.reload = on_reload,
		.stop = on_stop,
	};

	return enc_daemon_main (&spec, argc, argv);
}
