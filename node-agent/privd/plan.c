#include "node-agent/privd/plan.h"

#include <string.h>

#include "base/cleanup.h"

#include "base/enc.h"

/* Deadlines of tasks, a little below those that the agent gives to the verbs. */
static const int64_t deadlines[ENC_JOB_MAX] = {
	[ENC_JOB_FENCE] = 12000, [ENC_JOB_FENCE_CHECK] = 10000, [ENC_JOB_OVERLAY] = 12000, [ENC_JOB_OVERLAY_KEY] = 2000, [ENC_JOB_VOLUMES] = 28000,
	[ENC_JOB_UNITS] = 43000, [ENC_JOB_ROLES] = 43000, [ENC_JOB_ACCOUNTS] = 10000, [ENC_JOB_DOOR] = 12000, [ENC_JOB_CLEAN] = 170000,
	[ENC_JOB_MEASURE] = 55000, [ENC_JOB_PROBE] = 55000,
};

static bool is_home (uint32_t pool)
{
	return pool == ENC_POOL_GENERAL || pool == ENC_POOL_SERVICE;
}

static void add (struct enc_plan *plan, uint8_t job, uint8_t flags, bool keys)
{
	plan->step[plan->n++] = (struct enc_plan_step){ .job = job, .flags = flags, .keys = keys, .ms = deadlines[job] };
}

static void plan_door (struct enc_plan *plan, const struct enc_doc *doc, const struct enc_node_state *s)
{
	(void)s;
	if (doc->door) {
		add (plan, ENC_JOB_FENCE, ENC_TASK_DOOR, false);
		add (plan, ENC_JOB_DOOR, ENC_TASK_DOOR, false);
		return;
	}
	add (plan, ENC_JOB_DOOR, 0, false);
	if (doc->fence == ENC_FENCE_ENCLAVE && s->fence == ENC_FENCE_ENCLAVE)
		add (plan, ENC_JOB_FENCE, 0, false);
}

static void plan_fence (struct enc_plan *plan, const struct enc_doc *doc, const struct enc_node_state *s)
{
	add (plan, ENC_JOB_FENCE, s->door && doc->door ? ENC_TASK_DOOR : 0, false);
	if (doc->fence == ENC_FENCE_NONE)
		add (plan, ENC_JOB_OVERLAY_KEY, ENC_TASK_CLOSE, false);
	else if (!s->overlay_key)
		add (plan, ENC_JOB_OVERLAY_KEY, 0, false);
}

static void plan_one (struct enc_plan *plan, uint8_t verb, const struct enc_doc *doc, const struct enc_node_state *s)
{
	static const uint8_t jobs[ENC_VERB_MAX + 1] = { [ENC_VERB_ROLE] = ENC_JOB_ROLES, [ENC_VERB_VOLUME] = ENC_JOB_VOLUMES, [ENC_VERB_UNITS] = ENC_JOB_UNITS,
		[ENC_VERB_OVERLAY] = ENC_JOB_OVERLAY, [ENC_VERB_CLEAN] = ENC_JOB_CLEAN, [ENC_VERB_MEASURE] = ENC_JOB_MEASURE, [ENC_VERB_PROBE] = ENC_JOB_PROBE };

	add (plan, jobs[verb], verb == ENC_VERB_PROBE && s->door && doc->door ? ENC_TASK_DOOR : 0, verb == ENC_VERB_ROLE || verb == ENC_VERB_VOLUME);
}

void enc_plan_order (struct enc_plan *plan, uint8_t verb, const struct enc_doc *doc, const struct enc_node_state *s)
{
	plan->n = plan->at = 0;
	/* The door shuts first (invariant 4), also if the agent forgets. */
	if (s->door && !doc->door && verb != ENC_VERB_DOOR)
		add (plan, ENC_JOB_DOOR, 0, false);
	if (verb == ENC_VERB_DOOR)
		plan_door (plan, doc, s);
	else if (verb == ENC_VERB_FENCE)
		plan_fence (plan, doc, s);
	else
		plan_one (plan, verb, doc, s);
}

void enc_plan_shut (struct enc_plan *plan)
{
	plan->n = plan->at = 0;
	add (plan, ENC_JOB_DOOR, 0, false);
	add (plan, ENC_JOB_FENCE, 0, false);
}

void enc_plan_tighten (struct enc_plan *plan)
{
	plan->n = plan->at = 0;
	add (plan, ENC_JOB_FENCE, 0, false);
	add (plan, ENC_JOB_DOOR, 0, false);
	add (plan, ENC_JOB_ROLES, ENC_TASK_CLOSE, false);
	add (plan, ENC_JOB_VOLUMES, ENC_TASK_CLOSE, false);
	add (plan, ENC_JOB_OVERLAY, ENC_TASK_CLOSE, false);
	add (plan, ENC_JOB_UNITS, 0, false);
}

bool enc_plan_wants_key (uint8_t verb, const struct enc_doc *doc, const char *key)
{
	if (verb == ENC_VERB_ROLE)
		return doc->munge_key[0] && strcmp (doc->munge_key, key) == 0;
	for (size_t i = 0; verb == ENC_VERB_VOLUME && i < doc->volumes_n; i++)
		if (doc->volumes[i].key[0] && strcmp (doc->volumes[i].key, key) == 0)
			return true;
	return false;
}

/* ---- the state before ---- */

static int forget_stay (struct enc_node_state *s, struct enc_error *err)
{
	int rc = enc_state_set (&s->clean, NULL, err);

	if (rc == 0)
		rc = enc_state_set (&s->measure, NULL, err);
	if (rc == 0)
		rc = enc_state_set (&s->probe, NULL, err);
	s->clean_ok = false;
	s->grant_until = 0;
	s->expired_door = s->expired_volumes = false;
	return rc;
}

static int set_document (struct enc_node_state *s, const struct enc_doc *doc, struct enc_view bytes, const uint8_t digest[32], struct enc_error *err)
{
	enc_auto_free char *text = enc_base64 (bytes.at, bytes.left);

	if (!text)
		return enc_fail (err, ENC_ENOMEM, "state: no memory");
	free (s->document);
	s->document = ENC_TAKE (text);
	memcpy (s->digest, digest, sizeof s->digest);
	s->generation = doc->generation;
	return 0;
}

int enc_plan_accept (struct enc_node_state *s, uint8_t verb, const struct enc_doc *doc, struct enc_view bytes, const uint8_t digest[32],
	const struct enc_grant *grant, struct enc_error *err)
{
	int rc = 0;

	(void)verb;
	if (is_home (s->pool) && !is_home (doc->pool))
		rc = forget_stay (s, err);
	if (rc == 0)
		rc = set_document (s, doc, bytes, digest, err);
	if (rc == 0 && doc->enclave_id[0])
		rc = enc_state_set (&s->enclave_id, doc->enclave_id, err);
	if (rc == 0 && doc->enclave_name[0])
		rc = enc_state_set (&s->enclave_name, doc->enclave_name, err);
	if (rc < 0)
		return rc;
	if (grant) {
		s->grant_until = grant->not_after;
		s->record = grant->record;
		s->expired_door = s->expired_volumes = false;
	}
	/* Once inside, the last act is no clean any more. */
	if (doc->pool == ENC_POOL_ENCLAVE)
		s->clean_ok = false;
	if (!is_home (doc->pool) || (is_home (s->pool) && !enc_node_state_held (s)))
		s->pool = doc->pool;
	return 0;
}

int enc_plan_tight (struct enc_node_state *s, const struct enc_doc *doc, struct enc_error *err)
{
	int rc = is_home (s->pool) ? forget_stay (s, err) : 0;

	s->pool = doc->pool;
	s->clean_ok = false;
	return rc;
}

_Static_assert (ENC_DOC_VOLUMES_MAX <= 64, "news is a set of volumes");

static int claim_volumes (struct enc_plan_step *step, const struct enc_doc *doc, struct enc_node_state *s, struct enc_error *err)
{
	int rc;

	for (size_t i = 0; i < doc->volumes_n; i++) {
		if (enc_strs_has (&s->volumes, doc->volumes[i].name))
			continue;
		if ((rc = enc_strs_add (&s->volumes, doc->volumes[i].name, err)) < 0)
			return rc;
		step->news |= UINT64_C (1) << i;
	}
	return step->news != 0;
}

static bool claim_roles (const struct enc_doc *doc, struct enc_node_state *s)
{
	uint32_t had = s->roles;

	s->roles |= doc->roles;
	return s->roles != had;
}

int enc_plan_claim (struct enc_plan *plan, const struct enc_doc *doc, struct enc_node_state *s, struct enc_error *err)
{
	struct enc_plan_step *step = &plan->step[plan->at];
	int changed = 0;

	if (step->flags & ENC_TASK_CLOSE)
		return 0;
	if (step->job == ENC_JOB_VOLUMES)
		changed = claim_volumes (step, doc, s, err);
	else if (step->job == ENC_JOB_ROLES)
		changed = claim_roles (doc, s);
	else if (step->job == ENC_JOB_OVERLAY && doc->overlay && !s->overlay)
		changed = s->overlay = true;
	if (changed > 0)
		s->unsure |= 1u << step->job;
	return changed;
}

/* ---- the state after ---- */

/* What one finished task means. */
struct outcome {
	const struct enc_plan_step *step;
	int rc;
	const struct enc_doc *doc;
	const struct enc_json *found;
	struct enc_node_state *s;
	struct enc_spool *spool;
};

static bool closes (const struct outcome *o)
{
	return (o->step->flags & ENC_TASK_CLOSE) != 0;
}

static void tell (const struct outcome *o, const char *class, const char *action, struct enc_json *obj, struct enc_json *data)
{
	enc_json_set_str (obj, "node", o->doc->node);
	enc_spool_add (o->spool, class, action, o->rc < 0 ? "failed" : "ok", obj, data);
}

/* Home: with fence and units back nothing of the stay is left to know. */
static int come_home (const struct outcome *o, struct enc_error *err)
{
	struct enc_node_state *s = o->s;
	int rc;

	if (!is_home (o->doc->pool) || s->fence != ENC_FENCE_NONE)
		return 0;
	s->pool = o->doc->pool;
	s->member_version = 0;
	s->grant_until = 0;
	if ((rc = enc_state_set (&s->enclave_id, NULL, err)) < 0 || (rc = enc_state_set (&s->enclave_name, NULL, err)) < 0)
		return rc;
	return 0;
}

static int fence_done (const struct outcome *o, struct enc_error *err)
{
	struct enc_node_state *s = o->s;
	struct enc_json *data;
	int rc;

	if (o->rc < 0)
		return 0;
	if (s->fence != o->doc->fence) {
		data = enc_json_object ();
		enc_json_set_str (data, "state", enc_fence_mode_name (o->doc->fence));
		enc_json_set_u64 (data, "generation", s->generation);
		tell (o, "fence", "set", enc_json_object (), data);
	}
	s->fence = o->doc->fence;
	if (s->fence != ENC_FENCE_NONE) {
		s->controller_port = o->doc->controller_port;
		if ((rc = enc_state_set (&s->controller4, o->doc->controller4, err)) < 0 || (rc = enc_state_set (&s->controller6, o->doc->controller6, err)) < 0)
			return rc;
	}
	return come_home (o, err);
}

static int overlay_done (const struct outcome *o, struct enc_error *err)
{
	bool up = o->doc->overlay && !closes (o);

	(void)err;
	if (o->rc == 0 || up)
		o->s->overlay = up;
	return 0;
}

static int overlay_key_done (const struct outcome *o, struct enc_error *err)
{
	if (o->rc < 0)
		return 0;
	return enc_state_set (&o->s->overlay_key, closes (o) ? NULL : enc_json_get_str (o->found, "overlay_key", NULL), err);
}

static bool doc_has_volume (const struct enc_doc *doc, const char *name)
{
	for (size_t i = 0; i < doc->volumes_n; i++)
		if (strcmp (doc->volumes[i].name, name) == 0)
			return true;
	return false;
}

/* `driver` NULL: not known any more. */
static void tell_volume (const struct outcome *o, const char *action, const char *name, const char *driver)
{
	struct enc_json *obj = enc_json_object (), *data = enc_json_object ();

	enc_json_set_str (obj, "volume", name);
	if (driver)
		enc_json_set_str (data, "driver", driver);
	tell (o, "volume", action, obj, data);
}

static int volumes_done (const struct outcome *o, struct enc_error *err)
{
	struct enc_strs *open = &o->s->volumes;
	int rc;

	for (size_t i = open->n; i-- > 0 && o->rc == 0;) {
		if (!closes (o) && doc_has_volume (o->doc, open->v[i]))
			continue;
		tell_volume (o, "close", open->v[i], NULL);
		(void)enc_strs_remove (open, open->v[i]);
	}
	for (size_t i = 0; i < o->doc->volumes_n && !closes (o); i++) {
		bool known = enc_strs_has (open, o->doc->volumes[i].name);

		if (known && !(o->step->news & UINT64_C (1) << i))
			continue;
		tell_volume (o, "open", o->doc->volumes[i].name, o->doc->volumes[i].driver);
		if (!known && (rc = enc_strs_add (open, o->doc->volumes[i].name, err)) < 0)
			return rc;
	}
	return 0;
}

static int units_done (const struct outcome *o, struct enc_error *err)
{
	if (o->rc == 0)
		o->s->units = closes (o) ? ENC_UNITS_DOWN : o->doc->units;
	return o->rc == 0 && o->s->units == ENC_UNITS_SITE ? come_home (o, err) : 0;
}

static int roles_done (const struct outcome *o, struct enc_error *err)
{
	uint8_t want = closes (o) ? 0 : o->doc->roles;

	(void)err;
	o->s->roles = o->rc == 0 ? want : o->s->roles | want;
	return 0;
}

static int door_done (const struct outcome *o, struct enc_error *err)
{
	(void)err;
	/* What plugins are told is the door; when opening failed they are told that it is shut. */
	o->s->door = o->rc == 0 && (o->step->flags & ENC_TASK_DOOR);
	return 0;
}

static int clean_done (const struct outcome *o, struct enc_error *err)
{
	o->s->clean_ok = o->rc == 0 && enc_json_get_bool (o->found, "passed", false);
	return enc_state_set (&o->s->clean, o->s->clean_ok ? o->doc->clean_id : NULL, err);
}

static int measure_done (const struct outcome *o, struct enc_error *err)
{
	return o->rc < 0 ? 0 : enc_state_set (&o->s->measure, o->doc->challenge, err);
}

static int probe_done (const struct outcome *o, struct enc_error *err)
{
	return o->rc < 0 ? 0 : enc_state_set (&o->s->probe, o->doc->probe_id, err);
}

static int (*const outcomes[ENC_JOB_MAX]) (const struct outcome *o, struct enc_error *err) = {
	[ENC_JOB_FENCE] = fence_done,     [ENC_JOB_OVERLAY] = overlay_done, [ENC_JOB_OVERLAY_KEY] = overlay_key_done,
	[ENC_JOB_VOLUMES] = volumes_done, [ENC_JOB_UNITS] = units_done,     [ENC_JOB_ROLES] = roles_done,
	[ENC_JOB_DOOR] = door_done,       [ENC_JOB_CLEAN] = clean_done,     [ENC_JOB_MEASURE] = measure_done,
	[ENC_JOB_PROBE] = probe_done,
};

int enc_plan_commit (const struct enc_plan *plan, size_t at, int task_rc, const struct enc_doc *doc, const struct enc_json *found, struct enc_node_state *s,
	struct enc_spool *spool, struct enc_error *err)
{
	struct outcome o = { .step = &plan->step[at], .rc = task_rc, .doc = doc, .found = found, .s = s, .spool = spool };

	/* Doors and clean runs have their own say; the rest has to have worked before the door opens. */
	if (o.step->job != ENC_JOB_DOOR && o.step->job != ENC_JOB_CLEAN && o.step->job != ENC_JOB_MEASURE && o.step->job != ENC_JOB_PROBE)
		s->unsure = task_rc < 0 ? s->unsure | 1u << o.step->job : s->unsure & ~(1u << o.step->job);
	return outcomes[o.step->job] ? outcomes[o.step->job](&o, err) : 0;
}
