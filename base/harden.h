/* Giving up rights, and proving that they are gone. Library enc_loop. Used by the daemons' main and by privd's children. */
#ifndef ENC_BASE_HARDEN_H
#define ENC_BASE_HARDEN_H

#include <stdbool.h>
#include <sys/types.h>
#include "base/error.h"

/* RLIMIT_CORE 0, not dumpable (no ptrace by the same uid, /proc/self owned by root), umask 077, no_new_privs. */
ENC_MUST_USE int enc_harden_process (struct enc_error *err);

/* Become uid and gid (no supplementary groups) with exactly `caps` (ended by -1; NULL: none) in the effective, permitted and
 * bounding set, nothing in inheritable and ambient. Then prove it: all ids read back, setuid(0) refused, capabilities read back
 * from the kernel. ENC_EDENIED if anything is left. `uid` 0 keeps root with those capabilities only. */
ENC_MUST_USE int enc_drop_to (uid_t uid, gid_t gid, const int *caps, struct enc_error *err);
/* Proof alone: this process runs as uid, gid with those capabilities and no more. */
ENC_MUST_USE int enc_drop_check (uid_t uid, gid_t gid, const int *caps, struct enc_error *err);

/* This process holds no capability, effective or permitted. */
ENC_MUST_USE int enc_caps_none (struct enc_error *err);

enum {
	ENC_SC_CHILDREN = 1, /* fork, exec, wait */
	ENC_SC_NETWORK = 2,  /* sockets other than AF_UNIX */
	ENC_SC_LOG_ONLY = 4  /* refused calls are logged by the kernel instead of killing the process */
};
/* Allow the common list of a libevent daemon and `more` (names, ended by NULL; unknown on this architecture = ignored); the rest
 * kills the process. Cannot be taken back and passes to children. */
ENC_MUST_USE int enc_seccomp_apply (unsigned flags, const char *const *more, struct enc_error *err);

#endif
