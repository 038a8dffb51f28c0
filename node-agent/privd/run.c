/* The runner: one run at a time. A run is a list of family tasks for one document; what it came from is an order of the agent, or privd
 * itself (which only ever tightens). The state is written before a run begins (so that a crash finds the node held), and after each
 * task that changed something.
 *
 *   order → gate → keys opened → steps planned → state stored → tasks one by one → state stored → answer
 *
 * What fails on the way up counts as up: the state may claim too much of the enclave on this node, never too little, so that the way
 * down takes everything. A run that tightens goes on past a failure and reports the first one. */
#include <event2/event.h>
#include <string.h>

#include "base/enctime.h"
#include "base/log.h"
#include "base/point.h"
#include "node-agent/privd/gate.h"
#include "node-agent/privd/plan.h"
#include "node-agent/privd/told.h"

#include "base/enc.h"

enum { QUEUE_MAX = 8, TICK_MS = 500, LOOK_MS = 10000 };

struct run {
	struct run *next;
	bool own;                   /* privd's, not the agent's */
	bool shut_only;             /* own: only the door */
	uint8_t pool;               /* own: where it leads */
	char reason[64];
	/* of the agent's: a copy of the message, and where the answer goes */
	struct enc_order order;
	struct enc_buf bytes;
	enc_order_done_fn *done;
	void *arg;
	/* both, once it has begun */
	struct enc_doc *doc;
	struct enc_plan plan;
	bool loosens;
	struct enc_secret keys[ENC_TASK_KEYS_MAX];
	size_t keys_n;
	char key_ids[ENC_TASK_KEYS_MAX][27];
	struct enc_buf extra;       /* for the family: body of the member document, or which session */
	struct enc_json *evidence;
	uint32_t rest[ENC_RESTS_MAX]; /* audit sessions whose processes shall go */
	size_t rest_n;
	struct enc_error first;     /* failure */
	int rc;
};

struct enc_runner {
	struct enc_privd *p;
	struct run *now, *queue;
	struct event *tick, *defer;
	int64_t look;               /* when the fence is looked at next */
	bool check_after;           /* the filter changed while the fence family was busy */
	bool step_waits;            /* the present run's next task waits for a check of the fence to end */
};

static void begin (struct enc_runner *r);
static void step (struct enc_runner *r);

/* Fault points are called privd.JOB before a task is given to its family, privd.JOB.done when it is done and not yet in the state. */
static const char *const point_names[ENC_JOB_MAX] = {
	[ENC_JOB_FENCE] = "fence", [ENC_JOB_FENCE_CHECK] = "fence_check", [ENC_JOB_OVERLAY] = "overlay", [ENC_JOB_OVERLAY_KEY] = "overlay_key",
	[ENC_JOB_VOLUMES] = "volumes", [ENC_JOB_UNITS] = "units", [ENC_JOB_ROLES] = "roles", [ENC_JOB_ACCOUNTS] = "accounts", [ENC_JOB_DOOR] = "door",
	[ENC_JOB_CLEAN] = "clean", [ENC_JOB_MEASURE] = "measure", [ENC_JOB_PROBE] = "probe", [ENC_JOB_SESSION] = "session",
	[ENC_JOB_AGENT] = "agent",
};

static int point (uint8_t job, const char *suffix, struct enc_error *err)
{
	char name[48];

	(void)snprintf (name, sizeof name, "privd.%s%s", point_names[job], suffix);
	return enc_point (name, err);
}

static void run_free (struct run *run)
{
	if (!run)
		return;
	enc_buf_done (&run->bytes);
	enc_buf_done (&run->extra);
	for (size_t i = 0; i < run->keys_n; i++)
		enc_secret_done (&run->keys[i]);
	enc_json_free (run->evidence);
	free (run->doc);
	free (run);
}

static int store (struct enc_runner *r, struct enc_error *err)
{
	r->p->state.counter = r->p->spool.counter;
	return enc_node_state_store (&r->p->conf, &r->p->state, err);
}

/* ---- the end of a run ---- */

static void finish (struct enc_runner *r)
{
	struct run *run = r->now;
	struct timeval at_once = { 0 };

	r->now = NULL;
	if (run->rc < 0)
		enc_log_err (ENC_LOG_WARN, &run->first, "%s", run->own ? run->reason : enc_verb_name (run->order.verb));
	if (run->done)
		run->done (&run->order, run->rc, &run->first, run->evidence, run->arg);
	run_free (run);
	/* The next one from the loop, not from within this one's answer. */
	if (r->queue)
		(void)evtimer_add (r->defer, &at_once);
}

static void fail_with (struct run *run, int rc, const struct enc_error *err)
{
	if (run->rc < 0)
		return;
	run->rc = rc;
	run->first = *err;
}

/* ---- tasks ---- */

static void merge (struct enc_json *into, const struct enc_json *from)
{
	struct enc_json_iter it = { 0 };

	while (enc_json_next (from, &it))
		enc_json_set (into, it.key, enc_json_copy (it.value));
}

static void task_done (int rc, const struct enc_error *err, struct enc_view evidence, void *arg)
{
	struct enc_runner *r = arg;
	struct run *run = r->now;
	const struct enc_plan_step *s = &run->plan.step[run->plan.at];
	enc_auto (enc_json) struct enc_json *found = evidence.left ? enc_json_parse ((const char *)evidence.at, evidence.left, ENC_TASK_SIZE_MAX, NULL) : NULL;
	struct enc_error why = { 0 };

	merge (run->evidence, found);
	if (rc == 0 && (rc = point (s->job, ".done", &why)) < 0)
		err = &why;
	if (rc == 0 && s->job == ENC_JOB_MEASURE && (rc = enc_privd_attest (r->p, run->doc, run->evidence, &why)) < 0)
		err = &why;
	if (rc < 0)
		fail_with (run, rc, err);
	if ((rc = enc_plan_commit (&run->plan, run->plan.at, rc, run->doc, found, &r->p->state, &r->p->spool, &why)) < 0 || (rc = store (r, &why)) < 0)
		fail_with (run, rc, &why);
	run->plan.at++;
	step (r);
}

static void step (struct enc_runner *r)
{
	struct run *run = r->now;
	struct enc_task task = { .doc = run->doc, .fd = -1 };
	struct enc_error err = { 0 };
	const struct enc_plan_step *s;
	int rc;

	if (run->plan.at >= run->plan.n || (run->rc < 0 && !run->own)) {
		finish (r);
		return;
	}
	s = &run->plan.step[run->plan.at];
	/* Runs come one by one, so only a look at the fence can be in the way; it is over in a moment. */
	if (enc_hands_busy (r->p->hands, s->job)) {
		r->step_waits = true;
		return;
	}
	task.job = s->job;
	task.flags = s->flags;
	if (s->job == ENC_JOB_SESSION)
		task.doc = NULL;
	if (s->job == ENC_JOB_ROLES || s->job == ENC_JOB_ACCOUNTS || s->job == ENC_JOB_SESSION)
		task.extra = enc_view_of (run->extra.data, run->extra.len);
	for (size_t i = 0; s->keys && i < run->keys_n; i++) {
		struct enc_task_key *k = &task.keys[task.keys_n++];
		memcpy (k->id, run->key_ids[i], sizeof k->id);
		k->data = run->keys[i].data;
		k->len = run->keys[i].len;
	}
	if ((rc = enc_plan_claim (&run->plan, run->doc, &r->p->state, &err)) < 0 || (rc > 0 && (rc = store (r, &err)) < 0) ||
		(rc = point (s->job, "", &err)) < 0 || (rc = enc_hands_do (r->p->hands, &task, s->ms, task_done, r, &err)) < 0) {
		fail_with (run, rc, &err);
		run->plan.at++;
		step (r);
	}
}

/* ---- an order of the agent ---- */

/* Open what came sealed, but only keys that the document names, and only under the grant that came with it. */
static int open_keys (struct enc_runner *r, struct run *run, const struct enc_grant *grant, struct enc_error *err)
{
	int rc;

	for (size_t i = 0; i < run->order.sealed_n && run->keys_n < ENC_TASK_KEYS_MAX; i++) {
		const struct enc_sealed *sealed = &run->order.sealed[i];
		struct enc_seal_id id = { .node = r->p->conf.node, .boot = r->p->boot, .generation = run->doc->generation, .key = sealed->key,
			.record = grant->record };
		if (!enc_plan_wants_key (run->order.verb, run->doc, sealed->key))
			continue;
		if ((rc = enc_seal_open (r->p->boot_key, &id, sealed->data, &run->keys[run->keys_n], err)) < 0)
			return enc_wrap (err, rc, "key %s", sealed->key);
		memcpy (run->key_ids[run->keys_n], sealed->key, sizeof sealed->key);
		run->keys_n++;
	}
	return 0;
}

static int judge (struct enc_runner *r, struct run *run, uint8_t digest[32], struct enc_grant *grant, struct enc_error *err)
{
	struct enc_gate gate = { .conf = &r->p->conf, .state = &r->p->state, .boot = r->p->boot, .now = (uint64_t)enc_now_s () };
	bool has_grant = run->order.grant.left > 0;
	int rc;

	if (run->order.document.left == 0)
		return enc_fail (err, ENC_EINVAL, "%s: without a document", enc_verb_name (run->order.verb));
	if ((rc = enc_doc_decode (run->order.document.at, run->order.document.left, run->doc, err)) < 0)
		return rc;
	enc_doc_digest (run->order.document.at, run->order.document.left, digest);
	if (has_grant && ((rc = enc_privd_keyd (r->p, err)) < 0 || (rc = enc_grant_read (run->order.grant, &r->p->keyd, grant, err)) < 0))
		return enc_wrap (err, rc, "grant");
	return enc_gate_check (&gate, run->order.verb, run->doc, digest, has_grant ? grant : NULL, &run->loosens, err);
}

static int prepare_order (struct enc_runner *r, struct run *run, struct enc_error *err)
{
	struct enc_grant grant = { 0 };
	uint8_t digest[32];
	int rc = judge (r, run, digest, &grant, err);

	if (rc < 0)
		return rc;
	if (run->loosens && (rc = open_keys (r, run, &grant, err)) < 0)
		return rc;
	if (run->order.verb == ENC_VERB_ROLE && run->doc->roles && (rc = enc_privd_members_body (r->p, &run->extra, err)) < 0 && rc != -ENC_ENOTFOUND)
		return rc;
	if ((rc = enc_plan_accept (&r->p->state, run->order.verb, run->doc, run->order.document, digest, run->loosens ? &grant : NULL, err)) < 0)
		return rc;
	enc_plan_order (&run->plan, run->order.verb, run->doc, &r->p->state);
	return store (r, err);
}

static bool take_members (struct enc_runner *r, struct run *run);
static bool quarantine (struct enc_runner *r, struct run *run);
static bool end_session (struct enc_runner *r, struct run *run);

static void begin_order (struct enc_runner *r, struct run *run)
{
	struct enc_error err = { 0 };
	int rc;

	if (take_members (r, run) || quarantine (r, run) || end_session (r, run))
		return;
	rc = prepare_order (r, run, &err);

	if (rc < 0)
		fail_with (run, rc, &err);
	step (r);
}

/* ---- privd's own ---- */

static void note (struct enc_runner *r, const char *area, const char *reason)
{
	struct enc_json *obj = enc_json_object (), *data = enc_json_object ();

	enc_json_set_str (obj, "node", r->p->conf.node);
	enc_json_set_str (data, "area", area);
	enc_json_set_str (data, "reason", reason);
	enc_json_set_u64 (data, "generation", r->p->state.generation);
	enc_spool_add (&r->p->spool, "node", "tighten", "ok", obj, data);
}

static int prepare_own (struct enc_runner *r, struct run *run, struct enc_error *err)
{
	struct enc_node_state *s = &r->p->state;
	int rc;

	note (r, run->shut_only ? "door" : "all", run->reason);
	if (run->shut_only) {
		if ((rc = enc_node_state_document (s, run->doc, err)) < 0)
			return rc;
		enc_plan_shut (&run->plan);
		return 0;
	}
	if ((rc = enc_node_state_tight (&r->p->conf, s, run->pool, run->doc, err)) < 0)
		return rc;
	enc_plan_tighten (&run->plan);
	return enc_plan_tight (s, run->doc, err);
}

static void begin_own (struct enc_runner *r, struct run *run)
{
	struct enc_error err = { 0 };
	int rc = prepare_own (r, run, &err);

	if (rc == 0)
		rc = store (r, &err);
	if (rc < 0)
		fail_with (run, rc, &err);
	step (r);
}

static void begin_rest (struct enc_runner *r, struct run *run)
{
	for (size_t i = 0; i < run->rest_n; i++)
		enc_buf_put_u32 (&run->extra, run->rest[i]);
	run->plan = (struct enc_plan){ .n = 1, .step = { { .job = ENC_JOB_SESSION, .flags = ENC_TASK_REST, .ms = 5000 } } };
	step (r);
}

static void begin (struct enc_runner *r)
{
	struct run *run = r->queue;

	if (r->now || !run)
		return;
	r->queue = run->next;
	r->now = run;
	run->evidence = enc_json_object ();
	run->extra = ENC_BUF_INIT (ENC_ENVELOPE_BODY_MAX);
	run->doc = calloc (1, sizeof *run->doc);
	if (!run->doc) {
		struct enc_error err = { 0 };
		fail_with (run, enc_fail (&err, ENC_ENOMEM, "no memory for an order"), &err);
		finish (r);
		return;
	}
	if (run->own)
		begin_own (r, run);
	else if (run->rest_n)
		begin_rest (r, run);
	else
		begin_order (r, run);
}

static void enqueue (struct enc_runner *r, struct run *run)
{
	struct run **at = &r->queue;

	/* Ours go before the agent's that wait, and behind ours. */
	while (*at && (!run->own || (*at)->own))
		at = &(*at)->next;
	run->next = *at;
	*at = run;
	begin (r);
}

static size_t queued (const struct enc_runner *r)
{
	size_t n = 0;

	for (const struct run *run = r->queue; run; run = run->next)
		n += !run->rest_n;
	return n;
}

/* Copy the message so that it outlives the caller's buffer; the views then point into the copy. */
static int copy_order (const struct enc_order *order, struct run *run, struct enc_error *err)
{
	size_t len;
	int rc;

	run->bytes = ENC_BUF_INIT (ENC_ORDER_SIZE_MAX + 4);
	if ((rc = enc_order_encode (order, &run->bytes, err)) < 0 || (rc = enc_order_length (run->bytes.data, &len, err)) < 0)
		return rc;
	return enc_order_decode (run->bytes.data + 4, len, &run->order, err);
}

/* STATE, MEMBERS and QUARANTINE need no family, or none that has a document. */
static bool answer_at_once (struct enc_runner *r, const struct enc_order *order, enc_order_done_fn *done, void *arg)
{
	enc_auto (enc_json) struct enc_json *evidence = NULL;
	struct enc_view extra = order->extra;
	struct enc_error err = { 0 };

	if (order->verb != ENC_VERB_STATE)
		return false;
	if (extra.left == 8)
		enc_spool_forget (&r->p->spool, enc_view_u64 (&extra));
	evidence = enc_privd_state_evidence (r->p);
	done (order, 0, &err, evidence, arg);
	return true;
}

static void accounts_run (struct run *run)
{
	run->plan = (struct enc_plan){ .n = 1, .step = { { .job = ENC_JOB_ACCOUNTS, .ms = 10000 } } };
}

/* MEMBERS: checked and put down at once; where roles are up the accounts follow, which ends what removed members have. */
static bool take_members (struct enc_runner *r, struct run *run)
{
	struct enc_error err = { 0 };
	int rc;

	if (run->order.verb != ENC_VERB_MEMBERS)
		return false;
	if ((rc = enc_privd_members_take (r->p, run->order.extra, &err)) < 0)
		fail_with (run, rc, &err);
	else if (r->p->state.roles) {
		accounts_run (run);
		if ((rc = enc_privd_members_body (r->p, &run->extra, &err)) < 0 || (rc = enc_node_state_document (&r->p->state, run->doc, &err)) < 0)
			fail_with (run, rc, &err);
	}
	step (r);
	return true;
}

static bool quarantine (struct enc_runner *r, struct run *run)
{
	if (run->order.verb != ENC_VERB_QUARANTINE)
		return false;
	run->own = true;
	run->pool = ENC_POOL_QUARANTINE;
	(void)snprintf (run->reason, sizeof run->reason, "ordered: %.*s", (int)(run->order.extra.left < 50 ? run->order.extra.left : 50),
		run->order.extra.left ? (const char *)run->order.extra.at : "");
	if (!enc_text_ok (run->reason))
		(void)snprintf (run->reason, sizeof run->reason, "ordered");
	begin_own (r, run);
	return true;
}

/* SESSION: tightens, so it needs no grant. One that has ended already is success. */
static bool end_session (struct enc_runner *r, struct run *run)
{
	struct enc_error err = { 0 };
	char id[27] = "";
	int rc;

	if (run->order.verb != ENC_VERB_SESSION)
		return false;
	if (run->order.extra.left == sizeof id - 1)
		memcpy (id, run->order.extra.at, sizeof id - 1);
	if ((rc = enc_session_task (r->p, id, &run->extra, &err)) == 0) {
		enc_session_ordered (r->p, id);
		run->plan = (struct enc_plan){ .n = 1, .step = { { .job = ENC_JOB_SESSION, .ms = 15000 } } };
	} else if (rc != -ENC_ENOTFOUND) {
		fail_with (run, rc, &err);
	}
	step (r);
	return true;
}

void enc_runner_order (struct enc_runner *r, const struct enc_order *order, enc_order_done_fn *done, void *arg)
{
	struct enc_error err = { 0 };
	struct run *run;
	int rc;

	if (answer_at_once (r, order, done, arg))
		return;
	run = calloc (1, sizeof *run);
	rc = run ? copy_order (order, run, &err) : enc_fail (&err, ENC_ENOMEM, "no memory for an order");
	if (rc == 0 && queued (r) >= QUEUE_MAX)
		rc = enc_fail (&err, ENC_EBUSY, "too many orders wait");
	if (rc < 0) {
		run_free (run);
		done (order, rc, &err, NULL, arg);
		return;
	}
	run->done = done;
	run->arg = arg;
	enqueue (r, run);
}

void enc_runner_end_rest (struct enc_runner *r, uint32_t login)
{
	struct run *run;

	if (!r || login == UINT32_MAX)
		return;
	for (run = r->queue; run; run = run->next)
		if (run->rest_n && run->rest_n < ENC_RESTS_MAX)
			break;
	if (run) {
		run->rest[run->rest_n++] = login;
		return;
	}
	if (!(run = calloc (1, sizeof *run)))
		return;
	run->order.verb = ENC_VERB_SESSION;
	run->rest[run->rest_n++] = login;
	enqueue (r, run);
}

static bool own_waits (const struct enc_runner *r, bool shut_only)
{
	for (const struct run *run = r->queue; run; run = run->next)
		if (run->own && run->shut_only == shut_only)
			return true;
	return r->now && r->now->own && r->now->shut_only == shut_only;
}

static void own (struct enc_runner *r, bool shut_only, uint8_t pool, const char *reason)
{
	struct run *run;

	if (own_waits (r, shut_only) || !(run = calloc (1, sizeof *run)))
		return;
	run->own = true;
	run->shut_only = shut_only;
	run->pool = pool;
	(void)snprintf (run->reason, sizeof run->reason, "%s", reason);
	enqueue (r, run);
}

void enc_runner_shut (struct enc_runner *r, const char *reason)
{
	own (r, true, 0, reason);
}

void enc_runner_tighten (struct enc_runner *r, uint8_t pool, const char *reason)
{
	own (r, false, pool, reason);
}

/* ---- the fence is watched ---- */

static void tell_tamper (struct enc_runner *r, const char *what, bool failed)
{
	struct enc_json *obj = enc_json_object (), *data = enc_json_object ();
	char reason[96];

	(void)snprintf (reason, sizeof reason, "%s were changed and %s", what, failed ? "could not be put back" : "put back");
	enc_json_set_str (obj, "node", r->p->conf.node);
	enc_json_set_str (data, "area", "fence");
	enc_json_set_str (data, "reason", reason);
	enc_json_set_u64 (data, "count", 1);
	enc_spool_add (&r->p->spool, "node", "tamper", failed ? "failed" : "ok", obj, data);
	enc_log_warn ("fence: %s", reason);
}

static void check_judge (struct enc_runner *r, int rc, const struct enc_error *err, struct enc_view evidence)
{
	enc_auto (enc_json) struct enc_json *found = evidence.left ? enc_json_parse ((const char *)evidence.at, evidence.left, ENC_TASK_SIZE_MAX, NULL) : NULL;

	if (rc == 0 && enc_json_get_bool (found, "intact", true))
		return;
	if (rc < 0)
		enc_log_err (ENC_LOG_ERROR, err, "fence");
	/* The family was ended before it could say anything: privd starts anew, with the fence first. A machine that is busy for seconds is not
	 * one that was tampered with. */
	if (rc < 0 && !found)
		return;
	tell_tamper (r, enc_json_get_str (found, "what", "rules"), rc < 0);
	if (rc < 0)
		enc_runner_tighten (r, ENC_POOL_QUARANTINE, "the fence could not be put back");
}

static void checked (int rc, const struct enc_error *err, struct enc_view evidence, void *arg)
{
	struct enc_runner *r = arg;

	check_judge (r, rc, err, evidence);
	if (r->step_waits) {
		r->step_waits = false;
		step (r);
	}
}

void enc_runner_check_fence (struct enc_runner *r)
{
	struct enc_task task = { .job = ENC_JOB_FENCE_CHECK, .fd = -1 };
	struct enc_error err = { 0 };

	if (r->p->state.fence == ENC_FENCE_NONE)
		return;
	r->check_after = enc_hands_busy (r->p->hands, ENC_JOB_FENCE_CHECK);
	if (!r->check_after && enc_hands_do (r->p->hands, &task, 10000, checked, r, &err) < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "fence");
}

/* ---- time ---- */

static void expire (struct enc_runner *r)
{
	struct enc_node_state *s = &r->p->state;
	uint64_t now = (uint64_t)enc_now_s ();
	bool over = s->pool == ENC_POOL_ENCLAVE && s->grant_until && now >= s->grant_until;

	if (over && s->door && !s->expired_door) {
		s->expired_door = true;
		enc_runner_shut (r, "the grant has ended");
	}
	if (over && now >= s->grant_until + r->p->conf.grace_s && !s->expired_volumes) {
		s->expired_volumes = true;
		enc_runner_tighten (r, ENC_POOL_AIRLOCK, "the grant has ended and its grace");
	}
}

static void on_tick (evutil_socket_t fd, short what, void *arg)
{
	struct enc_runner *r = arg;

	(void)fd, (void)what;
	expire (r);
	/* Changes of rules are heard of at once; routes and interfaces are looked at. */
	if (r->check_after || enc_passed (r->look)) {
		r->look = enc_deadline_ms (LOOK_MS);
		enc_runner_check_fence (r);
	}
	begin (r);
}

static void on_defer (evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	begin (arg);
}

int enc_runner_new (struct enc_privd *p, struct enc_error *err)
{
	struct timeval tick = { .tv_usec = TICK_MS * 1000 };
	struct enc_runner *r = calloc (1, sizeof *r);

	if (!r)
		return enc_fail (err, ENC_ENOMEM, "runner: no memory");
	r->p = p;
	p->runner = r;
	r->tick = event_new (p->base, -1, EV_PERSIST, on_tick, r);
	r->defer = evtimer_new (p->base, on_defer, r);
	if (!r->tick || !r->defer || event_add (r->tick, &tick) < 0)
		return enc_fail (err, ENC_ENOMEM, "runner: no memory");
	return 0;
}

void enc_runner_free (struct enc_runner *r)
{
	if (!r)
		return;
	run_free (r->now);
	while (r->queue) {
		struct run *run = r->queue;
		r->queue = run->next;
		run_free (run);
	}
	if (r->tick)
		event_free (r->tick);
	if (r->defer)
		event_free (r->defer);
	free (r);
}

bool enc_runner_busy (const struct enc_runner *r)
{
	return r->now != NULL;
}
