/* The plain view of the scheduler: see snapshot.h. */
#include "controller/schedd/snapshot.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/enctime.h"
#include "base/enc.h"

enum { PAGE_BYTES = 900 * 1000 };

void enc_sched_snapshot_done (struct enc_sched_snapshot *s)
{
	for (size_t i = 0; i < s->nodes_n; i++) {
		struct enc_sched_node *n = &s->nodes[i];

		free (n->name);
		free (n->state);
		free (n->features);
		free (n->gres);
		free (n->partitions);
		free (n->address);
		free (n->reason);
		free (n->jobs);
	}
	for (size_t i = 0; i < s->jobs_n; i++) {
		free (s->jobs[i].state);
		enc_strs_done (&s->jobs[i].nodes);
	}
	for (size_t i = 0; i < s->resvs_n; i++) {
		free (s->resvs[i].name);
		enc_strs_done (&s->resvs[i].nodes);
	}
	free (s->nodes);
	free (s->jobs);
	free (s->resvs);
	*s = (struct enc_sched_snapshot){ 0 };
}

static int node_order (const void *a, const void *b)
{
	return strcmp (((const struct enc_sched_node *) a)->name, ((const struct enc_sched_node *) b)->name);
}

static int name_order (const void *key, const void *item)
{
	return strcmp (key, ((const struct enc_sched_node *) item)->name);
}

static struct enc_sched_node *find (const struct enc_sched_snapshot *s, const char *name)
{
	return s->nodes_n ? bsearch (name, s->nodes, s->nodes_n, sizeof *s->nodes, name_order) : NULL;
}

const struct enc_sched_node *enc_sched_node_find (const struct enc_sched_snapshot *s, const char *name)
{
	return find (s, name);
}

const struct enc_sched_job *enc_sched_job_find (const struct enc_sched_snapshot *s, uint32_t id)
{
	for (size_t i = 0; i < s->jobs_n; i++)
		if (s->jobs[i].id == id)
			return &s->jobs[i];
	return NULL;
}

const struct enc_sched_resv *enc_sched_resv_find (const struct enc_sched_snapshot *s, const char *name)
{
	for (size_t i = 0; i < s->resvs_n; i++)
		if (enc_streq (s->resvs[i].name, name))
			return &s->resvs[i];
	return NULL;
}

static int add_job (struct enc_sched_node *node, size_t job, struct enc_error *err)
{
	size_t *grown = reallocarray (node->jobs, node->jobs_n + 1, sizeof *grown);

	if (!grown)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	grown[node->jobs_n++] = job;
	node->jobs = grown;
	return 0;
}

int enc_sched_snapshot_link (struct enc_sched_snapshot *s, struct enc_error *err)
{
	struct enc_sched_node *node;
	int rc;

	if (s->nodes_n)
		qsort (s->nodes, s->nodes_n, sizeof *s->nodes, node_order);
	for (size_t r = 0; r < s->resvs_n; r++) {
		const struct enc_sched_resv *resv = &s->resvs[r];

		if (resv->start > s->at || (resv->end && resv->end <= s->at))
			continue;
		for (size_t i = 0; i < resv->nodes.n; i++) {
			/* One of ours wins over another one that overlaps it. */
			if (!(node = find (s, resv->nodes.v[i])) || node->held)
				continue;
			node->reservation = resv->name;
			node->held = enc_starts (resv->name, ENC_SCHED_PREFIX);
		}
	}
	for (size_t j = 0; j < s->jobs_n; j++)
		for (size_t i = 0; s->jobs[j].holds && i < s->jobs[j].nodes.n; i++)
			if ((node = find (s, s->jobs[j].nodes.v[i])) && (rc = add_job (node, j, err)) < 0)
				return rc;
	return 0;
}

bool enc_sched_schedulable (const struct enc_sched_node *node)
{
	return !node->down && !node->drained && !node->failing && node->answering && node->powered && !node->held;
}

bool enc_sched_away (const struct enc_sched_node *node)
{
	return (node->down || !node->answering) && !node->allocated && node->jobs_n == 0;
}

bool enc_sched_reason_ours (const char *reason)
{
	size_t len = sizeof ENC_SCHED_REASON - 1;

	return reason && enc_starts (reason, ENC_SCHED_REASON) && (reason[len] == '\0' || reason[len] == ' ');
}

int64_t enc_sched_free_at (const struct enc_sched_snapshot *s, const struct enc_sched_node *node)
{
	int64_t latest = s->at;

	if (node->down && node->jobs_n == 0)
		return 0;
	for (size_t i = 0; i < node->jobs_n; i++) {
		int64_t end = s->jobs[node->jobs[i]].end;

		if (end == 0)
			return 0;
		if (end > latest)
			latest = end;
	}
	return latest;
}

struct enc_lend_node *enc_sched_lend_nodes (const struct enc_sched_snapshot *s)
{
	struct enc_lend_node *all = s->nodes_n ? calloc (s->nodes_n, sizeof *all) : NULL;

	for (size_t i = 0; all && i < s->nodes_n; i++)
		all[i] = (struct enc_lend_node){ .name = s->nodes[i].name, .schedulable = enc_sched_schedulable (&s->nodes[i]) };
	return all;
}

static void set_list (struct enc_json *to, const char *key, const char *text)
{
	enc_auto_free char *copy = enc_strdup (text);
	struct enc_json *array = enc_json_set_array (to, key);
	char *rest = copy;
	char *item;

	while (rest && (item = strsep (&rest, ",")))
		if (*item)
			enc_json_add_str (array, item);
}

static void set_time (struct enc_json *to, const char *key, int64_t seconds)
{
	enc_json_set_time (to, key, seconds * ENC_NS_S);
}

static void node_json (const struct enc_sched_snapshot *s, const struct enc_sched_node *n, struct enc_json *out)
{
	struct enc_json *jobs;

	enc_json_set_str (out, "name", n->name);
	enc_json_set_str (out, "state", n->state);
	enc_json_set_bool (out, "schedulable", enc_sched_schedulable (n));
	enc_json_set_u64 (out, "cpus", n->cpus);
	enc_json_set_u64 (out, "memory_mb", n->memory_mb);
	set_list (out, "features", n->features);
	enc_json_set_str (out, "gres", n->gres);
	set_list (out, "partitions", n->partitions);
	enc_json_set_str (out, "address", n->address);
	enc_json_set_str (out, "reason", n->reason);
	enc_json_set_str (out, "reservation", n->reservation);
	enc_json_set_str (out, "held", n->held ? n->reservation + sizeof ENC_SCHED_PREFIX - 1 : NULL);
	jobs = enc_json_set_array (out, "jobs");
	for (size_t i = 0; i < n->jobs_n; i++) {
		const struct enc_sched_job *job = &s->jobs[n->jobs[i]];
		struct enc_json *item = enc_json_add_object (jobs);

		enc_json_set_u64 (item, "id", job->id);
		enc_json_set_str (item, "user", job->user);
		set_time (item, "end_time", job->end);
		enc_json_set_bool (item, "requeueable", job->requeueable);
	}
	set_time (out, "free_at", enc_sched_free_at (s, n));
}

static size_t length (const char *text)
{
	return text ? strlen (text) * 2 : 0; /* escapes */
}

/* An upper guess of the bytes of a node in JSON. */
static size_t weight (const struct enc_sched_node *n)
{
	return 512 + 160 * n->jobs_n + length (n->features) + length (n->gres) + length (n->partitions) + length (n->address) +
	       length (n->reason) + length (n->reservation);
}

struct enc_json *enc_sched_nodes_json (const struct enc_sched_snapshot *s, size_t from, size_t *ret_next)
{
	struct enc_json *array = enc_json_array ();
	size_t bytes = 0, i = from;

	for (; i < s->nodes_n; i++) {
		bytes += weight (&s->nodes[i]);
		if (bytes > PAGE_BYTES && i > from)
			break;
		node_json (s, &s->nodes[i], enc_json_add_object (array));
	}
	*ret_next = i;
	return array;
}

static bool on_any (const struct enc_sched_job *job, const struct enc_strs *nodes)
{
	for (size_t i = 0; i < job->nodes.n; i++)
		if (enc_strs_has (nodes, job->nodes.v[i]))
			return true;
	return false;
}

/* Facts only: no name, command, path or comment of a job, which may tell more than they should. */
struct enc_json *enc_sched_jobs_json (const struct enc_sched_snapshot *s, const struct enc_strs *nodes)
{
	struct enc_json *array = enc_json_array ();

	for (size_t j = 0; j < s->jobs_n; j++) {
		const struct enc_sched_job *job = &s->jobs[j];
		bool ended = !job->holds && !job->pending;
		struct enc_json *item;
		struct enc_json *names;

		if (nodes && (!job->holds || !on_any (job, nodes)))
			continue;
		item = enc_json_add_object (array);
		enc_json_set_u64 (item, "id", job->id);
		enc_json_set_str (item, "user", job->user);
		enc_json_set_str (item, "state", job->state);
		names = enc_json_set_array (item, "nodes");
		for (size_t i = 0; i < job->nodes.n; i++)
			enc_json_add_str (names, job->nodes.v[i]);
		set_time (item, "start", job->start);
		set_time (item, "end", ended ? job->end : 0);
		set_time (item, "end_time", job->end);
		enc_json_set_bool (item, "requeueable", job->requeueable);
		if (!ended)
			enc_json_set_null (item, "exit");
		else if (WIFSIGNALED ((int) job->status))
			enc_json_set_i64 (item, "exit", 128 + WTERMSIG ((int) job->status));
		else
			enc_json_set_i64 (item, "exit", WEXITSTATUS ((int) job->status));
	}
	return array;
}

static void count (struct enc_json *of, const char *key)
{
	enc_json_set_u64 (of, key, enc_json_get_u64 (of, key, 0) + 1);
}

struct enc_json *enc_sched_counts_json (const struct enc_sched_snapshot *s)
{
	struct enc_json *out = enc_json_object ();
	struct enc_json *users;

	enc_json_set_u64 (out, "running", 0);
	enc_json_set_u64 (out, "pending", 0);
	users = enc_json_set_object (out, "users");
	for (size_t j = 0; j < s->jobs_n; j++) {
		const struct enc_sched_job *job = &s->jobs[j];
		const char *key = job->holds ? "running" : "pending";
		struct enc_json *user;

		if (!job->holds && !job->pending)
			continue;
		count (out, key);
		if (!(user = enc_json_get (users, job->user))) {
			user = enc_json_set_object (users, job->user);
			enc_json_set_u64 (user, "running", 0);
			enc_json_set_u64 (user, "pending", 0);
		}
		count (user, key);
	}
	return out;
}
