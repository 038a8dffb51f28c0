/* The common main of all daemons. Library enc_loop.
 *
 *   int main (int argc, char **argv) { return enc_daemon_main (&spec, argc, argv); }
 *
 * Order: options → config by field table → (--check-config prints the effective one and ends) → `open` (still as started: open
 * sockets, files, locked memory) → limits, no core files, not dumpable → drop to the user with the listed capabilities and *prove*
 * it → no new privileges, seccomp allow list → `start` → sd_notify READY → loop until SIGTERM or SIGINT → STOPPING → `stop`.
 * SIGHUP calls `reload` if there is one. The watchdog of systemd is served when asked for.
 *
 * Options: --config FILE (default /etc/enclave/<name>.json) · --check-config · --foreground (log to stderr also under systemd; do
 * not change the user when not started as root) · --log-level L · --version · --help, and the daemon's own.
 * Exit status by enc_code_exit. */
#ifndef ENC_BASE_DAEMON_H
#define ENC_BASE_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"
#include "base/fields.h"

struct event_base;
struct enc_daemon;

/* An option of the daemon's own: "--name VALUE" (all take a value). */
struct enc_daemon_option {
	const char *name;
	const char *help;
};

enum {
	ENC_D_KEEP_ROOT = 1,     /* stays uid 0 with exactly `caps` (privd and its kin) */
	ENC_D_CHILDREN = 2,      /* runs programs: fork and exec pass the filter */
	ENC_D_NO_SECCOMP = 4,    /* for parents of other people's programs, and libraries that cannot be listed; say why in a comment */
	ENC_D_NO_CONFIG = 8,     /* has no config file; `conf` is what the owner gave */
	ENC_D_NETWORK = 16,      /* AF_INET and AF_INET6 sockets; else only AF_UNIX (and what was opened before) */
	ENC_D_KEEP_USER = 32     /* does not change the user at all (the unit did) */
};

struct enc_daemon_spec {
	const char *name;                /* "enclave-auditd" */
	const char *summary;             /* one line for --help */
	const char *config;              /* default file; NULL: /etc/enclave/<name without "enclave-">.json */
	const struct enc_field *fields;  /* of the config */
	void *conf;                      /* struct filled from it; lives as long as the process */
	const struct enc_daemon_option *options; /* ended by name NULL; may be NULL */
	const char *user;                /* to run as; config key "user" does not exist on purpose */
	const int *caps;                 /* CAP_*, ended by -1; NULL: none */
	const char *const *syscalls;     /* added to the common allow list, ended by NULL; may be NULL */
	unsigned flags;
	int (*check) (struct enc_daemon *d, struct enc_error *err);  /* more than the table can say; also under --check-config */
	int (*open) (struct enc_daemon *d, struct enc_error *err);
	int (*start) (struct enc_daemon *d, struct enc_error *err);
	void (*reload) (struct enc_daemon *d);
	void (*stop) (struct enc_daemon *d);
	void *arg;
};

int enc_daemon_main (const struct enc_daemon_spec *spec, int argc, char **argv);

struct event_base *enc_daemon_base (struct enc_daemon *d);
void *enc_daemon_conf (struct enc_daemon *d);
void *enc_daemon_arg (struct enc_daemon *d);
/* Value of an own option, NULL if not given. */
const char *enc_daemon_option (struct enc_daemon *d, const char *name);
bool enc_daemon_foreground (struct enc_daemon *d);
/* Leave the loop; `rc` becomes the exit status. */
void enc_daemon_quit (struct enc_daemon *d, int rc);
/* sd_notify STATUS=, and fd store (FDSTORE=1 with a name); without systemd they do nothing. */
void enc_daemon_status (const char *fmt, ...) ENC_PRINTF (1, 2);
ENC_MUST_USE int enc_daemon_store_fd (const char *name, int fd, struct enc_error *err);
/* A descriptor passed by systemd under that name (socket activation or fd store), or -1. Yours from then on. */
int enc_daemon_take_fd (const char *name);

#endif
