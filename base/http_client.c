/* The client: a queue of calls over one connection that is made when needed. The first call of the queue is the one at work. */
#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/http.h"
#include "base/http_parse.h"
#include "base/str.h"
#include "base/enc.h"

struct call {
	STAILQ_ENTRY (call) next;
	struct enc_http_client *client;
	char *head; /* request line and headers */
	char *body;
	size_t body_len;
	bool is_get;
	enc_http_line_fn *line;
	enc_http_done_fn *done;
	void *arg;
	struct event *timer;
	unsigned tries;
};

struct enc_http_client {
	struct event_base *base;
	char *unix_path;
	char *host;
	char *tls_name;
	char *tls_sni; /* NULL: tls_name */
	unsigned port;
	SSL_CTX *tls;
	unsigned connect_ms;
	size_t max_body;
	STAILQ_HEAD (, call) calls;
	struct bufferevent *bev;
	bool connected;
	bool sent;   /* the first call was written to this connection */
	bool reused; /* an answer came over this connection before */
	struct enc_http_parser parser;
	struct event *kick;
	bool *freed;
};

static void call_free (struct call *call)
{
	if (call->timer)
		event_free (call->timer);
	if (call->body)
		enc_wipe (call->body, call->body_len);
	free (call->head);
	free (call->body);
	free (call);
}

static void drop_connection (struct enc_http_client *c)
{
	if (c->bev)
		bufferevent_free (c->bev);
	c->bev = NULL;
	c->connected = c->sent = c->reused = false;
	enc_buf_done (&c->parser.body);
	c->parser = (struct enc_http_parser){ .body = ENC_BUF_INIT (c->max_body) };
}

static void kick (struct enc_http_client *c)
{
	struct timeval now = { 0 };
	if (STAILQ_FIRST (&c->calls))
		(void) event_add (c->kick, &now);
}

/* Take a call off the queue and give its result. False if the callback freed the client. */
static bool finish (struct enc_http_client *c, struct call *call, int rc, const struct enc_http_answer *answer, const struct enc_error *err)
{
	bool freed = false, *outer = c->freed;
	STAILQ_REMOVE (&c->calls, call, call, next);
	c->freed = &freed;
	call->done (rc, answer, err, call->arg);
	call_free (call);
	if (freed) {
		if (outer)
			*outer = true;
		return false;
	}
	c->freed = outer;
	return true;
}

/* End the call at work. The connection is out of step then. */
static void fail_first (struct enc_http_client *c, const struct enc_error *err)
{
	struct call *call = STAILQ_FIRST (&c->calls);
	drop_connection (c);
	if (call && finish (c, call, -err->code, NULL, err))
		kick (c);
}

/* ---- answers ---- */

static enum enc_code code_of_status (int status)
{
	for (int code = 1; code < ENC_CODE_COUNT; code++)
		if (enc_code_http (code) == status)
			return (enum enc_code) code;
	return status < 500 ? ENC_EUSAGE : ENC_EFAILED;
}

static int judge (struct enc_http_parser *p, struct enc_http_answer *answer, struct enc_json **ret_body, struct enc_error *err)
{
	*answer = (struct enc_http_answer){ .status = p->status, .text = (const char *) p->body.data, .len = p->body.len };
	if (p->is_json && p->body.len) {
		struct enc_error why;
		*ret_body = enc_json_parse (answer->text, answer->len, answer->len, &why);
		if (!*ret_body)
			return enc_fail (err, ENC_EPROTO, "the answer's JSON: %s", why.text);
		answer->body = *ret_body;
	}
	if (p->status < 300)
		return 0;
	int rc = enc_json_to_error (answer->body, err);
	return rc < 0 ? rc : enc_fail (err, code_of_status (p->status), "the server answered with status %d", p->status);
}

static void on_done (struct enc_http_client *c)
{
	struct call *call = STAILQ_FIRST (&c->calls);
	struct enc_http_parser p = c->parser;
	struct enc_http_answer answer;
	struct enc_error err = { 0 };
	enc_auto (enc_json) struct enc_json *body = NULL;
	/* Set up for the next one before the callback, which may call again. */
	c->parser = (struct enc_http_parser){ .body = ENC_BUF_INIT (c->max_body) };
	c->sent = false;
	c->reused = true;
	if (p.close)
		drop_connection (c);
	int rc = judge (&p, &answer, &body, &err);
	if (finish (c, call, rc, &answer, rc < 0 ? &err : NULL))
		kick (c);
	enc_buf_done (&p.body);
}

/* Whole lines out of the body of a stream. False if the call or the client has ended. */
static bool take_lines (struct enc_http_client *c, struct call *call)
{
	struct enc_buf *b = &c->parser.body;
	while (b->len) {
		const uint8_t *end = memchr (b->data, '\n', b->len);
		if (!end)
			return true;
		size_t len = (size_t) (end - b->data);
		struct enc_error err;
		enc_auto (enc_json) struct enc_json *line = enc_json_parse ((const char *) b->data, len, c->max_body, &err);
		enc_buf_consume (b, len + 1);
		bool freed = false, *outer = c->freed;
		c->freed = &freed;
		bool more = line && call->line (line, call->arg);
		if (freed) {
			if (outer)
				*outer = true;
			return false;
		}
		c->freed = outer;
		if (more)
			continue;
		if (line)
			(void) enc_fail (&err, ENC_ECANCELED, "given up");
		else
			err.code = ENC_EPROTO;
		fail_first (c, &err);
		return false;
	}
	return true;
}

static void on_read (struct bufferevent *bev, void *arg)
{
	struct enc_http_client *c = (struct enc_http_client *) arg;
	struct call *call = STAILQ_FIRST (&c->calls);
	struct enc_error err;
	if (!call || !c->sent) {
		drop_connection (c); /* an answer that nobody asked for */
		kick (c);
		return;
	}
	int rc = enc_http_parser_feed (&c->parser, bufferevent_get_input (bev), &err);
	if (rc >= 0 && call->line && c->parser.status == 200 && !take_lines (c, call))
		return;
	if (rc < 0)
		fail_first (c, &err);
	else if (rc == 1)
		on_done (c);
}

/* ---- connection ---- */

static void tls_reason (struct bufferevent *bev, char *out, size_t size)
{
	unsigned long code = bufferevent_get_openssl_error (bev);
	SSL *ssl = bufferevent_openssl_get_ssl (bev);
	long verify = ssl ? SSL_get_verify_result (ssl) : X509_V_OK;
	const char *reason = code ? ERR_reason_error_string (code) : NULL;
	if (verify != X509_V_OK)
		(void) snprintf (out, size, "TLS: %s", X509_verify_cert_error_string (verify));
	else if (reason)
		(void) snprintf (out, size, "TLS: %s", reason);
	else
		(void) snprintf (out, size, "%s", EVUTIL_SOCKET_ERROR () ? evutil_socket_error_to_string (EVUTIL_SOCKET_ERROR ()) : "connection lost");
}

static const char *place (const struct enc_http_client *c)
{
	return c->unix_path ? c->unix_path : c->host;
}

static void on_lost (struct enc_http_client *c, const char *reason)
{
	struct call *call = STAILQ_FIRST (&c->calls);
	bool nothing_came = c->parser.state == ENC_HTTP_STATUS && c->parser.header_bytes == 0;
	bool again = call && c->sent && nothing_came && c->reused && call->is_get && call->tries < 2;
	bool was_sent = c->sent, idle = !call || (c->connected && !c->sent);
	struct enc_error err;
	if (again || idle) { /* a kept connection that the server had closed: simply a new one */
		drop_connection (c);
		kick (c);
		return;
	}
	(void) enc_fail (&err, ENC_EUNAVAIL, "%s: %s%s", place (c), reason, was_sent && !call->is_get ? " (the request may have been acted on)" : "");
	fail_first (c, &err);
}

static void on_event (struct bufferevent *bev, short what, void *arg)
{
	struct enc_http_client *c = (struct enc_http_client *) arg;
	char reason[160] = "the server closed the connection";
	if (what & BEV_EVENT_CONNECTED) {
		c->connected = true;
		bufferevent_set_timeouts (bev, NULL, NULL);
		kick (c);
		return;
	}
	if (what & BEV_EVENT_EOF && c->sent && enc_http_parser_eof (&c->parser)) {
		on_done (c);
		return;
	}
	if (what & BEV_EVENT_TIMEOUT)
		(void) snprintf (reason, sizeof (reason), "no connection in time");
	else if (what & BEV_EVENT_ERROR)
		tls_reason (bev, reason, sizeof (reason));
	on_lost (c, reason);
}

static struct bufferevent *connect_unix (struct enc_http_client *c, struct enc_error *err)
{
	int fd = enc_unix_connect (c->unix_path, enc_deadline_ms (200), err);
	if (fd < 0)
		return NULL;
	struct bufferevent *bev = bufferevent_socket_new (c->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!bev) {
		(void) close (fd);
		(void) enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	c->connected = bev != NULL;
	return bev;
}

/* Whom the server's certificate must name. */
static int expect_name (SSL *ssl, const char *name, const char *sni)
{
	struct in6_addr any;
	bool address = inet_pton (AF_INET, name, &any) == 1 || inet_pton (AF_INET6, name, &any) == 1;
	if (address)
		return X509_VERIFY_PARAM_set1_ip_asc (SSL_get0_param (ssl), name) == 1 ? 0 : -1;
	return SSL_set_tlsext_host_name (ssl, (char *) (uintptr_t) (sni ? sni : name)) == 1 && SSL_set1_host (ssl, name) == 1 ? 0 : -1;
}

static struct bufferevent *connect_tls (struct enc_http_client *c, struct enc_error *err)
{
	SSL *ssl = SSL_new (c->tls);
	if (ssl && expect_name (ssl, c->tls_name, c->tls_sni) < 0) {
		SSL_free (ssl);
		ssl = NULL;
	}
	struct bufferevent *bev =
		ssl ? bufferevent_openssl_socket_new (c->base, -1, ssl, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE) : NULL;
	if (!bev) {
		SSL_free (ssl);
		(void) enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	SSL_set_verify (ssl, SSL_VERIFY_PEER, NULL);
	struct timeval limit = { .tv_sec = (time_t) (c->connect_ms / 1000), .tv_usec = (suseconds_t) (c->connect_ms % 1000 * 1000) };
	bufferevent_set_timeouts (bev, &limit, &limit);
	return bev;
}

static int connect_now (struct enc_http_client *c, struct enc_error *err)
{
	drop_connection (c);
	c->bev = c->unix_path ? connect_unix (c, err) : connect_tls (c, err);
	if (!c->bev)
		return -ENC_EUNAVAIL;
	bufferevent_setcb (c->bev, on_read, NULL, on_event, c);
	(void) bufferevent_enable (c->bev, EV_READ | EV_WRITE);
	/* A failure at once comes through on_event(), which may have dropped the connection already. */
	if (!c->unix_path && bufferevent_socket_connect_hostname (c->bev, NULL, AF_UNSPEC, c->host, (int) c->port) < 0 && c->bev) {
		(void) enc_fail (err, ENC_EUNAVAIL, "%s: no connection", c->host);
		return -ENC_EUNAVAIL;
	}
	return 0;
}

static void on_kick (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg)
{
	struct enc_http_client *c = (struct enc_http_client *) arg;
	struct call *call = STAILQ_FIRST (&c->calls);
	struct enc_error err;
	if (!call || c->sent)
		return;
	if (!c->bev && connect_now (c, &err) < 0) {
		err.code = ENC_EUNAVAIL;
		fail_first (c, &err);
		return;
	}
	if (!c->connected || STAILQ_FIRST (&c->calls) != call)
		return;
	struct evbuffer *out = bufferevent_get_output (c->bev);
	call->tries++;
	c->sent = true;
	if (evbuffer_add (out, call->head, strlen (call->head)) < 0 || (call->body_len && evbuffer_add (out, call->body, call->body_len) < 0)) {
		(void) enc_fail (&err, ENC_ENOMEM, "out of memory");
		fail_first (c, &err);
	}
}

static void on_timeout (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg)
{
	struct call *call = (struct call *) arg;
	struct enc_http_client *c = call->client;
	struct enc_error err;
	(void) enc_fail (&err, ENC_ETIMEOUT, "%s: no answer in time", place (c));
	if (call == STAILQ_FIRST (&c->calls))
		fail_first (c, &err);
	else
		(void) finish (c, call, -ENC_ETIMEOUT, NULL, &err);
}

/* ---- for the owner ---- */

static int call_new (struct enc_http_client *c, const struct enc_http_call *from, struct call **ret, struct enc_error *err)
{
	struct call *call = calloc (1, sizeof (*call));
	if (!call)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	*call = (struct call){ .client = c, .line = from->line, .done = from->done, .arg = from->arg };
	call->is_get = strcmp (from->method, "GET") == 0;
	call->timer = evtimer_new (c->base, on_timeout, call);
	if (from->body)
		call->body = enc_json_write (from->body, &call->body_len, err);
	else if (from->text && (call->body = malloc (from->text_len + 1)))
		memcpy (call->body, from->text, call->body_len = from->text_len);
	const char *type = from->body ? "Content-Type: application/json\r\n" : from->text ? "Content-Type: text/plain\r\n" : "";
	call->head = enc_strf ("%s %s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\n%sContent-Length: %zu\r\n\r\n", from->method, from->path,
			       c->unix_path ? "localhost" : c->tls_name, type, call->body_len);
	bool good = call->timer && call->head && (call->body || (!from->body && !from->text));
	if (good && (from->path[0] != '/' || strpbrk (from->path, " \r\n"))) {
		call_free (call);
		return enc_fail (err, ENC_EINVAL, "bad request path");
	}
	if (!good) {
		call_free (call);
		return enc_fail (err, ENC_ENOMEM, "the request could not be made");
	}
	*ret = call;
	return 0;
}

int enc_http_client_call (struct enc_http_client *c, const struct enc_http_call *from, struct enc_error *err)
{
	struct call *call = NULL;
	int rc = call_new (c, from, &call, err);
	if (rc < 0)
		return rc;
	int64_t ms = from->timeout_ms > 0 ? from->timeout_ms : 30000;
	struct timeval limit = { .tv_sec = (time_t) (ms / 1000), .tv_usec = (suseconds_t) (ms % 1000 * 1000) };
	(void) event_add (call->timer, &limit);
	STAILQ_INSERT_TAIL (&c->calls, call, next);
	kick (c);
	return 0;
}

struct enc_http_client *enc_http_client_new (struct event_base *base, const struct enc_http_client_conf *conf, struct enc_error *err)
{
	bool is_unix = conf->unix_path != NULL;
	if (!is_unix && (!conf->host || !conf->tls || conf->port == 0 || conf->port > 65535)) {
		(void) enc_fail (err, ENC_EINVAL, "a server needs a socket path, or host, port and TLS");
		return NULL;
	}
	struct enc_http_client *c = calloc (1, sizeof (*c));
	if (c) {
		STAILQ_INIT (&c->calls);
		c->base = base;
		c->unix_path = enc_strdup (conf->unix_path);
		c->host = is_unix ? NULL : enc_strdup (conf->host);
		c->tls_name = is_unix ? NULL : enc_strdup (conf->tls_name ? conf->tls_name : conf->host);
		c->tls_sni = is_unix ? NULL : enc_strdup (conf->tls_sni);
		c->port = conf->port;
		c->connect_ms = conf->connect_ms ? conf->connect_ms : 10000;
		c->max_body = conf->max_body ? conf->max_body : 1024 * 1024;
		c->parser = (struct enc_http_parser){ .body = ENC_BUF_INIT (c->max_body) };
		c->kick = evtimer_new (base, on_kick, c);
		if (!is_unix && SSL_CTX_up_ref (conf->tls) == 1)
			c->tls = conf->tls;
	}
	if (!c || !c->kick || (is_unix ? !c->unix_path : (!c->host || !c->tls_name || !c->tls))) {
		enc_http_client_free (c);
		(void) enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	return c;
}

void enc_http_client_free (struct enc_http_client *c)
{
	if (!c)
		return;
	struct enc_error err;
	bool *outer = c->freed;
	(void) enc_fail (&err, ENC_ECANCELED, "the connection is given up");
	drop_connection (c);
	/* Calls that callbacks add now end at once as well. */
	while (STAILQ_FIRST (&c->calls)) {
		struct call *call = STAILQ_FIRST (&c->calls);
		STAILQ_REMOVE_HEAD (&c->calls, next);
		call->done (-ENC_ECANCELED, NULL, &err, call->arg);
		call_free (call);
	}
	if (outer)
		*outer = true;
	if (c->kick)
		event_free (c->kick);
	SSL_CTX_free (c->tls);
	free (c->unix_path);
	free (c->host);
	free (c->tls_name);
	free (c->tls_sni);
	free (c);
}

/* ---- one call on a loop of its own ---- */

struct once {
	struct event_base *base;
	bool done;
	int rc;
	struct enc_json *body;
	struct enc_error *err;
	enc_http_line_fn *line;
	void *arg;
};

static void once_done (int rc, const struct enc_http_answer *answer, const struct enc_error *err, void *arg)
{
	struct once *once = (struct once *) arg;
	once->done = true;
	once->rc = rc;
	if (rc == 0 && answer->body)
		once->body = enc_json_ref (answer->body);
	if (rc < 0 && once->err)
		*once->err = *err;
	(void) event_base_loopbreak (once->base);
}

static bool once_line (const struct enc_json *line, void *arg)
{
	struct once *once = (struct once *) arg;
	return once->line (line, once->arg);
}

int enc_http_once (const struct enc_http_client_conf *conf, const struct enc_http_call *from, struct enc_json **ret, struct enc_error *err)
{
	struct once once = { .base = event_base_new (), .line = from->line, .arg = from->arg, .err = err };
	struct enc_error local;
	if (!once.base)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	once.err = err = err ? err : &local;
	struct enc_http_client *c = enc_http_client_new (once.base, conf, err);
	int rc = c ? 0 : -err->code;
	struct enc_http_call call = *from;
	call.done = once_done;
	call.line = from->line ? once_line : NULL;
	call.arg = &once;
	if (rc == 0)
		rc = enc_http_client_call (c, &call, err);
	if (rc == 0 && (event_base_dispatch (once.base) < 0 || !once.done))
		rc = enc_fail (err, ENC_EFAILED, "the event loop failed");
	if (rc == 0)
		rc = once.rc;
	enc_http_client_free (c);
	event_base_free (once.base);
	if (rc == 0 && ret)
		*ret = once.body;
	else
		enc_json_free (once.body);
	return rc;
}
