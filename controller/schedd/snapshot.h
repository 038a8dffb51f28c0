/* What the scheduler says at one moment, in plain structs, and the JSON that callers get of it. No libslurm in it, so that the rules
 * (when is a node free, does it take jobs, is it away, is it held by us) can be tested without a cluster. Times are Unix seconds. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/str.h"
#include "controller/schedd/lend.h"

/* Reservations of ours carry this in front of the caller's opaque name; no other is ever changed. */
#define ENC_SCHED_PREFIX "reserved_"
/* All that general users see of why a node is gone. An opaque id may follow after a blank. */
#define ENC_SCHED_REASON "reserved"

struct enc_sched_node {
	char *name;
	char *state;          /* Slurm's own words in lower case: "idle", "mixed+drain", "down*" */
	bool down, drained, failing, answering, powered, allocated;
	uint32_t cpus;
	uint64_t memory_mb;
	char *features, *gres, *partitions, *address, *reason; /* NULL: none */
	const char *reservation; /* Slurm's name, borrowed from the list of reservations; NULL: none now */
	bool held;               /* that reservation is ours */
	size_t *jobs;            /* indexes of the jobs that hold it */
	size_t jobs_n;
};

struct enc_sched_job {
	uint32_t id;
	char user[33];
	char *state;          /* "running", "pending", "completing" … */
	bool holds;           /* has nodes now, also while it ends */
	bool pending;
	bool ending;          /* its nodes are being cleared */
	int64_t start, end;   /* 0: none yet, or no limit */
	bool requeueable;
	uint32_t status;      /* as of wait(2), once it has ended */
	struct enc_strs nodes;
};

struct enc_sched_resv {
	char *name;
	int64_t start, end;
	struct enc_strs nodes;
};

struct enc_sched_snapshot {
	int64_t at;
	struct enc_sched_node *nodes; /* sorted by name */
	size_t nodes_n;
	struct enc_sched_job *jobs;
	size_t jobs_n;
	struct enc_sched_resv *resvs;
	size_t resvs_n;
};

void enc_sched_snapshot_done (struct enc_sched_snapshot *s);

/* Sort the nodes and fill what follows from the lists: reservation, held, jobs. */
int enc_sched_snapshot_link (struct enc_sched_snapshot *s, struct enc_error *err) ENC_MUST_USE;

/* NULL if there is no such node. Borrowed. */
const struct enc_sched_node *enc_sched_node_find (const struct enc_sched_snapshot *s, const char *name);
const struct enc_sched_job *enc_sched_job_find (const struct enc_sched_snapshot *s, uint32_t id);
const struct enc_sched_resv *enc_sched_resv_find (const struct enc_sched_snapshot *s, const char *name);

/* Takes new general jobs. */
bool enc_sched_schedulable (const struct enc_sched_node *node);
/* Gone from this scheduler: it does not answer (or was set down), and no job holds it. */
bool enc_sched_away (const struct enc_sched_node *node);
/* The reason is one that we set. */
bool enc_sched_reason_ours (const char *reason);
/* When the last of its jobs ends, at the latest: the snapshot's own time if it is free, 0 if nobody can say (a job without a limit, a node
 * that is down). A job past its end that still holds the node counts as ending now. */
int64_t enc_sched_free_at (const struct enc_sched_snapshot *s, const struct enc_sched_node *node);

/* Table for enc_lend_check; heap, caller frees; NULL when memory is short or there are no nodes. Names are borrowed. */
struct enc_lend_node *enc_sched_lend_nodes (const struct enc_sched_snapshot *s);

/* Arrays as protocol.md section 8 has them; the caller frees. Nodes come in pages that fit a frame: `from` is the index of the first one,
 * `ret_next` the first of the next page, or nodes_n after the last. */
struct enc_json *enc_sched_nodes_json (const struct enc_sched_snapshot *s, size_t from, size_t *ret_next) ENC_MUST_USE;
/* Jobs that hold one of `nodes` (NULL: all jobs, also pending and ended ones). */
struct enc_json *enc_sched_jobs_json (const struct enc_sched_snapshot *s, const struct enc_strs *nodes) ENC_MUST_USE;
/* {"running","pending","users":{USER:{"running","pending"}}} */
struct enc_json *enc_sched_counts_json (const struct enc_sched_snapshot *s) ENC_MUST_USE;
