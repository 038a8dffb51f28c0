/* The runner of a table of steps. It knows nothing of enclaves: only rows that can be done, undone and checked.
 *
 * Rules: an intent is durable before a row is touched and an outcome after it, and for a loosening act both are in the log too ·
 * after `act` the `check` must hold, or the row has failed · on restart an intent without an outcome is settled by `check` · going
 * down, a row that cannot be undone sends nodes to quarantine and is undone for the rest; it is never skipped · a row never begun
 * is not undone · what is only unreachable (log, keys, scheduler) is waited for, not quarantined. */
#ifndef ENC_ENCLAVED_ENGINE_H
#define ENC_ENCLAVED_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"
#include "controller/enclaved/store.h"

typedef int (*enc_step_fn) (void *ctx, struct enc_error *err);

enum {
	ENC_STEP_ACT_LOOSENS = 1,  /* `act` opens something: no log, no act */
	ENC_STEP_UNDO_LOOSENS = 2, /* `undo` gives something back: no log, no undo */
};

struct enc_step {
	const char *name;
	enc_step_fn act;   /* idempotent */
	enc_step_fn undo;  /* idempotent; NULL: nothing to undo */
	enc_step_fn check; /* reads the world, changes nothing; NULL: nothing to check */
	unsigned act_s, undo_s, check_s; /* deadlines */
	unsigned flags;
	const char *help;  /* what a newcomer reads */
};

/* What the runner needs from its owner. */
struct enc_runner {
	const struct enc_step *steps; /* ended by name NULL */
	void *ctx;                    /* handed to rows and to the calls below */
	enum enc_row_state (*state) (void *ctx, const char *row);
	/* Durable when they return. `must`: also in the log, or fail; else the log gets it when it can. */
	int (*intent) (void *ctx, const struct enc_step *step, enum enc_dir dir, bool must, struct enc_error *err);
	int (*outcome) (void *ctx, const struct enc_step *step, enum enc_dir dir, int rc, const struct enc_error *why, int64_t ms, bool must,
			struct enc_error *err);
	/* Bound the waits of the row that comes, in seconds from now; 0 lifts the bound. May be NULL. */
	void (*bound) (void *ctx, unsigned seconds);
	/* Set apart the nodes on which `step` could not be undone (all of them if it cannot tell). 0: some were, go on with the rest.
	 * Negative: nothing is left to set apart. */
	int (*quarantine) (void *ctx, const struct enc_step *step, const struct enc_error *why, struct enc_error *err);
	/* Something is not reachable: wait a little. False: give up. */
	bool (*wait) (void *ctx, const struct enc_step *step, const struct enc_error *why);
};

/* Walk up from the first row that is not done. 0: every row is done and checks. Else the failure of the row where it stopped, with
 * err->step; the caller then walks down. */
ENC_MUST_USE int enc_engine_up (const struct enc_runner *r, struct enc_error *err);
/* Walk down over every row ever begun. 0: all undone. Else stuck in err->step; may be called again at any time. */
ENC_MUST_USE int enc_engine_down (const struct enc_runner *r, struct enc_error *err);
/* Last row of the table that is done, NULL if none. */
const struct enc_step *enc_engine_at (const struct enc_runner *r);

#endif
