#include "plugins/spank/isolate.h"

#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/str.h"

#include "base/enc.h"

static int cover (const char *what, const char *at, struct enc_error *err)
{
	if (mount (what, at, NULL, MS_BIND, NULL) < 0)
		return enc_fail_sys (err, "private %s", at);
	if (mount (NULL, at, NULL, MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV, NULL) < 0)
		return enc_fail_sys (err, "private %s", at);
	return 0;
}

static int own_mounts (const struct enc_client_conf *conf, uint32_t job, struct enc_error *err)
{
	enc_auto_free char *tmp = enc_strf ("%s/.jobs/%u", conf->scratch, job), *shm = enc_strf ("%s/%u/shm", conf->jobs, job);
	int rc;

	if (!tmp || !shm)
		return enc_fail (err, ENC_ENOMEM, "isolate: no memory");
	if (unshare (CLONE_NEWNS) < 0)
		return enc_fail_sys (err, "a mount namespace for the task");
	/* A volume that is closed on the node goes away here too; nothing mounted here shows on the node. */
	if (mount (NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return enc_fail_sys (err, "a mount namespace for the task");
	if ((rc = cover (tmp, "/var/tmp", err)) < 0 || (rc = cover (tmp, "/tmp", err)) < 0 || (rc = cover (shm, "/dev/shm", err)) < 0)
		return rc;
	if (mount ("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=invisible") < 0)
		return enc_fail_sys (err, "private /proc");
	return 0;
}

/* The working folder was chosen before /tmp became another one. */
static int stand_again (const char *cwd, struct enc_error *err)
{
	return chdir (cwd) == 0 || chdir ("/") == 0 ? 0 : enc_fail_sys (err, "the working folder");
}

static int own_network (struct enc_error *err)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	enc_auto_close int fd = -1;

	if (unshare (CLONE_NEWNET) < 0 || (fd = socket (AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0)
		return enc_fail_sys (err, "a network namespace for the task");
	/* Without loopback not even the processes of one node find each other. */
	return ioctl (fd, SIOCSIFFLAGS, &lo) < 0 ? enc_fail_sys (err, "loopback") : 0;
}

static int no_leftovers (struct enc_error *err)
{
	const struct rlimit none = { 0, 0 };
	int rc;

	/* A core handler behind a pipe ignores the limit; the filter leaves it nothing to write, and survives exec. */
	if (setrlimit (RLIMIT_CORE, &none) < 0)
		return enc_fail_sys (err, "no core files");
	if ((rc = enc_sys_write ("/proc/self/coredump_filter", "0", err)) < 0)
		return rc;
	return prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? enc_fail_sys (err, "no new privileges") : 0;
}

int enc_isolate (const struct enc_client_conf *conf, uint32_t job, bool no_network, struct enc_error *err)
{
	char cwd[PATH_MAX];
	int rc;

	if (!getcwd (cwd, sizeof cwd))
		(void)snprintf (cwd, sizeof cwd, "/");
	if ((rc = own_mounts (conf, job, err)) < 0 || (rc = stand_again (cwd, err)) < 0)
		return rc;
	if (no_network && (rc = own_network (err)) < 0)
		return rc;
	return no_leftovers (err);
}
