#include <event2/event.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/capability.h>
#include "tests/unit/base/test.h"
#include "base/child.h"
#include "base/daemon.h"
#include "base/enctime.h"
#include "base/harden.h"
#include "base/log.h"
#include "base/point.h"
#include "base/str.h"
#include "base/enc.h"

static struct enc_error err;

/* Run `fn` in a child; its exit status, or 100 + signal. */
static int in_child (int (*fn) (void))
{
	pid_t pid = fork ();
	if (pid == 0)
		_exit (fn ());
	int status = 0;
	assert_int_equal (waitpid (pid, &status, 0), pid);
	return WIFEXITED (status) ? WEXITSTATUS (status) : 100 + WTERMSIG (status);
}

static int drop_all (void)
{
	struct enc_error e;
	if (enc_harden_process (&e) < 0 || enc_drop_to (65534, 65534, NULL, &e) < 0) {
		fprintf (stderr, "%s\n", e.text);
		return 1;
	}
	struct rlimit core;
	if (getrlimit (RLIMIT_CORE, &core) < 0 || core.rlim_cur || prctl (PR_GET_DUMPABLE) != 0 || setuid (0) == 0)
		return 2;
	return access ("/proc/self/mem", R_OK) == 0 ? 3 : 0;
}

static int keep_one (void)
{
	static const int caps[] = { CAP_NET_ADMIN, -1 };
	struct enc_error e;
	if (enc_drop_to (0, 0, caps, &e) < 0) {
		fprintf (stderr, "%s\n", e.text);
		return 1;
	}
	return enc_drop_check (0, 0, NULL, &e) == -ENC_EDENIED && enc_drop_check (0, 0, caps, &e) == 0 ? 0 : 2;
}

T (rights_are_given_up_and_it_is_proved)
{
	if (geteuid () != 0)
		skip ();
	fails (enc_drop_check (0, 0, NULL, &err), ENC_EDENIED); /* the proof can fail */
	assert_int_equal (in_child (drop_all), 0);
	assert_int_equal (in_child (keep_one), 0);
}

static int filtered (void)
{
	struct enc_error e;
	if (enc_harden_process (&e) < 0 || enc_seccomp_apply (0, NULL, &e) < 0)
		return 1;
	struct event_base *base = event_base_new ();
	struct timeval soon = { .tv_usec = 1000 };
	event_base_loopexit (base, &soon);
	event_base_dispatch (base);
	event_base_free (base);
	int fd = socket (AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0 || socket (AF_INET, SOCK_STREAM, 0) >= 0)
		return 2;
	return 0;
}

static int filtered_fork (void)
{
	(void) filtered ();
	(void) fork ();
	return 0;
}

static int filtered_with_children (void)
{
	struct enc_error e;
	if (enc_harden_process (&e) < 0 || enc_seccomp_apply (ENC_SC_CHILDREN, NULL, &e) < 0)
		return 1;
	struct enc_cmd *cmd = enc_cmd_new ("/bin/true");
	int rc = enc_cmd_run (cmd, NULL, &e);
	if (rc < 0)
		fprintf (stderr, "%s\n", e.text);
	return rc < 0 ? 2 : 0;
}

T (system_calls_outside_the_list_end_the_process)
{
	assert_int_equal (in_child (filtered), 0);
	assert_int_equal (in_child (filtered_fork), 100 + SIGSYS);
	assert_int_equal (in_child (filtered_with_children), 0);
}

/* ---- a whole daemon, run by this program with "--daemon" in front ---- */

struct conf { char *name; uint64_t limit; char *key; };
static const struct enc_field fields[] = {
	ENC_FIELD (struct conf, name, "name", ENC_T_NAME, .dflt = "\"demo\""), ENC_FIELD (struct conf, limit, "limit", ENC_T_SIZE, .dflt = "\"1K\"", .max = 4096),
	ENC_FIELD (struct conf, key, "key", ENC_T_STR, .flags = ENC_HIDDEN), ENC_FIELD_END };
static struct conf conf;

static int on_open (struct enc_daemon *d ENC_UNUSED, struct enc_error *e)
{
	enc_log_notice ("open as %d", (int) geteuid ());
	return enc_point ("daemon.open", e);
}

static int on_start (struct enc_daemon *d, struct enc_error *e ENC_UNUSED)
{
	enc_log_notice ("start as %d, %s, option %s", (int) geteuid (), conf.name, enc_daemon_option (d, "colour") ? enc_daemon_option (d, "colour") : "none");
	if (kill (getpid (), SIGTERM) < 0)
		return -1;
	return 0;
}

static void on_stop (struct enc_daemon *d ENC_UNUSED)
{
	enc_log_notice ("stop");
}

static const struct enc_daemon_option options[] = { { "colour", "of the demo" }, { NULL, NULL } };
static const struct enc_daemon_spec spec = { .name = "enclave-demo", .summary = "a daemon for tests", .fields = fields, .conf = &conf, .user = "nobody",
	.options = options, .open = on_open, .start = on_start, .stop = on_stop };

static char self[256];

static struct enc_cmd_result run_daemon (const char *config_text, const char *arg)
{
	static int n;
	char *path = enc_strf ("%s/c%d.json", test_folder (), n++);
	struct enc_file_attr attr = ENC_FILE_ATTR (0644);
	ok (enc_file_write (path, config_text, strlen (config_text), &attr, &err));
	struct enc_cmd *cmd = enc_cmd_new (self);
	enc_cmd_args (cmd, "--daemon", "--config", path, "--foreground", NULL);
	if (arg)
		enc_cmd_arg (cmd, arg);
	enc_cmd_env (cmd, "ASAN_OPTIONS", "detect_leaks=0"); /* its leak check clones, which the filter ends */
	struct enc_cmd_result r;
	ok (enc_cmd_run_any (cmd, &r, &err));
	enc_buf_put_u8 (&r.err, 0);
	enc_buf_put_u8 (&r.out, 0);
	enc_cmd_free (cmd);
	free (path);
	return r;
}

T (a_daemon_starts_drops_its_user_and_stops)
{
	struct enc_cmd_result r = run_daemon ("{\"name\":\"x\"}", "--colour=red");
	if (r.exit_status != 0)
		fail_msg ("%d %d %s", r.exit_status, r.signal, (char *) r.err.data);
	const char *log = (const char *) r.err.data;
	assert_non_null (strstr (log, geteuid () == 0 ? "start as 65534, x, option red" : "x, option red"));
	assert_non_null (strstr (log, "ready"));
	assert_non_null (strstr (log, "stop\n"));
	enc_cmd_result_done (&r);
}

T (invariant_15_a_bad_configuration_is_named_with_its_line)
{
	struct enc_cmd_result r = run_daemon ("{\n\"name\":\"x\",\n\"nome\":1}", NULL);
	assert_int_equal (r.exit_status, 2);
	assert_non_null (strstr ((const char *) r.err.data, "line 3: /nome: unknown key"));
	enc_cmd_result_done (&r);
	r = run_daemon ("{\"limit\":\"1G\"}", "--check-config");
	assert_int_equal (r.exit_status, 2);
	enc_cmd_result_done (&r);
	r = run_daemon ("{}", "--none");
	assert_int_equal (r.exit_status, 2);
	enc_cmd_result_done (&r);
}

T (the_effective_configuration_is_printed_without_what_is_hidden)
{
	struct enc_cmd_result r = run_daemon ("{\"limit\":\"2K\",\"key\":\"s3\"}", "--check-config");
	assert_int_equal (r.exit_status, 0);
	assert_string_equal ((const char *) r.out.data, "{\n  \"name\": \"demo\",\n  \"limit\": 2048\n}\n");
	enc_cmd_result_done (&r);
}

/* ---- log and points ---- */

static char last[600];
static int lines;

static void capture (enum enc_log_level level ENC_UNUSED, const char *line, void *arg ENC_UNUSED)
{
	lines++;
	(void) snprintf (last, sizeof (last), "%s", line);
}

T (log_lines_are_printable_and_floods_are_held_back)
{
	enc_log_capture (capture, NULL);
	enc_log_warn ("user said %s", "\033[31m\n");
	assert_string_equal (last, "user said \\u001b[31m\\u000a");
	enc_log_debug ("not shown");
	lines = 0;
	for (int i = 0; i < 100; i++)
		enc_log_info ("again");
	assert_int_equal (lines, 20);
	(void) enc_error_next (&err, enc_fail (&err, ENC_EBUSY, "held"), "wait");
	enc_log_err (ENC_LOG_ERROR, &err, "step %d", 3);
	assert_string_equal (last, "step 3: held (next: wait)");
	enc_log_capture (NULL, NULL);
}

static int killed (void)
{
	return enc_point ("b", NULL);
}

T (fault_points_act_only_for_the_process_and_pass_they_name)
{
	int top = enc_open_dir (test_folder (), &err);
	struct enc_file_attr attr = ENC_FILE_ATTR (0644);
	const char *list = "# comment\na fail 2\nb kill\nnonsense\n";
	ok (enc_file_write_at (top, "proc", list, strlen (list), &attr, &err));
	enc_point_open ("other", test_folder ());
	ok (enc_point ("a", &err));
	enc_point_open ("proc", test_folder ());
	ok (enc_point ("a", &err));
	fails (enc_point ("a", &err), ENC_EFAILED);
	ok (enc_point ("c", &err));
	assert_int_equal (in_child (killed), 100 + SIGKILL);
	assert_int_equal (fchmodat (top, "proc", 0666, 0), 0);
	enc_point_open ("proc", test_folder ());
	ok (enc_point ("b", &err));
	close (top);
}

int main (int argc, char **argv)
{
	if (argc > 1 && strcmp (argv[1], "--daemon") == 0)
		return enc_daemon_main (&spec, argc - 1, argv + 1);
	if (readlink ("/proc/self/exe", self, sizeof (self) - 1) < 0)
		return 1;
	const struct CMUnitTest tests[] = {
		RUN (rights_are_given_up_and_it_is_proved), RUN (system_calls_outside_the_list_end_the_process), RUN (a_daemon_starts_drops_its_user_and_stops),
		RUN (invariant_15_a_bad_configuration_is_named_with_its_line), RUN (the_effective_configuration_is_printed_without_what_is_hidden),
		RUN (log_lines_are_printable_and_floods_are_held_back), RUN (fault_points_act_only_for_the_process_and_pass_they_name),
	};
	return cmocka_run_group_tests (tests, NULL, test_folder_remove);
}
