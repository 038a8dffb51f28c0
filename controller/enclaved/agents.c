#include "controller/enclaved/agents.h"

#include "base/log.h"
#include "controller/enclaved/polls.h"
#include "controller/enclaved/record.h"
#include "controller/enclaved/sessions.h"
#include "crypto/tls.h"
#include <openssl/ssl.h>
#include "base/enc.h"

enum { POLL_MS = 25000, RETRY_MS = 2000, TWIN_WINDOW_S = 10 };
enum { NEEDS_CERT = ENC_HTTP_USER1 };

/* Who is at the other end; lives as long as the request. */
struct peer {
	char node[65];
};

/* ---- who is it ---- */

static int identify (struct enc_ctl *c, struct enc_http_req *req, struct peer *ret, struct enc_error *err)
{
	enc_auto_done (enc_node_done) struct enc_node n = { 0 };
	enc_auto_free char *hex = NULL;
	struct enc_cert_info info;
	int rc;

	if (!enc_http_tls (req) || (rc = enc_tls_peer (enc_http_tls (req), &info, err)) < 0)
		return enc_fail (err, ENC_EDENIED, "this needs a certificate");
	if (enc_node_load (c->db, info.name, &n, NULL) < 0)
		return enc_fail (err, ENC_EDENIED, "the certificate is of no node");
	hex = enc_hex (info.fingerprint, sizeof info.fingerprint);
	/* An earlier certificate of that node is void. */
	if (!enc_streq (hex, n.fingerprint))
		return enc_fail (err, ENC_EDENIED, "the certificate is not the node's present one");
	return enc_str_copy (ret->node, sizeof ret->node, n.name, err);
}

static bool gate (struct enc_http_req *req, void *arg)
{
	struct enc_ctl *c = arg;
	struct enc_error err = { 0 };
	struct peer *p;

	if (!(enc_http_route (req)->flags & NEEDS_CERT))
		return true;
	p = calloc (1, sizeof *p);
	if (!p || identify (c, req, p, &err) < 0) {
		free (p);
		enc_http_reply_error (req, &err);
		return false;
	}
	enc_http_set_user (req, p, free);
	enc_http_known (req, p->node);
	return true;
}

static void log_refusal (struct enc_http_req *req, int status, void *arg)
{
	struct enc_ctl *c = arg;
	struct peer *p = enc_http_user (req);
	struct enc_json *record, *data;

	if (status < 400)
		return;
	record = enc_record ("api", "refused", status == 403 ? "denied" : "failed");
	enc_record_actor (record, NULL);
	data = enc_record_data (record);
	enc_json_set_str (data, "method", enc_http_method (req));
	enc_json_set_str (data, "route", enc_http_path (req));
	enc_json_set_i64 (data, "status", status);
	enc_record_obj (record, "node", p ? p->node : NULL);
	enc_record_soon (c, record);
}

/* ---- documents ---- */

static void set_b64 (struct enc_json *o, const char *key, const char *text)
{
	enc_json_set_str (o, key, text && *text ? text : NULL);
}

static struct enc_json *document_json (const struct enc_document *d)
{
	struct enc_json *o = enc_json_object ();
	struct enc_json *sealed = d->sealed ? enc_json_parse (d->sealed, strlen (d->sealed), ENC_JSON_MAX_DEFAULT, NULL) : NULL;

	enc_json_set_i64 (o, "generation", d->generation);
	enc_json_set_str (o, "document", d->doc);
	set_b64 (o, "grant", d->grant_);
	enc_json_set (o, "sealed", sealed ? sealed : enc_json_array ());
	set_b64 (o, "members", d->members);
	set_b64 (o, "challenge", d->challenge);
	return o;
}

/* Word that needs no document: sessions that shall end. */
static bool answer_ending (struct enc_ctl *c, struct enc_http_req *req, const char *node, int64_t generation)
{
	struct enc_json *ending = enc_sessions_ending (c, node, true), *o;

	if (!ending)
		return false;
	o = enc_json_object ();
	enc_json_set_i64 (o, "generation", generation);
	enc_json_set_null (o, "document");
	enc_json_set (o, "end_sessions", ending);
	enc_http_reply (req, 200, o);
	return true;
}

static bool answer_document (struct enc_ctl *c, struct enc_http_req *req, struct enc_poll *poll, bool last)
{
	enc_auto_done (enc_document_done) struct enc_document d = { 0 };
	struct enc_error err = { 0 };

	if (enc_document_load (c->db, poll->key, &d, &err) < 0) {
		enc_http_reply_error (req, &err);
		return true;
	}
	if (d.doc && d.generation > poll->after) {
		enc_http_reply (req, 200, document_json (&d));
		return true;
	}
	if (answer_ending (c, req, poll->key, poll->after))
		return true;
	if (last)
		enc_http_reply (req, 204, NULL);
	return last;
}

/* One live connection per identity. After a cut the old one may linger unnoticed, so the new one takes over; two that take over from
 * each other are two machines with one identity. */
static void one_live (struct enc_ctl *c, const char *node, const char *remote)
{
	struct enc_poll *other = enc_poll_find (c, answer_document, node);
	struct enc_json *record;
	int64_t now = enc_now_s ();
	int64_t before;

	if (!other)
		return;
	enc_poll_end (c, other);
	before = enc_db_int (c->db, 0, "SELECT taken_over_at FROM nodes WHERE name=?", "s", node);
	if (enc_db_exec (c->db, NULL, "UPDATE nodes SET taken_over_at=? WHERE name=?", "is", now, node) < 0 || now - before > TWIN_WINDOW_S)
		return;
	enc_log_error ("two agents use the identity of %s, one from %s", node, remote);
	record = enc_record ("node", "twin", "failed");
	enc_record_actor (record, NULL);
	enc_record_obj (record, "node", node);
	if (remote && *remote)
		enc_json_set_str (enc_record_data (record), "address", remote);
	enc_record_soon (c, record);
}

static void seen_now (struct enc_ctl *c, const char *node)
{
	if (enc_db_exec (c->db, NULL, "UPDATE observed SET last_seen=? WHERE node=?", "is", enc_now_s (), node) < 0)
		enc_log_warn ("cannot note that %s was seen", node);
}

static void get_document (struct enc_http_req *req, void *arg)
{
	struct enc_ctl *c = arg;
	struct peer *p = enc_http_user (req);
	const char *text = enc_http_query (req, "after");
	struct enc_error err = { 0 };
	int64_t after = 0;

	if (text && enc_parse_i64 (text, 0, INT64_MAX, &after, &err) < 0) {
		(void) enc_error_pointer (&err, -ENC_EINVAL, "after");
		enc_http_reply_error (req, &err);
		return;
	}
	one_live (c, p->node, enc_http_remote (req));
	seen_now (c, p->node);
	enc_poll_park (c, req, answer_document, p->node, after, POLL_MS);
}

/* ---- reports and enrolment, each in a fiber ---- */

struct work {
	struct enc_ctl *c;
	struct enc_http_req *req;
	int (*run) (struct work *w, struct enc_json **ret, struct enc_error *err);
};

static int run_report (struct work *w, struct enc_json **ret, struct enc_error *err)
{
	const struct peer *p = enc_http_user (w->req);
	struct enc_json *ending;
	int64_t stored = 0;
	int rc = enc_report_take (w->c, p->node, enc_http_remote (w->req), enc_http_body (w->req), &stored, err);

	if (rc < 0)
		return rc;
	*ret = enc_json_object ();
	enc_json_set_i64 (*ret, "events_stored", stored);
	if (enc_json_get (enc_http_body (w->req), "receipts"))
		enc_json_set (*ret, "receipts", enc_sessions_receipts (w->c, p->node, enc_json_get (enc_http_body (w->req), "receipts")));
	if ((ending = enc_sessions_ending (w->c, p->node, false)))
		enc_json_set (*ret, "end_sessions", ending);
	enc_baseline_want (w->c, p->node);
	return 0;
}

static int run_enroll (struct work *w, struct enc_json **ret, struct enc_error *err)
{
	return enc_enroll (w->c, enc_http_body (w->req), ret, err);
}

static void work_fiber (void *arg)
{
	struct work *w = arg;
	struct enc_json *answer = NULL;
	struct enc_error err = { 0 };

	if (w->run (w, &answer, &err) < 0)
		enc_http_reply_error (w->req, &err);
	else
		enc_http_reply (w->req, 200, answer);
	free (w);
}

static void start_work (struct enc_ctl *c, struct enc_http_req *req, int (*run) (struct work *, struct enc_json **, struct enc_error *))
{
	struct work *w = calloc (1, sizeof *w);
	struct enc_error err = { 0 };

	if (w) {
		*w = (struct work){ .c = c, .req = req, .run = run };
		if (enc_fiber_start (c->fibers, work_fiber, w, NULL, &err) == 0)
			return;
	}
	free (w);
	(void) enc_fail (&err, ENC_ENOMEM, "out of memory");
	enc_http_reply_error (req, &err);
}

static void post_report (struct enc_http_req *req, void *arg)
{
	start_work (arg, req, run_report);
}

static void post_enroll (struct enc_http_req *req, void *arg)
{
	start_work (arg, req, run_enroll);
}

static const struct enc_http_route routes[] = {
	{ "GET", "/v1/agent/document", get_document, NEEDS_CERT, NULL },
	{ "POST", "/v1/agent/report", post_report, NEEDS_CERT | ENC_HTTP_BODY | ENC_HTTP_BIG, NULL },
	{ "POST", "/v1/agent/enroll", post_enroll, ENC_HTTP_BODY, NULL },
	{ 0 },
};

/* ---- start ---- */

static int listen_now (struct enc_ctl *c, struct enc_error *err)
{
	struct enc_tls_files files = { .certificate = c->conf->certificate, .key = c->conf->key, .ca = c->conf->ca };
	struct enc_http_conf conf = { .routes = routes, .gate = gate, .log = log_refusal, .arg = c, .idle_s = 60 };
	struct ssl_ctx_st *tls = enc_tls_server (&files, err);
	int fd, rc;

	if (!tls)
		return err->code ? -err->code : -ENC_EFAILED;
	fd = c->agents_fd >= 0 ? c->agents_fd : enc_tcp_listen (c->conf->listen, c->conf->port, err);
	c->agents_fd = -1;
	if (fd < 0) {
		SSL_CTX_free (tls);
		return fd;
	}
	if (!(c->agents = enc_http_server_new (c->base, &conf, err))) {
		(void) close (fd);
		SSL_CTX_free (tls);
		return -ENC_EFAILED;
	}
	rc = enc_http_server_listen (c->agents, fd, tls, err);
	SSL_CTX_free (tls);
	return rc;
}

static void start_fiber (void *arg)
{
	struct enc_ctl *c = arg;
	struct enc_error err = { 0 };
	int rc;

	for (;;) {
		enc_error_clear (&err);
		rc = access (c->conf->certificate, R_OK) == 0 ? 0 : enc_enroll_self (c, &err);
		if (rc == 0 && listen_now (c, &err) == 0)
			break;
		enc_log_err (ENC_LOG_WARN, &err, "agents cannot connect yet");
		if (enc_fiber_sleep (c->fibers, RETRY_MS, NULL) < 0 || c->stopping)
			return;
	}
	enc_log_notice ("agents may connect at %s port %u", c->conf->listen, c->conf->port);
}

int enc_agents_start (struct enc_ctl *c, struct enc_error *err)
{
	return enc_fiber_start (c->fibers, start_fiber, c, NULL, err);
}
