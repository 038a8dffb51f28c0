#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <event2/event.h>
#include "controller/enclaved/fiber.h"

struct fixture {
	struct event_base *base;
	struct enc_fibers *fs;
	struct enc_cond cond;
	struct enc_fiber *fiber;
	int steps, rc;
	int64_t bound;
};

static int setup (void **state)
{
	static struct fixture f;

	f = (struct fixture){ .base = event_base_new () };
	f.fs = enc_fibers_new (f.base);
	*state = &f;
	return f.fs ? 0 : -1;
}

static int teardown (void **state)
{
	struct fixture *f = *state;

	assert_int_equal (enc_fibers_count (f->fs), 0);
	enc_fibers_free (f->fs);
	event_base_free (f->base);
	return 0;
}

static void run (struct fixture *f, int turns)
{
	for (int i = 0; i < turns; i++)
		(void) event_base_loop (f->base, EVLOOP_NONBLOCK);
}

static void waiter (void *arg)
{
	struct fixture *f = arg;

	f->steps++;
	f->rc = enc_cond_wait (f->fs, &f->cond, ENC_FOREVER, NULL);
	f->steps++;
}

static void a_fiber_runs_from_the_loop_and_waits_for_its_signal (void **state)
{
	struct fixture *f = *state;

	assert_int_equal (enc_fiber_start (f->fs, waiter, f, NULL, NULL), 0);
	assert_int_equal (f->steps, 0); /* not from within the call */
	run (f, 3);
	assert_int_equal (f->steps, 1);
	enc_cond_signal (&f->cond);
	assert_int_equal (f->steps, 1); /* not from within the signal */
	run (f, 2);
	assert_int_equal (f->steps, 2);
	assert_int_equal (f->rc, 0);
}

static void all_who_wait_are_woken (void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 5; i++)
		assert_int_equal (enc_fiber_start (f->fs, waiter, f, NULL, NULL), 0);
	run (f, 2);
	enc_cond_signal (&f->cond);
	run (f, 2);
	assert_int_equal (f->steps, 10);
}

static void bounded (void *arg)
{
	struct fixture *f = arg;

	(void) enc_fiber_bound (f->fs, enc_deadline_ms (20));
	f->rc = enc_cond_wait (f->fs, &f->cond, ENC_FOREVER, NULL);
	f->bound = enc_fiber_bound (f->fs, ENC_FOREVER);
}

static void invariant_08_a_wait_ends_at_the_fibers_own_bound (void **state)
{
	struct fixture *f = *state;

	assert_int_equal (enc_fiber_start (f->fs, bounded, f, NULL, NULL), 0);
	(void) event_base_dispatch (f->base);
	assert_int_equal (f->rc, -ENC_ETIMEOUT);
	assert_true (enc_passed (f->bound));
	assert_null (f->cond.first); /* nobody is left in the condition's list */
}

static void a_cancelled_wait_ends_and_so_does_every_later_one (void **state)
{
	struct fixture *f = *state;

	assert_int_equal (enc_fiber_start (f->fs, waiter, f, &f->fiber, NULL), 0);
	run (f, 2);
	enc_fiber_cancel (f->fiber);
	run (f, 2);
	assert_int_equal (f->steps, 2);
	assert_int_equal (f->rc, -ENC_ECANCELED);
	assert_null (f->cond.first);
}

static void sleeper (void *arg)
{
	struct fixture *f = arg;
	int64_t start = enc_mono ();

	f->rc = enc_fiber_sleep (f->fs, 30, NULL);
	f->bound = (enc_mono () - start) / ENC_NS_MS;
}

static void sleeping_lets_the_loop_go_on (void **state)
{
	struct fixture *f = *state;

	assert_int_equal (enc_fiber_start (f->fs, sleeper, f, NULL, NULL), 0);
	assert_int_equal (enc_fiber_start (f->fs, waiter, f, NULL, NULL), 0);
	run (f, 2);
	assert_int_equal (f->steps, 1); /* the other one runs meanwhile */
	enc_cond_signal (&f->cond);
	(void) event_base_dispatch (f->base);
	assert_int_equal (f->rc, 0);
	assert_true (f->bound >= 30);
}

static void outside_a_fiber_nothing_waits (void **state)
{
	struct fixture *f = *state;

	assert_int_equal (enc_cond_wait (f->fs, &f->cond, ENC_FOREVER, NULL), -ENC_EFAILED);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown (a_fiber_runs_from_the_loop_and_waits_for_its_signal, setup, teardown),
		cmocka_unit_test_setup_teardown (all_who_wait_are_woken, setup, teardown),
		cmocka_unit_test_setup_teardown (invariant_08_a_wait_ends_at_the_fibers_own_bound, setup, teardown),
		cmocka_unit_test_setup_teardown (a_cancelled_wait_ends_and_so_does_every_later_one, setup, teardown),
		cmocka_unit_test_setup_teardown (sleeping_lets_the_loop_go_on, setup, teardown),
		cmocka_unit_test_setup_teardown (outside_a_fiber_nothing_waits, setup, teardown),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
