#include <event2/buffer.h>
#include <event2/event.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/socket.h>
#include "tests/unit/base/test.h"
#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/http.h"
#include "base/http_parse.h"
#include "base/http_route.h"
#include "base/str.h"
#include "base/enc.h"

static struct enc_error err;
static struct event_base *base;
static struct enc_http_server *server;
static char path[300];
static struct enc_http_req *held;
static int gone_n, logged;
static SSL_CTX *tls, *tls_no_cert;
static unsigned port;

/* ---- handlers ---- */

static void on_show (struct enc_http_req *req, void *arg ENC_UNUSED)
{
	struct enc_json *j = enc_json_object ();
	enc_json_set_str (j, "name", enc_http_capture (req, 0));
	enc_json_set_str (j, "member", enc_http_capture (req, 1));
	enc_json_set_str (j, "q", enc_http_query (req, "q"));
	enc_json_set_str (j, "remote", enc_http_remote (req));
	enc_json_set_i64 (j, "uid", enc_http_peer (req) ? (int64_t) enc_http_peer (req)->uid : -1);
	if (enc_http_tls (req)) {
		X509 *cert = SSL_get0_peer_certificate (enc_http_tls (req));
		enc_json_set_bool (j, "cert", cert != NULL);
	}
	if (enc_http_body (req))
		enc_json_set (j, "body", enc_json_ref (enc_http_body (req)));
	enc_http_reply (req, 200, j);
}

static void on_peer_gone (struct enc_http_req *req, void *arg ENC_UNUSED)
{
	gone_n++;
	struct enc_error e;
	(void) enc_fail (&e, ENC_ECANCELED, "gone");
	enc_http_reply_error (req, &e);
	held = NULL;
}

static void on_hold (struct enc_http_req *req, void *arg ENC_UNUSED)
{
	held = req;
	enc_http_on_gone (req, on_peer_gone, NULL);
}

static void on_stream (struct enc_http_req *req, void *arg ENC_UNUSED)
{
	enc_http_stream_start (req, 200);
	for (int i = 0; i < 3; i++) {
		enc_auto (enc_json) struct enc_json *line = enc_json_object ();
		enc_json_set_i64 (line, "n", i);
		enc_http_stream_line (req, line);
	}
	enc_http_stream_end (req);
}

static void on_fail (struct enc_http_req *req, void *arg ENC_UNUSED)
{
	struct enc_error e;
	(void) enc_error_next (&e, enc_fail (&e, ENC_EBUSY, "held by another"), "enclavectl list");
	enc_http_reply_error (req, &e);
}

static const struct enc_http_route routes[] = {
	{ "GET", "/v1/enclaves/{}", on_show, 0, NULL },         { "GET", "/v1/enclaves/{}/members/{}", on_show, 0, NULL },
	{ "POST", "/v1/enclaves/{}", on_show, ENC_HTTP_BODY, NULL }, { "GET", "/v1/hold", on_hold, 0, NULL },
	{ "GET", "/v1/stream", on_stream, 0, NULL },            { "GET", "/v1/fail", on_fail, 0, NULL },
	{ "GET", "/v1/closed", on_show, ENC_HTTP_USER1, NULL }, { NULL, NULL, NULL, 0, NULL } };

static bool gate (struct enc_http_req *req, void *arg ENC_UNUSED)
{
	struct enc_error e;
	if (!(enc_http_route (req)->flags & ENC_HTTP_USER1))
		return true;
	(void) enc_fail (&e, ENC_EDENIED, "role");
	enc_http_reply_error (req, &e);
	return false;
}

static void on_log (struct enc_http_req *req ENC_UNUSED, int status ENC_UNUSED, void *arg ENC_UNUSED)
{
	logged++;
}

/* ---- certificates ---- */

static SSL_CTX *context (X509 *cert, EVP_PKEY *key, bool with_cert)
{
	SSL_CTX *ctx = SSL_CTX_new (TLS_method ());
	SSL_CTX_set_min_proto_version (ctx, TLS1_3_VERSION);
	X509_STORE_add_cert (SSL_CTX_get_cert_store (ctx), cert);
	SSL_CTX_set_verify (ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	if (with_cert && (SSL_CTX_use_certificate (ctx, cert) != 1 || SSL_CTX_use_PrivateKey (ctx, key) != 1))
		abort ();
	return ctx;
}

static void make_certificates (void)
{
	EVP_PKEY *key = EVP_EC_gen ("P-256");
	X509 *cert = X509_new ();
	X509_set_version (cert, 2);
	ASN1_INTEGER_set (X509_get_serialNumber (cert), 1);
	X509_gmtime_adj (X509_getm_notBefore (cert), -60);
	X509_gmtime_adj (X509_getm_notAfter (cert), 3600);
	X509_NAME_add_entry_by_txt (X509_get_subject_name (cert), "CN", MBSTRING_ASC, (const unsigned char *) "test", -1, -1, 0);
	X509_set_issuer_name (cert, X509_get_subject_name (cert));
	X509_set_pubkey (cert, key);
	X509V3_CTX v3;
	X509V3_set_ctx (&v3, cert, cert, NULL, NULL, 0);
	X509_EXTENSION *san = X509V3_EXT_conf_nid (NULL, &v3, NID_subject_alt_name, "DNS:enclaved,IP:127.0.0.1");
	X509_add_ext (cert, san, -1);
	X509_EXTENSION_free (san);
	X509_sign (cert, key, EVP_sha256 ());
	tls = context (cert, key, true);
	tls_no_cert = context (cert, key, false);
	X509_free (cert);
	EVP_PKEY_free (key);
}

static int open_server (void **state ENC_UNUSED)
{
	signal (SIGPIPE, SIG_IGN);
	make_certificates ();
	base = event_base_new ();
	(void) snprintf (path, sizeof (path), "%s/http", test_folder ());
	struct enc_http_conf conf = { .routes = routes, .gate = gate, .log = on_log };
	server = enc_http_server_new (base, &conf, &err);
	int fd = enc_unix_listen (path, 0600, (uid_t) -1, (gid_t) -1, &err);
	if (fd < 0 || enc_http_server_listen (server, fd, NULL, &err) < 0)
		return -1;
	fd = enc_tcp_listen ("127.0.0.1", 0, &err);
	port = enc_fd_port (fd);
	return enc_http_server_listen (server, fd, tls, &err);
}

static int close_server (void **state)
{
	enc_http_server_free (server);
	event_base_free (base);
	SSL_CTX_free (tls);
	SSL_CTX_free (tls_no_cert);
	return test_folder_remove (state);
}

/* ---- client side ---- */

struct result {
	int calls, rc, status, lines, stop_after;
	char text[512];
	struct enc_http_client *free_me;
};

static void on_result (int rc, const struct enc_http_answer *answer, const struct enc_error *e, void *arg)
{
	struct result *r = (struct result *) arg;
	r->calls++;
	r->rc = rc;
	r->status = answer ? answer->status : 0;
	enc_auto_free char *s = rc == 0 && answer->body ? enc_json_write (answer->body, NULL, NULL) : NULL;
	(void) snprintf (r->text, sizeof (r->text), "%s", rc < 0 ? e->text : s ? s : "");
	if (r->free_me)
		enc_http_client_free (r->free_me);
}

static bool on_line (const struct enc_json *line, void *arg)
{
	struct result *r = (struct result *) arg;
	assert_int_equal (enc_json_get_i64 (line, "n", -1), r->lines);
	return ++r->lines != r->stop_after;
}

static void until (const struct result *r)
{
	int64_t limit = enc_deadline_ms (8000);
	while (r->calls == 0 && !enc_passed (limit)) {
		struct timeval tick = { .tv_usec = 20000 };
		event_base_loopexit (base, &tick);
		event_base_loop (base, EVLOOP_ONCE);
	}
	assert_int_equal (r->calls, 1);
}

static void start (struct enc_http_client *c, const char *method, const char *target, const struct enc_json *body, int64_t ms, bool stream,
		   struct result *r)
{
	struct enc_http_call call = { .method = method, .path = target, .body = body, .timeout_ms = ms, .done = on_result, .arg = r, .line = stream ? on_line : NULL };
	ok (enc_http_client_call (c, &call, &err));
}

static struct enc_http_client *unix_client (void)
{
	struct enc_http_client_conf conf = { .unix_path = path };
	struct enc_http_client *c = enc_http_client_new (base, &conf, &err);
	assert_non_null (c);
	return c;
}

static struct result get (struct enc_http_client *c, const char *target)
{
	struct result r = { 0 };
	start (c, "GET", target, NULL, 5000, false, &r);
	until (&r);
	return r;
}

T (requests_over_a_unix_socket_know_their_peer)
{
	struct enc_http_client *c = unix_client ();
	struct result r = get (c, "/v1/enclaves/cxr/members/res%31?q=a%20b");
	char want[200];
	(void) snprintf (want, sizeof (want), "{\"name\":\"cxr\",\"member\":\"res1\",\"q\":\"a b\",\"remote\":\"unix\",\"uid\":%d}", (int) geteuid ());
	assert_string_equal (r.text, want);
	struct result p = { 0 };
	enc_auto (enc_json) struct enc_json *body = enc_json_object ();
	enc_json_set_u64 (body, "nodes", 2);
	start (c, "POST", "/v1/enclaves/x", body, 5000, false, &p);
	until (&p);
	assert_non_null (strstr (p.text, "\"body\":{\"nodes\":2}"));
	assert_true (logged >= 2);
	enc_http_client_free (c);
}

T (refusals_have_codes_and_advice)
{
	struct enc_http_client *c = unix_client ();
	static const struct { const char *target; int rc, status; } want[] = { { "/v1/fail", ENC_EBUSY, 409 }, { "/v1/none", ENC_ENOTFOUND, 404 },
		{ "/v1/closed", ENC_EDENIED, 403 }, { "/v1/enclaves/..", ENC_ENOTFOUND, 404 }, { "/v1/enclaves/%2e%2e", ENC_ENOTFOUND, 404 }, { "/v1/enclaves/a%2fb", ENC_ENOTFOUND, 404 },
		{ "/v1/enclaves/%00", ENC_ENOTFOUND, 404 }, { "/v1/enclaves/", ENC_ENOTFOUND, 404 }, { "/v1/enclaves/a?q=%zz", ENC_EUSAGE, 400 }, { "/v1/enclaves/a?q", ENC_EUSAGE, 400 } };
	for (size_t i = 0; i < ENC_ARRAY_LEN (want); i++) {
		struct result r = get (c, want[i].target);
		if (r.rc != -want[i].rc || r.status != want[i].status)
			fail_msg ("%s: %d %d %s", want[i].target, r.rc, r.status, r.text);
	}
	struct result r = { 0 };
	start (c, "DELETE", "/v1/fail", NULL, 5000, false, &r);
	until (&r);
	assert_int_equal (r.status, 405);
	enc_http_client_free (c);
}

/* Bytes in, the whole answer out. */
static char *raw (const char *bytes, size_t len)
{
	int fd = enc_unix_connect (path, enc_deadline_ms (1000), &err);
	struct enc_buf out = ENC_BUF_INIT (100000);
	ok (enc_write_all (fd, bytes, len, &err));
	int64_t limit = enc_deadline_ms (5000);
	while (!enc_passed (limit)) {
		char chunk[4096];
		struct timeval tick = { .tv_usec = 5000 };
		event_base_loopexit (base, &tick);
		event_base_loop (base, EVLOOP_ONCE);
		ssize_t n = recv (fd, chunk, sizeof (chunk), MSG_DONTWAIT);
		if (n > 0)
			enc_buf_put (&out, chunk, (size_t) n);
		if (n == 0 || (out.len && memmem (out.data, out.len, "\"error\"", 7)))
			break;
	}
	close (fd);
	return enc_buf_take_str (&out);
}

T (invariant_15_bad_requests_are_refused_and_the_server_lives)
{
	static const struct { const char *request; const char *want; } bad[] = {
		{ "POST /v1/enclaves/x HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{\"a\":1,\"a\":2}", "\"pointer\":\"/a\"" },
		{ "POST /v1/enclaves/x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{]", " 400 " },
		{ "POST /v1/enclaves/x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", " 400 " },
		{ "GET /v1/enclaves/x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", " 400 " },
		{ "GET /v1/enclaves/x HTTP/1.1\r\nHost: x\r\nOrigin: http://evil\r\n\r\n", " 403 " },
		{ "GET http://other/v1/enclaves/x HTTP/1.1\r\nHost: x\r\n\r\n", "" },
		{ "NONSENSE\r\n\r\n", "" }, { "GET / HTTP/9.9\r\n\r\n", "" }, { "\r\n\r\n", "" } };
	for (size_t i = 0; i < ENC_ARRAY_LEN (bad); i++) {
		char *s = raw (bad[i].request, strlen (bad[i].request));
		if (!strstr (s, bad[i].want))
			fail_msg ("%s -> %s", bad[i].request, s);
		free (s);
	}
	struct enc_buf big = ENC_BUF_INIT (2000000);
	enc_buf_putf (&big, "POST /v1/enclaves/x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 70000);
	memset (enc_buf_grow (&big, 70000), ' ', 70000);
	char *s = raw ((char *) big.data, big.len);
	assert_non_null (strstr (s, " 400 "));
	free (s);
	enc_buf_clear (&big);
	enc_buf_putf (&big, "GET /v1/enclaves/x HTTP/1.1\r\nX: ");
	memset (enc_buf_grow (&big, 40000), 'x', 40000);
	s = raw ((char *) big.data, big.len);
	assert_null (strstr (s, " 200 "));
	free (s);
	enc_buf_done (&big);
	struct enc_http_client *c = unix_client ();
	assert_int_equal (get (c, "/v1/enclaves/x").rc, 0);
	enc_http_client_free (c);
}

T (a_long_poll_is_answered_later_and_notices_its_peer_going)
{
	struct enc_http_client *c = unix_client ();
	struct result r = { 0 }, t = { 0 };
	start (c, "GET", "/v1/hold", NULL, 5000, false, &r);
	int64_t limit = enc_deadline_ms (5000);
	while (!held && !enc_passed (limit))
		event_base_loop (base, EVLOOP_ONCE);
	enc_http_reply (held, 200, enc_json_object ());
	held = NULL;
	until (&r);
	assert_string_equal (r.text, "{}");
	start (c, "GET", "/v1/hold", NULL, 100, false, &t);
	until (&t);
	assert_int_equal (t.rc, -ENC_ETIMEOUT);
	limit = enc_deadline_ms (5000);
	while (gone_n == 0 && !enc_passed (limit)) {
		struct timeval tick = { .tv_usec = 5000 };
		event_base_loopexit (base, &tick);
		event_base_loop (base, EVLOOP_ONCE);
	}
	assert_int_equal (gone_n, 1);
	assert_int_equal (get (c, "/v1/enclaves/x").rc, 0); /* reconnects */
	enc_http_client_free (c);
}

T (streams_come_line_by_line_and_can_be_given_up)
{
	struct enc_http_client *c = unix_client ();
	struct result r = { 0 }, s = { .stop_after = 2 }, e = { 0 };
	start (c, "GET", "/v1/stream", NULL, 5000, true, &r);
	start (c, "GET", "/v1/stream", NULL, 5000, true, &s);
	start (c, "GET", "/v1/fail", NULL, 5000, true, &e);
	until (&e);
	assert_int_equal (r.lines, 3);
	assert_int_equal (r.rc, 0);
	assert_int_equal (s.lines, 2);
	assert_int_equal (s.rc, -ENC_ECANCELED);
	assert_int_equal (e.rc, -ENC_EBUSY);
	enc_http_client_free (c);
}

T (a_client_may_be_freed_in_its_callback_and_pending_calls_end)
{
	struct enc_http_client *c = unix_client ();
	struct result r = { .free_me = c }, p = { 0 };
	start (c, "GET", "/v1/fail", NULL, 5000, false, &r);
	start (c, "GET", "/v1/fail", NULL, 5000, false, &p);
	until (&r);
	assert_int_equal (p.rc, -ENC_ECANCELED);
}

T (nobody_listening_is_unavailable)
{
	struct enc_http_client_conf conf = { .unix_path = "/nonexistent/sock" };
	struct enc_http_call call = { .method = "GET", .path = "/", .timeout_ms = 1000 };
	fails (enc_http_once (&conf, &call, NULL, &err), ENC_EUNAVAIL);
}

static struct enc_http_client *tls_client (SSL_CTX *ctx, const char *name)
{
	struct enc_http_client_conf conf = { .host = "127.0.0.1", .port = port, .tls = ctx, .tls_name = name };
	struct enc_http_client *c = enc_http_client_new (base, &conf, &err);
	assert_non_null (c);
	return c;
}

T (tls_shows_the_client_certificate_and_refuses_without_one)
{
	struct enc_http_client *c = tls_client (tls, NULL);
	struct result r = get (c, "/v1/enclaves/x");
	if (r.rc < 0)
		fail_msg ("%s", r.text);
	assert_non_null (strstr (r.text, "\"uid\":-1,\"cert\":true"));
	assert_non_null (strstr (r.text, "127.0.0.1"));
	assert_int_equal (get (c, "/v1/enclaves/y").rc, 0);
	enc_http_client_free (c);
	c = tls_client (tls, "enclaved");
	assert_int_equal (get (c, "/v1/enclaves/x").rc, 0);
	enc_http_client_free (c);
	c = tls_client (tls, "other-name");
	r = get (c, "/v1/enclaves/x");
	assert_int_equal (r.rc, -ENC_EUNAVAIL);
	assert_non_null (strstr (r.text, "TLS"));
	enc_http_client_free (c);
	c = tls_client (tls_no_cert, NULL);
	assert_int_equal (get (c, "/v1/enclaves/x").rc, -ENC_EUNAVAIL);
	enc_http_client_free (c);
}

static int parse (const char *text, struct enc_http_parser *p)
{
	struct evbuffer *in = evbuffer_new ();
	*p = (struct enc_http_parser){ .body = ENC_BUF_INIT (100) };
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < strlen (text); i++) { /* byte by byte: no state may depend on how it arrives */
		evbuffer_add (in, text + i, 1);
		rc = enc_http_parser_feed (p, in, &err);
	}
	evbuffer_free (in);
	return rc;
}

T (answers_are_parsed_strictly)
{
	struct enc_http_parser p;
	assert_int_equal (parse ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=1\r\nde\r\n0\r\nT: x\r\n\r\n", &p), 1);
	assert_int_equal (p.body.len, 5);
	enc_buf_done (&p.body);
	assert_int_equal (parse ("HTTP/1.1 204 No Content\r\n\r\n", &p), 1);
	static const char *const bad[] = { "HTTP/1.0 200 OK\r\n", "HTTP/1.1 20x OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\n folded: x\r\n", "HTTP/1.1 200 OK\r\nnocolon\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
		"SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n" };
	for (size_t i = 0; i < ENC_ARRAY_LEN (bad); i++) {
		if (parse (bad[i], &p) != -ENC_EPROTO)
			fail_msg ("%s", bad[i]);
		enc_buf_done (&p.body);
	}
	char text[400];
	(void) snprintf (text, sizeof (text), "HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n%0200d", 0);
	assert_int_equal (parse (text, &p), -ENC_ELIMIT);
	enc_buf_done (&p.body);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		RUN (requests_over_a_unix_socket_know_their_peer), RUN (refusals_have_codes_and_advice), RUN (invariant_15_bad_requests_are_refused_and_the_server_lives),
		RUN (a_long_poll_is_answered_later_and_notices_its_peer_going), RUN (streams_come_line_by_line_and_can_be_given_up),
		RUN (a_client_may_be_freed_in_its_callback_and_pending_calls_end), RUN (nobody_listening_is_unavailable),
		RUN (tls_shows_the_client_certificate_and_refuses_without_one), RUN (answers_are_parsed_strictly),
	};
	return cmocka_run_group_tests (tests, open_server, close_server);
}
