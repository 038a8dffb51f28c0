/* enclave-schedd's ops towards its callers (protocol.md section 8). `nodes` and `health` are answered from memory, the rest by the worker. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/ipc_loop.h"
#include "base/str.h"
#include "controller/schedd/link.h"

struct enc_sched_serve;

struct enc_sched_serve_conf {
	bool enclave;           /* role: only the ops that an enclave's own scheduler needs */
	uint64_t refresh_ms;
	uint64_t call_timeout_ms;
	const struct enc_strs *callers; /* users; only they may connect */
};

/* `listen_fd` is taken over, also on failure. `link` is borrowed. */
struct enc_sched_serve *enc_sched_serve_new (struct event_base *base, int listen_fd, struct enc_sched_link *link,
					     const struct enc_sched_serve_conf *conf, struct enc_error *err) ENC_MUST_USE;
void enc_sched_serve_free (struct enc_sched_serve *serve);
