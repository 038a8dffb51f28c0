/* From libslurm's messages to the plain snapshot.
 *
 * Each of the four lists is asked for with the time of the last answer: Slurm then says "no change", which costs one small message.
 * The snapshot is rebuilt only when one of them changed, or when a reservation begins or ends by itself. */
#include "controller/schedd/slurm_link.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "base/enctime.h"
#include "base/file.h"
#include "base/peer.h"
#include "controller/schedd/reach.h"
#include "base/enc.h"

/* Exported by libslurm, declared in its private headers only. */
extern char *slurm_node_state_string (uint32_t inx);
extern const char *slurm_job_state_string (uint32_t inx);

struct enc_slurm {
	node_info_msg_t *nodes;
	job_info_msg_t *jobs;
	partition_info_msg_t *parts;
	reserve_info_msg_t *resvs;
	struct enc_sched_snapshot snapshot;
	uint64_t serial;
	bool built;
	struct enc_reach reach;
	bool reached;      /* slurmctld answered the last time */
	int64_t next_edge; /* when a reservation begins or ends; 0: none */
};

#define DEFAULT_CONF "/etc/slurm/slurm.conf"
enum { CONF_MAX = 16 * 1024 * 1024, REACH_MS = 1000 };

/* Without knowing where slurmctld is we leave the waiting to libslurm. */
static void find_controller (struct enc_slurm *slurm, const char *conf)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (CONF_MAX + 1);
	enc_auto_free char *text = NULL;

	if (enc_file_read (conf, CONF_MAX, &buf, NULL) < 0 || !(text = enc_buf_take_str (&buf)))
		return;
	(void) !enc_reach_parse (text, &slurm->reach, NULL);
}

struct enc_slurm *enc_slurm_open (const char *conf, struct enc_error *err)
{
	struct enc_slurm *slurm = calloc (1, sizeof *slurm);

	if (!slurm) {
		enc_fail (err, ENC_ENOMEM, "no memory");
		return NULL;
	}
	/* Plugins of libslurm and its configless code read the variable, not the argument. */
	if (conf && setenv ("SLURM_CONF", conf, 1) < 0) {
		free (slurm);
		enc_fail_sys (err, "cannot set SLURM_CONF");
		return NULL;
	}
	/* Serials of two workers must not be taken for each other. */
	slurm->serial = (uint64_t) enc_now () / 1000;
	slurm_init (conf);
	find_controller (slurm, conf ? conf : DEFAULT_CONF);
	return slurm;
}

void enc_slurm_free (struct enc_slurm *slurm)
{
	if (!slurm)
		return;
	enc_sched_snapshot_done (&slurm->snapshot);
	slurm_free_node_info_msg (slurm->nodes);
	slurm_free_job_info_msg (slurm->jobs);
	slurm_free_partition_info_msg (slurm->parts);
	slurm_free_reservation_info_msg (slurm->resvs);
	enc_reach_done (&slurm->reach);
	free (slurm);
}

/* Slurm's convention of the three loaders used so: success with a message, or an errno that says nothing changed. */
#define LOAD(slurm, member, free_fn, what, call)                                                                       \
	({                                                                                                             \
		__typeof__ ((slurm)->member) fresh_ = NULL;                                                            \
		time_t since_ = (slurm)->member ? (slurm)->member->last_update : 0;                                    \
		int rc_ = (call) (since_, &fresh_);                                                                    \
		if (rc_ == SLURM_SUCCESS) {                                                                            \
			free_fn ((slurm)->member);                                                                     \
			(slurm)->member = fresh_;                                                                      \
			rc_ = 1;                                                                                       \
		} else if (errno == SLURM_NO_CHANGE_IN_DATA) {                                                         \
			rc_ = 0;                                                                                       \
		} else {                                                                                               \
			rc_ = enc_slurm_fail (err, what);                                                              \
		}                                                                                                      \
		rc_;                                                                                                   \
	})

static int load_nodes (time_t since, node_info_msg_t **ret)
{
	return slurm_load_node (since, ret, SHOW_ALL | SHOW_MIXED);
}

static int load_jobs (time_t since, job_info_msg_t **ret)
{
	return slurm_load_jobs (since, ret, SHOW_ALL);
}

static int load_parts (time_t since, partition_info_msg_t **ret)
{
	return slurm_load_partitions (since, ret, SHOW_ALL);
}

static bool same_text (const char *a, const char *b)
{
	return strcmp (a ? a : "", b ? b : "") == 0;
}

static bool same_resvs (const reserve_info_msg_t *a, const reserve_info_msg_t *b)
{
	if (!a || a->record_count != b->record_count)
		return false;
	for (uint32_t i = 0; i < a->record_count; i++) {
		const reserve_info_t *x = &a->reservation_array[i], *y = &b->reservation_array[i];

		if (!same_text (x->name, y->name) || !same_text (x->node_list, y->node_list) || x->start_time != y->start_time ||
		    x->end_time != y->end_time || x->flags != y->flags)
			return false;
	}
	return true;
}

/* Always the whole list: a slurmctld that was restarted counts recovered reservations as unchanged since ever, and one that was made just
 * before it died would never be seen. */
static int load_resvs (struct enc_slurm *slurm, struct enc_error *err)
{
	reserve_info_msg_t *fresh = NULL;

	if (slurm_load_reservations (0, &fresh) != SLURM_SUCCESS)
		return enc_slurm_fail (err, "reservations");
	if (same_resvs (slurm->resvs, fresh)) {
		slurm_free_reservation_info_msg (fresh);
		return 0;
	}
	slurm_free_reservation_info_msg (slurm->resvs);
	slurm->resvs = fresh;
	return 1;
}

static int add_hosts (struct enc_strs *to, const char *list, struct enc_error *err)
{
	hostlist_t hosts = list && *list ? slurm_hostlist_create (list) : NULL;
	char *host;
	int rc = 0;

	while (hosts && rc == 0 && (host = slurm_hostlist_shift (hosts))) {
		rc = enc_strs_add (to, host, err);
		free (host);
	}
	if (hosts)
		slurm_hostlist_destroy (hosts);
	return rc;
}

static char *lower (const char *s)
{
	char *copy = enc_strdup (s);

	for (char *c = copy; c && *c; c++)
		*c = (char) tolower ((unsigned char) *c);
	return copy;
}

/* Slurm gives "" and "(null)" for what is not there. */
static char *text (const char *s)
{
	return s && *s && !enc_streq (s, "(null)") ? enc_text_printable (s) : NULL;
}

static char *state_text (uint32_t state)
{
	enc_auto_free char *base = lower (slurm_node_state_string (state));

	if (!base)
		return NULL;
	return enc_strf ("%s%s", base, (state & NODE_STATE_DRAIN) && !strstr (base, "drain") ? "+drain" : "");
}

static int fill_node (struct enc_sched_node *to, const node_info_t *from, struct enc_error *err)
{
	uint32_t state = from->node_state, base = state & NODE_STATE_BASE;

	to->name = enc_strdup (from->name);
	to->state = state_text (state);
	if (!to->name || !to->state)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	to->down = base == NODE_STATE_DOWN || base == NODE_STATE_UNKNOWN || base == NODE_STATE_FUTURE;
	to->allocated = base == NODE_STATE_ALLOCATED || base == NODE_STATE_MIXED || (state & NODE_STATE_COMPLETING);
	to->drained = state & (NODE_STATE_DRAIN | NODE_STATE_POWER_DRAIN);
	to->failing = state & (NODE_STATE_FAIL | NODE_STATE_INVALID_REG | NODE_STATE_MAINT | NODE_STATE_REBOOT_ISSUED);
	to->answering = !(state & NODE_STATE_NO_RESPOND);
	to->powered = !(state & (NODE_STATE_POWERED_DOWN | NODE_STATE_POWERING_DOWN | NODE_STATE_POWER_DOWN));
	to->cpus = from->cpus;
	to->memory_mb = from->real_memory;
	to->features = text (from->features_act ? from->features_act : from->features);
	to->gres = text (from->gres);
	to->partitions = text (from->partitions);
	to->address = text (from->node_addr);
	to->reason = text (from->reason);
	return 0;
}

static void fill_user (struct enc_sched_job *to, const slurm_job_info_t *from)
{
	if (from->user_name && enc_user_name_ok (from->user_name))
		(void) snprintf (to->user, sizeof to->user, "%s", from->user_name);
	else if (enc_user_of_uid (from->user_id, to->user, NULL) < 0)
		(void) snprintf (to->user, sizeof to->user, "%u", from->user_id);
}

static int fill_job (struct enc_sched_job *to, const slurm_job_info_t *from, struct enc_error *err)
{
	uint32_t base = from->job_state & JOB_STATE_BASE;
	bool pending = base == JOB_PENDING;

	to->id = from->job_id;
	fill_user (to, from);
	to->state = lower (slurm_job_state_string (from->job_state));
	if (!to->state)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	to->holds = base == JOB_RUNNING || base == JOB_SUSPENDED || (from->job_state & JOB_COMPLETING);
	to->pending = pending && !to->holds;
	to->ending = from->job_state & JOB_COMPLETING;
	to->start = pending ? 0 : from->start_time;
	to->end = pending || (to->holds && from->time_limit == INFINITE) ? 0 : from->end_time;
	to->requeueable = from->batch_flag && from->requeue;
	to->status = from->exit_code;
	return pending && !to->holds ? 0 : add_hosts (&to->nodes, from->nodes, err);
}

static int build_lists (struct enc_slurm *slurm, struct enc_sched_snapshot *s, struct enc_error *err)
{
	size_t nodes = slurm->nodes->record_count, jobs = slurm->jobs->record_count, resvs = slurm->resvs->record_count;
	int rc = 0;

	s->nodes = calloc (nodes + 1, sizeof *s->nodes);
	s->jobs = calloc (jobs + 1, sizeof *s->jobs);
	s->resvs = calloc (resvs + 1, sizeof *s->resvs);
	if (!s->nodes || !s->jobs || !s->resvs)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	for (size_t i = 0; rc == 0 && i < nodes; i++)
		if (slurm->nodes->node_array[i].name) /* hidden ones are blank */
			rc = fill_node (&s->nodes[s->nodes_n++], &slurm->nodes->node_array[i], err);
	for (size_t i = 0; rc == 0 && i < jobs; i++)
		rc = fill_job (&s->jobs[s->jobs_n++], &slurm->jobs->job_array[i], err);
	for (size_t i = 0; rc == 0 && i < resvs; i++) {
		const reserve_info_t *from = &slurm->resvs->reservation_array[i];
		struct enc_sched_resv *to = &s->resvs[s->resvs_n++];

		to->name = enc_strdup (from->name);
		to->start = from->start_time;
		to->end = from->end_time;
		rc = to->name ? add_hosts (&to->nodes, from->node_list, err) : enc_fail (err, ENC_ENOMEM, "no memory");
	}
	return rc;
}

static int64_t next_edge (const struct enc_sched_snapshot *s)
{
	int64_t edge = 0;

	for (size_t i = 0; i < s->resvs_n; i++) {
		const int64_t both[] = { s->resvs[i].start, s->resvs[i].end };

		for (size_t k = 0; k < ENC_ARRAY_LEN (both); k++)
			if (both[k] > s->at && (!edge || both[k] < edge))
				edge = both[k];
	}
	return edge;
}

static int build (struct enc_slurm *slurm, struct enc_error *err)
{
	enc_auto_done (enc_sched_snapshot_done) struct enc_sched_snapshot s = { .at = enc_now_s () };
	int rc;

	slurm_populate_node_partitions (slurm->nodes, slurm->parts);
	if ((rc = build_lists (slurm, &s, err)) < 0 || (rc = enc_sched_snapshot_link (&s, err)) < 0)
		return rc;
	enc_sched_snapshot_done (&slurm->snapshot);
	slurm->snapshot = s;
	s = (struct enc_sched_snapshot){ 0 };
	slurm->next_edge = next_edge (&slurm->snapshot);
	slurm->serial++;
	slurm->built = true;
	return 0;
}

/* Fetch what has changed. Positive: something has. */
static int fetch (struct enc_slurm *slurm, struct enc_error *err)
{
	int nodes, jobs, parts, resvs;

	if ((nodes = LOAD (slurm, nodes, slurm_free_node_info_msg, "nodes", load_nodes)) < 0)
		return nodes;
	if ((jobs = LOAD (slurm, jobs, slurm_free_job_info_msg, "jobs", load_jobs)) < 0)
		return jobs;
	if ((parts = LOAD (slurm, parts, slurm_free_partition_info_msg, "partitions", load_parts)) < 0)
		return parts;
	if ((resvs = load_resvs (slurm, err)) < 0)
		return resvs;
	return nodes + jobs + parts + resvs;
}

int enc_slurm_load (struct enc_slurm *slurm, const struct enc_sched_snapshot **ret, uint64_t *ret_serial, struct enc_error *err)
{
	int changed, rc;

	if (!slurm->reached && !enc_reach_any (&slurm->reach, REACH_MS))
		return enc_error_next (err, enc_fail (err, ENC_EUNAVAIL, "slurmctld does not answer"), "systemctl status slurmctld on the scheduler's host");
	changed = fetch (slurm, err);
	slurm->reached = changed >= 0;
	if (changed < 0)
		return changed;
	if (changed > 0 || !slurm->built || (slurm->next_edge && enc_now_s () >= slurm->next_edge)) {
		if ((rc = build (slurm, err)) < 0)
			return rc;
	}
	slurm->snapshot.at = enc_now_s ();
	*ret = &slurm->snapshot;
	*ret_serial = slurm->serial;
	return 0;
}
