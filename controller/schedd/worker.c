/* The worker: decodes a request, decides by what Slurm says now and by the root-owned list, acts, answers. See worker.h.
 *
 * Every op is idempotent: it compares what is with what shall be, and is content when they are equal. The lendable list is read again for
 * each act, so that a change by root counts at once. One worker serves one request at a time: no two acts race for the floor. */
#include "controller/schedd/worker.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/fields.h"
#include "base/hostlist.h"
#include "base/ipc.h"
#include "base/log.h"
#include "base/point.h"
#include "controller/schedd/slurm_link.h"
#include "base/enc.h"

enum { NAME_MAX_LEN = 40, NODES_MAX = 5000, IDLE_S = 3600 };

struct worker {
	const struct enc_sched_worker_conf *conf;
	struct enc_slurm *slurm;
	const struct enc_sched_snapshot *now;
	uint64_t serial;
};

struct args {
	char *op;
	char *name;
	char *node;
	struct enc_strs nodes;
	char *reason;
	int64_t end_time; /* ns */
	uint64_t job;
	int how;
	bool mark;
	uint64_t since, from;
};

enum how { HOW_REQUEUE, HOW_CANCEL };
static const char *const how_names[] = { "requeue", "cancel", NULL };

#define F_OP ENC_FIELD (struct args, op, "op", ENC_T_STR, .flags = ENC_REQUIRED)
#define F_NAME ENC_FIELD (struct args, name, "name", ENC_T_STR, .flags = ENC_REQUIRED | ENC_NONEMPTY, .max = NAME_MAX_LEN)
#define F_NODE ENC_FIELD (struct args, node, "node", ENC_T_NODE, .flags = ENC_REQUIRED)
#define F_REASON ENC_FIELD (struct args, reason, "reason", ENC_T_TEXT, .max = NAME_MAX_LEN)

static const struct enc_field snapshot_fields[] = { F_OP, ENC_FIELD (struct args, since, "since", ENC_T_U64),
						      ENC_FIELD (struct args, from, "from", ENC_T_U64, .max = 1000000), ENC_FIELD_END };
static const struct enc_field reserve_fields[] = {
	F_OP, F_NAME, ENC_FIELD (struct args, nodes, "nodes", ENC_T_NODES, .flags = ENC_REQUIRED | ENC_NONEMPTY, .max = NODES_MAX),
	ENC_FIELD (struct args, end_time, "end_time", ENC_T_TIME, .flags = ENC_REQUIRED), ENC_FIELD_END };
static const struct enc_field release_fields[] = { F_OP, F_NAME, ENC_FIELD_END };
static const struct enc_field drain_fields[] = { F_OP, F_NODE, F_REASON, ENC_FIELD_END };
static const struct enc_field away_fields[] = { F_OP, F_NODE, ENC_FIELD (struct args, mark, "mark", ENC_T_BOOL), ENC_FIELD_END };
static const struct enc_field jobs_fields[] = { F_OP, ENC_FIELD (struct args, nodes, "nodes", ENC_T_NODES, .max = NODES_MAX), ENC_FIELD_END };
static const struct enc_field end_fields[] = {
	F_OP, ENC_FIELD (struct args, job, "job", ENC_T_U64, .flags = ENC_REQUIRED, .min = 1, .max = UINT32_MAX),
	ENC_FIELD (struct args, how, "how", ENC_T_ENUM, .flags = ENC_REQUIRED, .names = how_names), ENC_FIELD_END };

/* ---- what several ops share ---- */

static int load (struct worker *w, struct enc_error *err)
{
	return enc_slurm_load (w->slurm, &w->now, &w->serial, err);
}

/* The Slurm name of a caller's reservation. */
static char *full_name (const char *name, struct enc_error *err)
{
	char *full;

	for (const char *c = name; *c; c++)
		if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '-')) {
			enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/name: only a-z, 0-9 and '-'"), "/name");
			return NULL;
		}
	if (!(full = enc_strf (ENC_SCHED_PREFIX "%s", name)))
		enc_fail (err, ENC_ENOMEM, "no memory");
	return full;
}

/* Apply the root-owned list to `want`; `taking` applies the floor too. */
static int may_touch (struct worker *w, const struct enc_strs *want, bool taking, struct enc_error *err)
{
	enc_auto_done (enc_lend_done) struct enc_lend lend = { 0 };
	enc_auto_free struct enc_lend_node *nodes = NULL;
	int rc;

	nodes = enc_sched_lend_nodes (w->now);
	if (!nodes && w->now->nodes_n)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	rc = enc_lend_load (w->conf->lendable, &lend, err);
	if (rc == -ENC_ENOTFOUND) /* no list: nothing is lent, which is a refusal and not an unknown node */
		return err ? -(err->code = ENC_EDENIED) : -ENC_EDENIED;
	if (rc < 0)
		return rc;
	return taking ? enc_lend_check (&lend, nodes, w->now->nodes_n, want, err) :
			enc_lend_listed (&lend, nodes, w->now->nodes_n, want, err);
}

/* Load, find the node, apply the list to it. */
static int open_node (struct worker *w, const char *name, const struct enc_sched_node **ret, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs one = { 0 };
	int rc;

	if ((rc = load (w, err)) < 0 || (rc = enc_strs_add (&one, name, err)) < 0 || (rc = may_touch (w, &one, false, err)) < 0)
		return rc;
	*ret = enc_sched_node_find (w->now, name);
	return 0;
}

static int check_floor (struct worker *w, const char *node, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs one = { 0 };
	int rc;

	if ((rc = enc_strs_add (&one, node, err)) < 0)
		return rc;
	return may_touch (w, &one, true, err);
}

/* ---- ops ---- */

static int op_snapshot (struct worker *w, const struct args *a, struct enc_json *out, struct enc_error *err)
{
	size_t next;
	int rc = 0;

	/* Later pages are of the same state as the first. */
	if ((a->from == 0 || !w->now) && (rc = load (w, err)) < 0)
		return rc;
	enc_json_set_u64 (out, "serial", w->serial);
	enc_json_set_bool (out, "changed", w->serial != a->since);
	if (w->serial == a->since)
		return 0;
	enc_json_set (out, "nodes", enc_sched_nodes_json (w->now, a->from, &next));
	if (next < w->now->nodes_n)
		enc_json_set_u64 (out, "next", next);
	return 0;
}

static bool same_nodes (const struct enc_strs *a, const struct enc_strs *b)
{
	for (size_t i = 0; i < a->n; i++)
		if (!enc_strs_has (b, a->v[i]))
			return false;
	for (size_t i = 0; i < b->n; i++)
		if (!enc_strs_has (a, b->v[i]))
			return false;
	return true;
}

static int not_held_elsewhere (struct worker *w, const struct enc_strs *nodes, const char *full, struct enc_error *err)
{
	for (size_t i = 0; i < nodes->n; i++) {
		const struct enc_sched_node *node = enc_sched_node_find (w->now, nodes->v[i]);

		if (node && node->reservation && !enc_streq (node->reservation, full))
			return enc_error_object (err, enc_fail (err, ENC_ECONFLICT, "node %s is held by another reservation", node->name), "%s",
						 node->name);
	}
	return 0;
}

static int op_reserve (struct worker *w, const struct args *a, struct enc_json *out ENC_UNUSED, struct enc_error *err)
{
	enc_auto_free char *full = full_name (a->name, err);
	enc_auto_free char *list = NULL;
	const struct enc_sched_resv *have;
	int64_t end = a->end_time / ENC_NS_S;
	int rc;

	if (!full)
		return -err->code;
	if (end <= enc_now_s ())
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/end_time: is in the past"), "/end_time");
	if ((rc = load (w, err)) < 0 || (rc = may_touch (w, &a->nodes, true, err)) < 0 ||
	    (rc = not_held_elsewhere (w, &a->nodes, full, err)) < 0)
		return rc;
	have = enc_sched_resv_find (w->now, full);
	if (have && have->end == end && same_nodes (&have->nodes, &a->nodes))
		return 0;
	if (!(list = enc_hostlist_compress (&a->nodes)))
		return enc_fail (err, ENC_ENOMEM, "no memory");
	return enc_slurm_reserve (full, list, end, have != NULL, err);
}

static int op_release (ENC_UNUSED struct worker *w, const struct args *a, struct enc_json *out ENC_UNUSED, struct enc_error *err)
{
	enc_auto_free char *full = full_name (a->name, err);

	if (!full)
		return -err->code;
	/* Slurm itself knows whether it is there; what we loaded may be of before. */
	return enc_slurm_release (full, err);
}

static int drained_by_site (const struct enc_sched_node *node, struct enc_error *err)
{
	return enc_error_object (err,
				 enc_error_next (err, enc_fail (err, ENC_ECONFLICT, "node %s was drained by the site: %.80s", node->name,
								node->reason ? node->reason : "no reason given"),
						 "scontrol update nodename=%s state=resume, when it is well", node->name),
				 "%s", node->name);
}

static int op_drain (struct worker *w, const struct args *a, struct enc_json *out ENC_UNUSED, struct enc_error *err)
{
	const struct enc_sched_node *node;
	int rc;

	if (a->reason && !enc_sched_reason_ours (a->reason))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/reason: must read \"" ENC_SCHED_REASON "\", an opaque id may follow"),
					  "/reason");
	if ((rc = open_node (w, a->node, &node, err)) < 0)
		return rc;
	if (node->drained)
		return enc_sched_reason_ours (node->reason) ? 0 : drained_by_site (node, err);
	if ((rc = check_floor (w, a->node, err)) < 0)
		return rc;
	return enc_slurm_set_state (a->node, ENC_SLURM_DRAIN, a->reason ? a->reason : ENC_SCHED_REASON, err);
}

static int op_resume (struct worker *w, const struct args *a, struct enc_json *out ENC_UNUSED, struct enc_error *err)
{
	const struct enc_sched_node *node;
	int rc = open_node (w, a->node, &node, err);

	if (rc < 0)
		return rc;
	if (!node->drained && !node->down)
		return 0;
	if (enc_sched_reason_ours (node->reason))
		return enc_slurm_set_state (a->node, ENC_SLURM_RESUME, NULL, err);
	if (node->drained)
		return drained_by_site (node, err);
	return enc_error_object (err,
				 enc_error_next (err, enc_fail (err, ENC_EBUSY, "node %s is down: %.80s", node->name,
								node->reason ? node->reason : "no reason given"),
						 "systemctl status slurmd on it"),
				 "%s", node->name);
}

/* slurmctld itself needs a SlurmdTimeout to notice that a slurmd has left; `mark` says it at once. */
static int mark_away (const struct enc_sched_node *node, struct enc_error *err)
{
	if (!node->drained || !enc_sched_reason_ours (node->reason))
		return enc_error_object (err, enc_fail (err, ENC_ECONFLICT, "node %s was not drained for us", node->name), "%s", node->name);
	if (node->allocated || node->jobs_n)
		return enc_error_object (err, enc_fail (err, ENC_EBUSY, "node %s still has %zu jobs", node->name, node->jobs_n), "%s", node->name);
	return node->down ? 0 : enc_slurm_set_state (node->name, ENC_SLURM_DOWN, node->reason, err);
}

static int op_away (struct worker *w, const struct args *a, struct enc_json *out, struct enc_error *err)
{
	const struct enc_sched_node *node;
	int rc = open_node (w, a->node, &node, err);

	if (rc < 0)
		return rc;
	if (a->mark) {
		if ((rc = mark_away (node, err)) < 0 || (rc = load (w, err)) < 0)
			return rc;
		node = enc_sched_node_find (w->now, a->node);
	}
	enc_json_set_bool (out, "away", node && enc_sched_away (node));
	return 0;
}

static int op_jobs (struct worker *w, const struct args *a, struct enc_json *out, struct enc_error *err)
{
	int rc = load (w, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < a->nodes.n; i++)
		if (!enc_sched_node_find (w->now, a->nodes.v[i]))
			return enc_error_object (err, enc_fail (err, ENC_ENOTFOUND, "Slurm has no node %s", a->nodes.v[i]), "%s", a->nodes.v[i]);
	if (!a->nodes.n && !w->conf->enclave)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/nodes: must name at least one node"), "/nodes");
	if (w->conf->enclave)
		enc_json_set (out, "counts", enc_sched_counts_json (w->now));
	enc_json_set (out, "jobs", enc_sched_jobs_json (w->now, a->nodes.n ? &a->nodes : NULL));
	return 0;
}

/* In the general cluster only jobs on nodes that are being taken may be ended: listed, and held or drained by us. */
static int may_end (struct worker *w, const struct enc_sched_job *job, struct enc_error *err)
{
	enc_auto_done (enc_lend_done) struct enc_lend lend = { 0 };
	int rc = enc_lend_load (w->conf->lendable, &lend, err);

	if (rc < 0)
		return rc == -ENC_ENOTFOUND && err ? -(err->code = ENC_EDENIED) : rc;
	for (size_t i = 0; i < job->nodes.n; i++) {
		const struct enc_sched_node *node = enc_sched_node_find (w->now, job->nodes.v[i]);

		if (node && enc_strs_has (&lend.nodes, node->name) &&
		    (node->held || (node->drained && enc_sched_reason_ours (node->reason))))
			return 0;
	}
	return enc_fail (err, ENC_EDENIED, "job %u holds no node that is being taken", job->id);
}

static int op_end (struct worker *w, const struct args *a, struct enc_json *out ENC_UNUSED, struct enc_error *err)
{
	const struct enc_sched_job *job;
	int rc = load (w, err);

	if (rc < 0)
		return rc;
	if (!(job = enc_sched_job_find (w->now, (uint32_t) a->job)))
		return enc_fail (err, ENC_ENOTFOUND, "Slurm has no job %llu", (unsigned long long) a->job);
	if (job->ending || (!job->holds && !(w->conf->enclave && job->pending)))
		return 0;
	if (!w->conf->enclave && (rc = may_end (w, job, err)) < 0)
		return rc;
	if (a->how == HOW_REQUEUE && !job->requeueable)
		return enc_error_next (err, enc_fail (err, ENC_ECONFLICT, "job %u cannot be requeued", job->id), "cancel it, or wait for its end");
	return enc_slurm_end (job->id, a->how == HOW_REQUEUE, err);
}

/* ---- the loop ---- */

enum { BOTH = 0, GENERAL_ONLY = 1 };

static const struct op {
	const char *name;
	const struct enc_field *fields;
	int (*run) (struct worker *w, const struct args *a, struct enc_json *out, struct enc_error *err);
	int roles;
	const char *point, *done_point;
} ops[] = {
	{ "snapshot", snapshot_fields, op_snapshot, BOTH, "schedd.snapshot", "schedd.snapshot.done" },
	{ "reserve", reserve_fields, op_reserve, GENERAL_ONLY, "schedd.reserve", "schedd.reserve.done" },
	{ "release", release_fields, op_release, GENERAL_ONLY, "schedd.release", "schedd.release.done" },
	{ "drain", drain_fields, op_drain, GENERAL_ONLY, "schedd.drain", "schedd.drain.done" },
	{ "resume", drain_fields, op_resume, GENERAL_ONLY, "schedd.resume", "schedd.resume.done" },
	{ "away", away_fields, op_away, GENERAL_ONLY, "schedd.away", "schedd.away.done" },
	{ "jobs", jobs_fields, op_jobs, BOTH, "schedd.jobs", "schedd.jobs.done" },
	{ "end", end_fields, op_end, BOTH, "schedd.end", "schedd.end.done" },
};

static int run_op (struct worker *w, const struct op *op, const struct enc_json *request, struct enc_json *out, struct enc_error *err)
{
	struct args args = { 0 };
	int rc;

	if ((rc = enc_json_decode (op->fields, request, &args, err)) < 0)
		return rc;
	if ((rc = enc_point (op->point, err)) == 0 && (rc = op->run (w, &args, out, err)) == 0)
		rc = enc_point (op->done_point, err);
	enc_fields_done (op->fields, &args);
	return rc;
}

static struct enc_json *answer (struct worker *w, const struct enc_json *request)
{
	const char *name = enc_json_get_str (request, "op", "");
	struct enc_json *out = enc_json_object ();
	struct enc_error err = { 0 };
	int rc = enc_fail (&err, ENC_EUSAGE, "no such op");

	enc_json_set_bool (out, "ok", true);
	for (size_t i = 0; i < ENC_ARRAY_LEN (ops); i++)
		if (enc_streq (name, ops[i].name) && !(ops[i].roles == GENERAL_ONLY && w->conf->enclave)) {
			enc_error_clear (&err);
			rc = run_op (w, &ops[i], request, out, &err);
			break;
		}
	if (rc == 0)
		return out;
	enc_json_free (out);
	return enc_json_of_error (&err);
}

/* One request and its answer. */
static int serve (struct worker *w, int fd, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf body = ENC_BUF_INIT (ENC_IPC_MAX);
	enc_auto (enc_json) struct enc_json *request = NULL;
	enc_auto (enc_json) struct enc_json *reply = NULL;
	enc_auto_free char *text = NULL;
	size_t len;
	int rc;

	/* Waiting has a bound as everything has; the parent asks every second. */
	if ((rc = enc_frame_recv (fd, ENC_IPC_MAX, &body, NULL, enc_deadline_ms (IDLE_S * 1000LL), err)) < 0)
		return rc;
	if (!(request = enc_json_parse ((const char *) body.data, body.len, ENC_IPC_MAX, err)))
		return -err->code;
	reply = answer (w, request);
	if (!(text = enc_json_write (reply, &len, err)))
		return -err->code;
	if (len > ENC_IPC_MAX) {
		enc_json_free (ENC_TAKE (reply));
		free (ENC_TAKE (text));
		(void) enc_fail (err, ENC_ELIMIT, "the answer is too large; next: ask about fewer nodes");
		reply = enc_json_of_error (err);
		if (!(text = enc_json_write (reply, &len, err)))
			return -err->code;
	}
	return enc_frame_send (fd, text, len, NULL, enc_deadline_ms (30000), err);
}

int enc_sched_worker_run (int fd, const struct enc_sched_worker_conf *conf)
{
	enc_auto (enc_slurm) struct enc_slurm *slurm = NULL;
	struct worker w = { .conf = conf };
	struct enc_error err = { 0 };

	if (!(slurm = enc_slurm_open (conf->slurm_conf, &err))) {
		enc_log_err (ENC_LOG_ERROR, &err, "cannot open the scheduler's library");
		return 1;
	}
	w.slurm = slurm;
	for (;;) {
		int rc = serve (&w, fd, &err);

		if (rc == -ENC_EUNAVAIL) /* the parent has closed */
			return 0;
		if (rc < 0) {
			enc_log_err (ENC_LOG_ERROR, &err, "worker");
			return 1;
		}
	}
}
