/* The server, on evhttp: routes, limits, peers, answers now or later.
 *
 * evhttp frees its request when the connection goes. Ours lives until it is answered; the two are joined by `ev`, which becomes NULL
 * when the connection closes. evhttp handles one request of a connection at a time, so a connection has at most one of ours. */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include "base/cleanup.h"
#include "base/http.h"
#include "base/http_guests.h"
#include "base/http_route.h"
#include "base/str.h"
#include "base/enc.h"

#define BIG_BODY (1024 * 1024)

struct door { /* one listening socket: its own evhttp, since TLS is a property of that */
	LIST_ENTRY (door) next;
	struct enc_http_server *server;
	struct evhttp *http;
	SSL_CTX *tls;
};

struct enc_http_req {
	LIST_ENTRY (enc_http_req) next;
	struct enc_http_server *server;
	struct evhttp_request *ev; /* NULL: the peer has gone */
	const struct enc_http_route *route;
	char *method;
	char *path;
	char *captures[ENC_HTTP_CAPTURES];
	struct evkeyvalq query;
	struct enc_json *body;
	char *text;
	size_t text_len;
	bool is_unix;
	struct enc_peer peer;
	char remote[64];
	void *user;
	void (*user_free) (void *);
	void (*gone) (struct enc_http_req *req, void *arg);
	void *gone_arg;
	struct event *closed; /* watches for the peer's end while an answer is being waited for */
	int status;
	bool streaming;
};

struct enc_http_server {
	struct event_base *base;
	struct enc_http_conf conf;
	LIST_HEAD (, door) doors;
	LIST_HEAD (, enc_http_req) reqs;
	struct enc_guests *guests; /* over TLS */
};

/* ---- request ---- */

static void unwatch (struct enc_http_req *req)
{
	if (req->closed)
		event_free (req->closed);
	req->closed = NULL;
}

/* evhttp does not read while a request is being answered, so it would not see the peer go. */
static void on_peer_closed (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg)
{
	struct enc_http_req *req = (struct enc_http_req *) arg;
	if (req->ev)
		evhttp_connection_free (evhttp_request_get_connection (req->ev)); /* comes back as on_close() */
}

static void watch_peer (struct enc_http_req *req)
{
	if (!req->ev || req->closed)
		return;
	int fd = bufferevent_getfd (evhttp_connection_get_bufferevent (evhttp_request_get_connection (req->ev)));
	req->closed = event_new (req->server->base, fd, EV_CLOSED, on_peer_closed, req);
	if (req->closed)
		(void) event_add (req->closed, NULL);
}

static void on_close (struct evhttp_connection *conn ENC_UNUSED, void *arg)
{
	struct enc_http_req *req = (struct enc_http_req *) arg;
	req->ev = NULL;
	unwatch (req);
	if (req->gone) {
		void (*gone) (struct enc_http_req *, void *) = req->gone;
		req->gone = NULL;
		gone (req, req->gone_arg); /* may end the request */
	}
}

static void req_end (struct enc_http_req *req)
{
	if (req->server->conf.log)
		req->server->conf.log (req, req->status, req->server->conf.arg);
	if (req->ev && evhttp_request_get_connection (req->ev))
		evhttp_connection_set_closecb (evhttp_request_get_connection (req->ev), NULL, NULL);
	unwatch (req);
	if (req->user_free)
		req->user_free (req->user);
	for (unsigned i = 0; i < ENC_HTTP_CAPTURES; i++)
		free (req->captures[i]);
	evhttp_clear_headers (&req->query);
	enc_json_free (req->body);
	if (req->text)
		enc_wipe (req->text, req->text_len);
	free (req->text);
	free (req->method);
	free (req->path);
	LIST_REMOVE (req, next);
	free (req);
}

static const char *method_name (enum evhttp_cmd_type type)
{
	static const struct {
		enum evhttp_cmd_type type;
		const char *name;
	} names[] = { { EVHTTP_REQ_GET, "GET" },       { EVHTTP_REQ_POST, "POST" },   { EVHTTP_REQ_PUT, "PUT" },
		      { EVHTTP_REQ_DELETE, "DELETE" }, { EVHTTP_REQ_PATCH, "PATCH" }, { EVHTTP_REQ_HEAD, "HEAD" } };
	for (size_t i = 0; i < ENC_ARRAY_LEN (names); i++)
		if (names[i].type == type)
			return names[i].name;
	return "?";
}

/* Waiting for an answer is not silence: no read limit while a request is in our hands. */
static void set_limits (struct evhttp_request *ev, const struct enc_http_server *s, bool waiting)
{
	struct timeval limit = { .tv_sec = s->conf.idle_s ? (time_t) s->conf.idle_s : 60 };
	struct bufferevent *bev = evhttp_connection_get_bufferevent (evhttp_request_get_connection (ev));
	(void) bufferevent_set_timeouts (bev, waiting ? NULL : &limit, &limit);
}

static int find_peer (struct enc_http_req *req, const struct door *door, struct enc_error *err)
{
	struct evhttp_connection *conn = evhttp_request_get_connection (req->ev);
	struct bufferevent *bev = evhttp_connection_get_bufferevent (conn);
	struct sockaddr_storage at;
	socklen_t len = sizeof (at);
	int fd = bufferevent_getfd (bev);
	if (fd < 0 || getsockname (fd, (struct sockaddr *) &at, &len) < 0)
		return enc_fail_sys (err, "connection");
	req->is_unix = at.ss_family == AF_UNIX;
	if (req->is_unix) {
		(void) snprintf (req->remote, sizeof (req->remote), "unix");
		return enc_peer_of (fd, &req->peer, err);
	}
	/* If a TLS session could not be made, evhttp would go on in clear. */
	if (!door->tls || !bufferevent_openssl_get_ssl (bev))
		return enc_fail (err, ENC_EDENIED, "not without TLS");
	char *address = NULL;
	uint16_t port = 0;
	evhttp_connection_get_peer (conn, &address, &port);
	(void) snprintf (req->remote, sizeof (req->remote), "%s", address ? address : "?");
	return 0;
}

/* Path and query out of the request line: origin form only. */
static int parse_target (struct enc_http_req *req, struct enc_error *err)
{
	const char *uri = evhttp_request_get_uri (req->ev);
	const char *question = uri ? strchr (uri, '?') : NULL;
	if (!uri || uri[0] != '/' || strchr (uri, '#'))
		return enc_fail (err, ENC_EUSAGE, "bad request target");
	req->path = question ? strndup (uri, (size_t) (question - uri)) : strdup (uri);
	if (!req->path)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if (question && (!enc_url_query_ok (question + 1) || evhttp_parse_query_str (question + 1, &req->query) < 0))
		return enc_fail (err, ENC_EUSAGE, "bad query");
	return 0;
}

static int find_route (struct enc_http_req *req, struct enc_error *err)
{
	bool other_method = false;
	for (const struct enc_http_route *r = req->server->conf.routes; r->method; r++) {
		if (!enc_route_match (r->path, req->path, req->captures))
			continue;
		if (strcmp (r->method, req->method) == 0) {
			req->route = r;
			return 0;
		}
		enc_route_clear (req->captures);
		other_method = true;
	}
	if (other_method) {
		req->status = HTTP_BADMETHOD;
		return enc_fail (err, ENC_EUSAGE, "this method is not for this path");
	}
	return enc_fail (err, ENC_ENOTFOUND, "no such path");
}

static int parse_body (struct enc_http_req *req, struct enc_error *err)
{
	struct evbuffer *in = evhttp_request_get_input_buffer (req->ev);
	size_t len = evbuffer_get_length (in), max = req->route->flags & ENC_HTTP_BIG ? BIG_BODY : ENC_HTTP_BODY_MAX;
	bool raw = req->route->flags & ENC_HTTP_RAW;
	bool wanted = req->route->flags & (ENC_HTTP_BODY | ENC_HTTP_BIG | ENC_HTTP_RAW), allowed = wanted || req->route->flags & ENC_HTTP_BODY_OPT;
	if (len == 0)
		return wanted ? enc_fail (err, ENC_EINVAL, "a%s body is needed", raw ? "" : " JSON") : 0;
	if (!allowed)
		return enc_fail (err, ENC_EUSAGE, "this request takes no body");
	if (len > max)
		return enc_fail (err, ENC_ELIMIT, "body of %zu bytes, at most %zu are taken", len, max);
	req->text = malloc (len + 1);
	if (!req->text || evbuffer_remove (in, req->text, len) != (int) len)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	req->text[len] = 0;
	req->text_len = len;
	if (raw)
		return 0;
	struct enc_error why;
	req->body = enc_json_parse (req->text, len, max, &why);
	if (!req->body) {
		if (err)
			*err = why;
		return -why.code;
	}
	return 0;
}

static int prepare (struct enc_http_req *req, const struct door *door, struct enc_error *err)
{
	int rc = find_peer (req, door, err);
	if (rc == 0)
		rc = parse_target (req, err);
	if (rc == 0)
		rc = find_route (req, err);
	/* A browser on the same machine must not be a way in: it always sends an Origin for such requests. */
	if (rc == 0 && evhttp_find_header (evhttp_request_get_input_headers (req->ev), "Origin"))
		rc = enc_fail (err, ENC_EDENIED, "requests from web pages are refused");
	return rc == 0 ? parse_body (req, err) : rc;
}

static void on_request (struct evhttp_request *ev, void *arg)
{
	struct door *door = (struct door *) arg;
	struct enc_http_server *s = door->server;
	struct enc_http_req *req = calloc (1, sizeof (*req));
	const char *method = method_name (evhttp_request_get_command (ev));
	if (!req || !(req->method = strdup (method))) {
		free (req);
		evhttp_send_error (ev, HTTP_INTERNAL, NULL);
		return;
	}
	req->server = s;
	req->ev = ev;
	TAILQ_INIT (&req->query);
	LIST_INSERT_HEAD (&s->reqs, req, next);
	evhttp_connection_set_closecb (evhttp_request_get_connection (ev), on_close, req);
	set_limits (ev, s, true);
	struct enc_error err;
	if (prepare (req, door, &err) < 0) {
		enc_http_reply_error (req, &err);
		return;
	}
	if (!s->conf.gate || s->conf.gate (req, s->conf.arg))
		req->route->handler (req, s->conf.arg);
}

/* ---- answers ---- */

void enc_http_add_header (struct enc_http_req *req, const char *name, const char *value)
{
	if (req->ev)
		(void) evhttp_add_header (evhttp_request_get_output_headers (req->ev), name, value);
}

void enc_http_reply_text (struct enc_http_req *req, int status, const char *type, const void *body, size_t len)
{
	req->status = status;
	if (req->ev) {
		struct evbuffer *out = evbuffer_new ();
		enc_http_add_header (req, "Content-Type", type);
		enc_http_add_header (req, "Cache-Control", "no-store");
		enc_http_add_header (req, "X-Content-Type-Options", "nosniff");
		struct evhttp_request *ev = req->ev;
		evhttp_connection_set_closecb (evhttp_request_get_connection (ev), NULL, NULL);
		set_limits (ev, req->server, false);
		unwatch (req);
		req->ev = NULL; /* sending may end the connection */
		if (out && (len == 0 || evbuffer_add (out, body, len) == 0))
			evhttp_send_reply (ev, status, NULL, out);
		else
			evhttp_send_error (ev, HTTP_INTERNAL, NULL);
		if (out)
			evbuffer_free (out);
	}
	req_end (req);
}

static void reply_json (struct enc_http_req *req, int status, const struct enc_json *body)
{
	size_t len = 0;
	enc_auto_free char *text = body ? enc_json_write (body, &len, NULL) : NULL;
	static const char sorry[] = "{\"error\":{\"code\":\"failed\",\"step\":null,\"object\":null,\"text\":\"the answer could not be written\",\"next\":null}}";
	if (body && !text)
		enc_http_reply_text (req, HTTP_INTERNAL, "application/json", sorry, strlen (sorry));
	else
		enc_http_reply_text (req, status, "application/json", text, len);
}

void enc_http_reply (struct enc_http_req *req, int status, struct enc_json *body)
{
	reply_json (req, status, body);
	enc_json_free (body);
}

void enc_http_reply_error (struct enc_http_req *req, const struct enc_error *err)
{
	int status = req->status == HTTP_BADMETHOD ? HTTP_BADMETHOD : enc_code_http (err->code);
	struct enc_json *body = enc_json_of_error (err);
	if (!body)
		enc_http_reply_text (req, HTTP_INTERNAL, "application/json", NULL, 0);
	else
		enc_http_reply (req, status, body);
}

void enc_http_stream_start (struct enc_http_req *req, int status)
{
	req->status = status;
	req->streaming = true;
	if (!req->ev)
		return;
	watch_peer (req);
	enc_http_add_header (req, "Content-Type", "application/x-ndjson");
	enc_http_add_header (req, "Cache-Control", "no-store");
	evhttp_send_reply_start (req->ev, status, NULL);
}

void enc_http_stream_line (struct enc_http_req *req, const struct enc_json *line)
{
	size_t len = 0;
	enc_auto_free char *text = enc_json_write (line, &len, NULL);
	struct evbuffer *out = req->ev && text ? evbuffer_new () : NULL;
	if (!out)
		return;
	text[len] = '\n'; /* in place of the NUL */
	if (evbuffer_add (out, text, len + 1) == 0)
		evhttp_send_reply_chunk (req->ev, out);
	evbuffer_free (out);
}

void enc_http_stream_end (struct enc_http_req *req)
{
	struct evhttp_request *ev = req->ev;
	if (ev) {
		evhttp_connection_set_closecb (evhttp_request_get_connection (ev), NULL, NULL);
		set_limits (ev, req->server, false);
		unwatch (req);
		req->ev = NULL;
		evhttp_send_reply_end (ev);
	}
	req_end (req);
}

/* ---- what a handler asks ---- */

const struct enc_http_route *enc_http_route (const struct enc_http_req *req)
{
	return req->route;
}

const char *enc_http_method (const struct enc_http_req *req)
{
	return req->method;
}

const char *enc_http_path (const struct enc_http_req *req)
{
	return req->path ? req->path : "";
}

const char *enc_http_capture (const struct enc_http_req *req, unsigned i)
{
	return i < ENC_HTTP_CAPTURES ? req->captures[i] : NULL;
}

const char *enc_http_query (const struct enc_http_req *req, const char *key)
{
	return evhttp_find_header (&req->query, key);
}

const char *enc_http_header (const struct enc_http_req *req, const char *name)
{
	return req->ev ? evhttp_find_header (evhttp_request_get_input_headers (req->ev), name) : NULL;
}

const struct enc_json *enc_http_body (const struct enc_http_req *req)
{
	return req->body;
}

const char *enc_http_body_text (const struct enc_http_req *req, size_t *ret_len)
{
	if (ret_len)
		*ret_len = req->text_len;
	return req->text;
}

const struct enc_peer *enc_http_peer (const struct enc_http_req *req)
{
	return req->is_unix ? &req->peer : NULL;
}

struct ssl_st *enc_http_tls (const struct enc_http_req *req)
{
	if (!req->ev || req->is_unix)
		return NULL;
	return bufferevent_openssl_get_ssl (evhttp_connection_get_bufferevent (evhttp_request_get_connection (req->ev)));
}

const char *enc_http_remote (const struct enc_http_req *req)
{
	return req->remote;
}

void enc_http_set_user (struct enc_http_req *req, void *user, void (*free_fn) (void *))
{
	if (req->user_free)
		req->user_free (req->user);
	req->user = user;
	req->user_free = free_fn;
}

void enc_http_known (struct enc_http_req *req, const char *name)
{
	if (enc_http_tls (req))
		enc_guests_name (req->server->guests, enc_http_tls (req), name);
}

void *enc_http_user (const struct enc_http_req *req)
{
	return req->user;
}

void enc_http_on_gone (struct enc_http_req *req, void (*gone) (struct enc_http_req *req, void *arg), void *arg)
{
	req->gone = gone;
	req->gone_arg = arg;
	watch_peer (req);
}

bool enc_http_gone (const struct enc_http_req *req)
{
	return req->ev == NULL;
}

/* ---- life ---- */

struct enc_http_server *enc_http_server_new (struct event_base *base, const struct enc_http_conf *conf, struct enc_error *err)
{
	struct enc_http_server *s = calloc (1, sizeof (*s));
	if (!s || !(s->guests = enc_guests_new ())) {
		free (s);
		(void) enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	s->base = base;
	s->conf = *conf;
	LIST_INIT (&s->doors);
	LIST_INIT (&s->reqs);
	return s;
}

static struct bufferevent *new_tls (struct event_base *base, void *arg)
{
	struct door *door = (struct door *) arg;
	SSL *ssl = SSL_new (door->tls);
	if (ssl && enc_guests_add (door->server->guests, ssl, NULL) < 0) {
		SSL_free (ssl);
		ssl = NULL;
	}
	struct bufferevent *bev =
		ssl ? bufferevent_openssl_socket_new (base, -1, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE) : NULL;
	if (ssl && !bev)
		SSL_free (ssl);
	if (bev)
		bufferevent_openssl_set_allow_dirty_shutdown (bev, 1);
	return bev;
}

static void door_free (struct door *door)
{
	if (door->http)
		evhttp_free (door->http);
	SSL_CTX_free (door->tls);
	free (door);
}

int enc_http_server_listen (struct enc_http_server *s, int fd, struct ssl_ctx_st *tls, struct enc_error *err)
{
	enc_auto_close int owned = fd;
	struct door *door = calloc (1, sizeof (*door));
	if (!door || !(door->http = evhttp_new (s->base))) {
		free (door);
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	door->server = s;
	evhttp_set_max_body_size (door->http, BIG_BODY);
	evhttp_set_max_headers_size (door->http, ENC_HTTP_HEADER_MAX);
	evhttp_set_allowed_methods (door->http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE | EVHTTP_REQ_PATCH);
	evhttp_set_timeout (door->http, s->conf.idle_s ? (int) s->conf.idle_s : 60);
	evhttp_set_default_content_type (door->http, NULL);
	evhttp_set_gencb (door->http, on_request, door);
	if (tls && SSL_CTX_up_ref (tls) == 1) {
		door->tls = tls;
		evhttp_set_bevcb (door->http, new_tls, door);
	}
	(void) evutil_make_socket_nonblocking (fd);
	struct evhttp_bound_socket *bound = evhttp_accept_socket_with_handle (door->http, fd);
	if (!bound) {
		door_free (door);
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	(void) ENC_TAKE_FD (owned);
	LIST_INSERT_HEAD (&s->doors, door, next);
	return 0;
}

void enc_http_server_free (struct enc_http_server *s)
{
	if (!s)
		return;
	/* Closing connections tells waiting requests that their peer has gone; what is left after that nobody will answer. */
	while (LIST_FIRST (&s->doors)) {
		struct door *door = LIST_FIRST (&s->doors);
		LIST_REMOVE (door, next);
		door_free (door);
	}
	while (LIST_FIRST (&s->reqs)) {
		struct enc_http_req *req = LIST_FIRST (&s->reqs);
		req->ev = NULL;
		req_end (req);
	}
	enc_guests_free (s->guests);
	free (s);
}
