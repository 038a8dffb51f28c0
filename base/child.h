/* Child processes, without a shell anywhere.
 *
 *   enc_auto (enc_cmd) struct enc_cmd *cmd = enc_cmd_new ("/usr/sbin/mkfs.ext4");
 *   enc_cmd_args (cmd, "-q", dev, NULL); enc_cmd_deadline_ms (cmd, 30000);
 *   rc = enc_cmd_run (cmd, &result, err);    …    enc_cmd_result_done (&result);
 *
 * Failures while building are kept and come out of the run. The child gets: the given absolute path (checked: regular, owned by
 * root or the caller, not writable by others), an empty environment plus PATH and LANG=C.UTF-8, stdin /dev/null or what was
 * given, stdout and stderr captured to capped buffers, default signals, its own process group, no descriptor but 0 to 2 and those
 * passed, no new privileges. At the deadline the whole group gets SIGKILL. A failed exec is told apart from a failing program. */
#ifndef ENC_BASE_CHILD_H
#define ENC_BASE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"

struct enc_cmd;
struct event_base;

struct enc_cmd *enc_cmd_new (const char *path) ENC_MUST_USE; /* NULL only when memory is short; all calls take NULL */
void enc_cmd_free (struct enc_cmd *cmd);
ENC_DEFINE_AUTO (enc_cmd, struct enc_cmd, enc_cmd_free);

void enc_cmd_arg (struct enc_cmd *cmd, const char *arg);
void enc_cmd_args (struct enc_cmd *cmd, ...) __attribute__ ((sentinel));
void enc_cmd_argf (struct enc_cmd *cmd, const char *fmt, ...) ENC_PRINTF (2, 3);
/* "NAME=value" is added; values of the empty default set can be replaced. Never a secret. */
void enc_cmd_env (struct enc_cmd *cmd, const char *name, const char *value);
/* Bytes copied now and written to the child's stdin; wiped after use. Or an open descriptor (stays the caller's). */
void enc_cmd_stdin (struct enc_cmd *cmd, const void *data, size_t len);
void enc_cmd_stdin_fd (struct enc_cmd *cmd, int fd);
/* Send stdout or stderr to a descriptor instead of capturing. */
void enc_cmd_stdout_fd (struct enc_cmd *cmd, int fd);
void enc_cmd_stderr_fd (struct enc_cmd *cmd, int fd);
/* Let the child have `fd` under the same number. */
void enc_cmd_pass_fd (struct enc_cmd *cmd, int fd);
/* Caps of captured bytes; the default is 64 KiB each. More output is read and dropped, and `truncated` set. */
void enc_cmd_capture (struct enc_cmd *cmd, size_t max_out, size_t max_err);
/* The default is 30 s; there is no way to have none. */
void enc_cmd_deadline_ms (struct enc_cmd *cmd, int64_t ms);
/* Run as another user: groups are set from `gid` alone. */
void enc_cmd_user (struct enc_cmd *cmd, uid_t uid, gid_t gid);
/* Working folder, absolute; the default is "/". */
void enc_cmd_chdir (struct enc_cmd *cmd, const char *path);
/* Skip the owner check of the program file, for tests and site hooks that were checked already. */
void enc_cmd_trust_path (struct enc_cmd *cmd);

struct enc_cmd_result {
	int exit_status;   /* 0 to 255, -1 when ended by a signal */
	int signal;        /* 0, or the signal */
	bool timed_out;    /* the deadline passed and we killed it */
	bool truncated;
	struct enc_buf out;
	struct enc_buf err;
	int64_t ns;        /* how long it ran */
};
void enc_cmd_result_done (struct enc_cmd_result *r);

/* Run to the end. 0 if it exited with status 0; ENC_EFAILED with the program's name, status and last line of stderr in the text
 * if not; ENC_ETIMEOUT at the deadline; ENC_ENOTFOUND, ENC_EDENIED, ENC_ESYS if it could not be started. `result` (may be NULL) is
 * filled whenever the program ran, also on failure, and must be released by enc_cmd_result_done() in every case. */
ENC_MUST_USE int enc_cmd_run (struct enc_cmd *cmd, struct enc_cmd_result *result, struct enc_error *err);
/* Any exit status is success; look at result->exit_status. */
ENC_MUST_USE int enc_cmd_run_any (struct enc_cmd *cmd, struct enc_cmd_result *result, struct enc_error *err);

/* Run within an event loop; library enc_loop. `cmd` is taken over. `done` is called once, from the loop, with rc and result as
 * above (result is released after it returns; take buffers out of it if wanted). enc_cmd_stop() kills it and no callback
 * comes. NULL if it could not be started, and then `done` is not called. */
struct enc_cmd_task;
typedef void enc_cmd_done_fn (int rc, struct enc_cmd_result *result, const struct enc_error *err, void *arg);
struct enc_cmd_task *enc_cmd_start (struct event_base *base, struct enc_cmd *cmd, enc_cmd_done_fn *done, void *arg,
				    struct enc_error *err) ENC_MUST_USE;
void enc_cmd_stop (struct enc_cmd_task *task);
pid_t enc_cmd_pid (const struct enc_cmd_task *task);

/* Tests put a function here to record commands instead of running them; NULL restores the real one. */
typedef int enc_cmd_runner_fn (const char *const *argv, const struct enc_buf *in, struct enc_cmd_result *result, struct enc_error *err,
			       void *arg);
void enc_cmd_fake (enc_cmd_runner_fn *runner, void *arg);

#endif
