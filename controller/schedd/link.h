/* The event loop's side of the worker (worker.h): one call at a time, in order, each with a deadline.
 *
 * A call that passes its deadline costs the worker its life: the library may hang for ever. Nothing is sent twice. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"

struct event_base;
struct enc_sched_link;

/* rc 0 and the answer (borrowed), or a negative code and `err`:
 * ENC_ETIMEOUT the deadline passed (if it was being worked on, whether it happened is unknown), ENC_EUNAVAIL the worker ended during the call
 * (unknown likewise) or none came up in time, or what the worker says. */
typedef void enc_sched_done_fn (int rc, struct enc_json *answer, const struct enc_error *err, void *arg);
/* The supervisor is gone: no worker will ever come. */
typedef void enc_sched_lost_fn (void *arg);

struct enc_sched_link_stat {
	bool up;          /* a worker is there */
	unsigned started; /* workers so far */
	unsigned killed;  /* of them, by us for a deadline */
	unsigned waiting; /* calls in the queue */
};

/* `control` is of enc_sched_super_start(); taken over, also on failure. */
struct enc_sched_link *enc_sched_link_new (struct event_base *base, int control, enc_sched_lost_fn *lost, void *arg,
					   struct enc_error *err) ENC_MUST_USE;
/* Waiting calls end with ENC_ECANCELED, from within. */
void enc_sched_link_free (struct enc_sched_link *link);

/* `request` is taken over. The callback comes exactly once, never from within, unless a negative code is returned (queue full, memory). */
int enc_sched_link_call (struct enc_sched_link *link, struct enc_json *request, int64_t timeout_ms, enc_sched_done_fn *done, void *arg,
			 struct enc_error *err) ENC_MUST_USE;

/* End the worker; the next one reads Slurm's configuration afresh. */
void enc_sched_link_restart (struct enc_sched_link *link);
struct enc_sched_link_stat enc_sched_link_stat (const struct enc_sched_link *link);
