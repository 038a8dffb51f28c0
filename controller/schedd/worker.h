/* The children of enclave-schedd.
 *
 *   enclave-schedd (libevent, socket, seccomp)  ── control ──  supervisor  ── fork ──  worker (libslurm)
 *                    └──────────────── one socketpair per worker ────────────────────────┘
 *
 * The supervisor is forked while everything may still be done; it starts a worker, hands the parent that worker's socket and pidfd,
 * and starts another one when it has ended. So the parent's own filter allows neither fork nor network, and a worker that hangs in or is
 * ended by libslurm costs one request. Both end when the parent does.
 *
 * On the worker's socket: the frames of base/ipc.h, one request, one answer. Requests are those of protocol.md section 8 and
 * `snapshot` {"since": serial, "from": index} → {"serial","changed","nodes","next": index|null}. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct enc_sched_worker_conf {
	const char *slurm_conf; /* NULL: Slurm's default */
	const char *lendable;
	bool enclave;           /* role enclave: no lendable list, all jobs are the enclave's */
};

/* Fork the supervisor; it becomes `uid`, `gid` if this process is root. `ret_control` is the parent's end, owned by the caller: on it come
 * frames {"pid"} with two descriptors, socket and pidfd of a new worker. Its end means that the supervisor is gone. */
int enc_sched_super_start (const struct enc_sched_worker_conf *conf, uid_t uid, gid_t gid, int *ret_control, struct enc_error *err) ENC_MUST_USE;

/* Serve requests on `fd` until it is closed. Returns the exit status. */
int enc_sched_worker_run (int fd, const struct enc_sched_worker_conf *conf);
