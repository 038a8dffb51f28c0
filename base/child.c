/* Running a command to its end, without an event loop. */
#include <errno.h>
#include <poll.h>
#include "base/child_spawn.h"
#include "base/enctime.h"
#include "base/enc.h"

void enc_cmd_result_init (const struct enc_cmd *cmd, struct enc_cmd_result *r)
{
	*r = (struct enc_cmd_result){ .exit_status = -1, .out = ENC_BUF_INIT (cmd->max_out), .err = ENC_BUF_INIT (cmd->max_err) };
}

void enc_cmd_result_done (struct enc_cmd_result *r)
{
	if (!r)
		return;
	enc_buf_done (&r->out);
	enc_buf_done (&r->err);
}

static void watch (struct enc_child *c, struct enc_cmd_result *r)
{
	for (;;) {
		/* A negative descriptor is left out by poll(). */
		struct pollfd p[3] = { { .fd = c->pidfd, .events = POLLIN }, { .fd = c->out, .events = POLLIN }, { .fd = c->err, .events = POLLIN } };
		int n = poll (p, 3, enc_left_ms (c->deadline));
		if (n < 0 && errno != EINTR)
			break;
		enc_child_drain (c, r);
		if (n > 0 && p[0].revents)
			return;
		if (enc_passed (c->deadline))
			break;
	}
	r->timed_out = true;
	enc_child_kill (c);
}

static int run_fake (struct enc_cmd *cmd, struct enc_cmd_result *r, struct enc_error *err)
{
	if (cmd->bad.code) {
		if (err)
			*err = cmd->bad;
		return -cmd->bad.code;
	}
	r->exit_status = 0;
	return enc_cmd_runner ((const char *const *) cmd->argv.v, &cmd->in, r, err, enc_cmd_runner_arg);
}

static int run (struct enc_cmd *cmd, struct enc_cmd_result *result, bool any_status, struct enc_error *err)
{
	struct enc_cmd_result own = { 0 };
	struct enc_cmd_result *r = result ? result : &own;
	if (!cmd) {
		*r = (struct enc_cmd_result){ .exit_status = -1 };
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	enc_cmd_result_init (cmd, r);
	int rc;
	if (enc_cmd_runner) {
		rc = run_fake (cmd, r, err);
	} else {
		struct enc_child c;
		rc = enc_child_spawn (cmd, &c, err);
		if (rc == 0) {
			watch (&c, r);
			enc_child_reap (&c, r);
		}
	}
	if (rc == 0)
		rc = enc_child_verdict (cmd, r, any_status, err);
	if (!result)
		enc_cmd_result_done (r);
	return rc;
}

int enc_cmd_run (struct enc_cmd *cmd, struct enc_cmd_result *result, struct enc_error *err)
{
	return run (cmd, result, false, err);
}

int enc_cmd_run_any (struct enc_cmd *cmd, struct enc_cmd_result *result, struct enc_error *err)
{
	return run (cmd, result, true, err);
}
