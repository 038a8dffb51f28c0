/* States: idle → asking (STATE) → running (steps in table order) → asking again → idle, and `changed` is called.
 * First everything that tightens, then what leads up, last what leads back to a pool: whatever the document says, a node is never opened
 * on one side before it is shut on the other. Whether a step is due is judged from what privd reports, never from memory. */
#include "node-agent/agentd/converge.h"

#include <string.h>

#include "base/enctime.h"
#include "base/point.h"
#include "base/enc.h"

enum { STATE_TIMEOUT_MS = 5000, ROUNDS_MAX = 3 };

struct view_of_node {
	const struct enc_doc *doc;
	const struct enc_work *work;
	const struct enc_json *state, *areas;
};
typedef bool due_fn (const struct view_of_node *v);

static const char *area (const struct view_of_node *v, const char *name)
{
	return enc_json_get_str (v->areas, name, "");
}

static unsigned roles_now (const struct view_of_node *v)
{
	unsigned set = 0;
	const struct enc_json *list = enc_json_get (v->areas, "roles");
	for (size_t i = 0; i < enc_json_len (list); i++)
		for (unsigned bit = 1; bit <= ENC_ROLE_LOGIN; bit <<= 1) {
			const char *name = enc_json_str (enc_json_at (list, i));
			if (name && strcmp (name, enc_role_name ((uint8_t) bit)) == 0)
				set |= bit;
		}
	return set;
}

static bool volume_wanted (const struct enc_doc *doc, const char *name)
{
	for (size_t i = 0; i < doc->volumes_n; i++)
		if (strcmp (doc->volumes[i].name, name) == 0)
			return true;
	return false;
}

static bool is_unsure (const struct view_of_node *v, const char *name)
{
	const struct enc_json *list = enc_json_get (v->areas, "unsure");
	for (size_t i = 0; i < enc_json_len (list); i++)
		if (strcmp (enc_json_str (enc_json_at (list, i)) ? enc_json_str (enc_json_at (list, i)) : "", name) == 0)
			return true;
	return false;
}

static bool door_shuts (const struct view_of_node *v)
{
	return !v->doc->door && strcmp (area (v, "door"), "open") == 0;
}

static bool roles_fall (const struct view_of_node *v)
{
	return (roles_now (v) & (unsigned) ~v->doc->roles) != 0;
}

static bool volumes_fall (const struct view_of_node *v)
{
	const struct enc_json *list = enc_json_get (v->areas, "volumes");
	for (size_t i = 0; i < enc_json_len (list); i++) {
		const char *name = enc_json_str (enc_json_at (list, i));
		if (!name || !volume_wanted (v->doc, name))
			return true;
	}
	return false;
}

static bool overlay_falls (const struct view_of_node *v)
{
	return !v->doc->overlay && strcmp (area (v, "overlay"), "up") == 0;
}

static bool units_down (const struct view_of_node *v)
{
	return v->doc->units == ENC_UNITS_DOWN && strcmp (area (v, "units"), "down") != 0;
}

static bool fence_shut (const struct view_of_node *v)
{
	return v->doc->fence != ENC_FENCE_NONE;
}

static bool clean_due (const struct view_of_node *v)
{
	return v->doc->clean != ENC_CLEAN_NONE && strcmp (area (v, "clean"), v->doc->clean_id) != 0;
}

static bool measure_due (const struct view_of_node *v)
{
	return v->doc->challenge[0] && strcmp (area (v, "measure"), v->doc->challenge) != 0;
}

static bool members_given (const struct view_of_node *v)
{
	return v->work->members.len > 0;
}

static bool overlay_rises (const struct view_of_node *v)
{
	return v->doc->overlay;
}

static bool volumes_rise (const struct view_of_node *v)
{
	return v->doc->volumes_n > enc_json_len (enc_json_get (v->areas, "volumes")) || (v->doc->volumes_n && is_unsure (v, "volumes"));
}

static bool roles_rise (const struct view_of_node *v)
{
	return v->doc->roles != 0;
}

static bool door_opens (const struct view_of_node *v)
{
	return v->doc->door && strcmp (area (v, "door"), "open") != 0;
}

static bool probe_due (const struct view_of_node *v)
{
	return v->doc->probe_id[0] && strcmp (area (v, "probe"), v->doc->probe_id) != 0;
}

static bool fence_falls (const struct view_of_node *v)
{
	return v->doc->fence == ENC_FENCE_NONE && strcmp (area (v, "fence"), "none") != 0;
}

static bool units_site (const struct view_of_node *v)
{
	return v->doc->units == ENC_UNITS_SITE && strcmp (area (v, "units"), "site") != 0;
}

static const struct step {
	const char *area;
	uint8_t verb;
	int64_t timeout_ms;
	due_fn *due;
	bool always; /* due whenever the document has it, reached or not */
} steps[] = {
	{ "door", ENC_VERB_DOOR, 15000, door_shuts },
	{ "roles", ENC_VERB_ROLE, 45000, roles_fall },
	{ "volumes", ENC_VERB_VOLUME, 30000, volumes_fall },
	{ "overlay", ENC_VERB_OVERLAY, 15000, overlay_falls },
	{ "units", ENC_VERB_UNITS, 45000, units_down },
	{ "fence", ENC_VERB_FENCE, 15000, fence_shut, true },
	{ "clean", ENC_VERB_CLEAN, 180000, clean_due },
	{ "measure", ENC_VERB_MEASURE, 60000, measure_due },
	{ "overlay", ENC_VERB_OVERLAY, 15000, overlay_rises, true },
	{ "members", ENC_VERB_MEMBERS, 5000, members_given, true },
	{ "volumes", ENC_VERB_VOLUME, 60000, volumes_rise },
	{ "roles", ENC_VERB_ROLE, 60000, roles_rise, true },
	{ "door", ENC_VERB_DOOR, 15000, door_opens },
	{ "probe", ENC_VERB_PROBE, 60000, probe_due },
	{ "fence", ENC_VERB_FENCE, 15000, fence_falls },
	{ "units", ENC_VERB_UNITS, 60000, units_site },
};

struct enc_converge {
	struct enc_privd_link *link;
	enc_converge_fn *changed;
	void *arg;
	struct enc_json *state, *evidence;
	struct enc_work *work, *next; /* being converged, waiting */
	size_t at;                    /* next row of `steps` */
	bool ending;                  /* the STATE under way is the last of this round */
	unsigned rounds;              /* a step may make an earlier one due again: the state is read anew, and the table walked again */
	bool refreshing, refresh_again;
	uint64_t generation;
	char digest[65];
	struct enc_error failed;
};

static void run_ask (struct enc_converge *c);

struct enc_converge *enc_converge_new (struct enc_privd_link *link, enc_converge_fn *changed, void *arg, struct enc_error *err)
{
	struct enc_converge *c = calloc (1, sizeof *c);
	if (!c || !(c->evidence = enc_json_object ())) {
		free (c);
		(void) enc_fail (err, ENC_ENOMEM, "no memory to converge");
		return NULL;
	}
	c->link = link;
	c->changed = changed;
	c->arg = arg;
	return c;
}

void enc_converge_free (struct enc_converge *c)
{
	if (!c)
		return;
	enc_json_free (c->state);
	enc_json_free (c->evidence);
	enc_work_free (c->work);
	enc_work_free (c->next);
	free (c);
}

/* The run is over; `err` says what failed, NULL if nothing did. */
static void run_end (struct enc_converge *c, const struct enc_error *err)
{
	c->generation = c->work->generation;
	memcpy (c->digest, c->work->digest, sizeof c->digest);
	if (err)
		c->failed = *err;
	enc_work_free (c->work);
	c->work = NULL;
	c->ending = false;
	c->changed (c->arg);
	if (c->next)
		enc_converge_start (c, ENC_TAKE (c->next));
}

static struct enc_json *evidence_parse (const struct enc_answer *answer)
{
	if (!answer || !answer->evidence.left)
		return NULL;
	return enc_json_parse ((const char *) answer->evidence.at, answer->evidence.left, ENC_ORDER_BYTES_MAX, NULL);
}

static void step_done (int rc, const struct enc_answer *answer, const struct enc_error *err, void *arg);

/* Fault points: agentd.AREA before an order, agentd.AREA.done with its answer. */
static int point (const char *area, const char *suffix, struct enc_error *err)
{
	char name[48];
	(void) snprintf (name, sizeof name, "agentd.%s%s", area, suffix);
	return enc_point (name, err);
}

static void run_next (struct enc_converge *c)
{
	struct view_of_node v = { &c->work->doc, c->work, c->state, enc_json_get (c->state, "areas") };
	while (c->at < ENC_ARRAY_LEN (steps) && !steps[c->at].due (&v))
		c->at++;
	if (c->at == ENC_ARRAY_LEN (steps)) {
		c->ending = true;
		run_ask (c);
		return;
	}
	struct enc_order order;
	struct enc_error err = { 0 };
	enc_work_order (c->work, steps[c->at].verb, &order);
	if (point (steps[c->at].area, "", &err) < 0 ||
	    enc_privd_link_order (c->link, &order, steps[c->at].timeout_ms, step_done, c, &err) < 0)
		run_end (c, &err);
}

static void step_done (int rc, const struct enc_answer *answer, const struct enc_error *err, void *arg)
{
	struct enc_converge *c = arg;
	struct enc_json *evidence = evidence_parse (answer);
	struct enc_error late = { 0 };
	if (rc >= 0 && (rc = point (steps[c->at].area, ".done", &late)) < 0)
		err = &late;
	if (evidence)
		enc_json_set (c->evidence, steps[c->at].area, evidence);
	if (rc < 0) {
		struct enc_error failed = *err;
		(void) enc_error_step (&failed, rc, steps[c->at].area);
		c->failed = failed;
		c->ending = true; /* report with the state as it is now */
		run_ask (c);
		return;
	}
	c->at++;
	run_next (c);
}

/* Keep privd's state; true if it differs from the last one. */
static bool state_take (struct enc_converge *c, const struct enc_answer *answer)
{
	struct enc_json *state = evidence_parse (answer);
	if (!state)
		return false;
	bool differs = !c->state || !enc_json_equal (state, c->state);
	enc_json_free (c->state);
	c->state = state;
	return differs;
}

/* The fence is put up in each round anyway, and members are given once; they are no reason for another. */
static bool still_due (const struct enc_converge *c)
{
	struct view_of_node v = { &c->work->doc, c->work, c->state, enc_json_get (c->state, "areas") };
	for (size_t i = 0; i < ENC_ARRAY_LEN (steps); i++)
		if (!steps[i].always && steps[i].due (&v))
			return true;
	return false;
}

static void run_state (int rc, const struct enc_answer *answer, const struct enc_error *err, void *arg)
{
	struct enc_converge *c = arg;
	if (rc < 0) {
		run_end (c, err);
		return;
	}
	(void) state_take (c, answer);
	if (!c->ending) {
		run_next (c);
	} else if (!c->failed.code && ++c->rounds < ROUNDS_MAX && still_due (c)) {
		c->ending = false;
		c->at = 0;
		run_next (c);
	} else {
		run_end (c, NULL);
	}
}

static void run_ask (struct enc_converge *c)
{
	struct enc_order order = { .verb = ENC_VERB_STATE };
	struct enc_error err = { 0 };
	if (enc_privd_link_order (c->link, &order, STATE_TIMEOUT_MS, run_state, c, &err) < 0)
		run_end (c, &err);
}

void enc_converge_start (struct enc_converge *c, struct enc_work *work)
{
	if (c->work) {
		enc_work_free (c->next);
		c->next = work;
		return;
	}
	c->work = work;
	c->at = 0;
	c->rounds = 0;
	c->ending = false;
	enc_error_clear (&c->failed);
	run_ask (c);
}

static void refresh_done (int rc, const struct enc_answer *answer, const struct enc_error *err ENC_UNUSED, void *arg)
{
	struct enc_converge *c = arg;
	c->refreshing = false;
	if (rc == 0 && state_take (c, answer) && !c->work)
		c->changed (c->arg);
	if (rc == 0 && c->refresh_again)
		enc_converge_refresh (c, 0);
}

void enc_converge_refresh (struct enc_converge *c, uint64_t stored)
{
	/* What happened after privd was asked is not in its answer. */
	c->refresh_again = c->refreshing;
	if (c->refreshing)
		return;
	enc_auto_done (enc_buf_done) struct enc_buf extra = ENC_BUF_INIT (8);
	if (stored)
		enc_buf_put_u64 (&extra, stored);
	struct enc_order order = { .verb = ENC_VERB_STATE, .extra = enc_view_of (extra.data, extra.len) };
	c->refreshing = enc_privd_link_order (c->link, &order, STATE_TIMEOUT_MS, refresh_done, c, NULL) == 0;
}

const struct enc_json *enc_converge_state (const struct enc_converge *c)
{
	return c->state;
}

const struct enc_json *enc_converge_evidence (const struct enc_converge *c)
{
	return c->evidence;
}

uint64_t enc_converge_generation (const struct enc_converge *c)
{
	return c->generation;
}

const char *enc_converge_digest (const struct enc_converge *c)
{
	return c->digest;
}

const struct enc_error *enc_converge_failed (const struct enc_converge *c)
{
	return c->failed.code ? &c->failed : NULL;
}

bool enc_converge_busy (const struct enc_converge *c)
{
	return c->work != NULL;
}
