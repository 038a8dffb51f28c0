#include "controller/enclaved/engine.h"

#include "base/enctime.h"
#include "base/point.h"
#include "base/str.h"
#include "base/enc.h"

/* A node that fails is set apart, then the row is undone for the rest; every round sets at least one apart. */
enum { QUARANTINE_ROUNDS = 300 };

static int point (const struct enc_step *step, const char *where, struct enc_error *err)
{
	char name[96];

	(void) snprintf (name, sizeof name, "step.%s.%s", step->name, where);
	return enc_point (name, err);
}

static void bound (const struct enc_runner *r, unsigned seconds)
{
	if (r->bound)
		r->bound (r->ctx, seconds);
}

static int timed (const struct enc_runner *r, enc_step_fn fn, unsigned seconds, struct enc_error *err)
{
	int rc;

	if (!fn)
		return 0;
	bound (r, seconds);
	rc = fn (r->ctx, err);
	bound (r, 0);
	return rc;
}

static int do_and_check (const struct enc_runner *r, const struct enc_step *step, struct enc_error *err)
{
	int rc;

	if ((rc = point (step, "before_do", err)) < 0 ||
	    (rc = timed (r, step->act, step->act_s, err)) < 0 ||
	    (rc = point (step, "after_do", err)) < 0 ||
	    (rc = point (step, "before_check", err)) < 0)
		return rc;
	rc = timed (r, step->check, step->check_s, err);
	if (rc < 0 && rc != -ENC_ECANCELED)
		return enc_wrap (err, rc, "done, but the check does not hold");
	return rc;
}

static int up_row (const struct enc_runner *r, const struct enc_step *step, struct enc_error *err)
{
	bool must = step->flags & ENC_STEP_ACT_LOOSENS;
	int64_t start = enc_mono ();
	struct enc_error late = { 0 };
	int rc, orc;

	if ((rc = r->intent (r->ctx, step, ENC_UP, must, err)) < 0)
		return rc;
	if ((rc = point (step, "after_intent", err)) == 0)
		rc = do_and_check (r, step, err);
	orc = r->outcome (r->ctx, step, ENC_UP, rc, err, (enc_mono () - start) / ENC_NS_MS, must, &late);
	/* Done but not on record is not done: the way down tightens it again. */
	if (rc == 0 && orc < 0) {
		if (err)
			*err = late;
		rc = orc;
	}
	return rc;
}

/* An intent without an outcome: the process died in between. If the world is as `act` would have made it, it is done. */
static bool settled (const struct enc_runner *r, const struct enc_step *step)
{
	struct enc_error err = { 0 };

	if (r->state (r->ctx, step->name) != ENC_ROW_DOING || !step->check)
		return false;
	if (timed (r, step->check, step->check_s, &err) < 0)
		return false;
	return r->outcome (r->ctx, step, ENC_UP, 0, NULL, 0, step->flags & ENC_STEP_ACT_LOOSENS, &err) == 0;
}

int enc_engine_up (const struct enc_runner *r, struct enc_error *err)
{
	for (const struct enc_step *step = r->steps; step->name; step++) {
		int rc;

		if (r->state (r->ctx, step->name) == ENC_ROW_DONE || settled (r, step))
			continue;
		if ((rc = up_row (r, step, err)) < 0)
			return enc_error_step (err, rc, step->name);
	}
	return 0;
}

static int undo_once (const struct enc_runner *r, const struct enc_step *step, struct enc_error *err)
{
	bool must = step->flags & ENC_STEP_UNDO_LOOSENS;
	int64_t start = enc_mono ();
	struct enc_error late = { 0 };
	int rc, orc;

	if ((rc = r->intent (r->ctx, step, ENC_DOWN, must, err)) < 0)
		return rc;
	if ((rc = point (step, "before_undo", err)) == 0 && (rc = timed (r, step->undo, step->undo_s, err)) == 0)
		rc = point (step, "after_undo", err);
	orc = r->outcome (r->ctx, step, ENC_DOWN, rc, err, (enc_mono () - start) / ENC_NS_MS, must, &late);
	if (rc == 0 && orc < 0) {
		if (err)
			*err = late;
		rc = orc;
	}
	return rc;
}

static int down_row (const struct enc_runner *r, const struct enc_step *step, struct enc_error *err)
{
	for (int round = 0; round < QUARANTINE_ROUNDS; round++) {
		struct enc_error more = { 0 };
		int rc;

		enc_error_clear (err);
		rc = undo_once (r, step, err);
		if (rc == 0)
			return 0;
		if (rc == -ENC_ECANCELED)
			return rc;
		if (rc == -ENC_EUNAVAIL) {
			if (!r->wait || !r->wait (r->ctx, step, err))
				return rc;
			round--;
			continue;
		}
		if (r->quarantine (r->ctx, step, err, &more) < 0)
			return rc;
	}
	return enc_fail (err, ENC_EFAILED, "could not be undone after setting %d nodes apart", QUARANTINE_ROUNDS);
}

static const struct enc_step *last_of (const struct enc_step *steps)
{
	const struct enc_step *s = steps;

	while (s->name)
		s++;
	return s;
}

int enc_engine_down (const struct enc_runner *r, struct enc_error *err)
{
	struct enc_error local = { 0 };

	if (!err)
		err = &local;
	for (const struct enc_step *step = last_of (r->steps); step-- > r->steps;) {
		enum enc_row_state state = r->state (r->ctx, step->name);
		int rc;

		if (state == ENC_ROW_NONE || state == ENC_ROW_UNDONE)
			continue;
		if ((rc = down_row (r, step, err)) < 0)
			return enc_error_step (err, rc, step->name);
	}
	return 0;
}

const struct enc_step *enc_engine_at (const struct enc_runner *r)
{
	for (const struct enc_step *step = last_of (r->steps); step-- > r->steps;)
		if (r->state (r->ctx, step->name) == ENC_ROW_DONE)
			return step;
	return NULL;
}
