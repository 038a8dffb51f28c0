/* No receipt, no signature: every way in which a receipt or its head can be wrong, tried with an op that would else succeed. */
#include "world.h"

#define HEAD "{'verb':'key.create','enclave':'" CXR "','object':'" STRAY "','nonce':'NONCE'}"

static struct enc_json *request (void)
{
	return json_of ("{'op':'key','enclave':'" CXR "','key':'" STRAY "','purpose':'volume','bytes':32}");
}

static int with_faults (const struct receipt_faults *faults)
{
	struct enc_json *r = request ();

	add_receipt (r, HEAD, faults);
	return call (r);
}

static bool key_made (void)
{
	struct enc_key_row row = { 0 };
	int rc = enc_keystore_key (w.k.store, STRAY, &row, NULL);

	enc_key_row_done (&row);
	return rc == 0;
}

static void the_good_receipt_is_taken (void **state)
{
	(void) state;
	assert_int_equal (with_faults (NULL), 0);
	assert_true (key_made ());
	/* again with a receipt of its own: the same key */
	assert_int_equal (with_faults (NULL), 0);
}

static void invariant_03_no_receipt_no_key (void **state)
{
	(void) state;
	assert_int_equal (call (request ()), -ENC_EINVAL);
	assert_string_equal (w.err.pointer, "/record");
	struct enc_json *r = request ();
	add_receipt (r, HEAD, NULL);
	enc_json_del (r, "proof");
	assert_int_equal (call (r), -ENC_EINVAL);
	r = request ();
	add_receipt (r, HEAD, NULL);
	enc_json_set_str (r, "proof", "");
	assert_int_equal (call (r), -ENC_EINTEGRITY);
	assert_false (key_made ());
}

static void invariant_03_a_receipt_of_another_log_is_refused (void **state)
{
	(void) state;
	assert_int_equal (with_faults (&(struct receipt_faults){ .foreign_key = true }), -ENC_EINTEGRITY);
	assert_false (key_made ());
}

static void invariant_03_an_altered_record_is_refused (void **state)
{
	(void) state;
	assert_int_equal (with_faults (&(struct receipt_faults){ .altered = true }), -ENC_EINTEGRITY);
	assert_int_equal (with_faults (&(struct receipt_faults){ .other_leaf = true }), -ENC_EINTEGRITY);
	assert_false (key_made ());
}

static void invariant_03_a_record_of_a_refusal_allows_nothing (void **state)
{
	(void) state;
	assert_int_equal (with_faults (&(struct receipt_faults){ .outcome = "denied" }), -ENC_EDENIED);
	assert_int_equal (with_faults (&(struct receipt_faults){ .outcome = "failed" }), -ENC_EDENIED);
	assert_false (key_made ());
	assert_int_equal (with_faults (&(struct receipt_faults){ .outcome = "ok" }), 0);
}

static void a_log_with_another_clock_is_refused (void **state)
{
	(void) state;
	assert_int_equal (with_faults (&(struct receipt_faults){ .clock_off_s = 301 }), -ENC_EFAILED);
	assert_int_equal (with_faults (&(struct receipt_faults){ .clock_off_s = -301 }), -ENC_EFAILED);
	assert_false (key_made ());
	assert_int_equal (with_faults (&(struct receipt_faults){ .clock_off_s = 200 }), 0);
}

static void invariant_03_a_nonce_is_good_once (void **state)
{
	struct enc_json *r = request ();

	(void) state;
	add_receipt (r, HEAD, NULL);
	struct enc_json *again = enc_json_copy (r), *other = enc_json_copy (r);
	assert_int_equal (call (r), 0);
	assert_int_equal (call (again), -ENC_EDENIED);
	assert_non_null (strstr (w.err.text, "nonce"));
	assert_int_equal (call (other), -ENC_EDENIED);
}

/* A refused request has used its nonce too: it cannot be tried again with another guess. */
static void a_nonce_is_used_up_by_a_refusal (void **state)
{
	struct enc_json *r = request ();

	(void) state;
	add_receipt (r, HEAD, NULL);
	struct enc_json *again = enc_json_copy (r);
	enc_json_set_str (r, "key", MUNGE);
	assert_int_equal (call (r), -ENC_EDENIED);
	assert_string_equal (w.err.pointer, "/head/object");
	assert_int_equal (call (again), -ENC_EDENIED);
	assert_non_null (strstr (w.err.text, "nonce"));
}

static void a_nonce_that_was_not_given_or_is_old_is_refused (void **state)
{
	struct enc_json *r = request ();

	(void) state;
	add_receipt (r, "{'verb':'key.create','enclave':'" CXR "','object':'" STRAY "','nonce':'00112233445566778899aabbccddeeff'}", NULL);
	assert_int_equal (call (r), -ENC_EDENIED);
	r = request ();
	add_receipt (r, HEAD, NULL);
	mono += 61 * INT64_C (1000000000);
	assert_int_equal (call (r), -ENC_EDENIED);
	assert_non_null (strstr (w.err.text, "older"));
	r = request ();
	add_receipt (r, HEAD, NULL);
	mono += 59 * INT64_C (1000000000);
	assert_int_equal (call (r), 0);
}

static void outstanding_nonces_are_bounded_and_leave_with_time (void **state)
{
	(void) state;
	for (int i = 0; i < ENC_NONCES_MAX + 10; i++)
		(void) call (json_of ("{'op':'nonce'}"));
	assert_int_equal (call (json_of ("{'op':'nonce'}")), -ENC_EBUSY);
	mono += (ENC_NONCE_CHALLENGE_S + 1) * INT64_C (1000000000);
	assert_int_equal (call (json_of ("{'op':'nonce'}")), 0);
}

/* Each row changes one thing of a head that would else fit; the pointer names it. */
static void invariant_03_the_head_must_equal_the_request_member_by_member (void **state)
{
	static const struct {
		const char *head, *pointer;
	} rows[] = {
		{ "{'verb':'key.destroy','enclave':'" CXR "','object':'" STRAY "','nonce':'NONCE'}", "/head/verb" },
		{ "{'verb':'key.create','enclave':'" OTHER "','object':'" STRAY "','nonce':'NONCE'}", "/head/enclave" },
		{ "{'verb':'key.create','object':'" STRAY "','nonce':'NONCE'}", "/head/enclave" },
		{ "{'verb':'key.create','enclave':'" CXR "','object':'" VOLUME "','nonce':'NONCE'}", "/head/object" },
		{ "{'verb':'key.create','enclave':'" CXR "','nonce':'NONCE'}", "/head/object" },
		{ "{'verb':'key.create','enclave':'" CXR "','object':'" STRAY "','node':'n1','nonce':'NONCE'}", "/head/node" },
		{ "{'verb':'key.create','enclave':'" CXR "','object':'" STRAY "','not_after':1800000100,'nonce':'NONCE'}", "/head/not_after" },
		{ "{'verb':'key.create','enclave':'" CXR "','object':'" STRAY "','generation':1,'nonce':'NONCE'}", "/head/generation" },
		{ "{'verb':'key.create','enclave':'" CXR "','object':'" STRAY "','boot':'" BOOT "','nonce':'NONCE'}", "/head/boot" },
	};

	(void) state;
	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++) {
		struct enc_json *r = request ();

		add_receipt (r, rows[i].head, NULL);
		assert_int_equal (call (r), -ENC_EDENIED);
		assert_string_equal (w.err.pointer, rows[i].pointer);
	}
	assert_false (key_made ());
}

static void malformed_heads_are_refused (void **state)
{
	static const char *const heads[] = { "null", "{}", "[]", "{'verb':'key.create'}", "{'verb':7,'nonce':'NONCE'}",
		"{'verb':'key.create','enclave':'" CXR "','object':'" STRAY "','nonce':'NONCE','more':1}",
		"{'verb':'key.create','enclave':'cxr','object':'" STRAY "','nonce':'NONCE'}",
		"{'verb':'key.create','enclave':'" CXR "','object':'" STRAY "','nonce':'00'}" };

	(void) state;
	for (size_t i = 0; i < ENC_ARRAY_LEN (heads); i++) {
		struct enc_json *r = request ();

		add_receipt (r, heads[i], NULL);
		assert_true (call (r) < 0);
		assert_true (w.err.text[0] != '\0');
	}
	assert_false (key_made ());
}

static void sealed_keyd_signs_nothing_but_still_takes_away (void **state)
{
	(void) state;
	assert_int_equal (with_passphrase ("seal", NULL), 0);
	assert_int_equal (with_faults (NULL), -ENC_EUNAVAIL);
	assert_non_null (strstr (w.err.next, "unseal"));
	assert_false (key_made ());
	assert_int_equal (ordered (json_of ("{'op':'lock','enclave':'" CXR "','key':'" VOLUME "'}"),
		"{'verb':'key.lock','enclave':'" CXR "','object':'" VOLUME "','nonce':'NONCE'}"), 0);
	assert_int_equal (ordered (json_of ("{'op':'destroy','enclave':'" CXR "','key':'" VOLUME "'}"),
		"{'verb':'key.destroy','enclave':'" CXR "','object':'" VOLUME "','nonce':'NONCE'}"), 0);
	assert_int_equal (ordered (json_of ("{'op':'lease','enclave':'" CXR "'}"), "{'verb':'enclave.end','enclave':'" CXR "','nonce':'NONCE'}"), 0);
}

#define T(name) cmocka_unit_test_setup_teardown (name, world_ready, world_down)

int main (void)
{
	const struct CMUnitTest tests[] = {
		T (the_good_receipt_is_taken), T (invariant_03_no_receipt_no_key), T (invariant_03_a_receipt_of_another_log_is_refused),
		T (invariant_03_an_altered_record_is_refused), T (invariant_03_a_record_of_a_refusal_allows_nothing),
		T (a_log_with_another_clock_is_refused), T (invariant_03_a_nonce_is_good_once), T (a_nonce_is_used_up_by_a_refusal),
		T (a_nonce_that_was_not_given_or_is_old_is_refused), T (outstanding_nonces_are_bounded_and_leave_with_time),
		T (invariant_03_the_head_must_equal_the_request_member_by_member), T (malformed_heads_are_refused),
		T (sealed_keyd_signs_nothing_but_still_takes_away),
	};

	return cmocka_run_group_tests_name ("keyd receipts", tests, NULL, NULL);
}
