/* The client: a queue of calls over one connection. Calls that were sent and wait for answers stand in front; the answers come in their
 * order. A call that times out after it was sent stays in the queue without a callback, to swallow its answer. */
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include "base/enctime.h"
#include "base/ipc_io.h"
#include "base/ipc_loop.h"
#include "base/str.h"
#include "base/enc.h"

#define RETRY_MS 200
#define CONNECT_MS 200

struct call {
	STAILQ_ENTRY (call) next;
	struct enc_json *request; /* NULL once sent */
	struct enc_fds fds;
	enc_ipc_answer_fn *done;  /* NULL once called */
	void *arg;
	int64_t deadline;
};

struct enc_ipc_client {
	struct event_base *base;
	char *path;
	unsigned max_queue;
	unsigned count;
	STAILQ_HEAD (call_list, call) calls;
	struct enc_ipc_io io;
	bool connected;
	int64_t retry_at;
	struct event *kick; /* sends, connects, and looks after deadlines; always from the loop */
	bool *freed;        /* set when a callback frees the client */
};

static void call_free (struct call *call)
{
	enc_json_free (call->request);
	enc_fds_done (&call->fds);
	free (call);
}

/* The callback of a call that is off the queue. False if it freed the client. */
static bool finish (struct enc_ipc_client *c, struct call *call, int rc, const struct enc_json *answer, struct enc_fds *fds,
		    const struct enc_error *err)
{
	bool freed = false, *outer = c->freed;
	enc_ipc_answer_fn *done = call->done;
	void *arg = call->arg;
	struct enc_fds none = { 0 };
	call->done = NULL;
	if (!done)
		return true;
	c->freed = &freed;
	done (rc, answer, fds ? fds : &none, err, arg);
	if (freed) {
		if (outer)
			*outer = true;
		return false;
	}
	c->freed = outer;
	return true;
}

static void kick_in (struct enc_ipc_client *c, int64_t ms)
{
	struct timeval in = { .tv_sec = (time_t) (ms / 1000), .tv_usec = (suseconds_t) (ms % 1000 * 1000) };
	(void) event_add (c->kick, &in);
}

/* End the calls that match with one error; each is taken off first, since a callback may add or free. */
static bool fail_calls (struct enc_ipc_client *c, bool sent_only, const struct enc_error *err)
{
	for (unsigned n = c->count; n > 0; n--) { /* no more than are here now: a callback may call again */
		struct call *call = STAILQ_FIRST (&c->calls);
		if (!call || (sent_only && call->request))
			return true;
		STAILQ_REMOVE_HEAD (&c->calls, next);
		c->count--;
		bool alive = finish (c, call, -err->code, NULL, NULL, err);
		call_free (call);
		if (!alive)
			return false;
	}
	return true;
}

static void disconnect (struct enc_ipc_client *c)
{
	if (c->connected)
		enc_ipc_io_done (&c->io);
	c->connected = false;
	c->retry_at = enc_deadline_ms (RETRY_MS);
}

static void on_end (void *arg, const struct enc_error *why)
{
	struct enc_ipc_client *c = (struct enc_ipc_client *) arg;
	struct enc_error err;
	(void) enc_fail (&err, ENC_EUNAVAIL, "%s: %s", c->path, why->text);
	disconnect (c);
	if (fail_calls (c, true, &err) && STAILQ_FIRST (&c->calls))
		kick_in (c, RETRY_MS);
}

static bool on_frame (void *arg, const char *text, size_t len, struct enc_fds *fds)
{
	struct enc_ipc_client *c = (struct enc_ipc_client *) arg;
	struct call *call = STAILQ_FIRST (&c->calls);
	enc_auto (enc_json) struct enc_json *answer = enc_json_parse (text, len, ENC_IPC_MAX, NULL);
	if (!call || call->request || enc_json_type (answer) != ENC_JSON_OBJECT) {
		struct enc_error err;
		(void) enc_fail (&err, ENC_EPROTO, "an answer that was not asked for, or is no JSON object");
		on_end (c, &err);
		return false;
	}
	STAILQ_REMOVE_HEAD (&c->calls, next);
	c->count--;
	struct enc_error err = { 0 };
	int rc = enc_json_to_error (answer, &err);
	bool alive = finish (c, call, rc, rc == 0 ? answer : NULL, fds, rc < 0 ? &err : NULL);
	call_free (call);
	return alive && c->connected;
}

static int connect_now (struct enc_ipc_client *c, struct enc_error *err)
{
	/* A Unix socket connects at once or not at all. */
	int fd = enc_unix_connect (c->path, enc_deadline_ms (CONNECT_MS), err);
	if (fd < 0)
		return fd;
	struct enc_ipc_io_conf conf = { .max_frame = ENC_IPC_MAX, .idle_s = 30, .frame = on_frame, .end = on_end, .arg = c };
	int rc = enc_ipc_io_init (&c->io, c->base, fd, &conf, err);
	c->connected = rc == 0;
	return rc;
}

/* The first call that has waited too long; NULL if none. *ret_next_ms: until the next one will have. */
static struct call *find_late (struct enc_ipc_client *c, int64_t *ret_next_ms)
{
	struct call *call;
	*ret_next_ms = INT64_MAX;
	STAILQ_FOREACH (call, &c->calls, next) {
		int64_t left = call->done ? enc_left_ms (call->deadline) : INT64_MAX;
		if (left == 0)
			return call;
		*ret_next_ms = left < *ret_next_ms ? left : *ret_next_ms;
	}
	return NULL;
}

/* Callbacks of calls whose time is over. Unsent ones leave the queue, sent ones wait for their answer without a callback. Each
 * look starts anew, since a callback may change the queue. */
static bool expire (struct enc_ipc_client *c, int64_t *ret_next_ms)
{
	struct call *call;
	while ((call = find_late (c, ret_next_ms))) {
		struct enc_error err;
		bool unsent = call->request != NULL;
		(void) enc_fail (&err, ENC_ETIMEOUT, "%s: no answer in time", c->path);
		if (unsent) {
			STAILQ_REMOVE (&c->calls, call, call, next);
			c->count--;
		}
		bool alive = finish (c, call, -ENC_ETIMEOUT, NULL, NULL, &err);
		if (unsent)
			call_free (call);
		if (!alive)
			return false;
	}
	return true;
}

static bool drop (struct enc_ipc_client *c, struct call *call, int rc, const struct enc_error *err)
{
	STAILQ_REMOVE (&c->calls, call, call, next);
	c->count--;
	bool alive = finish (c, call, rc, NULL, NULL, err);
	call_free (call);
	return alive;
}

static bool send_waiting (struct enc_ipc_client *c)
{
	struct call *call = STAILQ_FIRST (&c->calls);
	while (call && c->connected) {
		struct call *next = STAILQ_NEXT (call, next);
		struct enc_error err;
		if (call->request) {
			int rc = enc_ipc_io_send (&c->io, call->request, &call->fds, &err);
			if (rc == -ENC_EUNAVAIL) {
				on_end (c, &err);
				return false;
			}
			if (rc < 0 && !drop (c, call, rc, &err)) /* it cannot be written: no answer will come */
				return false;
			if (rc < 0) {
				call = STAILQ_FIRST (&c->calls); /* the callback may have changed the queue */
				continue;
			}
			enc_json_free (call->request);
			call->request = NULL;
			enc_fds_done (&call->fds);
		}
		call = next;
	}
	return true;
}

static void on_kick (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg)
{
	struct enc_ipc_client *c = (struct enc_ipc_client *) arg;
	int64_t next_ms;
	struct enc_error err;
	if (!expire (c, &next_ms) || !STAILQ_FIRST (&c->calls))
		return;
	if (!c->connected && enc_passed (c->retry_at) && connect_now (c, &err) < 0) {
		c->retry_at = enc_deadline_ms (RETRY_MS);
		(void) enc_wrap (&err, -1, "%s", c->path);
		err.code = ENC_EUNAVAIL;
		(void) fail_calls (c, false, &err);
		return;
	}
	if (!c->connected)
		next_ms = next_ms < RETRY_MS ? next_ms : RETRY_MS;
	else if (!send_waiting (c))
		return;
	if (next_ms != INT64_MAX)
		kick_in (c, next_ms > 0 ? next_ms : 1);
}

struct enc_ipc_client *enc_ipc_client_new (struct event_base *base, const char *path, unsigned max_queue, struct enc_error *err)
{
	struct enc_ipc_client *c = calloc (1, sizeof (*c));
	if (c) {
		*c = (struct enc_ipc_client){ .base = base, .max_queue = max_queue ? max_queue : 1024, .path = enc_strdup (path) };
		STAILQ_INIT (&c->calls);
		c->kick = evtimer_new (base, on_kick, c);
	}
	if (!c || !c->path || !c->kick) {
		enc_ipc_client_free (c);
		(void) enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	return c;
}

void enc_ipc_client_free (struct enc_ipc_client *c)
{
	if (!c)
		return;
	struct enc_error err;
	(void) enc_fail (&err, ENC_ECANCELED, "the connection is given up");
	disconnect (c);
	bool *outer = c->freed;
	c->max_queue = 0; /* callbacks cannot add */
	struct call *call;
	while ((call = STAILQ_FIRST (&c->calls))) {
		struct enc_fds none = { 0 };
		STAILQ_REMOVE_HEAD (&c->calls, next);
		if (call->done)
			call->done (-ENC_ECANCELED, NULL, &none, &err, call->arg);
		call_free (call);
	}
	if (outer)
		*outer = true;
	if (c->kick)
		event_free (c->kick);
	free (c->path);
	free (c);
}

int enc_ipc_client_call_fds (struct enc_ipc_client *c, struct enc_json *request, const struct enc_fds *fds, int64_t timeout_ms,
			     enc_ipc_answer_fn *done, void *arg, struct enc_error *err)
{
	struct call *call = c->count < c->max_queue && request ? calloc (1, sizeof (*call)) : NULL;
	if (!call) {
		enc_json_free (request);
		return c->count >= c->max_queue ? enc_fail (err, ENC_EBUSY, "too many calls wait for %s", c->path)
						: enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	*call = (struct call){ .request = request, .done = done, .arg = arg, .deadline = enc_deadline_ms (timeout_ms) };
	for (unsigned i = 0; fds && i < fds->n; i++) {
		int fd = fcntl (fds->fd[i], F_DUPFD_CLOEXEC, 3);
		if (fd < 0) {
			call_free (call);
			return enc_fail_sys (err, "descriptor");
		}
		call->fds.fd[call->fds.n++] = fd;
	}
	STAILQ_INSERT_TAIL (&c->calls, call, next);
	c->count++;
	kick_in (c, 0);
	return 0;
}

int enc_ipc_client_call (struct enc_ipc_client *c, struct enc_json *request, int64_t timeout_ms, enc_ipc_answer_fn *done, void *arg,
			 struct enc_error *err)
{
	return enc_ipc_client_call_fds (c, request, NULL, timeout_ms, done, arg, err);
}
