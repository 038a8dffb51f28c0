#include "node-agent/agentd/receipts.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/peer.h"
#include "base/str.h"
#include "node-agent/proto/told.h"
#include "base/enc.h"

enum { WAITING_MAX = 64, WAIT_S = 20 };

struct waiting {
	TAILQ_ENTRY (waiting) next;
	struct enc_receipts *all;
	struct event *readable;
	int fd;
	char session[27];  /* "" until it has asked */
};

struct enc_receipts {
	struct event_base *base;
	struct event *listening;
	int fd;
	unsigned n;
	void (*wanted) (void *arg);
	void *arg;
	TAILQ_HEAD (, waiting) list;
};

static void waiting_free (struct waiting *w)
{
	TAILQ_REMOVE (&w->all->list, w, next);
	w->all->n--;
	event_free (w->readable);
	(void) close (w->fd);
	free (w);
}

static void on_ask (evutil_socket_t fd, short what, void *arg)
{
	struct waiting *w = arg;
	uint8_t bytes[ENC_TOLD_SIZE_MAX];
	ssize_t n = what & EV_READ ? recv (fd, bytes, sizeof bytes, 0) : 0;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* Gone, too late, nonsense, or a second question. */
	if (n <= 0 || w->session[0] || enc_receipt_ask_decode (bytes, (size_t) n, w->session, NULL) < 0) {
		waiting_free (w);
		return;
	}
	w->all->wanted (w->all->arg);
}

static void on_connection (evutil_socket_t fd, short what ENC_UNUSED, void *arg)
{
	struct enc_receipts *r = arg;
	struct timeval limit = { .tv_sec = WAIT_S };
	struct enc_peer peer;
	struct waiting *w;
	int at = accept4 (fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (at < 0)
		return;
	if (enc_peer_of (at, &peer, NULL) < 0 || peer.uid != 0 || r->n >= WAITING_MAX || !(w = calloc (1, sizeof *w))) {
		(void) close (at);
		return;
	}
	w->all = r;
	w->fd = at;
	w->readable = event_new (r->base, at, EV_READ | EV_PERSIST, on_ask, w);
	if (!w->readable || event_add (w->readable, &limit) < 0) {
		(void) close (at);
		free (w);
		return;
	}
	TAILQ_INSERT_TAIL (&r->list, w, next);
	r->n++;
}

struct enc_json *enc_receipts_wanted (const struct enc_receipts *r)
{
	struct enc_json *list = NULL;
	struct waiting *w;
	if (!r)
		return NULL;
	TAILQ_FOREACH (w, &r->list, next) {
		if (!w->session[0])
			continue;
		list = list ? list : enc_json_array ();
		enc_json_add_str (list, w->session);
	}
	return list;
}

static struct waiting *waiting_for (const struct enc_receipts *r, const char *session)
{
	struct waiting *w;
	TAILQ_FOREACH (w, &r->list, next)
		if (strcmp (w->session, session) == 0)
			return w;
	return NULL;
}

void enc_receipts_take (struct enc_receipts *r, const struct enc_json *list)
{
	for (size_t i = 0; r && i < enc_json_len (list); i++) {
		const struct enc_json *row = enc_json_at (list, i);
		enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (ENC_TOLD_RECEIPT_MAX);
		struct waiting *w = waiting_for (r, enc_json_get_str (row, "session", "?"));
		if (!w)
			continue;
		if (enc_receipt_answer_encode (enc_json_get_str (row, "record", ""), enc_json_get_str (row, "proof", ""), &out, NULL) == 0)
			(void) send (w->fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
		waiting_free (w);
	}
}

int enc_receipts_listen (const char *path, struct enc_error *err)
{
	struct sockaddr_un self = { .sun_family = AF_UNIX };
	enc_auto_close int fd = socket (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc;
	if (fd < 0)
		return enc_fail_sys (err, "the door's socket");
	if ((rc = enc_str_copy (self.sun_path, sizeof self.sun_path, path, err)) < 0)
		return rc;
	if (unlink (path) < 0 && errno != ENOENT)
		return enc_fail_sys (err, "%s", path);
	if (bind (fd, (struct sockaddr *) &self, sizeof self) < 0 || chmod (path, 0600) < 0 || listen (fd, WAITING_MAX) < 0)
		return enc_fail_sys (err, "%s", path);
	return ENC_TAKE_FD (fd);
}

struct enc_receipts *enc_receipts_new (struct event_base *base, int fd, void (*wanted) (void *arg), void *arg, struct enc_error *err)
{
	struct enc_receipts *r = calloc (1, sizeof *r);
	if (!r || !(r->listening = event_new (base, fd, EV_READ | EV_PERSIST, on_connection, r)) || event_add (r->listening, NULL) < 0) {
		(void) enc_fail (err, ENC_ENOMEM, "no memory for the door's socket");
		(void) close (fd);
		free (r);
		return NULL;
	}
	r->base = base;
	r->fd = fd;
	r->wanted = wanted;
	r->arg = arg;
	TAILQ_INIT (&r->list);
	return r;
}

void enc_receipts_free (struct enc_receipts *r)
{
	if (!r)
		return;
	while (!TAILQ_EMPTY (&r->list))
		waiting_free (TAILQ_FIRST (&r->list));
	event_free (r->listening);
	(void) close (r->fd);
	free (r);
}
