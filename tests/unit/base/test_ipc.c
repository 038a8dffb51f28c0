#include <event2/event.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "tests/unit/base/test.h"
#include "base/child.h"
#include "base/enctime.h"
#include "base/ipc_loop.h"
#include "base/str.h"
#include "base/enc.h"

static struct enc_error err;
static struct event_base *base;
static struct enc_ipc_server *server;
static char path[300];
static struct enc_ipc_req *held[4];
static unsigned held_n, gone_n;

static void on_echo (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds ENC_UNUSED, void *arg ENC_UNUSED)
{
	struct enc_json *j = enc_json_object ();
	enc_json_set (j, "got", enc_json_ref (enc_json_get (body, "text")));
	enc_json_set_u64 (j, "uid", enc_ipc_req_peer (req)->uid);
	enc_ipc_reply (req, j);
}

static void on_deny (struct enc_ipc_req *req, const struct enc_json *body ENC_UNUSED, struct enc_fds *fds ENC_UNUSED, void *arg ENC_UNUSED)
{
	struct enc_error e;
	(void) enc_error_next (&e, enc_fail (&e, ENC_EDENIED, "not you"), "ask");
	enc_ipc_reply_error (req, &e);
}

static void on_hold (struct enc_ipc_req *req, const struct enc_json *body ENC_UNUSED, struct enc_fds *fds ENC_UNUSED, void *arg ENC_UNUSED)
{
	held[held_n++] = req;
}

static void on_bad (struct enc_ipc_req *req, const struct enc_json *body ENC_UNUSED, struct enc_fds *fds ENC_UNUSED, void *arg ENC_UNUSED)
{
	struct enc_json *j = enc_json_object ();
	enc_json_set_str (j, "x", "\xff");
	enc_ipc_reply (req, j);
}

static void on_fd (struct enc_ipc_req *req, const struct enc_json *body ENC_UNUSED, struct enc_fds *fds, void *arg ENC_UNUSED)
{
	char text[16] = "";
	struct enc_fds back = { 0 };
	assert_int_equal (fds->n, 1);
	assert_true (pread (fds->fd[0], text, 5, 0) == 5);
	struct enc_json *j = enc_json_object ();
	enc_json_set_str (j, "read", text);
	back.fd[back.n++] = fds->fd[0];
	enc_ipc_reply_fds (req, j, &back);
}

static const struct enc_ipc_op ops[] = { { "echo", on_echo, 0 }, { "deny", on_deny, 0 }, { "hold", on_hold, 0 }, { "bad", on_bad, 0 },
					 { "fd", on_fd, ENC_IPC_WITH_FDS }, { NULL, NULL, 0 } };

static void on_gone (uint64_t conn ENC_UNUSED, void *arg ENC_UNUSED)
{
	gone_n++;
}

static void open_server (unsigned max_conns)
{
	base = event_base_new ();
	(void) snprintf (path, sizeof (path), "%s/s", test_folder ());
	int fd = enc_unix_listen (path, 0600, (uid_t) -1, (gid_t) -1, &err);
	assert_true (fd >= 0);
	struct enc_ipc_server_conf conf = { .ops = ops, .gone = on_gone, .max_conns = max_conns, .max_frame = 5000 };
	held_n = gone_n = 0;
	server = enc_ipc_server_new (base, fd, &conf, &err);
	assert_non_null (server);
}

static void close_server (void)
{
	enc_ipc_server_free (server);
	for (unsigned i = 0; i < held_n; i++)
		enc_ipc_reply (held[i], NULL); /* to nobody */
	held_n = 0;
	event_base_free (base);
}

struct result {
	int calls;
	int rc;
	char text[256];
	struct enc_ipc_client *free_me;
};

static void on_answer (int rc, const struct enc_json *answer, struct enc_fds *fds ENC_UNUSED, const struct enc_error *e, void *arg)
{
	struct result *r = (struct result *) arg;
	r->calls++;
	r->rc = rc;
	(void) snprintf (r->text, sizeof (r->text), "%s", rc == 0 ? enc_json_get_str (answer, "got", "") : e->text);
	if (r->free_me)
		enc_ipc_client_free (r->free_me);
}

static struct enc_json *request (const char *op, const char *text)
{
	struct enc_json *j = enc_json_object ();
	enc_json_set_str (j, "op", op);
	if (text)
		enc_json_set_str (j, "text", text);
	return j;
}

/* Run the loop until the result is there, or fail after 5 s. */
static void until (const struct result *r, int calls)
{
	int64_t limit = enc_deadline_ms (5000);
	while (r->calls < calls && !enc_passed (limit)) {
		struct timeval tick = { .tv_usec = 20000 };
		event_base_loopexit (base, &tick);
		event_base_loop (base, EVLOOP_ONCE);
	}
	assert_int_equal (r->calls, calls);
}

static void call (struct enc_ipc_client *c, const char *op, const char *text, int64_t ms, struct result *r)
{
	ok (enc_ipc_client_call (c, request (op, text), ms, on_answer, r, &err));
}

T (a_call_is_answered_with_the_callers_identity)
{
	open_server (0);
	struct enc_ipc_client *c = enc_ipc_client_new (base, path, 0, &err);
	struct result a = { 0 }, b = { 0 }, d = { 0 };
	call (c, "echo", "one", 5000, &a);
	call (c, "deny", NULL, 5000, &b);
	call (c, "none", NULL, 5000, &d);
	assert_int_equal (a.calls, 0); /* never from within */
	until (&d, 1);
	assert_string_equal (a.text, "one");
	assert_int_equal (b.rc, -ENC_EDENIED);
	assert_string_equal (b.text, "not you");
	assert_int_equal (d.rc, -ENC_EUSAGE);
	struct result bad = { 0 };
	call (c, "bad", NULL, 5000, &bad);
	until (&bad, 1);
	assert_true (bad.rc < 0);
	enc_ipc_client_free (c);
	close_server ();
}

T (late_answers_keep_the_order_and_a_timeout_does_not_mix_them_up)
{
	open_server (0);
	struct enc_ipc_client *c = enc_ipc_client_new (base, path, 0, &err);
	struct result slow = { 0 }, next = { 0 };
	call (c, "hold", NULL, 100, &slow);
	call (c, "echo", "after", 5000, &next);
	until (&slow, 1);
	assert_int_equal (slow.rc, -ENC_ETIMEOUT);
	assert_int_equal (next.calls, 0);
	assert_int_equal (held_n, 1);
	enc_ipc_reply (held[0], NULL);
	held_n = 0;
	until (&next, 1);
	assert_string_equal (next.text, "after");
	assert_int_equal (slow.calls, 1);
	enc_ipc_client_free (c);
	close_server ();
}

T (a_lost_connection_ends_sent_calls_and_the_next_one_reconnects)
{
	open_server (0);
	struct enc_ipc_client *c = enc_ipc_client_new (base, path, 0, &err);
	struct result sent = { 0 }, later = { 0 }, none = { 0 };
	call (c, "hold", NULL, 5000, &sent);
	int64_t limit = enc_deadline_ms (5000);
	while (held_n == 0 && !enc_passed (limit))
		event_base_loop (base, EVLOOP_ONCE);
	enc_ipc_server_free (server);
	until (&sent, 1);
	assert_int_equal (sent.rc, -ENC_EUNAVAIL);
	enc_ipc_reply (held[0], NULL); /* to nobody */
	held_n = 0;
	call (c, "echo", "x", 400, &none); /* nobody listens */
	until (&none, 1);
	assert_true (none.rc == -ENC_EUNAVAIL || none.rc == -ENC_ETIMEOUT);
	int fd = enc_unix_listen (path, 0600, (uid_t) -1, (gid_t) -1, &err);
	struct enc_ipc_server_conf conf = { .ops = ops };
	server = enc_ipc_server_new (base, fd, &conf, &err);
	call (c, "echo", "back", 5000, &later);
	until (&later, 1);
	assert_string_equal (later.text, "back");
	enc_ipc_client_free (c);
	close_server ();
}

T (a_client_may_be_freed_by_its_callback)
{
	open_server (0);
	struct enc_ipc_client *c = enc_ipc_client_new (base, path, 0, &err);
	struct result a = { .free_me = c }, b = { 0 };
	call (c, "echo", "x", 5000, &a);
	call (c, "hold", "x", 5000, &b);
	until (&a, 1);
	assert_int_equal (b.rc, -ENC_ECANCELED);
	close_server ();
}

T (too_many_calls_are_refused_at_once)
{
	open_server (0);
	struct enc_ipc_client *c = enc_ipc_client_new (base, path, 2, &err);
	struct result r = { 0 };
	call (c, "echo", "1", 5000, &r);
	call (c, "echo", "2", 5000, &r);
	fails (enc_ipc_client_call (c, request ("echo", "3"), 5000, on_answer, &r, &err), ENC_EBUSY);
	until (&r, 2);
	enc_ipc_client_free (c);
	close_server ();
}

/* The server in this process, the synchronous client in a child. */
static int sync_client (void)
{
	struct enc_json *answer = NULL;
	struct enc_error e;
	struct enc_ipc *ipc = enc_ipc_connect (path, enc_deadline_ms (3000), &e);
	struct enc_json *r = request ("echo", "sync");
	if (enc_ipc_call (ipc, r, NULL, enc_deadline_ms (3000), &answer, NULL, &e) < 0 || !enc_streq (enc_json_get_str (answer, "got", ""), "sync"))
		return 1;
	if (enc_ipc_call (ipc, request ("deny", NULL), NULL, enc_deadline_ms (3000), NULL, NULL, &e) != -ENC_EDENIED || !enc_streq (e.next, "ask"))
		return 2;
	struct enc_fds fds = { .fd = { memfd_create ("x", 0) }, .n = 1 }, back = { 0 };
	if (write (fds.fd[0], "hello", 5) != 5)
		return 3;
	if (enc_ipc_call (ipc, request ("fd", NULL), &fds, enc_deadline_ms (3000), &answer, &back, &e) < 0 || back.n != 1 ||
	    !enc_streq (enc_json_get_str (answer, "read", ""), "hello"))
		return 4;
	if (enc_ipc_call (ipc, request ("echo", "x"), &fds, enc_deadline_ms (3000), NULL, NULL, &e) != -ENC_EUSAGE)
		return 5;
	if (enc_ipc_call (ipc, request ("hold", NULL), NULL, enc_deadline_ms (100), NULL, NULL, &e) != -ENC_ETIMEOUT)
		return 6;
	if (enc_ipc_call (ipc, request ("echo", NULL), NULL, enc_deadline_ms (100), NULL, NULL, &e) != -ENC_EUNAVAIL)
		return 7;
	enc_ipc_free (ipc);
	/* Hostile: a length over the limit, and a frame that is no JSON. */
	int fd = enc_unix_connect (path, enc_deadline_ms (1000), &e);
	struct enc_buf b = ENC_BUF_INIT (1000000);
	if (enc_frame_send (fd, "{]", 2, NULL, enc_deadline_ms (1000), &e) < 0 || enc_frame_recv (fd, 1000, &b, NULL, enc_deadline_ms (1000), &e) < 0 ||
	    !memmem (b.data, b.len, "\"usage\"", 7))
		return 8;
	if (send (fd, "\xff\xff\xff\xff", 4, 0) != 4 || enc_frame_recv (fd, 1000, &b, NULL, enc_deadline_ms (2000), &e) != -ENC_EUNAVAIL)
		return 9;
	close (fd);
	return 0;
}

static void on_child (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg)
{
	event_base_loopbreak ((struct event_base *) arg);
}

T (the_synchronous_client_and_hostile_frames)
{
	open_server (0);
	pid_t pid = fork ();
	if (pid == 0)
		_exit (sync_client ());
	struct event *sig = evsignal_new (base, 17, on_child, base);
	struct timeval limit = { .tv_sec = 20 };
	event_add (sig, NULL);
	event_base_loopexit (base, &limit);
	event_base_dispatch (base);
	event_free (sig);
	int status = -1;
	assert_int_equal (waitpid (pid, &status, 0), pid);
	assert_int_equal (status, 0);
	close_server ();
}

T (a_socket_in_use_is_not_taken_away)
{
	open_server (0);
	fails (enc_unix_listen (path, 0600, (uid_t) -1, (gid_t) -1, &err), ENC_ECONFLICT);
	close_server ();
	int fd = enc_unix_listen (path, 0620, (uid_t) -1, (gid_t) -1, &err);
	struct stat st;
	assert_int_equal (stat (path, &st), 0);
	assert_int_equal (st.st_mode & 0777, 0620);
	close (fd);
	fails (enc_unix_connect (path, enc_deadline_ms (100), &err), ENC_EUNAVAIL);
}

static void cmd_done (int rc, struct enc_cmd_result *r, const struct enc_error *e ENC_UNUSED, void *arg)
{
	struct result *out = (struct result *) arg;
	out->calls++;
	out->rc = rc;
	(void) snprintf (out->text, sizeof (out->text), "%.*s", (int) r->out.len, (char *) r->out.data);
}

T (a_command_runs_within_the_loop)
{
	base = event_base_new ();
	struct result a = { 0 }, b = { 0 }, never = { 0 };
	struct enc_cmd *cmd = enc_cmd_new ("/bin/cat");
	enc_cmd_stdin (cmd, "abc", 3);
	assert_non_null (enc_cmd_start (base, cmd, cmd_done, &a, &err));
	cmd = enc_cmd_new ("/bin/sleep");
	enc_cmd_arg (cmd, "60");
	enc_cmd_deadline_ms (cmd, 100);
	assert_non_null (enc_cmd_start (base, cmd, cmd_done, &b, &err));
	cmd = enc_cmd_new ("/bin/sleep");
	enc_cmd_arg (cmd, "60");
	struct enc_cmd_task *t = enc_cmd_start (base, cmd, cmd_done, &never, &err);
	pid_t pid = enc_cmd_pid (t);
	enc_cmd_stop (t);
	assert_int_equal (kill (pid, 0), -1);
	assert_null (enc_cmd_start (base, enc_cmd_new ("/none"), cmd_done, &never, &err));
	until (&a, 1);
	until (&b, 1);
	assert_string_equal (a.text, "abc");
	assert_int_equal (b.rc, -ENC_ETIMEOUT);
	assert_int_equal (never.calls, 0);
	event_base_free (base);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		RUN (a_call_is_answered_with_the_callers_identity), RUN (late_answers_keep_the_order_and_a_timeout_does_not_mix_them_up),
		RUN (a_lost_connection_ends_sent_calls_and_the_next_one_reconnects), RUN (a_client_may_be_freed_by_its_callback),
		RUN (too_many_calls_are_refused_at_once), RUN (the_synchronous_client_and_hostile_frames), RUN (a_socket_in_use_is_not_taken_away),
		RUN (a_command_runs_within_the_loop),
	};
	return cmocka_run_group_tests (tests, NULL, test_folder_remove);
}
