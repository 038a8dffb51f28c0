/* Straight-line code on one event loop.
 *
 * A fiber is a function with a stack of its own that runs on the loop's thread until it waits; then the loop goes on. There is no
 * second thread and no preemption: between two waits nothing else runs, so a load-change-store without a wait in it is atomic.
 * Every wait has a deadline (the smaller of its own and the fiber's) and ends early when the fiber is cancelled. */
#ifndef ENC_ENCLAVED_FIBER_H
#define ENC_ENCLAVED_FIBER_H

#include <stdbool.h>
#include <stdint.h>
#include "base/enctime.h"
#include "base/error.h"

struct event_base;
struct enc_fibers;
struct enc_fiber;

typedef void (*enc_fiber_fn) (void *arg);

/* Something fibers wait for. Zero is a condition with nobody waiting; it must outlive its waiters. */
struct enc_cond {
	struct enc_fiber *first;
};

/* NULL when memory is short. Free only when no fiber is left (enc_fibers_count). */
struct enc_fibers *enc_fibers_new (struct event_base *base);
void enc_fibers_free (struct enc_fibers *fs);
unsigned enc_fibers_count (const struct enc_fibers *fs);

/* Run `fn (arg)` from the loop, soon. The fiber frees itself when `fn` returns. `ret` (may be NULL) is borrowed and valid until then. */
ENC_MUST_USE int enc_fiber_start (struct enc_fibers *fs, enc_fiber_fn fn, void *arg, struct enc_fiber **ret, struct enc_error *err);
/* The fiber that is running, NULL on the loop's own stack. */
struct enc_fiber *enc_fiber_self (const struct enc_fibers *fs);

/* Every wait of this fiber, the present one too, ends with ENC_ECANCELED until enc_fiber_uncancel(). */
void enc_fiber_cancel (struct enc_fiber *f);
void enc_fiber_uncancel (struct enc_fiber *f);
bool enc_fiber_cancelled (const struct enc_fiber *f);
/* Bound all further waits of the running fiber (ENC_FOREVER lifts it); gives the bound that held before. */
int64_t enc_fiber_bound (struct enc_fibers *fs, int64_t deadline);

/* Wait for a signal. 0, ENC_ETIMEOUT or ENC_ECANCELED; outside a fiber ENC_EFAILED. Check your condition again after it. */
ENC_MUST_USE int enc_cond_wait (struct enc_fibers *fs, struct enc_cond *c, int64_t deadline, struct enc_error *err);
/* Wake all who wait now. They run from the loop, not inside this call. */
void enc_cond_signal (struct enc_cond *c);
/* Let `ms` pass. 0 when they have, ENC_ECANCELED, or ENC_ETIMEOUT when the fiber's own bound came first. */
ENC_MUST_USE int enc_fiber_sleep (struct enc_fibers *fs, int64_t ms, struct enc_error *err);

#endif
