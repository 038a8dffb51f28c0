/* Callers' requests, and the snapshot that answers `nodes` at once: see serve.h.
 *
 * The snapshot is asked for again refresh_ms after the last answer. When slurmctld does not answer, the old one stays and its age grows: whoever
 * plans with it sees how old it is, whoever acts asks Slurm itself. */
#include "controller/schedd/serve.h"

#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/fields.h"
#include "base/log.h"
#include "base/enc.h"

enum { PAGES_MAX = 64, RETRY_MS = 200 };

struct enc_sched_serve {
	struct event_base *base;
	struct enc_sched_link *link;
	struct enc_sched_serve_conf conf;
	struct enc_ipc_server *server;
	struct event *refresh;
	uid_t *uids;
	size_t uids_n;
	/* the snapshot in force, and the one that is being fetched */
	struct enc_json *pages[PAGES_MAX], *coming[PAGES_MAX];
	size_t pages_n, coming_n;
	uint64_t serial, coming_serial;
	int64_t seen; /* monotonic; 0: never */
	struct enc_error trouble; /* of the last refresh */
};

static void pages_done (struct enc_json **pages, size_t *n)
{
	for (size_t i = 0; i < *n; i++)
		enc_json_free (pages[i]);
	*n = 0;
}

/* ---- refresh ---- */

static void ask (struct enc_sched_serve *s, uint64_t from);

/* In trouble sooner than usual: a slurmctld that has just started is waited for. */
static void again (struct enc_sched_serve *s)
{
	uint64_t ms = s->trouble.code && s->conf.refresh_ms > RETRY_MS ? RETRY_MS : s->conf.refresh_ms;
	struct timeval tv = { .tv_sec = (time_t) (ms / 1000), .tv_usec = (suseconds_t) (ms % 1000 * 1000) };

	(void) evtimer_add (s->refresh, &tv);
}

static void refresh_failed (struct enc_sched_serve *s, const struct enc_error *err)
{
	if (err->code != s->trouble.code)
		enc_log_err (ENC_LOG_WARN, err, "the scheduler's state cannot be read");
	s->trouble = *err;
	again (s);
}

static void on_snapshot (int rc, struct enc_json *answer, const struct enc_error *err, void *arg)
{
	struct enc_sched_serve *s = arg;
	struct enc_json *nodes = enc_json_get (answer, "nodes");
	uint64_t next;

	if (rc == -ENC_ECANCELED)
		return;
	if (rc < 0) {
		refresh_failed (s, err);
		return;
	}
	if (nodes && s->coming_n && enc_json_get_u64 (answer, "serial", 0) != s->coming_serial) {
		ask (s, 0); /* another worker answered in between */
		return;
	}
	if (nodes && s->coming_n < PAGES_MAX) {
		s->coming_serial = enc_json_get_u64 (answer, "serial", 0);
		s->coming[s->coming_n++] = enc_json_ref (nodes);
		if ((next = enc_json_get_u64 (answer, "next", 0)) > 0) {
			ask (s, next);
			return;
		}
		pages_done (s->pages, &s->pages_n);
		memcpy (s->pages, s->coming, s->coming_n * sizeof *s->pages);
		s->pages_n = s->coming_n;
		s->coming_n = 0;
		s->serial = s->coming_serial;
	}
	if (s->trouble.code || !s->seen)
		enc_log_info ("the scheduler answers");
	enc_error_clear (&s->trouble);
	s->seen = enc_mono ();
	again (s);
}

static void ask (struct enc_sched_serve *s, uint64_t from)
{
	struct enc_json *request = enc_json_object ();
	struct enc_error err = { 0 };

	if (from == 0)
		pages_done (s->coming, &s->coming_n);
	enc_json_set_str (request, "op", "snapshot");
	enc_json_set_u64 (request, "since", s->serial);
	enc_json_set_u64 (request, "from", from);
	if (enc_sched_link_call (s->link, request, (int64_t) s->conf.call_timeout_ms, on_snapshot, s, &err) < 0)
		refresh_failed (s, &err);
}

static void on_refresh (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg)
{
	ask (arg, 0);
}

/* ---- ops ---- */

static double age_s (const struct enc_sched_serve *s)
{
	return (double) ((enc_mono () - s->seen) / ENC_NS_MS) / 1000.0;
}

struct nodes_args {
	char *op;
	uint64_t page;
};
static const struct enc_field nodes_fields[] = { ENC_FIELD (struct nodes_args, op, "op", ENC_T_STR, .flags = ENC_REQUIRED),
						 ENC_FIELD (struct nodes_args, page, "page", ENC_T_U64, .max = PAGES_MAX), ENC_FIELD_END };

/* Is there something to answer with, and is the page one of it? */
static int nodes_ready (const struct enc_sched_serve *s, const struct enc_json *body, size_t *ret_page, struct enc_error *err)
{
	struct nodes_args args = { 0 };
	int rc;

	if ((rc = enc_json_decode (nodes_fields, body, &args, err)) < 0)
		return rc;
	*ret_page = args.page;
	enc_fields_done (nodes_fields, &args);
	if (!s->seen && s->trouble.code) {
		*err = s->trouble;
		return -(err->code = ENC_EUNAVAIL);
	}
	if (!s->seen)
		return enc_fail (err, ENC_EUNAVAIL, "the scheduler has not answered yet");
	if (*ret_page >= s->pages_n)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/page: there are %zu", s->pages_n), "/page");
	return 0;
}

static void on_nodes (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds ENC_UNUSED, void *arg)
{
	struct enc_sched_serve *s = arg;
	struct enc_error err = { 0 };
	struct enc_json *out;
	size_t page;

	if (nodes_ready (s, body, &page, &err) < 0) {
		enc_ipc_reply_error (req, &err);
		return;
	}
	out = enc_json_object ();
	enc_json_set_bool (out, "ok", true);
	enc_json_set_double (out, "age_s", age_s (s));
	enc_json_set_u64 (out, "serial", s->serial);
	enc_json_set_u64 (out, "pages", s->pages_n);
	enc_json_set (out, "nodes", enc_json_ref (s->pages[page]));
	enc_ipc_reply (req, out);
}

static void on_health (struct enc_ipc_req *req, const struct enc_json *body ENC_UNUSED, struct enc_fds *fds ENC_UNUSED, void *arg)
{
	const struct enc_sched_serve *s = arg;
	struct enc_sched_link_stat stat = enc_sched_link_stat (s->link);
	struct enc_json *out = enc_json_object ();
	struct enc_json *worker;

	enc_json_set_bool (out, "ok", true);
	enc_json_set_str (out, "role", s->conf.enclave ? "enclave" : "general");
	enc_json_set_bool (out, "scheduler", s->seen && !s->trouble.code);
	if (s->seen)
		enc_json_set_double (out, "age_s", age_s (s));
	else
		enc_json_set_null (out, "age_s");
	enc_json_set_str (out, "trouble", s->trouble.code ? s->trouble.text : NULL);
	worker = enc_json_set_object (out, "worker");
	enc_json_set_bool (worker, "up", stat.up);
	enc_json_set_u64 (worker, "started", stat.started);
	enc_json_set_u64 (worker, "killed", stat.killed);
	enc_json_set_u64 (worker, "waiting", stat.waiting);
	enc_ipc_reply (req, out);
}

struct relayed {
	struct enc_sched_serve *s;
	struct enc_ipc_req *req;
};

/* Whoever acted looks at the effect next: the snapshot is taken anew at once, not at the end of its pause. */
static void on_relayed (int rc, struct enc_json *answer, const struct enc_error *err, void *arg)
{
	enc_auto_free struct relayed *r = arg;

	if (rc < 0) {
		enc_ipc_reply_error (r->req, err);
		return;
	}
	if (evtimer_pending (r->s->refresh, NULL))
		(void) evtimer_add (r->s->refresh, &(struct timeval){ 0 });
	enc_ipc_reply (r->req, enc_json_ref (answer));
}

/* Acts are logged by op and object here; the audit record is enclaved's. */
static void relay (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds ENC_UNUSED, void *arg)
{
	struct enc_sched_serve *s = arg;
	struct enc_error err = { 0 };
	enc_auto_free struct relayed *r = malloc (sizeof *r);

	if (!r) {
		(void) enc_fail (&err, ENC_ENOMEM, "no memory for a request");
		enc_ipc_reply_error (req, &err);
		return;
	}
	*r = (struct relayed){ s, req };
	enc_log_debug ("%s by uid %u", enc_ipc_req_op (req), (unsigned) enc_ipc_req_peer (req)->uid);
	if (enc_sched_link_call (s->link, enc_json_ref (body), (int64_t) s->conf.call_timeout_ms, on_relayed, r, &err) < 0)
		enc_ipc_reply_error (req, &err);
	else
		r = NULL;
}

static const struct enc_ipc_op general_ops[] = {
	{ "nodes", on_nodes, 0 },   { "health", on_health, 0 }, { "reserve", relay, 0 }, { "release", relay, 0 }, { "drain", relay, 0 },
	{ "resume", relay, 0 }, { "away", relay, 0 },	    { "jobs", relay, 0 },    { "end", relay, 0 },     { 0 },
};
static const struct enc_ipc_op enclave_ops[] = {
	{ "nodes", on_nodes, 0 }, { "health", on_health, 0 }, { "jobs", relay, 0 }, { "end", relay, 0 }, { 0 },
};

static bool admit (const struct enc_peer *peer, void *arg)
{
	const struct enc_sched_serve *s = arg;

	for (size_t i = 0; i < s->uids_n; i++)
		if (s->uids[i] == peer->uid)
			return true;
	enc_log_warn ("uid %u may not call", (unsigned) peer->uid);
	return false;
}

/* ---- life ---- */

static int resolve_callers (struct enc_sched_serve *s, struct enc_error *err)
{
	s->uids = calloc (s->conf.callers->n + 1, sizeof *s->uids);
	if (!s->uids)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	for (size_t i = 0; i < s->conf.callers->n; i++) {
		int rc = enc_uid_of_user (s->conf.callers->v[i], &s->uids[s->uids_n], NULL, err);

		if (rc < 0)
			return rc;
		s->uids_n++;
	}
	return 0;
}

struct enc_sched_serve *enc_sched_serve_new (struct event_base *base, int listen_fd, struct enc_sched_link *link,
					     const struct enc_sched_serve_conf *conf, struct enc_error *err)
{
	enc_auto_close int fd = listen_fd;
	struct enc_sched_serve *s = calloc (1, sizeof *s);
	struct enc_ipc_server_conf server = { .ops = conf->enclave ? enclave_ops : general_ops, .admit = admit, .arg = s };

	if (!s) {
		enc_fail (err, ENC_ENOMEM, "no memory");
		return NULL;
	}
	s->base = base;
	s->link = link;
	s->conf = *conf;
	s->refresh = evtimer_new (base, on_refresh, s);
	if (!s->refresh)
		enc_fail (err, ENC_ENOMEM, "no memory");
	if (!s->refresh || resolve_callers (s, err) < 0 || !(s->server = enc_ipc_server_new (base, ENC_TAKE_FD (fd), &server, err))) {
		enc_sched_serve_free (s);
		return NULL;
	}
	ask (s, 0);
	return s;
}

void enc_sched_serve_free (struct enc_sched_serve *s)
{
	if (!s)
		return;
	enc_ipc_server_free (s->server);
	if (s->refresh)
		event_free (s->refresh);
	pages_done (s->pages, &s->pages_n);
	pages_done (s->coming, &s->coming_n);
	free (s->uids);
	free (s);
}
