/* Keys from passphrases. */
#include "crypto_test.h"

#include "crypto/kdf.h"

static const uint8_t pass[] = "correct horse battery";

static void the_same_passphrase_and_parameters_give_the_same_key (void **state)
{
	struct enc_buf stored = ENC_BUF_INIT (64);
	struct enc_kdf kdf, back;
	uint8_t *a = NULL, *b = NULL, *c = NULL, *d = NULL;

	(void) state;
	assert_int_equal (enc_kdf_new (8, &kdf, NULL), 0);
	enc_kdf_put (&kdf, &stored);
	assert_int_equal (stored.len, ENC_KDF_WIRE);
	assert_int_equal (enc_kdf_read (stored.data, stored.len, &back, NULL), 0);
	assert_int_equal (enc_kdf_derive (&kdf, pass, 20, &a, NULL), 0);
	assert_int_equal (enc_kdf_derive (&back, pass, 20, &b, NULL), 0);
	assert_memory_equal (a, b, 32);
	assert_int_equal (enc_kdf_derive (&kdf, pass, 19, &c, NULL), 0);
	assert_memory_not_equal (a, c, 32);
	back.salt[0] ^= 1;
	assert_int_equal (enc_kdf_derive (&back, pass, 20, &d, NULL), 0);
	assert_memory_not_equal (a, d, 32);
	enc_secmem_free (a);
	enc_secmem_free (b);
	enc_secmem_free (c);
	enc_secmem_free (d);
	enc_buf_done (&stored);
}

/* argon2id 1.3, t = 3, m = 8 MiB, p = 1, of an independent implementation. */
static void argon2id_has_the_known_answer (void **state)
{
	struct enc_kdf kdf = { .passes = 3, .mib = 8 };
	uint8_t want[32], *key = NULL;

	(void) state;
	count_up (kdf.salt, sizeof kdf.salt, 0);
	assert_int_equal (enc_hex_fixed ("409d33c725856654c59ea2787134a0091cf06bbf7214d861558792c52dcdec42", want, sizeof want, NULL), 0);
	assert_int_equal (enc_kdf_derive (&kdf, pass, strlen ((const char *) pass), &key, NULL), 0);
	assert_memory_equal (key, want, 32);
	enc_secmem_free (key);
}

static void bounds_are_kept (void **state)
{
	struct enc_kdf kdf;
	uint8_t *key = NULL, wire[ENC_KDF_WIRE] = { 1, 3, 0, 0, 0, 8 };

	(void) state;
	assert_int_equal (enc_kdf_new (7, &kdf, NULL), -ENC_EINVAL);
	assert_int_equal (enc_kdf_new (2000, &kdf, NULL), -ENC_EINVAL);
	assert_int_equal (enc_kdf_read (wire, sizeof wire, &kdf, NULL), 0);
	assert_int_equal (enc_kdf_read (wire, sizeof wire - 1, &kdf, NULL), -ENC_EINVAL);
	wire[0] = 2;
	assert_int_equal (enc_kdf_read (wire, sizeof wire, &kdf, NULL), -ENC_EINVAL);
	wire[0] = 1;
	wire[7] = 1; /* 65,544 MiB */
	assert_int_equal (enc_kdf_read (wire, sizeof wire, &kdf, NULL), -ENC_EINVAL);
	assert_int_equal (enc_kdf_derive (&kdf, pass, 7, &key, NULL), -ENC_EINVAL);
	assert_null (key);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (the_same_passphrase_and_parameters_give_the_same_key),
		cmocka_unit_test (argon2id_has_the_known_answer),
		cmocka_unit_test (bounds_are_kept),
	};

	return cmocka_run_group_tests_name ("kdf", tests, arena_up, arena_down);
}
