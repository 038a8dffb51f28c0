/* Certificates, identities, baselines and attestations. */
#include "world.h"

#include "crypto/cert.h"

struct certify {
	const char *node, *head_node; /* NULL: n2 */
	const char *identity;         /* NULL: the world's */
	bool other_csr;               /* the head is about another request */
	bool server;
};

static int certify (const struct certify *o)
{
	enc_auto (enc_cert_key) struct enc_cert_key *key = NULL;
	enc_auto_done (enc_buf_done) struct enc_buf csr = ENC_BUF_INIT (ENC_CERT_PEM_MAX);
	enc_auto_free char *own = enc_hex (enc_sign_key_pub (w.identity)->key, 32);
	const char *node = o->node ? o->node : "n2", *identity = o->identity ? o->identity : own;
	char head[512];

	assert_int_equal (enc_cert_key_new (&key, NULL), 0);
	assert_int_equal (enc_cert_request (key, "root", &csr, NULL), 0);
	const char *hash = sha_hex (csr.data, o->other_csr ? csr.len - 1 : csr.len);
	if (o->server)
		(void) snprintf (head, sizeof head, "{'verb':'server.certify','object':'%s','document':'%s','nonce':'NONCE'}",
			o->head_node ? o->head_node : ENC_CERT_SERVICE, hash);
	else
		(void) snprintf (head, sizeof head, "{'verb':'node.enroll','node':'%s','object':'%s','document':'%s','nonce':'NONCE'}",
			o->head_node ? o->head_node : node, identity, hash);
	enc_buf_put_u8 (&csr, 0);
	struct enc_json *r = o->server ? json_of ("{'op':'certify'}") : json_of ("{'op':'certify','node':'%s','identity':'%s'}", node, identity);
	enc_json_set_str (r, "csr", (char *) csr.data);
	return ordered (r, head);
}

static void a_node_gets_a_certificate_of_its_name_and_is_bound_to_its_identity (void **state)
{
	struct enc_cert_info info;

	(void) state;
	assert_int_equal (certify (&(struct certify){ 0 }), 0);
	const char *pem = enc_json_get_str (w.answer, "certificate", ""), *ca = enc_json_get_str (w.answer, "ca", "");
	assert_int_equal (enc_cert_verify (pem, ca, ENC_CERT_NODE, &info, NULL), 0);
	assert_string_equal (info.name, "n2"); /* not the request's "root" */
	assert_string_equal (info.serial, enc_json_get_str (w.answer, "serial", ""));
	assert_int_equal (enc_cert_verify (pem, ca, ENC_CERT_SERVER, &info, NULL), -ENC_EINTEGRITY);
	assert_int_equal (certify (&(struct certify){ .server = true }), 0);
	pem = enc_json_get_str (w.answer, "certificate", "");
	assert_int_equal (enc_cert_verify (pem, enc_vault_ca (w.k.vault), ENC_CERT_SERVER, &info, NULL), 0);
	assert_string_equal (info.name, ENC_CERT_SERVICE);
}

static void certificates_are_for_what_the_record_says (void **state)
{
	(void) state;
	assert_int_equal (certify (&(struct certify){ .other_csr = true }), -ENC_EDENIED);
	assert_int_equal (certify (&(struct certify){ .head_node = "n3" }), -ENC_EDENIED);
	assert_string_equal (w.err.pointer, "/head/node");
	assert_int_equal (certify (&(struct certify){ .identity = "00" }), -ENC_EINVAL);
	assert_int_equal (certify (&(struct certify){ .server = true, .head_node = "n1" }), -ENC_EDENIED);
	/* a node cannot take the controller's name */
	assert_int_equal (certify (&(struct certify){ .node = ENC_CERT_SERVICE }), -ENC_EINVAL);
	assert_int_equal (certify (&(struct certify){ .node = "Enclave-Controller" }), -ENC_EINVAL);
	assert_int_equal (certify (&(struct certify){ .node = "n2,DNS:x", .head_node = "n2" }), -ENC_EDENIED);
}

static void another_identity_forgets_what_was_measured (void **state)
{
	enc_auto_free char *foreign = enc_hex (enc_sign_key_pub (w.foreign)->key, 32);
	struct enc_node_row row = { 0 };

	(void) state;
	/* the same identity again: a new certificate, the baseline stays */
	assert_int_equal (certify (&(struct certify){ .node = "n1" }), 0);
	assert_int_equal (enc_keystore_node (w.k.store, "n1", &row, NULL), 0);
	assert_true (row.baseline.len > 0);
	assert_string_equal (row.serial, enc_json_get_str (w.answer, "serial", ""));
	enc_node_row_done (&row);
	assert_int_equal (certify (&(struct certify){ .node = "n1", .identity = foreign }), 0);
	assert_int_equal (enc_keystore_node (w.k.store, "n1", &row, NULL), 0);
	assert_int_equal (row.baseline.len, 0);
	enc_node_row_done (&row);
	/* and the old one speaks for the node no longer */
	assert_true (attest (&(struct attest_order){ 0 }) < 0);
}

static void an_equal_node_is_equal_and_each_differing_row_is_named (void **state)
{
	(void) state;
	assert_int_equal (attest (&(struct attest_order){ 0 }), 0);
	assert_true (enc_json_get_bool (w.answer, "equal", false));
	assert_int_equal (enc_json_len (enc_json_get (w.answer, "differs")), 0);
	assert_int_equal (enc_json_len (enc_json_get (w.answer, "rows")), 2);
	assert_int_equal (attest (&(struct attest_order){ .kernel = 7 }), 0);
	assert_false (enc_json_get_bool (w.answer, "equal", true));
	assert_int_equal (enc_json_len (enc_json_get (w.answer, "differs")), 1);
	assert_string_equal (enc_json_str (enc_json_at (enc_json_get (w.answer, "differs"), 0)), "kernel");
}

static void attestations_by_others_of_others_or_to_old_challenges_are_refused (void **state)
{
	(void) state;
	assert_int_equal (attest (&(struct attest_order){ .foreign = true }), -ENC_EINTEGRITY);
	assert_int_equal (attest (&(struct attest_order){ .node = "n2" }), -ENC_EDENIED);
	assert_int_equal (attest (&(struct attest_order){ .challenge = "00112233445566778899aabbccddeeff" }), -ENC_EDENIED);
	const char *old = nonce ();
	mono += (ENC_NONCE_CHALLENGE_S + 1) * INT64_C (1000000000);
	assert_int_equal (attest (&(struct attest_order){ .challenge = old }), -ENC_EDENIED);
	/* one answer for one challenge */
	const char *fresh = nonce ();
	assert_int_equal (attest (&(struct attest_order){ .challenge = fresh }), 0);
	assert_int_equal (attest (&(struct attest_order){ .challenge = fresh }), -ENC_EDENIED);
	/* the request names another challenge than the envelope answers */
	struct enc_buf env = attestation (&(struct attest_order){ 0 });
	assert_int_equal (call (json_of ("{'op':'attest','node':'n1','challenge':'%s','attestation':'%s'}", nonce (), b64 (&env))), -ENC_EDENIED);
	enc_buf_done (&env);
}

static int baseline (const struct attest_order *order, const char *boot, bool other_hash)
{
	struct enc_buf env = attestation (order);
	char head[512];

	(void) snprintf (head, sizeof head, "{'verb':'node.baseline','node':'n1','boot':'%s','document':'%s','nonce':'NONCE'}", boot,
		sha_hex (env.data, other_hash ? env.len - 1 : env.len));
	int rc = ordered (json_of ("{'op':'baseline','node':'n1','attestation':'%s'}", b64 (&env)), head);
	enc_buf_done (&env);
	return rc;
}

/* Else a node that was changed could be declared right by whoever holds the controller. */
static void a_second_baseline_is_refused (void **state)
{
	(void) state;
	assert_int_equal (baseline (&(struct attest_order){ .kernel = 9 }, BOOT, false), -ENC_EDENIED);
	assert_non_null (strstr (w.err.text, "approvals"));
	assert_int_equal (attest (&(struct attest_order){ .kernel = 9 }), 0);
	assert_false (enc_json_get_bool (w.answer, "equal", true));
}

static void a_first_baseline_is_checked_like_an_attestation (void **state)
{
	enc_auto_free char *foreign = enc_hex (enc_sign_key_pub (w.foreign)->key, 32);

	(void) state;
	assert_int_equal (certify (&(struct certify){ .node = "n1", .identity = foreign }), 0);
	assert_int_equal (baseline (&(struct attest_order){ 0 }, BOOT, false), -ENC_EINTEGRITY);
	assert_int_equal (baseline (&(struct attest_order){ .foreign = true }, BOOT, true), -ENC_EDENIED);
	assert_int_equal (baseline (&(struct attest_order){ .foreign = true }, "ff0102030405060708090a0b0c0d0e0f", false), -ENC_EDENIED);
	assert_int_equal (attest (&(struct attest_order){ .foreign = true }), -ENC_ENOTFOUND);
	assert_int_equal (baseline (&(struct attest_order){ .foreign = true }, BOOT, false), 0);
	assert_int_equal (enc_json_get_u64 (w.answer, "rows", 0), 2);
	assert_int_equal (attest (&(struct attest_order){ .foreign = true }), 0);
	assert_true (enc_json_get_bool (w.answer, "equal", false));
}

#define T(name) cmocka_unit_test_setup_teardown (name, world_ready, world_down)

int main (void)
{
	const struct CMUnitTest tests[] = {
		T (a_node_gets_a_certificate_of_its_name_and_is_bound_to_its_identity), T (certificates_are_for_what_the_record_says),
		T (another_identity_forgets_what_was_measured), T (an_equal_node_is_equal_and_each_differing_row_is_named),
		T (attestations_by_others_of_others_or_to_old_challenges_are_refused), T (a_second_baseline_is_refused),
		T (a_first_baseline_is_checked_like_an_attestation),
	};

	return cmocka_run_group_tests_name ("keyd nodes", tests, NULL, NULL);
}
