/* The allow list of a libevent daemon. What is not listed ends the process: a daemon that wants something new says so in its spec. */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <sys/socket.h>
#include "base/harden.h"
#include "base/enc.h"

static const char *const common[] = {
	/* memory and the C library */
	"brk", "mmap", "munmap", "mremap", "mprotect", "madvise", "mlock", "mlock2", "munlock", "mincore", "futex", "rseq", "set_robust_list",
	"get_robust_list", "set_tid_address", "arch_prctl", "prctl", "getrandom", "membarrier", "sysinfo", "uname", "restart_syscall", "memfd_create",
	"sched_yield", "sched_getaffinity", "getcpu", "gettid",
	/* files */
	"read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2", "open", "openat", "openat2", "close", "close_range", "lseek",
	"stat", "lstat", "fstat", "newfstatat", "statx", "statfs", "fstatfs", "access", "faccessat", "faccessat2", "fcntl", "flock", "ioctl", "dup", "dup2",
	"dup3", "ftruncate", "fallocate", "fsync", "fdatasync", "sync_file_range", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir",
	"link", "linkat", "readlink", "readlinkat", "fchmod", "fchmodat", "fchown", "fchownat", "chmod", "chown", "umask", "utimensat", "getdents64", "getcwd", "chdir", "fchdir", "pipe", "pipe2",
	"copy_file_range", "sendfile",
	/* waiting and time */
	"epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6", "eventfd2", "timerfd_create",
	"timerfd_settime", "timerfd_gettime", "clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday", "time", "times", "getitimer", "setitimer",
	"alarm", "pause", "signalfd4", "inotify_init1", "inotify_add_watch", "inotify_rm_watch",
	/* signals, identity, end */
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigsuspend", "rt_sigtimedwait", "sigaltstack", "kill", "tgkill", "tkill", "getpid", "getppid", "getpgrp", "getpgid", "getsid",
	"getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid", "getgroups", "capget", "getrlimit", "prlimit64", "getrusage", "exit", "exit_group",
	/* sockets that are there; making them is below */
	"bind", "listen", "accept", "accept4", "connect", "getsockname", "getpeername", "getsockopt", "setsockopt", "sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg",
	"recvmmsg", "shutdown", "socketpair", NULL
};

static const char *const children[] = {
	"fork", "vfork", "clone", "clone3", "execve", "execveat", "wait4", "waitid", "pidfd_open", "pidfd_send_signal", "setpgid", "setsid", "setgroups", "setresuid",
	"setresgid", "setuid", "setgid", "setreuid", "setregid", "setrlimit", "seccomp", "capset", "setfsuid", "setfsgid", "chroot", "getpriority", "setpriority", NULL
};

static int allow (scmp_filter_ctx ctx, const char *const *names)
{
	for (; names && *names; names++) {
		int nr = seccomp_syscall_resolve_name (*names);
		if (nr == __NR_SCMP_ERROR || nr < 0)
			continue; /* not on this architecture */
		int rc = seccomp_rule_add (ctx, SCMP_ACT_ALLOW, nr, 0);
		if (rc < 0 && rc != -EEXIST)
			return rc;
	}
	return 0;
}

/* Without ENC_SC_NETWORK only Unix sockets can be made; other families are refused with an errno, because libraries try them. */
static int allow_sockets (scmp_filter_ctx ctx, unsigned flags)
{
	int nr = SCMP_SYS (socket);
	if (flags & ENC_SC_NETWORK)
		return seccomp_rule_add (ctx, SCMP_ACT_ALLOW, nr, 0);
	int rc = seccomp_rule_add (ctx, SCMP_ACT_ALLOW, nr, 1, SCMP_A0 (SCMP_CMP_EQ, AF_UNIX));
	if (rc == 0)
		rc = seccomp_rule_add (ctx, SCMP_ACT_ERRNO (EAFNOSUPPORT), nr, 1, SCMP_A0 (SCMP_CMP_NE, AF_UNIX));
	return rc;
}

int enc_seccomp_apply (unsigned flags, const char *const *more, struct enc_error *err)
{
	scmp_filter_ctx ctx = seccomp_init (flags & ENC_SC_LOG_ONLY ? SCMP_ACT_LOG : SCMP_ACT_KILL_PROCESS);
	if (!ctx)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	int rc = allow (ctx, common);
	if (rc == 0 && flags & ENC_SC_CHILDREN)
		rc = allow (ctx, children);
	if (rc == 0)
		rc = allow (ctx, more);
	if (rc == 0)
		rc = allow_sockets (ctx, flags);
	if (rc == 0)
		rc = seccomp_load (ctx);
	seccomp_release (ctx);
	if (rc == 0)
		return 0;
	errno = -rc;
	return enc_fail_sys (err, "system call filter");
}
