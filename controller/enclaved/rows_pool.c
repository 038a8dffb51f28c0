/* reserve, drain, detach: leaving the general cluster, and coming back to it. */
#include "controller/enclaved/steps.h"
#include "controller/enclaved/view.h"
#include "base/log.h"

#include "base/enc.h"

enum { POLL_MS = 300, SNAPSHOT_MS = 5000, SNAPSHOT_POLL_MS = 50, BACK_MS = 10000, RETURN_MAX_S = 30 };

static struct enc_json *names_of (const struct enc_nodes *nodes)
{
	struct enc_json *list = enc_json_array ();

	for (size_t i = 0; i < nodes->n; i++)
		enc_json_add_str (list, nodes->v[i].name);
	return list;
}

/* ---- reserve ---- */

static int reserve_call (struct enc_run *run, const char *op, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	struct enc_json *request;
	int rc;

	if ((rc = enc_run_enclave (run, &e, err)) < 0 || (rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &nodes, err)) < 0)
		return rc;
	request = enc_request (op);
	enc_json_set_str (request, "name", e.cluster);
	if (enc_streq (op, "reserve")) {
		enc_json_set (request, "nodes", names_of (&nodes));
		enc_json_set_time (request, "end_time", e.expires_at * ENC_NS_S);
	}
	return enc_ctl_call (run->ctl, run->ctl->schedd, request, NULL, err);
}

/* Held by an enclave that is being closed, or certified so lately that its slurmd may not be up. Without any the floor is a plain no. */
static bool any_coming (struct enc_run *run)
{
	return enc_db_int (run->ctl->db, 0, "SELECT count(*) FROM nodes WHERE declared='general' AND pool!=4 AND (enclave_id IN (SELECT id FROM enclaves"
					    " WHERE state='closing') OR name IN (SELECT node FROM certificates WHERE at>?))", "i", enc_now_s () - RETURN_MAX_S) > 0;
}

/* The site's floor, or a reservation that is just being dropped: nodes on their way back lift it, and who waits for jobs waits for them. */
int enc_row_reserve_do (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc = enc_run_enclave (run, &e, err);
	int64_t until = enc_deadline_ms ((int64_t) e.deadline_s * 1000);

	while (rc == 0) {
		enc_auto_free char *text = NULL;

		rc = reserve_call (run, "reserve", err);
		if (rc != -ENC_EBUSY || !enc_streq (e.on_busy, "wait") || !any_coming (run) || enc_passed (until))
			break;
		text = enc_strf ("nodes of the general pool to be back: %s", err->text);
		enc_enclave_waiting (run->ctl->db, e.id, text, enc_now_s () + enc_left_ms (until) / 1000, "enclavectl destroy gives up");
		enc_error_clear (err);
		rc = enc_fiber_sleep (run->ctl->fibers, POLL_MS, err);
	}
	enc_enclave_waiting (run->ctl->db, run->enclave_id, NULL, 0, NULL);
	return rc;
}

static const struct enc_json *slurm_node (const struct enc_json *answer, const char *name)
{
	const struct enc_json *list = enc_json_get (answer, "nodes");

	for (size_t i = 0; i < enc_json_len (list); i++)
		if (enc_streq (enc_json_get_str (enc_json_at (list, i), "name", NULL), name))
			return enc_json_at (list, i);
	return NULL;
}

static bool all_schedulable (const struct enc_json *answer, const struct enc_nodes *nodes)
{
	for (size_t i = 0; i < nodes->n; i++)
		if (!enc_json_get_bool (slurm_node (answer, nodes->v[i].name), "schedulable", true))
			return false;
	return true;
}

/* Back means that the scheduler gives them jobs again. A node whose slurmd is slow is the site's to look at, not ours to hold. */
static int wait_schedulable (struct enc_run *run, const struct enc_nodes *nodes, struct enc_error *err)
{
	int64_t until = enc_deadline_ms (BACK_MS);

	for (;;) {
		enc_auto (enc_json) struct enc_json *answer = NULL;
		int rc = enc_ctl_slurm (run->ctl, &answer, err);

		if (rc < 0 || all_schedulable (answer, nodes))
			return rc;
		if (enc_passed (until)) {
			enc_log_warn ("nodes given back do not take jobs yet");
			return 0;
		}
		if ((rc = enc_fiber_sleep (run->ctl->fibers, SNAPSHOT_POLL_MS, err)) < 0)
			return rc;
	}
}

int enc_row_reserve_undo (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	int rc = reserve_call (run, "release", err);

	if (rc < 0 && rc != -ENC_ENOTFOUND)
		return rc;
	if ((rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &nodes, err)) < 0 || (rc = wait_schedulable (run, &nodes, err)) < 0)
		return rc;
	/* From here on they are nobody's. Quarantined ones keep the enclave's id, as the answer to "why". */
	return enc_db_exec (run->ctl->db, err, "UPDATE nodes SET enclave_id='', role=0, overlay='', held_since=0 WHERE enclave_id=? AND pool!=4", "s",
			    run->enclave_id);
}

static int reserve_held (struct enc_run *run, const struct enc_nodes *nodes, const char *cluster, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *answer = NULL;
	int rc = enc_ctl_slurm (run->ctl, &answer, err);

	for (size_t i = 0; rc == 0 && i < nodes->n; i++)
		if (!enc_streq (enc_json_get_str (slurm_node (answer, nodes->v[i].name), "held", ""), cluster))
			rc = enc_fail (err, ENC_EFAILED, "%s is not held by the reservation", nodes->v[i].name);
	return rc;
}

/* The scheduler's state comes from a snapshot, which may be of just before the reservation. */
int enc_row_reserve_check (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	int64_t until = enc_deadline_ms (SNAPSHOT_MS);
	int rc;

	if ((rc = enc_run_enclave (run, &e, err)) < 0 || (rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &nodes, err)) < 0)
		return rc;
	while ((rc = reserve_held (run, &nodes, e.cluster, err)) == -ENC_EFAILED && !enc_passed (until))
		if ((rc = enc_fiber_sleep (run->ctl->fibers, SNAPSHOT_POLL_MS, err)) < 0)
			return rc;
	return rc;
}

/* ---- drain ---- */

static int each_node (struct enc_run *run, const struct enc_nodes *nodes, const char *op, const char *reason, struct enc_error *err)
{
	for (size_t i = 0; i < nodes->n; i++) {
		struct enc_json *request = enc_request (op);
		int rc;

		enc_json_set_str (request, "node", nodes->v[i].name);
		enc_json_set_str (request, "reason", reason);
		if ((rc = enc_ctl_call (run->ctl, run->ctl->schedd, request, NULL, err)) < 0) {
			if (rc != -ENC_EUNAVAIL && rc != -ENC_ECANCELED)
				enc_run_failed (run, nodes->v[i].name);
			return enc_error_object (err, rc, "%s", nodes->v[i].name);
		}
	}
	return 0;
}

static int jobs_on (struct enc_run *run, const struct enc_nodes *nodes, struct enc_json **ret, struct enc_error *err)
{
	struct enc_json *request = enc_request ("jobs");

	enc_json_set (request, "nodes", names_of (nodes));
	return enc_ctl_call (run->ctl, run->ctl->schedd, request, ret, err);
}

static int end_jobs (struct enc_run *run, const struct enc_json *jobs, const char *how, struct enc_error *err)
{
	for (size_t i = 0; i < enc_json_len (jobs); i++) {
		struct enc_json *request = enc_request ("end");
		int rc;

		enc_json_set (request, "job", enc_view_member (enc_json_at (jobs, i), "id"));
		enc_json_set_str (request, "how", how);
		rc = enc_ctl_call (run->ctl, run->ctl->schedd, request, NULL, err);
		if (rc < 0 && rc != -ENC_ENOTFOUND)
			return rc;
	}
	return 0;
}

static int wait_jobs (struct enc_run *run, const struct enc_nodes *nodes, const struct enc_enclave *e, struct enc_error *err)
{
	int64_t until = enc_deadline_ms ((int64_t) e->deadline_s * 1000);

	for (;;) {
		enc_auto (enc_json) struct enc_json *answer = NULL;
		enc_auto_free char *text = NULL;
		const struct enc_json *jobs;
		int rc;

		if ((rc = jobs_on (run, nodes, &answer, err)) < 0)
			return rc;
		jobs = enc_json_get (answer, "jobs");
		if (enc_json_len (jobs) == 0)
			return 0;
		if (enc_streq (e->on_busy, "fail"))
			return enc_fail (err, ENC_EBUSY, "%zu jobs run on the chosen nodes", enc_json_len (jobs));
		if (!enc_streq (e->on_busy, "wait") && (rc = end_jobs (run, jobs, e->on_busy, err)) < 0)
			return rc;
		if (enc_passed (until))
			return enc_fail (err, ENC_ETIMEOUT, "%zu jobs still run on the chosen nodes", enc_json_len (jobs));
		text = enc_strf ("%zu jobs to end", enc_json_len (jobs));
		enc_enclave_waiting (run->ctl->db, e->id, text, enc_now_s () + enc_left_ms (until) / 1000, "enclavectl destroy gives up");
		if ((rc = enc_fiber_sleep (run->ctl->fibers, POLL_MS, err)) < 0)
			return rc;
	}
}

int enc_row_drain_do (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	int rc;

	if ((rc = enc_run_enclave (run, &e, err)) < 0 || (rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &nodes, err)) < 0 ||
	    (rc = each_node (run, &nodes, "drain", "reserved", err)) < 0)
		return rc;
	rc = wait_jobs (run, &nodes, &e, err);
	enc_enclave_waiting (run->ctl->db, e.id, NULL, 0, NULL);
	return rc;
}

int enc_row_drain_undo (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	int rc;

	rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &nodes, err);
	return rc < 0 ? rc : each_node (run, &nodes, "resume", "", err);
}

static int all_drained (struct enc_run *run, const struct enc_nodes *nodes, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *answer = NULL;
	int rc = enc_ctl_slurm (run->ctl, &answer, err);

	for (size_t i = 0; rc == 0 && i < nodes->n; i++)
		if (!strstr (enc_json_get_str (slurm_node (answer, nodes->v[i].name), "state", ""), "drain"))
			rc = enc_fail (err, ENC_EFAILED, "%s is not drained", nodes->v[i].name);
	return rc;
}

int enc_row_drain_check (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	enc_auto (enc_json) struct enc_json *answer = NULL;
	int64_t until = enc_deadline_ms (SNAPSHOT_MS);
	int rc;

	if ((rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &nodes, err)) < 0 || (rc = jobs_on (run, &nodes, &answer, err)) < 0)
		return rc;
	if (enc_json_len (enc_json_get (answer, "jobs")))
		return enc_fail (err, ENC_EFAILED, "jobs are left on the nodes");
	while ((rc = all_drained (run, &nodes, err)) == -ENC_EFAILED && !enc_passed (until))
		if ((rc = enc_fiber_sleep (run->ctl->fibers, SNAPSHOT_POLL_MS, err)) < 0)
			return rc;
	return rc;
}

/* ---- detach ---- */

static void edit_detach (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, ENC_UNUSED void *arg)
{
	doc->units = ENC_UNITS_DOWN;
}

static void edit_attach (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, ENC_UNUSED void *arg)
{
	doc->units = ENC_UNITS_SITE;
}

static int is_away (struct enc_run *run, const char *node, bool mark, bool *ret, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *answer = NULL;
	struct enc_json *request = enc_request ("away");
	int rc;

	enc_json_set_str (request, "node", node);
	if (mark)
		enc_json_set_bool (request, "mark", true);
	if ((rc = enc_ctl_call (run->ctl, run->ctl->schedd, request, &answer, err)) < 0)
		return rc;
	if (ret)
		*ret = enc_json_get_bool (answer, "away", false);
	return 0;
}

int enc_row_detach_do (void *ctx, struct enc_error *err)
{
	static const struct enc_change change = { .edit = edit_detach, .what = "stop the site's services" };
	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	int rc = enc_run_change (run, ENC_ROLE_COMPUTE, &change, err);

	if (rc < 0 || (rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &nodes, err)) < 0)
		return rc;
	/* Said to the scheduler, or it would wait for its own timeout before it believes that they are gone. */
	for (size_t i = 0; rc == 0 && i < nodes.n; i++)
		rc = is_away (run, nodes.v[i].name, true, NULL, err);
	return rc;
}

int enc_row_detach_undo (void *ctx, struct enc_error *err)
{
	static const struct enc_change change = { .edit = edit_attach, .grant = ENC_GRANT_MUST, .what = "start the site's services" };

	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	int rc;

	/* The isolate row was never begun. A node gives nothing back without a passed clean, and cleans only behind its fence. */
	if (enc_journal_state (run->ctl->db, run->enclave_id, "isolate") == ENC_ROW_NONE &&
	    ((rc = enc_run_airlock (run, ENC_ROLE_COMPUTE, err)) < 0 || (rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &nodes, err)) < 0 ||
	     (rc = enc_nodes_clean (run, &nodes, ENC_CLEAN_LIVE, err)) < 0 || (rc = enc_nodes_return (run, &nodes, err)) < 0))
		return rc;
	return enc_run_change (run, ENC_ROLE_COMPUTE, &change, err);
}


int enc_row_detach_check (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	int rc;

	if ((rc = enc_row_detached (run, err)) < 0 || (rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &nodes, err)) < 0)
		return rc;
	/* The scheduler notices a silent node in its own time. */
	for (size_t i = 0; i < nodes.n;) {
		bool away = false;

		if ((rc = is_away (run, nodes.v[i].name, false, &away, err)) < 0)
			return rc;
		if (away)
			i++;
		else if ((rc = enc_fiber_sleep (run->ctl->fibers, POLL_MS, err)) < 0)
			return enc_wrap (err, rc, "%s is still up in the general scheduler", nodes.v[i].name);
	}
	return 0;
}
