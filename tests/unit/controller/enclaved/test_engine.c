/* The runner's rules, with rows that can be told to fail, lie or die. The world is one flag a row: what `act` did. A crash leaves the
 * engine by longjmp at the chosen place; the journal and the world stay, as after SIGKILL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "controller/enclaved/engine.h"

enum { ROWS = 5 };
enum fault {
	FAULT_NONE, FAULT_ACT, FAULT_LIE, FAULT_CHECK, FAULT_UNDO, FAULT_UNDO_ALWAYS, FAULT_LOG, FAULT_UNREACHABLE, FAULT_LOG_DOWN,
	CRASH_INTENT, CRASH_ACT, CRASH_OUTCOME, CRASH_UNDO_INTENT, CRASH_UNDO,
};

struct world {
	bool up[ROWS];           /* what is so */
	enum enc_row_state journal[ROWS];
	enum fault fault;
	int at;                  /* row of the fault */
	int acts[ROWS], undos[ROWS], quarantined, waits, loosened_without_log;
	bool logged[ROWS];       /* a record of the intent is in the log */
	int order[64], order_n;  /* undone rows, in order */
	bool log_down;
	jmp_buf crash;
};

static struct world w;

static int row_of (const char *name)
{
	return name[1] - '0';
}

static void maybe_crash (enum fault fault, int row)
{
	if (w.fault == fault && w.at == row) {
		w.fault = FAULT_NONE; /* the next life is without it */
		longjmp (w.crash, 1);
	}
}

static int act (int row, struct enc_error *err)
{
	w.acts[row]++;
	if (!w.logged[row])
		w.loosened_without_log++;
	if (w.fault == FAULT_ACT && w.at == row)
		return enc_fail (err, ENC_EFAILED, "told to fail");
	if (!(w.fault == FAULT_LIE && w.at == row))
		w.up[row] = true;
	maybe_crash (CRASH_ACT, row);
	return 0;
}

static int undo (int row, struct enc_error *err)
{
	w.undos[row]++;
	w.order[w.order_n++] = row;
	if (w.at == row && (w.fault == FAULT_UNDO || w.fault == FAULT_UNDO_ALWAYS)) {
		if (w.fault == FAULT_UNDO)
			w.fault = FAULT_NONE;
		return enc_fail (err, ENC_EFAILED, "told not to be undone");
	}
	if (w.fault == FAULT_UNREACHABLE && w.at == row && w.waits < 3)
		return enc_fail (err, ENC_EUNAVAIL, "nobody there");
	w.up[row] = false;
	maybe_crash (CRASH_UNDO, row);
	return 0;
}

static int check (int row, struct enc_error *err)
{
	if (w.fault == FAULT_CHECK && w.at == row)
		return enc_fail (err, ENC_EFAILED, "told not to hold");
	return w.up[row] ? 0 : enc_fail (err, ENC_EFAILED, "is not so");
}

#define ROW(n)                                                                                                         \
	static int act##n (void *ctx, struct enc_error *err) { (void) ctx; return act (n, err); }                      \
	static int undo##n (void *ctx, struct enc_error *err) { (void) ctx; return undo (n, err); }                    \
	static int check##n (void *ctx, struct enc_error *err) { (void) ctx; return check (n, err); }
ROW (0)
ROW (1)
ROW (2)
ROW (3)
ROW (4)

#define LOOSE (ENC_STEP_ACT_LOOSENS)
static const struct enc_step steps[] = {
	{ "r0", act0, undo0, check0, 1, 1, 1, LOOSE, "" }, { "r1", act1, undo1, check1, 1, 1, 1, LOOSE | ENC_STEP_UNDO_LOOSENS, "" },
	{ "r2", act2, undo2, check2, 1, 1, 1, LOOSE, "" }, { "r3", act3, undo3, check3, 1, 1, 1, LOOSE, "" },
	{ "r4", act4, undo4, check4, 1, 1, 1, LOOSE, "" }, { 0 },
};

static enum enc_row_state state (void *ctx, const char *row)
{
	(void) ctx;
	return w.journal[row_of (row)];
}

static int intent (void *ctx, const struct enc_step *step, enum enc_dir dir, bool must, struct enc_error *err)
{
	int row = row_of (step->name);

	(void) ctx;
	if (must && ((w.fault == FAULT_LOG && w.at == row && dir == ENC_UP) || w.log_down))
		return enc_fail (err, ENC_EUNAVAIL, "the log does not answer");
	w.logged[row] = true;
	w.journal[row] = dir == ENC_UP ? ENC_ROW_DOING : ENC_ROW_UNDOING;
	maybe_crash (dir == ENC_UP ? CRASH_INTENT : CRASH_UNDO_INTENT, row);
	return 0;
}

static int outcome (void *ctx, const struct enc_step *step, enum enc_dir dir, int rc, const struct enc_error *why, int64_t ms, bool must,
		    struct enc_error *err)
{
	int row = row_of (step->name);

	(void) ctx;
	(void) why;
	(void) ms;
	(void) err;
	if (dir == ENC_UP)
		maybe_crash (CRASH_OUTCOME, row);
	if (w.fault == FAULT_LOG_DOWN && w.at == row && dir == ENC_UP && must && rc == 0) {
		w.journal[row] = ENC_ROW_FAILED;
		return enc_fail (err, ENC_EUNAVAIL, "the log died in between");
	}
	w.journal[row] = dir == ENC_UP ? (rc ? ENC_ROW_FAILED : ENC_ROW_DONE) : (rc ? ENC_ROW_UNDO_FAILED : ENC_ROW_UNDONE);
	return 0;
}

static int quarantine (void *ctx, const struct enc_step *step, const struct enc_error *why, struct enc_error *err)
{
	(void) ctx;
	(void) why;
	(void) step;
	if (w.quarantined == 3)
		return enc_fail (err, ENC_EFAILED, "nothing is left");
	w.quarantined++;
	return 0;
}

static bool wait_a_little (void *ctx, const struct enc_step *step, const struct enc_error *why)
{
	(void) ctx;
	(void) step;
	(void) why;
	if (++w.waits == 3)
		w.log_down = false;
	return w.waits < 10;
}

static const struct enc_runner runner = { .steps = steps, .state = state, .intent = intent, .outcome = outcome, .quarantine = quarantine,
					  .wait = wait_a_little };

static void fresh (enum fault fault, int at)
{
	memset (&w, 0, sizeof w);
	w.fault = fault;
	w.at = at;
}

/* Like a life of the daemon: go up; when that fails go down. A crash starts another life. Gives 0 open, 1 closed, negative stuck. */
static int live (bool want_up)
{
	struct enc_error err = { 0 };

	for (volatile int lives = 0; lives < 4; lives++) {
		if (setjmp (w.crash))
			continue;
		if (want_up && enc_engine_up (&runner, &err) == 0)
			return 0;
		want_up = false;
		return enc_engine_down (&runner, &err) < 0 ? -1 : 1;
	}
	return -2;
}

static void is_clean (void)
{
	for (int i = 0; i < ROWS; i++)
		assert_false (w.up[i]);
	for (int i = 1; i < w.order_n; i++)
		assert_true (w.order[i] <= w.order[i - 1]);
}

static void is_open (void)
{
	for (int i = 0; i < ROWS; i++)
		assert_true (w.up[i]);
}

static void all_rows_come_up_in_order_and_go_down_in_reverse (void **s)
{
	struct enc_error err = { 0 };

	(void) s;
	fresh (FAULT_NONE, 0);
	assert_int_equal (enc_engine_up (&runner, &err), 0);
	is_open ();
	assert_string_equal (enc_engine_at (&runner)->name, "r4");
	assert_int_equal (enc_engine_down (&runner, &err), 0);
	is_clean ();
	assert_int_equal (w.order_n, ROWS);
	assert_int_equal (w.order[0], 4); /* invariant 4: what opened last shuts first */
	assert_null (enc_engine_at (&runner));
}

static void invariant_04_the_last_row_up_is_the_first_down_from_every_prefix (void **s)
{
	(void) s;
	for (int at = 0; at < ROWS; at++) {
		fresh (FAULT_ACT, at);
		assert_int_equal (live (true), 1);
		is_clean ();
		assert_int_equal (w.order[0], at); /* the row that failed half-way is undone too */
		assert_int_equal (w.order_n, at + 1);
	}
}

static void a_row_that_claims_success_but_does_not_check_has_failed (void **s)
{
	(void) s;
	for (int at = 0; at < ROWS; at++) {
		fresh (FAULT_LIE, at);
		assert_int_equal (live (true), 1);
		is_clean ();
		fresh (FAULT_CHECK, at);
		assert_int_equal (live (true), 1);
		is_clean ();
	}
}

static void a_failed_undo_means_quarantine_and_never_skips_the_row (void **s)
{
	struct enc_error err = { 0 };

	(void) s;
	for (int at = 0; at < ROWS; at++) {
		fresh (FAULT_UNDO, at);
		assert_int_equal (enc_engine_up (&runner, &err), 0);
		assert_int_equal (enc_engine_down (&runner, &err), 0);
		assert_int_equal (w.quarantined, 1);
		assert_int_equal (w.undos[at], 2);
		is_clean ();
		fresh (FAULT_UNDO_ALWAYS, at);
		assert_int_equal (enc_engine_up (&runner, &err), 0);
		assert_int_equal (enc_engine_down (&runner, &err), -ENC_EFAILED);
		assert_string_equal (err.step, steps[at].name);
		for (int i = 0; i < at; i++)
			assert_true (w.up[i]); /* rows below it were not touched */
	}
}

static void invariant_05_without_the_log_nothing_is_loosened (void **s)
{
	struct enc_error err = { 0 };

	(void) s;
	for (int at = 0; at < ROWS; at++) {
		fresh (FAULT_LOG, at);
		assert_int_equal (enc_engine_up (&runner, &err), -ENC_EUNAVAIL);
		assert_int_equal (w.acts[at], 0);
		assert_int_equal (w.loosened_without_log, 0);
		fresh (FAULT_LOG_DOWN, at);
		assert_int_equal (live (true), 1);
		is_clean (); /* done but not on record is tightened again */
	}
}

static void invariant_05_tightening_never_waits_for_the_log (void **s)
{
	struct enc_error err = { 0 };

	(void) s;
	fresh (FAULT_NONE, 0);
	assert_int_equal (enc_engine_up (&runner, &err), 0);
	w.log_down = true;
	assert_int_equal (enc_engine_down (&runner, &err), 0);
	/* Only r1 gives something back: rows above it were undone before anything waited. */
	assert_int_equal (w.waits, 3);
	assert_int_equal (w.order[0], 4);
	assert_int_equal (w.order[3], 1);
	is_clean ();
}

static void what_is_unreachable_is_waited_for_and_not_quarantined (void **s)
{
	struct enc_error err = { 0 };

	(void) s;
	for (int at = 0; at < ROWS; at++) {
		fresh (FAULT_UNREACHABLE, at);
		assert_int_equal (enc_engine_up (&runner, &err), 0);
		assert_int_equal (enc_engine_down (&runner, &err), 0);
		assert_int_equal (w.quarantined, 0);
		is_clean ();
	}
}

static void a_crash_anywhere_on_the_way_up_ends_open (void **s)
{
	static const enum fault crashes[] = { CRASH_INTENT, CRASH_ACT, CRASH_OUTCOME };

	(void) s;
	for (size_t k = 0; k < sizeof crashes / sizeof *crashes; k++) {
		for (int at = 0; at < ROWS; at++) {
			fresh (crashes[k], at);
			assert_int_equal (live (true), 0);
			is_open ();
			/* An intent whose act was done is settled by the check: it is not done twice. */
			assert_int_equal (w.acts[at], 1);
		}
	}
}

static void a_crash_anywhere_on_the_way_down_ends_clean (void **s)
{
	static const enum fault crashes[] = { CRASH_UNDO_INTENT, CRASH_UNDO };
	struct enc_error err = { 0 };

	(void) s;
	for (size_t k = 0; k < sizeof crashes / sizeof *crashes; k++) {
		for (int at = 0; at < ROWS; at++) {
			fresh (FAULT_NONE, at);
			assert_int_equal (enc_engine_up (&runner, &err), 0);
			w.fault = crashes[k];
			assert_int_equal (live (false), 1);
			is_clean ();
		}
	}
}

static void going_down_may_be_called_at_any_time_and_any_number_of_times (void **s)
{
	struct enc_error err = { 0 };

	(void) s;
	fresh (FAULT_NONE, 0);
	assert_int_equal (enc_engine_down (&runner, &err), 0);
	assert_int_equal (w.order_n, 0); /* a row never begun is not undone */
	assert_int_equal (enc_engine_up (&runner, &err), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal (enc_engine_down (&runner, &err), 0);
	assert_int_equal (w.order_n, ROWS);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (all_rows_come_up_in_order_and_go_down_in_reverse),
		cmocka_unit_test (invariant_04_the_last_row_up_is_the_first_down_from_every_prefix),
		cmocka_unit_test (a_row_that_claims_success_but_does_not_check_has_failed),
		cmocka_unit_test (a_failed_undo_means_quarantine_and_never_skips_the_row),
		cmocka_unit_test (invariant_05_without_the_log_nothing_is_loosened),
		cmocka_unit_test (invariant_05_tightening_never_waits_for_the_log),
		cmocka_unit_test (what_is_unreachable_is_waited_for_and_not_quarantined),
		cmocka_unit_test (a_crash_anywhere_on_the_way_up_ends_open),
		cmocka_unit_test (a_crash_anywhere_on_the_way_down_ends_clean),
		cmocka_unit_test (going_down_may_be_called_at_any_time_and_any_number_of_times),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
