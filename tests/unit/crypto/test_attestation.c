/* Attestations: format, and the comparison with a baseline row by row. */
#include "signed_test.h"

#include "crypto/attestation.h"

static struct enc_attest_row rows[] = { { "kernel", { 0 } }, { "privd", { 0 } } };

static struct enc_attestation sample (void)
{
	struct enc_attestation a = { .node = "n1", .boot_id = "0f0e0d0c-1111-2222-3333-444455556666", .time = 1500,
		.driver = "none", .rows_n = 2, .rows = rows };

	memset (rows[0].digest, 1, 32);
	memset (rows[1].digest, 2, 32);
	count_up (a.boot, 16, 0);
	count_up (a.challenge, 16, 16);
	assert_int_equal (enc_hex_fixed ("04515c3d6eb9e396b904d3feca7f54fdcd0cc1e997bf375dca515ad0a6c3b4035f"
					 "4536be3a50f318fbf9a5475902a221502bef0d57e08c53b2cc0a56f17d9f9354",
				  a.boot_key, sizeof a.boot_key, NULL), 0);
	return a;
}

static void an_attestation_lies_as_written_down (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf want = ENC_BUF_INIT (1024), made = ENC_BUF_INIT (1024);
	struct enc_attestation a = sample (), back = { 0 };

	(void) state;
	vector ("attestation.hex", &want);
	assert_int_equal (enc_attestation_sign (&a, fixed, &made, NULL), 0);
	assert_int_equal (made.len, want.len);
	assert_memory_equal (made.data, want.data, want.len);
	assert_int_equal (enc_attestation_read (view_of_buf (&want), enc_sign_key_pub (fixed), &back, NULL), 0);
	assert_string_equal (back.boot_id, a.boot_id);
	assert_memory_equal (back.challenge, a.challenge, 16);
	assert_int_equal (back.rows_n, 2);
	assert_string_equal (back.rows[1].name, "privd");
	assert_int_equal (back.rows[1].digest[31], 2);
	enc_attestation_done (&back);
}

static void altered_cut_and_foreign_ones_are_refused (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf made = ENC_BUF_INIT (1024);
	struct enc_attestation a = sample (), back = { 0 };
	struct enc_view body = { 0 };

	(void) state;
	assert_int_equal (enc_attestation_sign (&a, fixed, &made, NULL), 0);
	for (size_t i = 0; i < made.len; i++) {
		made.data[i] ^= 0x20;
		assert_true (enc_attestation_read (view_of_buf (&made), enc_sign_key_pub (fixed), &back, NULL) < 0);
		made.data[i] ^= 0x20;
	}
	assert_int_equal (enc_attestation_read (view_of_buf (&made), enc_sign_key_pub (stranger), &back, NULL), -ENC_EINTEGRITY);
	assert_int_equal (enc_envelope_check (view_of_buf (&made), ENC_ENVELOPE_ATTESTATION, enc_sign_key_pub (fixed), &body, NULL), 0);
	for (size_t i = 0; i < body.left; i++)
		assert_int_equal (enc_attestation_decode (enc_view_of (body.at, i), &back, NULL), -ENC_EINVAL);
	assert_null (back.rows);
}

static void rows_are_sorted_single_named_and_bounded (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (65536);
	struct enc_attest_row twice[] = { { "a", { 0 } }, { "a", { 0 } } };
	struct enc_attest_row unsorted[] = { { "b", { 0 } }, { "a", { 0 } } };
	struct enc_attest_row blank[] = { { "a b", { 0 } } };
	struct enc_attest_row *many = calloc (ENC_ATTEST_ROWS_MAX + 1, sizeof *many);

	(void) state;
	assert_int_equal (enc_attest_rows_put (twice, 2, &out, NULL), -ENC_EINVAL);
	assert_int_equal (enc_attest_rows_put (unsorted, 2, &out, NULL), -ENC_EINVAL);
	assert_int_equal (enc_attest_rows_put (blank, 1, &out, NULL), -ENC_EINVAL);
	assert_int_equal (enc_attest_rows_put (many, ENC_ATTEST_ROWS_MAX + 1, &out, NULL), -ENC_ELIMIT);
	assert_int_equal (out.len, 0);
	free (many);
}

static void each_differing_row_is_named (void **state)
{
	struct enc_attest_row now[] = { { "added", { 1 } }, { "kernel", { 1 } }, { "privd", { 2 } } };
	struct enc_attest_row base[] = { { "kernel", { 1 } }, { "privd", { 9 } }, { "unit", { 3 } } };
	struct enc_attestation a = { .rows = now, .rows_n = 3 };
	const char *names[4] = { 0 };

	(void) state;
	assert_int_equal (enc_attest_differs (&a, base, 3, names, 4), 3);
	assert_string_equal (names[0], "added");
	assert_string_equal (names[1], "privd");
	assert_string_equal (names[2], "unit");
	assert_int_equal (enc_attest_differs (&a, now, 3, names, 4), 0);
	assert_int_equal (enc_attest_differs (&a, NULL, 0, names, 1), 3);
	a.rows_n = 0;
	assert_int_equal (enc_attest_differs (&a, base, 3, names, 4), 3);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (an_attestation_lies_as_written_down),
		cmocka_unit_test (altered_cut_and_foreign_ones_are_refused),
		cmocka_unit_test (rows_are_sorted_single_named_and_bounded),
		cmocka_unit_test (each_differing_row_is_named),
	};

	return cmocka_run_group_tests_name ("attestation", tests, keys_up, keys_down);
}
