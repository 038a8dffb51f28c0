/* Which family tasks an order becomes, and what each of them makes true. Pure: works on the state in memory. */
#pragma once

#include "crypto/grant.h"
#include "node-agent/privd/family.h"
#include "node-agent/privd/spool.h"
#include "node-agent/privd/state.h"
#include "node-agent/proto/order.h"

struct enc_plan_step {
	uint8_t job, flags;
	bool keys;      /* the opened keys go along */
	int64_t ms;     /* deadline */
	uint64_t news;  /* which volumes of the document the claim was the first to name */
};

struct enc_plan {
	size_t n, at;
	struct enc_plan_step step[10];
};

/* The tasks of a verb that the gate let through. */
void enc_plan_order (struct enc_plan *plan, uint8_t verb, const struct enc_doc *doc, const struct enc_node_state *s);
/* The door alone; and everything down, the network first. */
void enc_plan_shut (struct enc_plan *plan);
void enc_plan_tighten (struct enc_plan *plan);

/* Before the first task: generation, document, pool and grant become the state's. `grant` is NULL for what only tightens. */
int enc_plan_accept (struct enc_node_state *s, uint8_t verb, const struct enc_doc *doc, struct enc_view bytes, const uint8_t digest[32],
	const struct enc_grant *grant, struct enc_error *err) ENC_MUST_USE;
/* The same for privd's own: only the pool changes. */
int enc_plan_tight (struct enc_node_state *s, const struct enc_doc *doc, struct enc_error *err) ENC_MUST_USE;

/* Before a task that brings something of the enclave up: the state counts it as up, and as unsure until the task has ended well. Whoever dies
 * in between finds it named when he comes back, and takes it down. 1: the state changed and is to be stored; 0; -code. */
int enc_plan_claim (struct enc_plan *plan, const struct enc_doc *doc, struct enc_node_state *s, struct enc_error *err) ENC_MUST_USE;

/* After the task at `at` ended with `task_rc` and evidence `found` (may be NULL). */
int enc_plan_commit (const struct enc_plan *plan, size_t at, int task_rc, const struct enc_doc *doc, const struct enc_json *found, struct enc_node_state *s,
	struct enc_spool *spool, struct enc_error *err) ENC_MUST_USE;

/* Does this verb, for this document, take that key? */
bool enc_plan_wants_key (uint8_t verb, const struct enc_doc *doc, const char *key);
