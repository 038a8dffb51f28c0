/* Locked memory: what is refused, what is wiped, what guards it. */
#include "crypto_test.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Run `fn` in a child; its exit status, or -signal. */
static int in_child (int (*fn) (void))
{
	pid_t pid = fork ();
	int status = 0;

	assert_true (pid >= 0);
	if (pid == 0)
		_exit (fn ());
	assert_int_equal (waitpid (pid, &status, 0), pid);
	return WIFSIGNALED (status) ? -WTERMSIG (status) : WEXITSTATUS (status);
}

static int start_with_short_limit (void)
{
	const struct rlimit low = { 4096, 4096 };
	struct enc_error err = { 0 };

	/* root may lock without a limit: be nobody */
	if (geteuid () == 0 && (setgid (65534) < 0 || setuid (65534) < 0))
		return 9;
	if (setrlimit (RLIMIT_MEMLOCK, &low) < 0)
		return 9;
	if (enc_secmem_init (256 * 1024, &err) >= 0)
		return 1;
	return strstr (err.text, "lock") && strstr (err.next, "LimitMEMLOCK") && !enc_secmem_ready () ? 0 : 2;
}

static void invariant_06_start_fails_when_memory_cannot_be_locked (void **state)
{
	(void) state;
	assert_int_equal (in_child (start_with_short_limit), 0);
}

static void nothing_is_given_before_the_arena_is_there (void **state)
{
	uint8_t *p = NULL;

	(void) state;
	assert_null (enc_secmem_alloc (16));
	assert_int_equal (enc_secmem_get (16, &p, NULL), -ENC_ENOMEM);
	assert_null (p);
	enc_secmem_free (NULL);
}

static void allocations_are_zeroed_apart_and_counted (void **state)
{
	(void) state;
	for (size_t len = 1; len < 20000; len = len * 2 + 7) {
		uint8_t *a = enc_secmem_alloc (len);
		uint8_t *b = enc_secmem_alloc (len);

		assert_non_null (a);
		assert_non_null (b);
		for (size_t i = 0; i < len; i++)
			assert_int_equal (a[i] | b[i], 0);
		memset (a, 0xff, len);
		assert_int_equal (b[0] | b[len - 1], 0);
		assert_int_equal (enc_secmem_used (), 2 * len);
		enc_secmem_free (a);
		enc_secmem_free (b);
		assert_int_equal (enc_secmem_used (), 0);
	}
}

/* Sizes for which the edge in front fills a page of its own. */
static void sizes_around_a_page_are_freed_again (void **state)
{
	size_t page = (size_t) sysconf (_SC_PAGESIZE);

	(void) state;
	for (size_t len = page - 40; len < page + 40; len++) {
		uint8_t *p = enc_secmem_alloc (len);

		assert_non_null (p);
		memset (p, 1, len);
		enc_secmem_free (p);
	}
}

static void a_full_arena_says_so_and_recovers (void **state)
{
	uint8_t *held[200];
	size_t n = 0;

	(void) state;
	while (n < 200 && (held[n] = enc_secmem_alloc (32)))
		n++;
	assert_int_equal (n, 32); /* 64 pages, two for each */
	assert_null (enc_secmem_alloc (1));
	enc_secmem_free (held[10]);
	held[10] = enc_secmem_alloc (64);
	assert_non_null (held[10]);
	for (size_t i = 0; i < n; i++)
		enc_secmem_free (held[i]);
}

static int run_over (void)
{
	volatile uint8_t *p = enc_secmem_alloc (32);

	p[32] = 1; /* the next page cannot be touched */
	return 0;
}

static int run_over_within_the_page (void)
{
	uint8_t *p = enc_secmem_alloc (20);

	((volatile uint8_t *) p)[21] = 1;
	enc_secmem_free (p);
	return 0;
}

static int run_under (void)
{
	uint8_t *p = enc_secmem_alloc (20);

	((volatile uint8_t *) p)[-1] = 1;
	enc_secmem_free (p);
	return 0;
}

static uint8_t *shared;

static int use_after_free (void)
{
	volatile uint8_t *p = enc_secmem_alloc (32);

	enc_secmem_free ((uint8_t *) (uintptr_t) p);
	return p[0];
}

/* Sanitizers turn signals into their own exits: all that counts is that it did not go on. */
static void overruns_and_stale_pointers_end_the_process (void **state)
{
	int (*const faults[]) (void) = { run_over, run_over_within_the_page, run_under, use_after_free };

	(void) state;
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		pid_t pid = fork ();
		int status = 0;

		if (pid == 0) {
			/* not the handlers of the test framework, which would go on with the next test */
			(void) signal (SIGSEGV, SIG_DFL);
			(void) signal (SIGBUS, SIG_DFL);
			(void) signal (SIGABRT, SIG_DFL);
			enc_secmem_done ();
			if (enc_secmem_init (65536, NULL) < 0)
				_exit (0);
			_exit (faults[i] ());
		}
		assert_int_equal (waitpid (pid, &status, 0), pid);
		assert_false (WIFEXITED (status) && WEXITSTATUS (status) == 0);
	}
}

static int child_reads (void)
{
	/* wiped at fork: no access, or zeros */
	return enc_secmem_ready () || enc_secmem_alloc (1) ? 1 : 0;
}

static int child_makes_its_own (void)
{
	if (enc_secmem_init (65536, NULL) < 0)
		return 1;
	uint8_t *p = enc_secmem_alloc (32);
	return p && enc_secmem_used () == 32 ? 0 : 2;
}

static void a_child_gets_none_of_the_parents_secrets (void **state)
{
	(void) state;
	shared = enc_secmem_alloc (32);
	memset (shared, 0x5a, 32);
	assert_int_equal (in_child (child_reads), 0);
	assert_int_equal (in_child (child_makes_its_own), 0);
	enc_secmem_free (shared);
}

/* Under AddressSanitizer mlock() does nothing: its shadow could not be locked. */
#ifdef __SANITIZE_ADDRESS__
#define LOCKED_FLAG ""
#else
#define LOCKED_FLAG " lo"
#endif

/* Ask the kernel: the mapping is locked and left out of dumps. */
static void invariant_06_the_arena_is_locked_and_not_dumped (void **state)
{
	uint8_t *p = enc_secmem_alloc (32);
	char line[512];
	bool inside = false, seen = false;
	FILE *f = fopen ("/proc/self/smaps", "r");

	(void) state;
	assert_non_null (f);
	while (fgets (line, sizeof line, f)) {
		unsigned long from, to;

		if (sscanf (line, "%lx-%lx ", &from, &to) == 2)
			inside = (uintptr_t) p >= from && (uintptr_t) p < to;
		else if (inside && strncmp (line, "VmFlags:", 8) == 0)
			seen = strstr (line, LOCKED_FLAG) && strstr (line, " dd");
	}
	fclose (f);
	assert_true (seen);
	enc_secmem_free (p);
}

int main (void)
{
	const struct CMUnitTest before[] = {
		cmocka_unit_test (invariant_06_start_fails_when_memory_cannot_be_locked),
		cmocka_unit_test (nothing_is_given_before_the_arena_is_there),
	};
	const struct CMUnitTest with[] = {
		cmocka_unit_test (allocations_are_zeroed_apart_and_counted),
		cmocka_unit_test (sizes_around_a_page_are_freed_again),
		cmocka_unit_test (a_full_arena_says_so_and_recovers),
		cmocka_unit_test (overruns_and_stale_pointers_end_the_process),
		cmocka_unit_test (a_child_gets_none_of_the_parents_secrets),
		cmocka_unit_test (invariant_06_the_arena_is_locked_and_not_dumped),
	};
	int failed = cmocka_run_group_tests_name ("secmem, no arena", before, NULL, NULL);

	return failed + cmocka_run_group_tests_name ("secmem", with, arena_up, arena_down);
}
