/* Signed envelopes, and the grant as the shortest thing in one. */
#include "signed_test.h"

#include "crypto/grant.h"

static const uint8_t digest[32] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
	16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 };
static const struct enc_grant grant = { .node = "n1", .boot = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
	.generation = 9, .enclave = ID_E, .document = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
	16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 },
	.pool = 3, .not_before = 1000, .not_after = 2000, .record = 4127 };

/* Ed25519 is deterministic: the whole envelope is one fixed text. */
static void a_grant_lies_as_written_down (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf want = ENC_BUF_INIT (512), made = ENC_BUF_INIT (512);
	struct enc_grant back = { 0 };

	(void) state;
	vector ("grant.hex", &want);
	assert_int_equal (enc_grant_sign (&grant, fixed, &made, NULL), 0);
	assert_int_equal (made.len, want.len);
	assert_memory_equal (made.data, want.data, want.len);
	assert_int_equal (enc_grant_read (view_of_buf (&want), enc_sign_key_pub (fixed), &back, NULL), 0);
	assert_string_equal (back.node, "n1");
	assert_string_equal (back.enclave, ID_E);
	assert_memory_equal (back.document, digest, 32);
	assert_int_equal (back.generation, 9);
	assert_int_equal (back.pool, 3);
	assert_int_equal (back.not_before, 1000);
	assert_int_equal (back.not_after, 2000);
	assert_int_equal (back.record, 4127);
}

static void every_altered_missing_or_added_byte_is_refused (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf made = ENC_BUF_INIT (512);
	struct enc_grant back = { 0 };

	(void) state;
	assert_int_equal (enc_grant_sign (&grant, fixed, &made, NULL), 0);
	for (size_t i = 0; i < made.len; i++) {
		for (unsigned bit = 1; bit < 256; bit <<= 1) {
			made.data[i] ^= (uint8_t) bit;
			assert_true (enc_grant_read (view_of_buf (&made), enc_sign_key_pub (fixed), &back, NULL) < 0);
			made.data[i] ^= (uint8_t) bit;
		}
		assert_int_equal (enc_grant_read (enc_view_of (made.data, i), enc_sign_key_pub (fixed), &back, NULL), -ENC_EINVAL);
	}
	enc_buf_put_u8 (&made, 0);
	assert_int_equal (enc_grant_read (view_of_buf (&made), enc_sign_key_pub (fixed), &back, NULL), -ENC_EINVAL);
	assert_int_equal (back.generation, 0);
}

static void invariant_03_a_grant_by_another_key_is_refused (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf made = ENC_BUF_INIT (512);
	struct enc_error err = { 0 };
	struct enc_grant back;

	(void) state;
	assert_int_equal (enc_grant_sign (&grant, stranger, &made, NULL), 0);
	assert_int_equal (enc_grant_read (view_of_buf (&made), enc_sign_key_pub (fixed), &back, &err), -ENC_EINTEGRITY);
	assert_non_null (strstr (err.text, "another key"));
	/* … also when it claims the right key id */
	enc_envelope_key_id (enc_sign_key_pub (fixed), made.data + 8);
	assert_int_equal (enc_grant_read (view_of_buf (&made), enc_sign_key_pub (fixed), &back, &err), -ENC_EINTEGRITY);
}

static void a_signature_counts_for_its_type_alone (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf body = ENC_BUF_INIT (64), made = ENC_BUF_INIT (512);
	struct enc_view view;

	(void) state;
	enc_buf_put_u8 (&body, 1);
	assert_int_equal (enc_envelope_sign (fixed, ENC_ENVELOPE_ATTESTATION, &body, &made, NULL), 0);
	assert_int_equal (enc_envelope_check (view_of_buf (&made), ENC_ENVELOPE_GRANT, enc_sign_key_pub (fixed), &view, NULL), -ENC_EINVAL);
	assert_int_equal (enc_envelope_check (view_of_buf (&made), ENC_ENVELOPE_ATTESTATION, enc_sign_key_pub (fixed), &view, NULL), 0);
	assert_int_equal (view.left, 1);
	made.data[6] = ENC_ENVELOPE_GRANT;
	assert_int_equal (enc_envelope_check (view_of_buf (&made), ENC_ENVELOPE_GRANT, enc_sign_key_pub (fixed), &view, NULL), -ENC_EINTEGRITY);
}

static void bodies_are_bounded (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf body = ENC_BUF_INIT (70000), made = ENC_BUF_INIT (80000);
	struct enc_view view;

	(void) state;
	assert_non_null (enc_buf_grow (&body, ENC_ENVELOPE_BODY_MAX));
	memset (body.data, 0, body.len);
	assert_int_equal (enc_envelope_sign (fixed, ENC_ENVELOPE_MEMBERS, &body, &made, NULL), 0);
	assert_int_equal (enc_envelope_check (view_of_buf (&made), ENC_ENVELOPE_MEMBERS, enc_sign_key_pub (fixed), &view, NULL), 0);
	enc_buf_put_u8 (&body, 0);
	assert_int_equal (enc_envelope_sign (fixed, ENC_ENVELOPE_MEMBERS, &body, &made, NULL), -ENC_ELIMIT);
}

static void a_grant_with_a_senseless_field_is_neither_made_nor_read (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (512);
	struct enc_grant g[5];
	static const char *const where[] = { "/node", "/enclave", "/pool", "/generation", "/not_after" };
	struct enc_error err;

	(void) state;
	for (size_t i = 0; i < ENC_ARRAY_LEN (g); i++)
		g[i] = grant;
	memcpy (g[0].node, "n 1", 4);
	g[1].enclave[3] = '!';
	g[2].pool = 5;
	g[3].generation = 0;
	g[4].not_after = g[4].not_before;
	for (size_t i = 0; i < ENC_ARRAY_LEN (g); i++) {
		enc_error_clear (&err);
		assert_int_equal (enc_grant_sign (&g[i], fixed, &out, &err), -ENC_EINVAL);
		assert_string_equal (err.pointer, where[i]);
	}
	assert_int_equal (out.len, 0);
}

/* What the node itself compares. */
static void invariant_03_a_grant_fits_one_node_boot_document_generation_and_time (void **state)
{
	static const uint8_t other[32] = { 9 };
	const struct enc_grant_facts right = { "n1", grant.boot, 9, 8, digest, 1500 };
	struct enc_grant_facts f[8];
	struct enc_error err;

	(void) state;
	assert_int_equal (enc_grant_fits (&grant, &right, NULL), 0);
	for (size_t i = 0; i < ENC_ARRAY_LEN (f); i++)
		f[i] = right;
	f[0].node = "n2";
	f[1].boot = other;
	f[2].document = other;
	f[3].generation = 10;
	f[4].last_generation = 10;
	f[5].now = 2000;
	f[6].now = 1000 - ENC_GRANT_SKEW_S - 1;
	f[7].now = UINT64_MAX - 10;
	for (size_t i = 0; i < ENC_ARRAY_LEN (f); i++) {
		enc_error_clear (&err);
		assert_int_equal (enc_grant_fits (&grant, &f[i], &err), -ENC_EDENIED);
		assert_true (err.text[0] != '\0');
	}
	f[0] = right;
	f[0].last_generation = 9; /* the same document again */
	f[1] = right;
	f[1].now = 1000 - ENC_GRANT_SKEW_S;
	assert_int_equal (enc_grant_fits (&grant, &f[0], NULL), 0);
	assert_int_equal (enc_grant_fits (&grant, &f[1], NULL), 0);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (a_grant_lies_as_written_down),
		cmocka_unit_test (every_altered_missing_or_added_byte_is_refused),
		cmocka_unit_test (invariant_03_a_grant_by_another_key_is_refused),
		cmocka_unit_test (a_signature_counts_for_its_type_alone),
		cmocka_unit_test (bodies_are_bounded),
		cmocka_unit_test (a_grant_with_a_senseless_field_is_neither_made_nor_read),
		cmocka_unit_test (invariant_03_a_grant_fits_one_node_boot_document_generation_and_time),
	};

	return cmocka_run_group_tests_name ("envelope", tests, keys_up, keys_down);
}
