#include "node-agent/agentd/observer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/enc.h"

enum { OBSERVER_TRIES_MAX = 2048, OBSERVER_DEADLINE_MS = 1000, OBSERVER_PORTS = 6 };

struct try {
	struct enc_observer *owner;
	struct event *ev;
	int fd;
	char what[16];
	char peer[INET6_ADDRSTRLEN];
	const char *expected, *seen;
};

struct enc_observer {
	struct event_base *base;
	struct event *deadline;
	enc_observer_fn *done;
	void *arg;
	char probe_id[27];
	bool running;
	size_t tries_n;
	struct try *tries;
};

static void try_close (struct try *t)
{
	if (t->ev)
		event_free (t->ev);
	if (t->fd >= 0)
		close (t->fd);
	t->ev = NULL;
	t->fd = -1;
}

static void run_end (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg)
{
	struct enc_observer *o = arg;
	struct enc_json *evidence = enc_json_object ();
	struct enc_json *rows = enc_json_set_array (evidence, "rows");
	size_t good = 0;
	for (size_t i = 0; i < o->tries_n; i++) {
		struct try *t = &o->tries[i];
		struct enc_json *row = enc_json_add_object (rows);
		enc_json_set_str (row, "what", t->what);
		enc_json_set_str (row, "peer", t->peer);
		enc_json_set_str (row, "expected", t->expected);
		enc_json_set_str (row, "seen", t->seen);
		good += strcmp (t->expected, t->seen) == 0;
		try_close (t);
	}
	enc_json_set_str (evidence, "probe", o->probe_id);
	enc_json_set_u64 (evidence, "probes", o->tries_n);
	enc_json_set_u64 (evidence, "as_expected", good);
	o->tries_n = 0;
	o->running = false;
	o->done (evidence, o->arg);
}

/* Any answer of the other side counts as reached: an accepted connection, and a refusal too (something let the packet through). */
static void try_event (evutil_socket_t fd, short what ENC_UNUSED, void *arg)
{
	struct try *t = arg;
	int e = 0;
	socklen_t len = sizeof e;
	(void) getsockopt (fd, SOL_SOCKET, SO_ERROR, &e, &len);
	t->seen = e == 0 || e == ECONNREFUSED ? "reached" : "silent";
	event_free (t->ev);
	t->ev = NULL;
}

static bool address_of (const char *text, unsigned port, struct sockaddr_storage *ret, socklen_t *len)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *) ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *) ret;
	memset (ret, 0, sizeof *ret);
	if (inet_pton (AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons ((uint16_t) port);
		*len = sizeof *v4;
		return true;
	}
	if (inet_pton (AF_INET6, text, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons ((uint16_t) port);
		*len = sizeof *v6;
		return true;
	}
	return false;
}

static void try_start (struct enc_observer *o, const char *address, unsigned port, int type, const char *expected)
{
	struct sockaddr_storage to;
	socklen_t len;
	if (!address[0] || !port || o->tries_n == OBSERVER_TRIES_MAX || !address_of (address, port, &to, &len))
		return;
	struct try *t = &o->tries[o->tries_n++];
	*t = (struct try){ .owner = o, .expected = expected, .seen = "silent" };
	(void) snprintf (t->what, sizeof t->what, "%s %u", type == SOCK_STREAM ? "tcp" : "udp", port);
	(void) snprintf (t->peer, sizeof t->peer, "%s", address);
	t->fd = socket (to.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (t->fd < 0)
		return;
	if (connect (t->fd, (struct sockaddr *) &to, len) < 0 && errno != EINPROGRESS) {
		t->seen = errno == ECONNREFUSED ? "reached" : "silent";
		return;
	}
	if (type == SOCK_DGRAM)
		(void) send (t->fd, "probe", 5, MSG_NOSIGNAL);
	/* UDP: only an error that comes back makes the socket readable; TCP: writable when connected or refused. */
	t->ev = event_new (o->base, t->fd, type == SOCK_STREAM ? EV_WRITE : EV_READ, try_event, t);
	if (t->ev)
		event_add (t->ev, NULL);
}

static void tries_of_peer (struct enc_observer *o, const struct enc_doc *doc, const struct enc_doc_peer *peer)
{
	const unsigned ports[OBSERVER_PORTS] = { 22, 6818, doc->slurmctld_port, doc->slurmd_port, doc->login_port, doc->srun_port_first };
	for (size_t i = 0; i < OBSERVER_PORTS; i++) {
		if (peer->role == ENC_ROLE_LOGIN && ports[i] == doc->login_port)
			continue; /* the door is for members, and is judged there */
		try_start (o, peer->address4, ports[i], SOCK_STREAM, "silent");
		try_start (o, peer->address6, ports[i], SOCK_STREAM, "silent");
	}
	try_start (o, peer->address4, doc->slurmd_port, SOCK_DGRAM, "silent");
	try_start (o, peer->address6, doc->slurmd_port, SOCK_DGRAM, "silent");
	try_start (o, peer->overlay, doc->slurmctld_port, SOCK_STREAM, "silent");
}

int enc_observer_run (struct enc_observer *o, const struct enc_doc *doc, struct enc_error *err)
{
	if (!doc->probe_id[0] || strcmp (doc->probe_id, o->probe_id) == 0)
		return 0;
	if (o->running)
		return enc_fail (err, ENC_EBUSY, "a probe is under way");
	memcpy (o->probe_id, doc->probe_id, sizeof o->probe_id);
	o->running = true;
	try_start (o, doc->controller4, doc->controller_port, SOCK_STREAM, "reached");
	for (size_t i = 0; i < doc->peers_n; i++)
		tries_of_peer (o, doc, &doc->peers[i]);
	struct timeval tv = { .tv_sec = OBSERVER_DEADLINE_MS / 1000 };
	evtimer_add (o->deadline, &tv);
	return 0;
}

struct enc_observer *enc_observer_new (struct event_base *base, enc_observer_fn *done, void *arg, struct enc_error *err)
{
	struct enc_observer *o = calloc (1, sizeof *o);
	if (!o || !(o->tries = calloc (OBSERVER_TRIES_MAX, sizeof *o->tries)) || !(o->deadline = evtimer_new (base, run_end, o))) {
		enc_observer_free (o);
		(void) enc_fail (err, ENC_ENOMEM, "no memory to observe");
		return NULL;
	}
	o->base = base;
	o->done = done;
	o->arg = arg;
	return o;
}

void enc_observer_free (struct enc_observer *o)
{
	if (!o)
		return;
	for (size_t i = 0; i < o->tries_n; i++)
		try_close (&o->tries[i]);
	if (o->deadline)
		event_free (o->deadline);
	free (o->tries);
	free (o);
}
