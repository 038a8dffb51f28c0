/* Processes of this host, by /proc. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct enc_proc {
	pid_t pid, ppid;
	uid_t uid;         /* real; -1 unknown */
	bool kernel;       /* no user memory */
	uint32_t login;    /* audit session that it came from; UINT32_MAX none or unknown */
	char comm[16];
	char cgroup[512];  /* path in the service manager's hierarchy; "" unknown */
};

/* Call `fn` for every process but this one; a negative result stops. Processes that end meanwhile are passed over. */
typedef int (*enc_proc_fn) (const struct enc_proc *proc, void *arg);
int enc_procs_each (enc_proc_fn fn, void *arg, struct enc_error *err) ENC_MUST_USE;

/* The audit session of a process, which all that it starts keep, whatever they leave behind; UINT32_MAX when there is none. */
uint32_t enc_proc_login (pid_t pid);

/* SIGKILL to all processes that `match` takes, again and again until there is none, at most `ms`. `ret_n` counts those found at
 * first. ENC_ETIMEOUT when some do not go. */
typedef bool (*enc_proc_match_fn) (const struct enc_proc *proc, const void *arg);
int enc_procs_kill (enc_proc_match_fn match, const void *arg, int ms, size_t *ret_n, struct enc_error *err) ENC_MUST_USE;
size_t enc_procs_count (enc_proc_match_fn match, const void *arg);
