/* enclave-schedd: all calls to one slurmctld, for one caller. Roles (option --role):
 *   general   on the controller, as enclave-sched, Slurm's only Administrator: reads, reserves, drains lendable nodes
 *   enclave   on an enclave's scheduler node, as slurm: reads and ends jobs of that enclave
 * This process keeps the socket and the queue; libslurm is called by a child alone (worker.h). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/daemon.h"
#include "base/peer.h"
#include "controller/schedd/lend.h"
#include "controller/schedd/link.h"
#include "controller/schedd/serve.h"
#include "controller/schedd/worker.h"
#include "base/enc.h"

struct conf {
	char *socket;
	char *slurm_conf;
	char *lendable;
	struct enc_strs callers;
	uint64_t refresh_ms;
	uint64_t call_timeout_s;
};

static const struct enc_field fields[] = {
	ENC_FIELD (struct conf, socket, "socket", ENC_T_PATH, .dflt = "\"/run/enclave/schedd.sock\"", .help = "where callers connect"),
	ENC_FIELD (struct conf, slurm_conf, "slurm_conf", ENC_T_PATH, .help = "Slurm's configuration; by default Slurm's own place, or the enclave's"),
	ENC_FIELD (struct conf, lendable, "lendable", ENC_T_PATH, .dflt = "\"/etc/enclave/lendable\"", .help = "root-owned list of lendable nodes, with the floor"),
	ENC_FIELD (struct conf, callers, "callers", ENC_T_USERS, .max = 8, .help = "users that may call; by default enclave, or enclave-agent"),
	ENC_FIELD (struct conf, refresh_ms, "refresh_ms", ENC_T_U64, .min = 50, .max = 60000, .dflt = "1000", .help = "pause between two looks at the scheduler"),
	ENC_FIELD (struct conf, call_timeout_s, "call_timeout_s", ENC_T_DURATION, .min = 1, .max = 300, .dflt = "15", .help = "after this a call fails and the child is replaced"),
	ENC_FIELD_END
};

static struct state {
	struct conf conf;
	bool enclave;
	struct enc_sched_worker_conf worker;
	int listen_fd, control_fd;
	struct enc_sched_link *link;
	struct enc_sched_serve *serve;
} state = { .listen_fd = -1, .control_fd = -1 };

static const char *user_of_role (void)
{
	return state.enclave ? "slurm" : "enclave-sched";
}

static int check (struct enc_daemon *d ENC_UNUSED, struct enc_error *err)
{
	enc_auto_done (enc_lend_done) struct enc_lend lend = { 0 };
	struct conf *c = &state.conf;
	int rc;

	if (!c->callers.n && (rc = enc_strs_add (&c->callers, state.enclave ? "enclave-agent" : "enclave", err)) < 0)
		return rc;
	if (state.enclave && !c->slurm_conf && !(c->slurm_conf = enc_strdup ("/run/enclave/slurm/slurm.conf")))
		return enc_fail (err, ENC_ENOMEM, "no memory");
	if (state.enclave)
		return 0;
	/* Without a list nothing is lent, and reading still works; a wrong list is not started with. */
	rc = enc_lend_load (c->lendable, &lend, err);
	if (rc == -ENC_ENOTFOUND) {
		enc_error_clear (err);
		return 0;
	}
	return rc;
}

static int open_all (struct enc_daemon *d ENC_UNUSED, struct enc_error *err)
{
	uid_t uid = geteuid (), caller;
	gid_t gid = getegid (), caller_group;
	int rc;

	if (uid == 0 && (rc = enc_uid_of_user (user_of_role (), &uid, &gid, err)) < 0)
		return rc;
	if ((rc = enc_uid_of_user (state.conf.callers.v[0], &caller, &caller_group, err)) < 0)
		return rc;
	if ((rc = enc_unix_listen (state.conf.socket, 0660, uid, caller_group, err)) < 0)
		return rc;
	state.listen_fd = rc;
	state.worker = (struct enc_sched_worker_conf){ .slurm_conf = state.conf.slurm_conf, .lendable = state.conf.lendable, .enclave = state.enclave };
	return enc_sched_super_start (&state.worker, uid, gid, &state.control_fd, err);
}

static void on_lost (void *arg)
{
	enc_daemon_quit (arg, ENC_EFAILED);
}

static int start (struct enc_daemon *d, struct enc_error *err)
{
	struct enc_sched_serve_conf conf = { .enclave = state.enclave,
					     .refresh_ms = state.conf.refresh_ms,
					     .call_timeout_ms = state.conf.call_timeout_s * 1000,
					     .callers = &state.conf.callers };

	state.link = enc_sched_link_new (enc_daemon_base (d), ENC_TAKE_FD (state.control_fd), on_lost, d, err);
	if (!state.link)
		return -err->code;
	state.serve = enc_sched_serve_new (enc_daemon_base (d), ENC_TAKE_FD (state.listen_fd), state.link, &conf, err);
	return state.serve ? 0 : -err->code;
}

/* Slurm's configuration may have changed: the next worker reads it. */
static void reload (struct enc_daemon *d ENC_UNUSED)
{
	enc_sched_link_restart (state.link);
}

static void stop (struct enc_daemon *d ENC_UNUSED)
{
	enc_sched_serve_free (ENC_TAKE (state.serve));
	enc_sched_link_free (ENC_TAKE (state.link));
}

/* The role decides the user, and that must be known before the common main starts. */
static const char *role_of (int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (enc_streq (argv[i], "--role") && i + 1 < argc)
			return argv[i + 1];
		if (enc_starts (argv[i], "--role="))
			return argv[i] + sizeof "--role=" - 1;
	}
	return "general";
}

int main (int argc, char **argv)
{
	static const char *const syscalls[] = { "pidfd_send_signal", NULL };
	static const struct enc_daemon_option options[] = { { "role", "general (default) or enclave" }, { 0 } };
	struct enc_daemon_spec spec = { .name = "enclave-schedd",
					.summary = "calls a Slurm controller on behalf of one caller",
					.fields = fields,
					.conf = &state.conf,
					.options = options,
					.syscalls = syscalls,
					.check = check,
					.open = open_all,
					.start = start,
					.reload = reload,
					.stop = stop };
	const char *role = role_of (argc, argv);

	if (enc_streq (role, "enclave")) {
		state.enclave = true;
		spec.config = "/etc/enclave/schedd-enclave.json";
	} else if (!enc_streq (role, "general")) {
		(void) fprintf (stderr, "enclave-schedd: --role is general or enclave\n");
		return ENC_EUSAGE;
	}
	spec.user = user_of_role ();
	return enc_daemon_main (&spec, argc, argv);
}
