/* The families of this program, and the launcher of the agent. */
#include "node-agent/privd/family.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/peer.h"

#include "base/enc.h"

extern const struct enc_family enc_family_fence, enc_family_volume, enc_family_unit, enc_family_clean, enc_family_probe, enc_family_watch;

enum { AGENT_FD = 3 };

static void become_agent (const struct enc_privd_conf *conf, int fd)
{
	const char *const argv[] = { conf->agent, "--config", conf->agent_config, "--foreground", NULL };
	const char *const env[] = { "PATH=/usr/sbin:/usr/bin", "LANG=C.UTF-8", NULL };

	/* It must not outlive its launcher: a second one would speak for the same node. */
	(void)prctl (PR_SET_PDEATHSIG, SIGKILL);
	(void)signal (SIGPIPE, SIG_DFL);
	if (fd != AGENT_FD && dup2 (fd, AGENT_FD) < 0)
		_exit (126);
	(void)fcntl (AGENT_FD, F_SETFD, 0);
	if (close_range (AGENT_FD + 1, ~0U, 0) < 0)
		_exit (126);
	(void)execve (conf->agent, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
	_exit (127);
}

/* Start it; the main process sees its end by its socket. The agent drops to its own user itself, as every daemon does. */
static int task_agent (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	pid_t pid;

	while (waitpid (-1, NULL, WNOHANG) > 0)
		;
	if (task->fd < 0)
		return enc_fail (err, ENC_EINVAL, "agent: no socket came along");
	if ((pid = fork ()) < 0)
		return enc_fail_sys (err, "agent");
	if (pid == 0)
		become_agent (conf, task->fd);
	enc_json_set_u64 (evidence, "pid", (uint64_t)pid);
	return 0;
}

static const int launcher_caps[] = { CAP_SETUID, CAP_SETGID, CAP_SETPCAP, CAP_KILL, -1 };

static const struct enc_family launcher = {
	.name = "agent",
	.caps = launcher_caps,
	.no_seccomp = true, /* the agent puts on its own, which needs calls that this process does not */
	.tasks = { [ENC_JOB_AGENT] = task_agent },
};

const struct enc_family *const enc_families[] = {
	&enc_family_fence,
	&enc_family_volume,
	&enc_family_unit,
	&enc_family_clean,
	&enc_family_probe,
	&enc_family_watch,
	&launcher,
	NULL,
};
