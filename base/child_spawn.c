/* fork, a fixed list of steps, execve. Between the two only calls that are safe after fork; a step that fails is reported with its
 * errno through a pipe that exec closes, so that "could not start" and "exited with 127" are different things. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <linux/close_range.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "base/child_spawn.h"
#include "base/enctime.h"
#include "base/file.h"
#include "base/enc.h"

enum step { STEP_DONE, STEP_SIGNALS, STEP_STDIO, STEP_FDS, STEP_GROUPS, STEP_GID, STEP_UID, STEP_PRIVS, STEP_CHDIR, STEP_EXEC };
static const char *const step_names[] = { "", "signals", "stdio", "descriptors", "groups", "gid", "uid", "no new privileges",
					  "working folder", "exec" };

struct report {
	int step;
	int sys;
};

struct stdio {
	int in;
	int out;
	int err;
	int report;
	pid_t parent;
};

/* ---- in the child ---- */

static int reset_signals (pid_t parent)
{
	sigset_t none;
	(void) sigemptyset (&none);
	for (int i = 1; i < NSIG; i++)
		(void) signal (i, SIG_DFL);
	(void) setpgid (0, 0);
	/* Dies with us; and if we died before the prctl, the parent is no longer who it was. */
	if (prctl (PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid () != parent)
		return -1;
	return sigprocmask (SIG_SETMASK, &none, NULL);
}

static int arrange_stdio (const struct stdio *io)
{
	int from[3] = { io->in, io->out, io->err };
	for (int i = 0; i < 3; i++) /* out of the way of 0 to 2 first */
		if ((from[i] = fcntl (from[i], F_DUPFD_CLOEXEC, 10)) < 0)
			return -1;
	for (int i = 0; i < 3; i++)
		if (dup2 (from[i], i) < 0)
			return -1;
	return 0;
}

static int arrange_fds (const struct enc_cmd *cmd)
{
	if (syscall (SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		return -1;
	for (unsigned i = 0; i < cmd->pass_n; i++)
		if (fcntl (cmd->pass[i], F_SETFD, 0) < 0)
			return -1;
	return 0;
}

static enum step prepare (const struct enc_cmd *cmd, const struct stdio *io)
{
	if (reset_signals (io->parent) < 0)
		return STEP_SIGNALS;
	if (arrange_stdio (io) < 0)
		return STEP_STDIO;
	if (arrange_fds (cmd) < 0)
		return STEP_FDS;
	if (cmd->as_user && geteuid () == 0 && setgroups (1, &cmd->gid) < 0)
		return STEP_GROUPS;
	if (cmd->as_user && setresgid (cmd->gid, cmd->gid, cmd->gid) < 0)
		return STEP_GID;
	if (cmd->as_user && setresuid (cmd->uid, cmd->uid, cmd->uid) < 0)
		return STEP_UID;
	if (prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return STEP_PRIVS;
	if (chdir (cmd->cwd ? cmd->cwd : "/") < 0)
		return STEP_CHDIR;
	return STEP_DONE;
}

static void __attribute__ ((noreturn)) run_child (const struct enc_cmd *cmd, const struct stdio *io)
{
	struct report r = { .step = (int) prepare (cmd, io) };
	if (r.step == STEP_DONE) {
		(void) execve (cmd->path, cmd->argv.v, cmd->env.v);
		r.step = STEP_EXEC;
	}
	r.sys = errno;
	ENC_IGNORE (write (io->report, &r, sizeof (r)));
	_exit (127);
}

/* ---- in the parent ---- */

static int stdin_of (const struct enc_cmd *cmd, struct enc_error *err)
{
	if (cmd->in_fd >= 0) {
		int fd = fcntl (cmd->in_fd, F_DUPFD_CLOEXEC, 3);
		return fd >= 0 ? fd : enc_fail_sys (err, "stdin of the command");
	}
	enc_auto_close int fd = cmd->has_in ? memfd_create ("stdin", MFD_CLOEXEC) : open ("/dev/null", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return enc_fail_sys (err, "stdin of the command");
	if (cmd->has_in) {
		int rc = enc_write_all (fd, cmd->in.data, cmd->in.len, err);
		if (rc < 0)
			return rc;
		if (lseek (fd, 0, SEEK_SET) < 0)
			return enc_fail_sys (err, "stdin of the command");
	}
	return ENC_TAKE_FD (fd);
}

/* The child's end in *ret_theirs, ours in *ret_ours (-1 when it goes to a descriptor of the caller's). */
static int output_to (int given, int *ret_theirs, int *ret_ours, struct enc_error *err)
{
	int pair[2];
	if (given >= 0) {
		*ret_theirs = fcntl (given, F_DUPFD_CLOEXEC, 3);
		return *ret_theirs >= 0 ? 0 : enc_fail_sys (err, "output of the command");
	}
	if (pipe2 (pair, O_CLOEXEC) < 0)
		return enc_fail_sys (err, "output of the command");
	if (fcntl (pair[0], F_SETFL, O_NONBLOCK) < 0) {
		(void) close (pair[0]);
		(void) close (pair[1]);
		return enc_fail_sys (err, "output of the command");
	}
	*ret_ours = pair[0];
	*ret_theirs = pair[1];
	return 0;
}

static void close_fd (int *fd)
{
	if (*fd >= 0)
		(void) close (*fd);
	*fd = -1;
}

/* Nothing comes if exec succeeded: the pipe just closes. */
static int read_report (int fd, const struct enc_cmd *cmd, struct enc_error *err)
{
	struct report r;
	ssize_t n;
	do
		n = read (fd, &r, sizeof (r));
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return 0;
	if (n != sizeof (r) || r.step < 0 || (size_t) r.step >= ENC_ARRAY_LEN (step_names))
		return enc_fail (err, ENC_EFAILED, "%s could not be started", cmd->path);
	errno = r.sys;
	return enc_fail_sys (err, "%s could not be started (%s)", cmd->path, step_names[r.step]);
}

static int fork_it (const struct enc_cmd *cmd, struct stdio *io, struct enc_child *c, struct enc_error *err)
{
	int report[2];
	if (pipe2 (report, O_CLOEXEC) < 0)
		return enc_fail_sys (err, "pipe");
	io->report = report[1];
	io->parent = getpid ();
	pid_t pid = fork ();
	if (pid == 0)
		run_child (cmd, io);
	(void) close (report[1]);
	int rc = pid < 0 ? enc_fail_sys (err, "fork") : read_report (report[0], cmd, err);
	(void) close (report[0]);
	if (rc == 0) {
		c->pidfd = (int) syscall (SYS_pidfd_open, pid, 0);
		if (c->pidfd < 0)
			rc = enc_fail_sys (err, "pidfd_open");
	}
	if (rc < 0 && pid > 0) {
		(void) kill (pid, SIGKILL);
		(void) waitpid (pid, NULL, 0);
	}
	c->pid = pid;
	return rc;
}

static int check (const struct enc_cmd *cmd, struct enc_error *err)
{
	if (cmd->bad.code) {
		if (err)
			*err = cmd->bad;
		return -cmd->bad.code;
	}
	return cmd->trusted ? 0 : enc_path_trusted (cmd->path, err);
}

int enc_child_spawn (struct enc_cmd *cmd, struct enc_child *ret, struct enc_error *err)
{
	struct enc_child c = { .pid = -1, .pidfd = -1, .out = -1, .err = -1, .started = enc_mono () };
	struct stdio io = { .in = -1, .out = -1, .err = -1 };
	int rc = check (cmd, err);
	if (rc == 0 && (io.in = stdin_of (cmd, err)) < 0)
		rc = io.in;
	if (rc == 0)
		rc = output_to (cmd->out_fd, &io.out, &c.out, err);
	if (rc == 0)
		rc = output_to (cmd->err_fd, &io.err, &c.err, err);
	if (rc == 0)
		rc = fork_it (cmd, &io, &c, err);
	close_fd (&io.in);
	close_fd (&io.out);
	close_fd (&io.err);
	enc_buf_done (&cmd->in);
	if (rc < 0) {
		close_fd (&c.out);
		close_fd (&c.err);
		return rc;
	}
	c.deadline = enc_deadline_ms (cmd->ms);
	*ret = c;
	return 0;
}

static void drain_one (int *fd, struct enc_buf *to, bool *truncated)
{
	uint8_t chunk[8192];
	while (*fd >= 0) {
		ssize_t n = read (*fd, chunk, sizeof (chunk));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			close_fd (fd);
			return;
		}
		size_t room = to->max - to->len, take = (size_t) n < room ? (size_t) n : room;
		enc_buf_put (to, chunk, take);
		*truncated |= take < (size_t) n;
	}
}

void enc_child_drain (struct enc_child *c, struct enc_cmd_result *r)
{
	drain_one (&c->out, &r->out, &r->truncated);
	drain_one (&c->err, &r->err, &r->truncated);
}

void enc_child_kill (const struct enc_child *c)
{
	if (kill (-c->pid, SIGKILL) < 0)
		(void) kill (c->pid, SIGKILL);
}

void enc_child_reap (struct enc_child *c, struct enc_cmd_result *r)
{
	siginfo_t info = { 0 };
	/* Not reaped yet, so the number still is ours: whoever is left in the group goes with its leader. */
	enc_child_kill (c);
	while (waitid (P_PIDFD, (id_t) c->pidfd, &info, WEXITED) < 0 && errno == EINTR)
		;
	enc_child_drain (c, r);
	r->exit_status = info.si_code == CLD_EXITED ? info.si_status : -1;
	r->signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
	r->ns = enc_mono () - c->started;
	close_fd (&c->out);
	close_fd (&c->err);
	close_fd (&c->pidfd);
	c->pid = -1;
}

/* The last line that has something in it, for the error text. */
static void last_line (const struct enc_buf *b, char *out, size_t size)
{
	size_t end = b->len;
	while (end > 0 && (b->data[end - 1] == '\n' || b->data[end - 1] == ' '))
		end--;
	size_t from = end;
	while (from > 0 && b->data[from - 1] != '\n')
		from--;
	(void) snprintf (out, size, "%.*s", (int) (end - from < 200 ? end - from : 200), b->data ? (const char *) b->data + from : "");
	enc_auto_free char *safe = enc_text_printable (out);
	(void) snprintf (out, size, "%s", safe ? safe : "");
}

int enc_child_verdict (const struct enc_cmd *cmd, const struct enc_cmd_result *r, bool any_status, struct enc_error *err)
{
	const char *name = strrchr (cmd->path, '/') + 1;
	char line[256];
	last_line (&r->err, line, sizeof (line));
	if (r->timed_out)
		return enc_fail (err, ENC_ETIMEOUT, "%s did not end within %lld ms", name, (long long) cmd->ms);
	if (r->signal)
		return enc_fail (err, ENC_EFAILED, "%s was ended by signal %d%s%s", name, r->signal, line[0] ? ": " : "", line);
	if (r->exit_status != 0 && !any_status)
		return enc_fail (err, ENC_EFAILED, "%s failed with status %d%s%s", name, r->exit_status, line[0] ? ": " : "", line);
	return 0;
}
