#include "controller/enclaved/life.h"

#include "base/log.h"
#include "controller/enclaved/nodes.h"
#include "controller/enclaved/repair.h"
#include "controller/enclaved/run_hooks.h"
#include "controller/enclaved/steps.h"
#include "controller/enclaved/view.h"
#include "base/enc.h"

enum { TICK_MS = 2000, STUCK_RETRY_S = 20, MEASURE_MS = 120000 };

/* ---- operations ---- */

int enc_operation_new (struct enc_ctl *c, const char *kind, const char *user, const struct enc_enclave *e, char ret[static ENC_ID_SIZE],
		       struct enc_error *err)
{
	struct enc_operation o = { .created_at = enc_now_s () };
	int rc;

	if ((rc = enc_id_new (o.id, err)) < 0)
		return rc;
	(void) snprintf (o.kind, sizeof o.kind, "%s", kind);
	(void) snprintf (o.user, sizeof o.user, "%s", user);
	(void) snprintf (o.state, sizeof o.state, "running");
	(void) snprintf (o.enclave_id, sizeof o.enclave_id, "%s", e->id);
	(void) snprintf (o.name, sizeof o.name, "%s", e->name);
	if ((rc = enc_operation_put (c->db, &o, err)) < 0)
		return rc;
	memcpy (ret, o.id, ENC_ID_SIZE);
	return 0;
}

void enc_operation_end (struct enc_ctl *c, const char *op, int rc, struct enc_json *result, const struct enc_error *why)
{
	enc_auto (enc_json) struct enc_json *good = result, *bad = NULL;
	enc_auto_done (enc_operation_done) struct enc_operation o = { 0 };
	struct enc_error err = { 0 };

	if (!op[0] || enc_operation_load (c->db, op, &o, &err) < 0)
		return;
	(void) snprintf (o.state, sizeof o.state, "%s", rc < 0 ? "failed" : "done");
	o.code = (uint32_t) enc_code_exit (rc);
	o.finished_at = enc_now_s ();
	if (rc < 0) {
		bad = enc_json_of_error (why);
		/* A failed create or destroy also shows how far it came. */
		if (bad && good) {
			enc_json_set (bad, "steps", enc_view_member (good, "steps"));
			enc_json_set (bad, "nodes", enc_view_member (good, "nodes"));
		}
		o.error = enc_json_write (bad, NULL, &err);
	} else {
		o.result = enc_json_write (good, NULL, &err);
	}
	if (enc_operation_put (c->db, &o, &err) < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "operation %s could not be ended", op);
	enc_ctl_changed (c);
}

/* ---- runs ---- */

struct enc_run *enc_life_find (const struct enc_ctl *c, const char *enclave_id)
{
	for (struct enc_run *r = c->runs; r; r = r->next)
		if (enc_streq (r->enclave_id, enclave_id))
			return r;
	return NULL;
}

static struct enc_runner runner_of (struct enc_run *run)
{
	return (struct enc_runner){
		.steps = enc_steps, .ctx = run, .state = enc_hook_state, .intent = enc_hook_intent, .outcome = enc_hook_outcome,
		.bound = enc_hook_bound, .quarantine = enc_hook_quarantine, .wait = enc_hook_wait,
	};
}

static struct enc_run *run_begin (struct enc_ctl *c, const char *enclave_id, const char *op)
{
	struct enc_run *run = calloc (1, sizeof *run);

	if (!run)
		return NULL;
	run->ctl = c;
	(void) snprintf (run->enclave_id, sizeof run->enclave_id, "%s", enclave_id);
	(void) snprintf (run->op, sizeof run->op, "%s", op ? op : "");
	return run;
}

static void run_enter (struct enc_run *run)
{
	run->fiber = enc_fiber_self (run->ctl->fibers);
	run->next = run->ctl->runs;
	run->ctl->runs = run;
}

static void run_end (struct enc_run *run)
{
	for (struct enc_run **p = &run->ctl->runs; *p; p = &(*p)->next) {
		if (*p == run) {
			*p = run->next;
			break;
		}
	}
	enc_enclave_waiting (run->ctl->db, run->enclave_id, NULL, 0, NULL);
	enc_cond_signal (&run->ended);
	enc_ctl_changed (run->ctl);
	enc_strs_done (&run->failed);
	free (run);
}

/* Another run of the same enclave must end first: one at a time. A walk up is given up, a walk down is waited for. */
static void take_over (struct enc_run *run)
{
	struct enc_run *other;

	while ((other = enc_life_find (run->ctl, run->enclave_id))) {
		if (other->dir == ENC_UP)
			enc_fiber_cancel (other->fiber);
		/* Woken by the end of the other, or by anything else: look again. Nobody cancels a way down. */
		if (enc_cond_wait (run->ctl->fibers, &run->ctl->changed, enc_deadline_ms (1000), NULL) == -ENC_ECANCELED)
			enc_fiber_uncancel (enc_fiber_self (run->ctl->fibers));
	}
}

static void record_enclave (struct enc_run *run, const char *action, const char *outcome, const char *reason)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	struct enc_json *record;

	if (enc_run_enclave (run, &e, NULL) < 0)
		return;
	record = enc_record ("enclave", action, outcome);
	enc_record_actor (record, NULL);
	enc_record_enclave (record, &e);
	if (enc_streq (action, "stuck"))
		enc_json_set_str (enc_record_data (record), "step", run->step ? run->step->name : "none");
	if (reason && !enc_streq (action, "ready") && !enc_streq (action, "closed"))
		enc_record_reason (record, reason);
	enc_record_soon (run->ctl, record);
}

static void set_state (struct enc_run *run, const char *state, const char *step, const char *time_column)
{
	struct enc_error err = { 0 };

	if (enc_enclave_state (run->ctl->db, run->enclave_id, state, step, &err) < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "the state of an enclave could not be stored");
	if (time_column && enc_streq (time_column, "opened_at") &&
	    enc_db_exec (run->ctl->db, &err, "UPDATE enclaves SET opened_at=? WHERE id=?", "is", enc_now_s (), run->enclave_id) < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "the time of opening could not be stored");
	if (time_column && enc_streq (time_column, "closed_at") &&
	    enc_db_exec (run->ctl->db, &err, "UPDATE enclaves SET closed_at=? WHERE id=?", "is", enc_now_s (), run->enclave_id) < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "the time of closing could not be stored");
}

/* Down to the ground, or stuck with a reason that people see. */
static int walk_down (struct enc_run *run, struct enc_error *err)
{
	struct enc_runner runner = runner_of (run);
	enc_auto_free char *text = NULL;
	int rc;

	run->dir = ENC_DOWN;
	set_state (run, ENC_STATE_CLOSING, "", NULL);
	rc = enc_engine_down (&runner, err);
	if (rc == 0) {
		set_state (run, ENC_STATE_CLOSED, "", "closed_at");
		record_enclave (run, "closed", "ok", NULL);
		return 0;
	}
	set_state (run, ENC_STATE_STUCK, run->step ? run->step->name : "", NULL);
	text = enc_strf ("a person: %s", err->text);
	enc_enclave_waiting (run->ctl->db, run->enclave_id, text, 0, "enclavectl destroy NAME");
	record_enclave (run, "stuck", "failed", enc_code_name (rc));
	return rc;
}

static void create_fiber (void *arg)
{
	struct enc_run *run = arg;
	struct enc_runner runner = runner_of (run);
	struct enc_ctl *c = run->ctl;
	struct enc_error err = { 0 }, down = { 0 };
	int rc;

	run_enter (run);
	run->dir = ENC_UP;
	rc = enc_engine_up (&runner, &err);
	if (rc == 0) {
		set_state (run, ENC_STATE_OPEN, "", "opened_at");
		record_enclave (run, "ready", "ok", NULL);
		enc_operation_end (c, run->op, 0, enc_view_enclave_id (c, run->enclave_id), NULL);
	} else if (rc == -ENC_ECANCELED) {
		/* A destroy waits to take over. */
		enc_operation_end (c, run->op, rc, enc_view_enclave_id (c, run->enclave_id), &err);
	} else {
		if (walk_down (run, &down) < 0)
			enc_log_err (ENC_LOG_ERROR, &down, "an enclave is stuck on its way down");
		enc_operation_end (c, run->op, rc, enc_view_enclave_id (c, run->enclave_id), &err);
	}
	run_end (run);
}

static void destroy_fiber (void *arg)
{
	struct enc_run *run = arg;
	struct enc_ctl *c = run->ctl;
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	struct enc_error err = { 0 };
	int rc = 0;

	take_over (run);
	run_enter (run);
	run->dir = ENC_DOWN;
	if (enc_run_enclave (run, &e, &err) == 0 && !enc_streq (e.state, ENC_STATE_CLOSED))
		rc = walk_down (run, &err);
	enc_operation_end (c, run->op, rc, rc < 0 ? enc_view_enclave_id (c, run->enclave_id) : enc_view_destroyed (c, run->enclave_id), &err);
	run_end (run);
}

static int start (struct enc_ctl *c, enc_fiber_fn fn, const char *enclave_id, const char *op, struct enc_error *err)
{
	struct enc_run *run = run_begin (c, enclave_id, op);
	int rc;

	if (!run)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if ((rc = enc_fiber_start (c->fibers, fn, run, NULL, err)) < 0)
		free (run);
	return rc;
}

int enc_life_create (struct enc_ctl *c, const char *enclave_id, const char *op, struct enc_error *err)
{
	return start (c, create_fiber, enclave_id, op, err);
}

int enc_life_destroy (struct enc_ctl *c, const char *enclave_id, const char *op, struct enc_error *err)
{
	return start (c, destroy_fiber, enclave_id, op, err);
}

struct work {
	struct enc_run *run;
	enc_run_fn fn;
	void *arg;
};

static void work_fiber (void *arg)
{
	struct work *w = arg;
	struct enc_run *run = w->run;
	struct enc_json *result = NULL;
	struct enc_error err = { 0 };
	int rc;

	while (enc_life_find (run->ctl, run->enclave_id))
		if (enc_cond_wait (run->ctl->fibers, &run->ctl->changed, enc_deadline_ms (1000), NULL) == -ENC_ECANCELED)
			break;
	run_enter (run);
	rc = w->fn (run, w->arg, &result, &err);
	enc_operation_end (run->ctl, run->op, rc, result, &err);
	run_end (run);
	free (w);
}

int enc_life_run (struct enc_ctl *c, const char *enclave_id, const char *op, enc_run_fn fn, void *arg, struct enc_error *err)
{
	struct work *w = calloc (1, sizeof *w);
	int rc;

	if (!w || !(w->run = run_begin (c, enclave_id, op))) {
		free (w);
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	w->fn = fn;
	w->arg = arg;
	if ((rc = enc_fiber_start (c->fibers, work_fiber, w, NULL, err)) < 0) {
		free (w->run);
		free (w);
	}
	return rc;
}

/* ---- after a start, and in time ---- */

static int resume_one (struct enc_ctl *c, const struct enc_enclave *e, struct enc_error *err)
{
	enc_auto_done (enc_operation_done) struct enc_operation o = { 0 };

	if (enc_operation_running (c->db, e->id, &o, NULL) < 0)
		o.id[0] = '\0';
	if (enc_streq (e->state, ENC_STATE_CREATING))
		return enc_life_create (c, e->id, o.id, err);
	if (enc_streq (e->state, ENC_STATE_OPEN) && enc_streq (o.kind, "create")) {
		enc_operation_end (c, o.id, 0, enc_view_enclave_id (c, e->id), NULL);
		return 0;
	}
	if (enc_streq (e->state, ENC_STATE_OPEN) && enc_streq (o.kind, "repair")) {
		/* What is still wrong is seen at the next look, and begun from the first of its rows. */
		struct enc_error why = { 0 };

		int rc = enc_fail (&why, ENC_EFAILED, "given up when the controller was restarted");
		enc_operation_end (c, o.id, rc, NULL, &why);
		return 0;
	}
	/* All else that moves an open enclave and is not its end is a change of members. */
	if (enc_streq (e->state, ENC_STATE_OPEN) && !enc_streq (o.kind, "destroy") && !enc_streq (o.kind, "expire"))
		return enc_life_run (c, e->id, o.id, enc_members_again, NULL, err);
	return enc_life_destroy (c, e->id, o.id, err);
}

static void order_end (struct enc_ctl *c, const struct enc_enclave *e, const char *reason)
{
	struct enc_json *record = enc_record ("enclave", "expire", "ok");
	char op[ENC_ID_SIZE] = "";
	struct enc_error err = { 0 };

	enc_record_actor (record, NULL);
	enc_record_obj (record, "enclave_id", e->id);
	enc_record_soon (c, record);
	enc_log_notice ("enclave %s: %s", e->id, reason);
	if (enc_operation_new (c, "expire", "enclaved", e, op, &err) < 0 || enc_life_destroy (c, e->id, op, &err) < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "an enclave could not be ended");
}

/* Grants are given to freshly measured nodes only; without this no member could be added to an enclave that is an hour old. */
static int measure_again (struct enc_run *run, ENC_UNUSED void *arg, struct enc_json **ret, struct enc_error *err)
{
	enc_auto_done (enc_nodes_done) struct enc_nodes all = { 0 };
	int rc;

	run->dir = ENC_UP;
	*ret = NULL;
	(void) enc_fiber_bound (run->ctl->fibers, enc_deadline_ms (MEASURE_MS));
	if ((rc = enc_nodes_of (run->ctl->db, run->enclave_id, 7, &all, err)) == 0)
		rc = enc_nodes_measure (run, &all, err);
	(void) enc_fiber_bound (run->ctl->fibers, ENC_FOREVER);
	if (rc < 0 && rc != -ENC_ECANCELED)
		enc_log_err (ENC_LOG_WARN, err, "the nodes of an enclave could not be measured again");
	return rc;
}

static bool measure_due (struct enc_ctl *c, const struct enc_enclave *e, int64_t now)
{
	int64_t oldest = enc_db_int (c->db, 0, "SELECT min(attested_at) FROM nodes WHERE enclave_id=? AND pool=3", "s", e->id);
	int64_t late = now - oldest - (int64_t) c->conf->measure_every_s;

	/* When it fails it is tried once a minute, not at every tick. */
	return oldest > 0 && late >= 0 && (late < 2 * TICK_MS / 1000 || now % 60 < TICK_MS / 1000);
}

static void tick (struct enc_ctl *c)
{
	enc_auto_done (enc_enclaves_done) struct enc_enclaves l = { 0 };
	int64_t now = enc_now_s ();

	enc_repair_forget (c);
	if (enc_enclave_list (c->db, &l, NULL, "WHERE state!='closed'") < 0)
		return;
	for (size_t i = 0; i < l.n; i++) {
		const struct enc_enclave *e = &l.v[i];

		if (enc_life_find (c, e->id))
			continue;
		if (enc_streq (e->state, ENC_STATE_OPEN) && e->expires_at > now)
			enc_repair_look (c, e);
		if (enc_life_find (c, e->id))
			continue;
		if (enc_streq (e->state, ENC_STATE_OPEN) && e->expires_at <= now)
			order_end (c, e, "the lease has ended");
		else if (enc_streq (e->state, ENC_STATE_OPEN) && measure_due (c, e, now) && enc_life_run (c, e->id, "", measure_again, NULL, NULL) < 0)
			enc_log_warn ("an enclave could not be measured again");
		else if (enc_streq (e->state, ENC_STATE_STUCK) && now % STUCK_RETRY_S < TICK_MS / 1000 && resume_one (c, e, NULL) < 0)
			enc_log_warn ("a stuck enclave could not be tried again");
	}
}

static void ticker (void *arg)
{
	struct enc_ctl *c = arg;

	while (!c->stopping && enc_fiber_sleep (c->fibers, TICK_MS, NULL) == 0)
		tick (c);
}

/* An operation goes on with its enclave; of two of one enclave the later. Whoever waits for another one is told. */
static int drop_operations (struct enc_ctl *c, struct enc_error *err)
{
	return enc_db_exec (c->db, err,
			    "UPDATE operations SET state='failed', code=1, finished_at=unixepoch(), error='{\"error\":{\"code\":\"failed\",\"step\":null,"
			    "\"object\":null,\"text\":\"given up when the controller was restarted\",\"next\":null}}' WHERE state='running' AND ("
			    "(kind NOT IN ('destroy','expire') AND enclave_id NOT IN (SELECT id FROM enclaves WHERE state!='closed')) OR EXISTS (SELECT 1 FROM operations o WHERE"
			    " o.enclave_id=operations.enclave_id AND o.state='running' AND o.rowid>operations.rowid))",
			    "");
}

#define MOVING "WHERE state!='closed' OR id IN (SELECT enclave_id FROM operations WHERE state='running')"

int enc_life_start (struct enc_ctl *c, struct enc_error *err)
{
	enc_auto_done (enc_enclaves_done) struct enc_enclaves l = { 0 };
	int rc;

	if ((rc = drop_operations (c, err)) < 0 || (rc = enc_enclave_list (c->db, &l, err, MOVING)) < 0)
		return rc;
	for (size_t i = 0; i < l.n; i++) {
		bool idle = enc_streq (l.v[i].state, ENC_STATE_OPEN) &&
			    !enc_db_int (c->db, 0, "SELECT count(*) FROM operations WHERE enclave_id=? AND state='running'", "s", l.v[i].id);

		if (!idle && (rc = resume_one (c, &l.v[i], err)) < 0)
			return rc;
	}
	return enc_fiber_start (c->fibers, ticker, c, NULL, err);
}
