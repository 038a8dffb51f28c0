#include <errno.h>
#include <signal.h>
#include "tests/unit/base/test.h"
#include "base/child.h"
#include "base/str.h"
#include "base/enc.h"

static struct enc_error err;

/* Programs of the test's own, so that no shell is needed: argv[1] chooses. */
static int helper (int argc, char **argv)
{
	const char *what = argv[1];
	extern char **environ;
	if (strcmp (what, "--env") == 0)
		for (char **e = environ; *e; e++)
			puts (*e);
	if (strcmp (what, "--fds") == 0)
		for (int fd = 0; fd < 256; fd++)
			if (fcntl (fd, F_GETFD) >= 0)
				printf ("%d ", fd);
	if (strcmp (what, "--exit") == 0) {
		fprintf (stderr, "first\nlast words\n");
		return argc > 2 ? 7 : 0;
	}
	if (strcmp (what, "--flood") == 0)
		for (int i = 0; i < 20000; i++)
			puts ("0123456789");
	if (strcmp (what, "--family") == 0) { /* a child that ignores its parent's end, holding stdout */
		if (fork () == 0)
			pause ();
		puts ("done");
	}
	if (strcmp (what, "--hang") == 0) {
		if (fork () == 0)
			pause ();
		pause ();
	}
	if (strcmp (what, "--state") == 0) {
		sigset_t set;
		sigprocmask (SIG_BLOCK, NULL, &set);
		char cwd[100];
		printf ("%d %d %s %d", sigismember (&set, SIGUSR1), signal (SIGPIPE, SIG_DFL) == SIG_DFL, getcwd (cwd, sizeof (cwd)), (int) getuid ());
	}
	return 0;
}

static char self[256];

static struct enc_cmd *cmd_of (const char *what)
{
	struct enc_cmd *cmd = enc_cmd_new (self);
	enc_cmd_arg (cmd, what);
	enc_cmd_deadline_ms (cmd, 10000);
	return cmd;
}

static char *run (struct enc_cmd *cmd)
{
	struct enc_cmd_result r;
	ok (enc_cmd_run (cmd, &r, &err));
	char *s = enc_buf_take_str (&r.out);
	enc_cmd_result_done (&r);
	enc_cmd_free (cmd);
	return s;
}

T (invariant_07_a_child_has_an_empty_environment_and_closed_descriptors)
{
	setenv ("SECRET", "x", 1);
	int leak = open ("/dev/null", O_RDONLY);
	char *s = run (cmd_of ("--env"));
	assert_string_equal (s, "PATH=/usr/sbin:/usr/bin:/sbin:/bin\nLANG=C.UTF-8\n");
	free (s);
	s = run (cmd_of ("--fds"));
	assert_string_equal (s, "0 1 2 ");
	free (s);
	struct enc_cmd *cmd = cmd_of ("--fds");
	int pass = fcntl (leak, F_DUPFD_CLOEXEC, 77);
	enc_cmd_pass_fd (cmd, pass);
	s = run (cmd);
	assert_string_equal (s, "0 1 2 77 ");
	free (s);
	close (leak);
	close (pass);
}

T (signals_folder_and_user_are_set)
{
	sigset_t set;
	sigemptyset (&set);
	sigaddset (&set, SIGUSR1);
	sigprocmask (SIG_BLOCK, &set, NULL);
	signal (SIGPIPE, SIG_IGN);
	struct enc_cmd *cmd = cmd_of ("--state");
	bool root = geteuid () == 0;
	if (root)
		enc_cmd_user (cmd, 65534, 65534);
	enc_cmd_trust_path (cmd);
	struct enc_cmd_result r;
	int rc = enc_cmd_run (cmd, &r, &err);
	if (root && rc == -ENC_EDENIED) /* nobody may not reach this build folder: that is the user being set, too */
		assert_non_null (strstr (err.text, "exec"));
	else {
		assert_int_equal (rc, 0);
		char want[50];
		(void) snprintf (want, sizeof (want), "0 1 / %d", root ? 65534 : (int) getuid ());
		assert_int_equal (r.out.len, strlen (want));
		assert_memory_equal (r.out.data, want, r.out.len);
	}
	enc_cmd_result_done (&r);
	enc_cmd_free (cmd);
}

T (input_goes_in_and_output_comes_out)
{
	struct enc_cmd *cmd = enc_cmd_new ("/bin/cat");
	enc_cmd_stdin (cmd, "some ", 5);
	enc_cmd_stdin (cmd, "text", 4);
	char *s = run (cmd);
	assert_string_equal (s, "some text");
	free (s);
	cmd = enc_cmd_new ("/bin/cat"); /* /dev/null */
	s = run (cmd);
	assert_string_equal (s, "");
	free (s);
}

T (a_failing_program_is_told_apart_from_one_that_does_not_start)
{
	struct enc_cmd_result r;
	struct enc_cmd *cmd = cmd_of ("--exit");
	enc_cmd_arg (cmd, "7");
	fails (enc_cmd_run (cmd, &r, &err), ENC_EFAILED);
	assert_int_equal (r.exit_status, 7);
	assert_non_null (strstr (err.text, "status 7: last words"));
	enc_cmd_result_done (&r);
	ok (enc_cmd_run_any (cmd, NULL, &err));
	enc_cmd_free (cmd);
	cmd = enc_cmd_new ("/usr/bin/none-such");
	fails (enc_cmd_run (cmd, NULL, &err), ENC_ENOTFOUND);
	enc_cmd_free (cmd);
	cmd = enc_cmd_new ("/etc/passwd");
	enc_cmd_trust_path (cmd);
	fails (enc_cmd_run (cmd, NULL, &err), ENC_EDENIED);
	assert_non_null (strstr (err.text, "exec"));
	enc_cmd_free (cmd);
	cmd = enc_cmd_new ("cat");
	enc_cmd_arg (cmd, NULL);
	fails (enc_cmd_run (cmd, &r, &err), ENC_EINVAL);
	enc_cmd_result_done (&r);
	enc_cmd_free (cmd);
}

T (a_program_that_others_can_write_is_not_run)
{
	char *path = enc_strf ("%s/prog", test_folder ());
	struct enc_file_attr attr = ENC_FILE_ATTR (0777);
	ok (enc_file_write (path, "x", 1, &attr, &err));
	struct enc_cmd *cmd = enc_cmd_new (path);
	fails (enc_cmd_run (cmd, NULL, &err), ENC_EDENIED);
	enc_cmd_free (cmd);
	free (path);
}

T (output_is_capped_and_the_program_still_ends)
{
	struct enc_cmd *cmd = cmd_of ("--flood");
	struct enc_cmd_result r;
	enc_cmd_capture (cmd, 1000, 10);
	ok (enc_cmd_run (cmd, &r, &err));
	assert_int_equal (r.out.len, 1000);
	assert_true (r.truncated);
	enc_cmd_result_done (&r);
	enc_cmd_free (cmd);
}

T (invariant_08_the_deadline_ends_the_whole_group)
{
	struct enc_cmd *cmd = cmd_of ("--hang");
	struct enc_cmd_result r;
	enc_cmd_deadline_ms (cmd, 200);
	fails (enc_cmd_run (cmd, &r, &err), ENC_ETIMEOUT);
	assert_true (r.timed_out && r.ns < INT64_C (5000000000));
	enc_cmd_result_done (&r);
	enc_cmd_free (cmd);
	char *s = run (cmd_of ("--family")); /* does not wait for the child that holds the pipe */
	assert_string_equal (s, "done\n");
	free (s);
}

static int fake (const char *const *argv, const struct enc_buf *in ENC_UNUSED, struct enc_cmd_result *r, struct enc_error *e ENC_UNUSED, void *arg)
{
	*(int *) arg += 1;
	enc_buf_putf (&r->out, "%s", argv[1]);
	return 0;
}

T (a_fake_runner_records)
{
	int calls = 0;
	enc_cmd_fake (fake, &calls);
	struct enc_cmd *cmd = enc_cmd_new ("/usr/sbin/mkfs.none");
	enc_cmd_argf (cmd, "-%c", 'q');
	char *s = run (cmd);
	enc_cmd_fake (NULL, NULL);
	assert_string_equal (s, "-q");
	assert_int_equal (calls, 1);
	free (s);
}

int main (int argc, char **argv)
{
	if (argc > 1 && strncmp (argv[1], "--", 2) == 0)
		return helper (argc, argv);
	if (readlink ("/proc/self/exe", self, sizeof (self) - 1) < 0)
		return 1;
	const struct CMUnitTest tests[] = {
		RUN (invariant_07_a_child_has_an_empty_environment_and_closed_descriptors), RUN (signals_folder_and_user_are_set),
		RUN (input_goes_in_and_output_comes_out), RUN (a_failing_program_is_told_apart_from_one_that_does_not_start),
		RUN (a_program_that_others_can_write_is_not_run), RUN (output_is_capped_and_the_program_still_ends),
		RUN (invariant_08_the_deadline_ends_the_whole_group), RUN (a_fake_runner_records),
	};
	return cmocka_run_group_tests (tests, NULL, test_folder_remove);
}
