/* The supervisor: starts workers, one after the other. See worker.h. Single thread, no event loop, nothing open but the control socket. */
#include "controller/schedd/worker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/harden.h"
#include "base/ipc.h"
#include "base/log.h"
#include "base/point.h"
#include "base/enc.h"

enum { BACKOFF_FIRST_MS = 50, BACKOFF_MOST_MS = 2000, LIVED_MS = 2000 };

static int pidfd_of (pid_t pid)
{
	return (int) syscall (SYS_pidfd_open, pid, 0);
}

static void default_signals (void)
{
	sigset_t none;

	for (int s = 1; s < NSIG; s++)
		(void) signal (s, SIG_DFL);
	(void) signal (SIGPIPE, SIG_IGN);
	(void) signal (SIGHUP, SIG_IGN); /* reload is the parent's; it ends the worker itself */
	(void) sigemptyset (&none);
	(void) sigprocmask (SIG_SETMASK, &none, NULL);
}

/* All descriptors but 0 to 2 and `keep`, which becomes number 3. */
static int keep_only (int keep)
{
	if (keep != 3 && dup2 (keep, 3) < 0)
		return -1;
	if (syscall (SYS_close_range, 4U, ~0U, 0U) < 0)
		return -1;
	enc_log_reopen ();
	return 0;
}

static _Noreturn void be_worker (int fd, const struct enc_sched_worker_conf *conf)
{
	(void) prctl (PR_SET_PDEATHSIG, SIGKILL);
	(void) prctl (PR_SET_NAME, "schedd-worker");
	enc_point_open ("enclave-schedd", NULL); /* each worker is a life of its own */
	if (getppid () == 1 || keep_only (fd) < 0)
		_exit (1);
	_exit (enc_sched_worker_run (3, conf));
}

/* Tell the parent of a worker; its copies of the descriptors are closed here. */
static int announce (int control, pid_t pid, int sock, int pidfd)
{
	struct enc_fds fds = { .fd = { sock, pidfd }, .n = 2 };
	struct enc_error err = { 0 };
	char text[32];
	int len = snprintf (text, sizeof text, "{\"pid\":%d}", (int) pid);
	int rc = enc_frame_send (control, text, (size_t) len, &fds, enc_deadline_ms (5000), &err);

	if (rc < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "cannot tell of the worker");
	return rc;
}

/* Start one worker and wait for its end. False: the parent is gone. */
static bool one_worker (int control, const struct enc_sched_worker_conf *conf)
{
	enc_auto_close int ours = -1, theirs = -1, pidfd = -1;
	struct pollfd fds[2];
	int pair[2];
	pid_t pid;
	bool alive;

	if (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return true;
	ours = pair[0];
	theirs = pair[1];
	if ((pid = fork ()) < 0)
		return true;
	if (pid == 0)
		be_worker (theirs, conf);
	pidfd = pidfd_of (pid);
	alive = pidfd >= 0 && announce (control, pid, ours, pidfd) == 0;
	close (ENC_TAKE_FD (ours));
	close (ENC_TAKE_FD (theirs));
	fds[0] = (struct pollfd){ .fd = pidfd, .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = control, .events = POLLIN };
	while (alive && poll (fds, 2, -1) < 0 && errno == EINTR)
		continue;
	if (fds[1].revents)
		alive = false;
	if (!fds[0].revents)
		(void) kill (pid, SIGKILL);
	while (waitpid (pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	return alive;
}

static _Noreturn void be_supervisor (int control, const struct enc_sched_worker_conf *conf, uid_t uid, gid_t gid)
{
	struct enc_error err = { 0 };
	int wait_ms = BACKOFF_FIRST_MS;

	(void) prctl (PR_SET_NAME, "schedd-super");
	default_signals ();
	if (keep_only (control) < 0)
		_exit (1);
	if (geteuid () == 0 && uid != 0 && (enc_drop_to (uid, gid, NULL, &err) < 0 || enc_harden_process (&err) < 0)) {
		enc_log_err (ENC_LOG_ERROR, &err, "cannot drop privileges");
		_exit (1);
	}
	for (;;) {
		struct pollfd gone = { .fd = 3, .events = POLLIN };
		int64_t lived = enc_deadline_ms (LIVED_MS);

		if (!one_worker (3, conf))
			_exit (0);
		wait_ms = enc_passed (lived) ? BACKOFF_FIRST_MS : wait_ms * 2;
		if (wait_ms > BACKOFF_MOST_MS)
			wait_ms = BACKOFF_MOST_MS;
		if (poll (&gone, 1, wait_ms) > 0)
			_exit (0);
	}
}

int enc_sched_super_start (const struct enc_sched_worker_conf *conf, uid_t uid, gid_t gid, int *ret_control, struct enc_error *err)
{
	int pair[2];
	pid_t pid;

	if (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return enc_fail_sys (err, "cannot make a socket pair");
	pid = fork ();
	if (pid == 0) {
		close (pair[0]);
		be_supervisor (pair[1], conf, uid, gid);
	}
	close (pair[1]);
	if (pid < 0) {
		close (pair[0]);
		return enc_fail_sys (err, "cannot fork");
	}
	*ret_control = pair[0];
	return 0;
}
