/* The server: one object per connection that reads frames with descriptors by recvmsg, and writes answers in the order of their
 * requests, whatever order the handlers finish in.
 *
 * A request lives until it is answered; a connection that goes meanwhile leaves its requests without one (`conn` NULL). Reading
 * pauses while max_pending requests are open or answers pile up, so that a peer can hold only a bounded part of our memory. */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include "base/enctime.h"
#include "base/ipc_loop.h"
#include "base/ipc_io.h"
#include "base/enc.h"

struct conn;

struct enc_ipc_req {
	STAILQ_ENTRY (enc_ipc_req) next;
	struct conn *conn; /* NULL: gone */
	struct enc_peer peer;
	uint64_t id; /* of the connection */
	struct enc_json *body;
	struct enc_json *answer; /* set once answered and waiting for those before it */
	struct enc_fds fds;      /* of the answer, duplicates */
	bool answered;
};

struct conn {
	LIST_ENTRY (conn) next;
	struct enc_ipc_server *server;
	struct enc_peer peer;
	uint64_t id;
	struct enc_ipc_io io;
	STAILQ_HEAD (, enc_ipc_req) reqs;
	unsigned pending;
	bool in_handler; /* freeing waits until the handler returns */
	bool doomed;
};

struct enc_ipc_server {
	struct event_base *base;
	struct enc_ipc_server_conf conf;
	struct event *accept;
	int fd;
	LIST_HEAD (, conn) conns;
	unsigned count;
	uint64_t last_id;
};

static void conn_free (struct conn *c)
{
	struct enc_ipc_server *s = c->server;
	if (c->in_handler) {
		c->doomed = true;
		return;
	}
	struct enc_ipc_req *req;
	while ((req = STAILQ_FIRST (&c->reqs))) {
		STAILQ_REMOVE_HEAD (&c->reqs, next);
		req->conn = NULL;
		if (req->answered) {
			enc_json_free (req->answer);
			enc_json_free (req->body);
			enc_fds_done (&req->fds);
			free (req);
		}
	}
	LIST_REMOVE (c, next);
	s->count--;
	enc_ipc_io_done (&c->io);
	if (s->conf.gone)
		s->conf.gone (c->id, s->conf.arg);
	free (c);
}

static void req_free (struct enc_ipc_req *req)
{
	enc_json_free (req->body);
	enc_json_free (req->answer);
	enc_fds_done (&req->fds);
	free (req);
}

/* Send what is answered, from the front of the queue. */
static void flush (struct conn *c)
{
	struct enc_ipc_req *req;
	while (!c->doomed && (req = STAILQ_FIRST (&c->reqs)) && req->answered) {
		struct enc_error err;
		int rc = enc_ipc_io_send (&c->io, req->answer, &req->fds, &err);
		if (rc == -ENC_EINVAL || rc == -ENC_ELIMIT || rc == -ENC_ENOMEM) { /* the answer cannot be written: say so */
			(void) enc_wrap (&err, rc, "answer");
			enc_auto (enc_json) struct enc_json *sorry = enc_json_of_error (&err);
			rc = enc_ipc_io_send (&c->io, sorry, NULL, NULL);
		}
		STAILQ_REMOVE_HEAD (&c->reqs, next);
		c->pending--;
		req_free (req);
		if (rc < 0) {
			conn_free (c);
			return;
		}
	}
	if (!c->doomed)
		enc_ipc_io_pause (&c->io, c->pending >= c->server->conf.max_pending);
}

static void answer (struct enc_ipc_req *req, struct enc_json *json, const struct enc_fds *fds)
{
	struct conn *c = req->conn;
	if (!c) {
		enc_json_free (json);
		req_free (req);
		return;
	}
	req->answer = json;
	req->answered = true;
	for (unsigned i = 0; fds && i < fds->n; i++) {
		int fd = fcntl (fds->fd[i], F_DUPFD_CLOEXEC, 3);
		if (fd >= 0)
			req->fds.fd[req->fds.n++] = fd;
	}
	/* Within a handler the frame loop flushes when the handler has returned. */
	if (!c->in_handler)
		flush (c);
}

void enc_ipc_reply_fds (struct enc_ipc_req *req, struct enc_json *json, const struct enc_fds *fds)
{
	if (!json)
		json = enc_json_object ();
	if (!enc_json_get (json, "ok") && !enc_json_get (json, "error"))
		enc_json_set_bool (json, "ok", true);
	answer (req, json, fds);
}

void enc_ipc_reply (struct enc_ipc_req *req, struct enc_json *json)
{
	enc_ipc_reply_fds (req, json, NULL);
}

void enc_ipc_reply_error (struct enc_ipc_req *req, const struct enc_error *err)
{
	answer (req, enc_json_of_error (err), NULL);
}

static void refuse (struct enc_ipc_req *req, enum enc_code code, const char *text)
{
	struct enc_error err;
	(void) enc_fail (&err, code, "%s", text);
	enc_ipc_reply_error (req, &err);
}

static const struct enc_ipc_op *find_op (const struct enc_ipc_server *s, const char *name)
{
	const struct enc_ipc_op *op = s->conf.ops;
	while (op->op && !(name && strcmp (op->op, name) == 0))
		op++;
	return op->op ? op : NULL;
}

static void dispatch (struct conn *c, struct enc_ipc_req *req, const char *text, size_t len, struct enc_fds *fds)
{
	struct enc_error err;
	req->body = enc_json_parse (text, len, c->server->conf.max_frame, &err);
	if (!req->body) {
		enc_ipc_reply_error (req, &err);
		return;
	}
	const char *name = enc_json_str (enc_json_get (req->body, "op"));
	const struct enc_ipc_op *op = find_op (c->server, name);
	if (!op)
		refuse (req, ENC_EUSAGE, name ? "no such op" : "op is missing");
	else if (fds->n && !(op->flags & ENC_IPC_WITH_FDS))
		refuse (req, ENC_EUSAGE, "this op takes no descriptors");
	else
		op->handler (req, req->body, fds, c->server->conf.arg);
}

/* One whole frame came in. False: the connection is gone. */
static bool on_frame (void *arg, const char *text, size_t len, struct enc_fds *fds)
{
	struct conn *c = (struct conn *) arg;
	struct enc_ipc_req *req = calloc (1, sizeof (*req));
	if (!req) {
		conn_free (c);
		return false;
	}
	*req = (struct enc_ipc_req){ .conn = c, .peer = c->peer, .id = c->id };
	STAILQ_INSERT_TAIL (&c->reqs, req, next);
	c->pending++;
	c->in_handler = true;
	dispatch (c, req, text, len, fds);
	c->in_handler = false;
	if (!c->doomed) {
		struct enc_ipc_server *s = c->server;
		uint64_t id = c->id;
		flush (c);
		struct conn *still = LIST_FIRST (&s->conns); /* flush may have ended it */
		while (still && still->id != id)
			still = LIST_NEXT (still, next);
		return still != NULL;
	}
	c->doomed = false;
	conn_free (c);
	return false;
}

static void on_end (void *arg, const struct enc_error *err ENC_UNUSED)
{
	conn_free ((struct conn *) arg);
}

static void on_accept (evutil_socket_t listener, short what ENC_UNUSED, void *arg)
{
	struct enc_ipc_server *s = (struct enc_ipc_server *) arg;
	enc_auto_close int fd = accept4 (listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct enc_peer peer;
	if (fd < 0 || s->count >= s->conf.max_conns || enc_peer_of (fd, &peer, NULL) < 0)
		return;
	if (s->conf.admit && !s->conf.admit (&peer, s->conf.arg))
		return;
	struct conn *c = calloc (1, sizeof (*c));
	if (!c)
		return;
	*c = (struct conn){ .server = s, .peer = peer, .id = ++s->last_id };
	STAILQ_INIT (&c->reqs);
	struct enc_ipc_io_conf io = { .max_frame = s->conf.max_frame, .idle_s = s->conf.idle_s, .frame = on_frame, .end = on_end, .arg = c };
	if (enc_ipc_io_init (&c->io, s->base, ENC_TAKE_FD (fd), &io, NULL) < 0) {
		free (c);
		return;
	}
	LIST_INSERT_HEAD (&s->conns, c, next);
	s->count++;
}

struct enc_ipc_server *enc_ipc_server_new (struct event_base *base, int fd, const struct enc_ipc_server_conf *conf, struct enc_error *err)
{
	enc_auto_close int owned = fd;
	struct enc_ipc_server *s = calloc (1, sizeof (*s));
	if (!s) {
		(void) enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	s->base = base;
	s->conf = *conf;
	s->conf.max_conns = conf->max_conns ? conf->max_conns : 64;
	s->conf.max_pending = conf->max_pending ? conf->max_pending : 16;
	s->conf.max_frame = conf->max_frame && conf->max_frame < ENC_IPC_MAX ? conf->max_frame : ENC_IPC_MAX;
	s->conf.idle_s = conf->idle_s ? conf->idle_s : 30;
	LIST_INIT (&s->conns);
	(void) evutil_make_socket_nonblocking (fd);
	s->accept = event_new (base, fd, EV_READ | EV_PERSIST, on_accept, s);
	if (!s->accept || event_add (s->accept, NULL) < 0) {
		if (s->accept)
			event_free (s->accept);
		free (s);
		(void) enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	s->fd = ENC_TAKE_FD (owned);
	return s;
}

void enc_ipc_server_free (struct enc_ipc_server *s)
{
	if (!s)
		return;
	s->conf.gone = NULL;
	while (LIST_FIRST (&s->conns)) {
		LIST_FIRST (&s->conns)->in_handler = false;
		conn_free (LIST_FIRST (&s->conns));
	}
	event_free (s->accept);
	(void) close (s->fd);
	free (s);
}

const struct enc_peer *enc_ipc_req_peer (const struct enc_ipc_req *req)
{
	return &req->peer;
}

uint64_t enc_ipc_req_conn (const struct enc_ipc_req *req)
{
	return req->id;
}

const char *enc_ipc_req_op (const struct enc_ipc_req *req)
{
	return enc_json_get_str (req->body, "op", "");
}
