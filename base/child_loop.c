/* A command within an event loop: the same child, watched by events instead of poll(). */
#include <event2/event.h>
#include "base/child_spawn.h"
#include "base/enctime.h"
#include "base/enc.h"

struct enc_cmd_task {
	struct enc_cmd *cmd;
	struct enc_child child;
	struct enc_cmd_result result;
	struct event *out;
	struct event *err;
	struct event *end;
	enc_cmd_done_fn *done;
	void *arg;
	int fake_rc; /* of a fake runner */
	struct enc_error fake_err;
	bool faked;
};

static void event_drop (struct event **e)
{
	if (*e)
		event_free (*e);
	*e = NULL;
}

static void task_free (struct enc_cmd_task *t)
{
	event_drop (&t->out);
	event_drop (&t->err);
	event_drop (&t->end);
	if (t->child.pid > 0) {
		enc_child_kill (&t->child);
		enc_child_reap (&t->child, &t->result);
	}
	enc_cmd_result_done (&t->result);
	enc_cmd_free (t->cmd);
	free (t);
}

static void on_output (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg)
{
	struct enc_cmd_task *t = (struct enc_cmd_task *) arg;
	int out = t->child.out, err = t->child.err;
	/* An event must go before its descriptor is closed: reading decides that, so look first. */
	enc_child_drain (&t->child, &t->result);
	if (out >= 0 && t->child.out < 0)
		event_drop (&t->out);
	if (err >= 0 && t->child.err < 0)
		event_drop (&t->err);
}

static void on_end (evutil_socket_t fd ENC_UNUSED, short what, void *arg)
{
	struct enc_cmd_task *t = (struct enc_cmd_task *) arg;
	struct enc_error err = t->fake_err;
	int rc = t->fake_rc;
	if (!t->faked) {
		t->result.timed_out = (what & EV_TIMEOUT) != 0;
		event_drop (&t->out);
		event_drop (&t->err);
		event_drop (&t->end);
		enc_child_reap (&t->child, &t->result);
	}
	if (rc == 0)
		rc = enc_child_verdict (t->cmd, &t->result, false, &err);
	t->done (rc, &t->result, rc < 0 ? &err : NULL, t->arg);
	task_free (t);
}

static int watch (struct enc_cmd_task *t, struct event_base *base, struct enc_error *err)
{
	struct enc_child *c = &t->child;
	int64_t ms = enc_left_ms (c->deadline);
	struct timeval limit = { .tv_sec = (time_t) (ms / 1000), .tv_usec = (suseconds_t) (ms % 1000 * 1000) };
	t->end = event_new (base, c->pidfd, EV_READ, on_end, t);
	t->out = c->out >= 0 ? event_new (base, c->out, EV_READ | EV_PERSIST, on_output, t) : NULL;
	t->err = c->err >= 0 ? event_new (base, c->err, EV_READ | EV_PERSIST, on_output, t) : NULL;
	bool good = t->end && (c->out < 0 || t->out) && (c->err < 0 || t->err) && event_add (t->end, &limit) == 0;
	if (good && t->out)
		good = event_add (t->out, NULL) == 0;
	if (good && t->err)
		good = event_add (t->err, NULL) == 0;
	return good ? 0 : enc_fail (err, ENC_ENOMEM, "out of memory");
}

static int fake (struct enc_cmd_task *t, struct event_base *base, struct enc_error *err)
{
	struct timeval now = { 0 };
	t->faked = true;
	t->result.exit_status = 0;
	t->fake_rc = enc_cmd_runner ((const char *const *) t->cmd->argv.v, &t->cmd->in, &t->result, &t->fake_err, enc_cmd_runner_arg);
	t->end = evtimer_new (base, on_end, t);
	return t->end && event_add (t->end, &now) == 0 ? 0 : enc_fail (err, ENC_ENOMEM, "out of memory");
}

struct enc_cmd_task *enc_cmd_start (struct event_base *base, struct enc_cmd *cmd, enc_cmd_done_fn *done, void *arg, struct enc_error *err)
{
	struct enc_cmd_task *t = cmd ? calloc (1, sizeof (*t)) : NULL;
	if (!t) {
		enc_cmd_free (cmd);
		(void) enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	t->cmd = cmd;
	t->done = done;
	t->arg = arg;
	t->child.pid = -1;
	enc_cmd_result_init (cmd, &t->result);
	int rc;
	if (enc_cmd_runner && !cmd->bad.code) {
		rc = fake (t, base, err);
	} else {
		rc = enc_child_spawn (cmd, &t->child, err);
		if (rc == 0)
			rc = watch (t, base, err);
	}
	if (rc == 0)
		return t;
	task_free (t);
	return NULL;
}

void enc_cmd_stop (struct enc_cmd_task *task)
{
	if (task)
		task_free (task);
}

pid_t enc_cmd_pid (const struct enc_cmd_task *task)
{
	return task->child.pid;
}
