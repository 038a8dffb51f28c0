/* Fibers over ucontext. The loop's stack is the root: a fiber is entered only from the loop's ready event and leaves only back to
 * it, so fibers never call into each other. A finished fiber's stack is freed by the root, never from itself. */
#include "controller/enclaved/fiber.h"

#include <event2/event.h>
#include <sys/mman.h>
#include <ucontext.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#include "base/enc.h"

enum { STACK_SIZE = 256 * 1024, GUARD_SIZE = 4096 };

struct enc_fiber {
	struct enc_fibers *fs;
	ucontext_t context;
	void *stack; /* guard page first */
	enc_fiber_fn fn;
	void *arg;
	struct event *timer;
	struct enc_cond *waits_on;
	struct enc_fiber *next_wait;  /* in the condition's list */
	struct enc_fiber *next_ready; /* in the ready list */
	int64_t bound;
	bool ready, timed_out, cancelled, finished;
};

struct enc_fibers {
	struct event_base *base;
	struct event *ready_event;
	struct enc_fiber *ready, **ready_tail;
	struct enc_fiber *current;
	ucontext_t root;
	unsigned count;
#if defined(__SANITIZE_ADDRESS__)
	const void *root_stack;
	size_t root_size;
#endif
};

static void fiber_free (struct enc_fiber *f)
{
	if (f->timer)
		event_free (f->timer);
	if (f->stack)
		(void) munmap (f->stack, STACK_SIZE + GUARD_SIZE);
	free (f);
}

static void ready_add (struct enc_fiber *f)
{
	struct enc_fibers *fs = f->fs;

	if (f->ready || f->finished)
		return;
	f->ready = true;
	f->next_ready = NULL;
	*fs->ready_tail = f;
	fs->ready_tail = &f->next_ready;
	event_active (fs->ready_event, EV_TIMEOUT, 1);
}

/* Enter a fiber from the root; comes back when it waits or ends. */
static void enter (struct enc_fibers *fs, struct enc_fiber *f)
{
	fs->current = f;
#if defined(__SANITIZE_ADDRESS__)
	void *fake = NULL;
	__sanitizer_start_switch_fiber (&fake, (char *) f->stack + GUARD_SIZE, STACK_SIZE);
	(void) swapcontext (&fs->root, &f->context);
	__sanitizer_finish_switch_fiber (fake, NULL, NULL);
#else
	(void) swapcontext (&fs->root, &f->context);
#endif
	fs->current = NULL;
	if (f->finished) {
		fs->count--;
		fiber_free (f);
	}
}

/* Back to the root from inside a fiber. */
static void leave (struct enc_fiber *f)
{
#if defined(__SANITIZE_ADDRESS__)
	void *fake = NULL;
	__sanitizer_start_switch_fiber (f->finished ? NULL : &fake, f->fs->root_stack, f->fs->root_size);
	(void) swapcontext (&f->context, &f->fs->root);
	__sanitizer_finish_switch_fiber (fake, &f->fs->root_stack, &f->fs->root_size);
#else
	(void) swapcontext (&f->context, &f->fs->root);
#endif
}

static void on_ready (ENC_UNUSED evutil_socket_t fd, ENC_UNUSED short what, void *arg)
{
	struct enc_fibers *fs = arg;
	struct enc_fiber *f = fs->ready;

	/* Those made ready meanwhile come with the next turn, so that sockets are served in between. */
	fs->ready = NULL;
	fs->ready_tail = &fs->ready;
	while (f) {
		struct enc_fiber *next = f->next_ready;

		f->ready = false;
		enter (fs, f);
		f = next;
	}
}

static void on_timer (ENC_UNUSED evutil_socket_t fd, ENC_UNUSED short what, void *arg)
{
	struct enc_fiber *f = arg;

	f->timed_out = true;
	ready_add (f);
}

/* makecontext passes ints only, so the pointer travels in two halves. */
static void trampoline (unsigned high, unsigned low)
{
	struct enc_fiber *f = (struct enc_fiber *) (((uintptr_t) high << 32) | (uintptr_t) low);

#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_finish_switch_fiber (NULL, &f->fs->root_stack, &f->fs->root_size);
#endif
	f->fn (f->arg);
	f->finished = true;
	leave (f);
	abort (); /* a finished fiber is never entered again */
}

struct enc_fibers *enc_fibers_new (struct event_base *base)
{
	struct enc_fibers *fs = calloc (1, sizeof *fs);

	if (!fs)
		return NULL;
	fs->base = base;
	fs->ready_tail = &fs->ready;
	fs->ready_event = event_new (base, -1, EV_PERSIST, on_ready, fs);
	if (!fs->ready_event) {
		free (fs);
		return NULL;
	}
	return fs;
}

void enc_fibers_free (struct enc_fibers *fs)
{
	if (!fs)
		return;
	event_free (fs->ready_event);
	free (fs);
}

unsigned enc_fibers_count (const struct enc_fibers *fs)
{
	return fs->count;
}

struct enc_fiber *enc_fiber_self (const struct enc_fibers *fs)
{
	return fs->current;
}

static int stack_make (struct enc_fiber *f, struct enc_error *err)
{
	void *p = mmap (NULL, STACK_SIZE + GUARD_SIZE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return enc_fail_sys (err, "no stack for a fiber");
	f->stack = p;
	if (mprotect (p, GUARD_SIZE, PROT_NONE) < 0)
		return enc_fail_sys (err, "no guard page for a fiber");
	return 0;
}

int enc_fiber_start (struct enc_fibers *fs, enc_fiber_fn fn, void *arg, struct enc_fiber **ret, struct enc_error *err)
{
	struct enc_fiber *f = calloc (1, sizeof *f);
	uintptr_t p = (uintptr_t) f;
	int rc;

	if (!f)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	f->fs = fs;
	f->fn = fn;
	f->arg = arg;
	f->bound = ENC_FOREVER;
	if ((rc = stack_make (f, err)) < 0) {
		fiber_free (f);
		return rc;
	}
	f->timer = event_new (fs->base, -1, 0, on_timer, f);
	if (!f->timer || getcontext (&f->context) < 0) {
		fiber_free (f);
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	f->context.uc_stack.ss_sp = (char *) f->stack + GUARD_SIZE;
	f->context.uc_stack.ss_size = STACK_SIZE;
	f->context.uc_link = NULL;
	makecontext (&f->context, (void (*) (void)) (void *) trampoline, 2, (unsigned) (p >> 32), (unsigned) p);
	fs->count++;
	ready_add (f);
	if (ret)
		*ret = f;
	return 0;
}

void enc_fiber_cancel (struct enc_fiber *f)
{
	f->cancelled = true;
	if (f->fs->current != f)
		ready_add (f);
}

void enc_fiber_uncancel (struct enc_fiber *f)
{
	f->cancelled = false;
}

bool enc_fiber_cancelled (const struct enc_fiber *f)
{
	return f->cancelled;
}

int64_t enc_fiber_bound (struct enc_fibers *fs, int64_t deadline)
{
	int64_t before = ENC_FOREVER;

	if (fs->current) {
		before = fs->current->bound;
		fs->current->bound = deadline;
	}
	return before;
}

static void cond_remove (struct enc_cond *c, struct enc_fiber *f)
{
	for (struct enc_fiber **p = &c->first; *p; p = &(*p)->next_wait) {
		if (*p == f) {
			*p = f->next_wait;
			break;
		}
	}
	f->waits_on = NULL;
}

static int wait_start (struct enc_fiber *f, struct enc_cond *c, int64_t deadline)
{
	f->timed_out = false;
	f->waits_on = c;
	if (c) {
		f->next_wait = c->first;
		c->first = f;
	}
	if (deadline != ENC_FOREVER) {
		int ms = enc_left_ms (deadline);
		struct timeval tv = { .tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000 };

		return event_add (f->timer, &tv);
	}
	return 0;
}

int enc_cond_wait (struct enc_fibers *fs, struct enc_cond *c, int64_t deadline, struct enc_error *err)
{
	struct enc_fiber *f = fs->current;
	int64_t until;

	if (!f)
		return enc_fail (err, ENC_EFAILED, "a wait outside a fiber");
	until = deadline < f->bound ? deadline : f->bound;
	if (f->cancelled)
		return enc_fail (err, ENC_ECANCELED, "given up on request");
	if (enc_passed (until))
		return enc_fail (err, ENC_ETIMEOUT, "the deadline has passed");
	if (wait_start (f, c, until) < 0)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	leave (f);
	(void) event_del (f->timer);
	if (f->waits_on)
		cond_remove (f->waits_on, f);
	if (f->cancelled)
		return enc_fail (err, ENC_ECANCELED, "given up on request");
	if (f->timed_out && enc_passed (until))
		return enc_fail (err, ENC_ETIMEOUT, "the deadline has passed");
	return 0;
}

void enc_cond_signal (struct enc_cond *c)
{
	struct enc_fiber *f = c->first;

	c->first = NULL;
	while (f) {
		struct enc_fiber *next = f->next_wait;

		f->waits_on = NULL;
		ready_add (f);
		f = next;
	}
}

int enc_fiber_sleep (struct enc_fibers *fs, int64_t ms, struct enc_error *err)
{
	int64_t until = enc_deadline_ms (ms);
	int rc;

	while (!enc_passed (until)) {
		rc = enc_cond_wait (fs, NULL, until, err);
		if (rc == -ENC_ETIMEOUT && enc_passed (until))
			break;
		if (rc < 0)
			return rc;
	}
	enc_error_clear (err);
	return 0;
}
