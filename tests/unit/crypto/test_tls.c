/* Who gets through a handshake, tried over memory: no socket, no port. */
#include "ca_test.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crypto/tls.h"

static struct ca ours, theirs;
static char folder[] = "/tmp/enc-tls-XXXXXX";
static SSL_CTX *server;

struct end {
	struct enc_cert_key *key;
	struct enc_cert_made cert;
};

static struct end node, stranger, service;

static struct end end_of (const struct ca *ca, const char *name, enum enc_cert_use use)
{
	struct end e = { 0 };

	assert_int_equal (enc_cert_key_new (&e.key, NULL), 0);
	e.cert = issue (ca, e.key, &(struct enc_cert_order){ name, use, 30 });
	return e;
}

static void end_done (struct end *e)
{
	enc_cert_key_free (e->key);
	enc_buf_done (&e->cert.pem);
}

static char *put (const char *name, const void *data, size_t len)
{
	char *path = enc_strf ("%s/%s", folder, name);
	FILE *f = fopen (path, "w");

	assert_non_null (f);
	assert_int_equal (fwrite (data, 1, len, f), len);
	fclose (f);
	return path;
}

static SSL_CTX *server_of (const struct end *e)
{
	struct enc_buf key = ENC_BUF_SECRET (4096);
	struct enc_error err = { 0 };

	assert_int_equal (enc_cert_key_pem (e->key, &key, NULL), 0);
	char *paths[] = { put ("cert", e->cert.pem.data, e->cert.pem.len), put ("key", key.data, key.len),
		put ("ca", ours.pem.data, ours.pem.len - 1) };
	SSL_CTX *ctx = enc_tls_server (&(struct enc_tls_files){ paths[0], paths[1], paths[2] }, &err);
	assert_string_equal (err.text, "");
	for (size_t i = 0; i < 3; i++) {
		(void) unlink (paths[i]);
		free (paths[i]);
	}
	enc_buf_done (&key);
	return ctx;
}

static int up (void **state)
{
	int rc = arena_up (state);

	assert_non_null (mkdtemp (folder));
	ca_up (&ours, "enclave CA");
	ca_up (&theirs, "enclave CA");
	node = end_of (&ours, "n1", ENC_CERT_NODE);
	stranger = end_of (&theirs, "n1", ENC_CERT_NODE);
	service = end_of (&ours, ENC_CERT_SERVICE, ENC_CERT_SERVER);
	server = server_of (&service);
	return rc;
}

static int down (void **state)
{
	SSL_CTX_free (server);
	end_done (&node);
	end_done (&stranger);
	end_done (&service);
	ca_down (&ours);
	ca_down (&theirs);
	(void) rmdir (folder);
	return arena_down (state);
}

struct talk {
	SSL *server;
	SSL *client;
	bool up; /* both ends are through, and the server has read a byte of the client's */
};

static void talk_done (struct talk *t)
{
	SSL_free (t->server);
	SSL_free (t->client);
}

/* In TLS 1.3 the client is through before the server has judged its certificate: what counts is data that arrives. */
static struct talk talk (SSL_CTX *from, SSL_CTX *to, bool enrol)
{
	struct talk t = { SSL_new (to), SSL_new (from), false };
	BIO *a = NULL, *b = NULL;
	char byte = 0;

	assert_int_equal (BIO_new_bio_pair (&a, 65536, &b, 65536), 1);
	SSL_set_bio (t.server, a, a);
	SSL_set_bio (t.client, b, b);
	SSL_set_accept_state (t.server);
	SSL_set_connect_state (t.client);
	assert_int_equal (enc_tls_client_name (t.client, enrol, NULL), 0);
	for (int i = 0; i < 20 && !t.up; i++) {
		(void) SSL_do_handshake (t.client);
		if (SSL_is_init_finished (t.client))
			(void) SSL_write (t.client, "x", 1);
		t.up = SSL_do_handshake (t.server) == 1 && SSL_read (t.server, &byte, 1) == 1;
	}
	return t;
}

static SSL_CTX *client_of (const struct end *e, const struct ca *ca)
{
	struct enc_error err = { 0 };
	SSL_CTX *ctx = enc_tls_client_pem (&(struct enc_tls_pem){ e ? (const char *) e->cert.pem.data : NULL, e ? e->key : NULL,
		(const char *) ca->pem.data }, &err);

	assert_string_equal (err.text, "");
	return ctx;
}

static void a_node_of_our_ca_gets_through_and_is_known (void **state)
{
	SSL_CTX *ctx = client_of (&node, &ours);
	struct talk t = talk (ctx, server, false);
	struct enc_cert_info info;

	(void) state;
	assert_true (t.up);
	assert_string_equal (SSL_get_version (t.server), "TLSv1.3");
	assert_int_equal (enc_tls_peer (t.server, &info, NULL), 0);
	assert_string_equal (info.name, "n1");
	assert_string_equal (info.serial, node.cert.serial);
	assert_int_equal (enc_tls_peer (t.client, &info, NULL), 0);
	assert_string_equal (info.name, ENC_CERT_SERVICE);
	talk_done (&t);
	SSL_CTX_free (ctx);
}

static void without_a_certificate_only_enrolment_gets_through (void **state)
{
	SSL_CTX *ctx = client_of (NULL, &ours);
	struct talk plain = talk (ctx, server, false);
	struct talk enrol = talk (ctx, server, true);
	struct enc_cert_info info;

	(void) state;
	assert_false (plain.up);
	assert_true (enrol.up);
	assert_int_equal (enc_tls_peer (enrol.server, &info, NULL), -ENC_ENOTFOUND);
	talk_done (&plain);
	talk_done (&enrol);
	SSL_CTX_free (ctx);
}

static void a_foreign_certificate_is_refused (void **state)
{
	SSL_CTX *ctx = client_of (&stranger, &ours);
	struct talk t = talk (ctx, server, false);

	(void) state;
	assert_false (t.up);
	talk_done (&t);
	SSL_CTX_free (ctx);
}

static void a_client_takes_no_other_server (void **state)
{
	SSL_CTX *pinned_elsewhere = client_of (&node, &theirs);
	struct talk t = talk (pinned_elsewhere, server, false);

	(void) state;
	assert_false (t.up);
	talk_done (&t);
	SSL_CTX_free (pinned_elsewhere);

	/* a node that poses as the controller, with its own good certificate */
	SSL_CTX *posing = server_of (&node);
	SSL_CTX *ctx = client_of (&node, &ours);
	t = talk (ctx, posing, false);
	assert_false (t.up);
	talk_done (&t);
	SSL_CTX_free (posing);

	/* another service by our CA */
	struct end other = end_of (&ours, "other", ENC_CERT_SERVER);
	posing = server_of (&other);
	t = talk (ctx, posing, false);
	assert_false (t.up);
	talk_done (&t);
	SSL_CTX_free (posing);
	SSL_CTX_free (ctx);
	end_done (&other);
}

static void older_tls_is_refused_and_nothing_can_be_resumed (void **state)
{
	SSL_CTX *ctx = client_of (&node, &ours);
	struct talk t;

	(void) state;
	t = talk (ctx, server, false);
	assert_true (t.up);
	assert_int_equal (SSL_session_reused (t.server), 0);
	assert_int_equal (SSL_SESSION_is_resumable (SSL_get0_session (t.client)), 0);
	talk_done (&t);
	SSL_CTX_set_min_proto_version (ctx, TLS1_2_VERSION);
	SSL_CTX_set_max_proto_version (ctx, TLS1_2_VERSION);
	t = talk (ctx, server, false);
	assert_false (t.up);
	talk_done (&t);
	SSL_CTX_free (ctx);
}

static void missing_or_mismatched_files_are_refused (void **state)
{
	char *ca = put ("ca", ours.pem.data, ours.pem.len - 1);
	struct enc_error err = { 0 };

	(void) state;
	assert_null (enc_tls_server (&(struct enc_tls_files){ "/nonexistent", "/nonexistent", ca }, &err));
	assert_non_null (strstr (err.text, "/nonexistent"));
	assert_null (enc_tls_server (&(struct enc_tls_files){ ca, ca, ca }, &err));
	assert_null (enc_tls_client (&(struct enc_tls_files){ NULL, NULL, "/nonexistent" }, &err));
	SSL_CTX *ctx = enc_tls_client (&(struct enc_tls_files){ NULL, NULL, ca }, &err);
	assert_non_null (ctx);
	SSL_CTX_free (ctx);
	(void) unlink (ca);
	free (ca);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (a_node_of_our_ca_gets_through_and_is_known),
		cmocka_unit_test (without_a_certificate_only_enrolment_gets_through),
		cmocka_unit_test (a_foreign_certificate_is_refused),
		cmocka_unit_test (a_client_takes_no_other_server),
		cmocka_unit_test (older_tls_is_refused_and_nothing_can_be_resumed),
		cmocka_unit_test (missing_or_mismatched_files_are_refused),
	};

	return cmocka_run_group_tests_name ("tls", tests, up, down);
}
