/* Queue and deadlines in front of the worker: see link.h.
 *
 * States: no worker (io.fd < 0) → idle → busy (`running`) → idle. A worker that ended is noticed by the end of its socket; the supervisor then
 * sends the next one over `control`. */
#include "controller/schedd/link.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/ipc_io.h"
#include "base/log.h"
#include "base/enc.h"

enum { QUEUE_MAX = 256, FRAME_IDLE_S = 30 };

struct call {
	STAILQ_ENTRY (call) next;
	struct enc_json *request;
	int64_t deadline;
	enc_sched_done_fn *done;
	void *arg;
};

struct enc_sched_link {
	struct event_base *base;
	struct enc_ipc_io control;
	struct enc_ipc_io io; /* of the worker; valid while `up` */
	bool up, control_up;
	int pidfd;
	struct call *running;
	STAILQ_HEAD (calls, call) queue;
	unsigned waiting, started, killed;
	struct event *tick;
	enc_sched_lost_fn *lost;
	void *arg;
};

static void pump (struct enc_sched_link *link);

static void call_end (struct call *call, int rc, struct enc_json *answer, const struct enc_error *err)
{
	call->done (rc, answer, err, call->arg);
	enc_json_free (call->request);
	free (call);
}

/* The running call fails; it is taken off first, because the callback may make new calls. */
static void running_fails (struct enc_sched_link *link, const struct enc_error *err)
{
	struct call *call = ENC_TAKE (link->running);

	if (call)
		call_end (call, -err->code, NULL, err);
}

static void kill_worker (struct enc_sched_link *link)
{
	if (link->pidfd >= 0 && syscall (SYS_pidfd_send_signal, link->pidfd, SIGKILL, NULL, 0U) < 0 && errno != ESRCH)
		enc_log_error ("cannot end the worker: errno %d", errno);
}

static void worker_gone (struct enc_sched_link *link)
{
	if (!link->up)
		return;
	link->up = false;
	enc_ipc_io_done (&link->io);
	close (ENC_TAKE_FD (link->pidfd));
}

/* ---- the worker's socket ---- */

static bool on_answer (void *arg, const char *text, size_t len, struct enc_fds *fds ENC_UNUSED)
{
	struct enc_sched_link *link = arg;
	struct enc_error err = { 0 };
	enc_auto (enc_json) struct enc_json *answer = enc_json_parse (text, len, ENC_IPC_MAX, &err);
	struct call *call = ENC_TAKE (link->running);
	int rc = answer ? enc_json_to_error (answer, &err) : -err.code;

	if (call)
		call_end (call, rc, rc == 0 ? answer : NULL, &err);
	else
		enc_log_warn ("the worker answered without being asked");
	pump (link);
	return link->up;
}

static void on_worker_end (void *arg, const struct enc_error *why ENC_UNUSED)
{
	struct enc_sched_link *link = arg;
	struct enc_error err = { 0 };

	kill_worker (link);
	worker_gone (link);
	if (!link->running)
		return;
	(void) enc_error_next (&err, enc_fail (&err, ENC_EUNAVAIL, "the scheduler's helper ended during the call; whether it happened is not known"),
			       "ask again: the call may be repeated");
	running_fails (link, &err);
}

static bool on_worker (void *arg, const char *text ENC_UNUSED, size_t len ENC_UNUSED, struct enc_fds *fds)
{
	struct enc_sched_link *link = arg;
	struct enc_ipc_io_conf conf = { .max_frame = ENC_IPC_MAX, .idle_s = FRAME_IDLE_S, .frame = on_answer, .end = on_worker_end, .arg = link };
	struct enc_error err = { 0 };

	if (fds->n != 2) {
		enc_log_error ("the supervisor sent no worker");
		return true;
	}
	if (link->up) /* the old one's end was not seen yet */
		on_worker_end (link, NULL);
	if (enc_ipc_io_init (&link->io, link->base, ENC_TAKE_FD (fds->fd[0]), &conf, &err) < 0) {
		enc_log_err (ENC_LOG_ERROR, &err, "cannot talk to the worker");
		return true;
	}
	link->pidfd = ENC_TAKE_FD (fds->fd[1]);
	link->up = true;
	link->started++;
	if (link->started > 1)
		enc_log_notice ("worker %u started", link->started);
	pump (link);
	return true;
}

static void on_control_end (void *arg, const struct enc_error *why ENC_UNUSED)
{
	struct enc_sched_link *link = arg;

	link->control_up = false;
	enc_ipc_io_done (&link->control);
	enc_log_error ("the supervisor of the workers is gone");
	link->lost (link->arg);
}

/* ---- queue and deadlines ---- */

/* Wake at the earliest deadline. */
static void arm (struct enc_sched_link *link)
{
	int64_t first = link->running ? link->running->deadline : ENC_FOREVER;
	struct timeval tv;
	struct call *c;
	int ms;

	STAILQ_FOREACH (c, &link->queue, next)
	if (c->deadline < first)
		first = c->deadline;
	if (first == ENC_FOREVER) {
		(void) evtimer_del (link->tick);
		return;
	}
	ms = enc_left_ms (first) + 1;
	tv = (struct timeval){ .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
	(void) evtimer_add (link->tick, &tv);
}

static void pump (struct enc_sched_link *link)
{
	struct enc_error err = { 0 };
	struct call *call;

	while (link->up && !link->running && (call = STAILQ_FIRST (&link->queue))) {
		STAILQ_REMOVE_HEAD (&link->queue, next);
		link->waiting--;
		if (enc_ipc_io_send (&link->io, call->request, NULL, &err) < 0)
			call_end (call, -err.code, NULL, &err);
		else
			link->running = call;
	}
	arm (link);
}

static void expire_waiting (struct enc_sched_link *link)
{
	struct calls late = STAILQ_HEAD_INITIALIZER (late);
	struct call *c, *after;
	struct error_pair {
		struct enc_error none, slow;
	} e = { 0 };

	(void) enc_error_next (&e.none, enc_fail (&e.none, ENC_EUNAVAIL, "the scheduler's helper does not come up"),
			       "journalctl -u enclave-schedd");
	(void) enc_error_next (&e.slow, enc_fail (&e.slow, ENC_ETIMEOUT, "the scheduler did not answer in time; nothing was done"),
			       "look at slurmctld on the scheduler's host");
	for (c = STAILQ_FIRST (&link->queue); c; c = after) {
		after = STAILQ_NEXT (c, next);
		if (!enc_passed (c->deadline))
			continue;
		STAILQ_REMOVE (&link->queue, c, call, next);
		STAILQ_INSERT_TAIL (&late, c, next);
		link->waiting--;
	}
	while ((c = STAILQ_FIRST (&late))) {
		STAILQ_REMOVE_HEAD (&late, next);
		call_end (c, link->up ? -ENC_ETIMEOUT : -ENC_EUNAVAIL, NULL, link->up ? &e.slow : &e.none);
	}
}

static void on_tick (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg)
{
	struct enc_sched_link *link = arg;
	struct enc_error err = { 0 };

	if (link->running && enc_passed (link->running->deadline)) {
		link->killed++;
		kill_worker (link);
		worker_gone (link);
		(void) enc_error_next (&err, enc_fail (&err, ENC_ETIMEOUT, "the scheduler did not answer in time; whether it happened is not known"),
				       "look at slurmctld on the scheduler's host; the call may be repeated");
		running_fails (link, &err);
	}
	expire_waiting (link);
	pump (link);
}

int enc_sched_link_call (struct enc_sched_link *link, struct enc_json *request, int64_t timeout_ms, enc_sched_done_fn *done, void *arg,
			 struct enc_error *err)
{
	struct call *call = link->waiting < QUEUE_MAX ? calloc (1, sizeof *call) : NULL;
	struct timeval now = { 0 };

	if (!call) {
		enc_json_free (request);
		return link->waiting < QUEUE_MAX ? enc_fail (err, ENC_ENOMEM, "no memory") :
						   enc_fail (err, ENC_EBUSY, "too many calls wait for the scheduler");
	}
	*call = (struct call){ .request = request, .deadline = enc_deadline_ms (timeout_ms), .done = done, .arg = arg };
	STAILQ_INSERT_TAIL (&link->queue, call, next);
	link->waiting++;
	(void) evtimer_add (link->tick, &now); /* sent from the loop, never from within */
	return 0;
}

void enc_sched_link_restart (struct enc_sched_link *link)
{
	kill_worker (link);
}

struct enc_sched_link_stat enc_sched_link_stat (const struct enc_sched_link *link)
{
	return (struct enc_sched_link_stat){
		.up = link->up, .started = link->started, .killed = link->killed, .waiting = link->waiting + (link->running ? 1 : 0)
	};
}

struct enc_sched_link *enc_sched_link_new (struct event_base *base, int control, enc_sched_lost_fn *lost, void *arg, struct enc_error *err)
{
	struct enc_sched_link *link = calloc (1, sizeof *link);
	struct enc_ipc_io_conf conf = { .max_frame = 256, .idle_s = FRAME_IDLE_S, .frame = on_worker, .end = on_control_end, .arg = link };

	if (!link) {
		close (control);
		enc_fail (err, ENC_ENOMEM, "no memory");
		return NULL;
	}
	STAILQ_INIT (&link->queue);
	link->base = base;
	link->pidfd = -1;
	link->lost = lost;
	link->arg = arg;
	link->tick = evtimer_new (base, on_tick, link);
	if (!link->tick || enc_ipc_io_init (&link->control, base, control, &conf, err) < 0) {
		enc_sched_link_free (link);
		return NULL;
	}
	link->control_up = true;
	return link;
}

void enc_sched_link_free (struct enc_sched_link *link)
{
	struct enc_error err = { 0 };
	struct call *c;

	if (!link)
		return;
	(void) enc_fail (&err, ENC_ECANCELED, "the scheduler link is closing");
	kill_worker (link);
	worker_gone (link);
	running_fails (link, &err);
	while ((c = STAILQ_FIRST (&link->queue))) {
		STAILQ_REMOVE_HEAD (&link->queue, next);
		call_end (c, -ENC_ECANCELED, NULL, &err);
	}
	if (link->control_up)
		enc_ipc_io_done (&link->control);
	if (link->tick)
		event_free (link->tick);
	free (link);
}
