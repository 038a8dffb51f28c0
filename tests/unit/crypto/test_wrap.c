/* AES-256-GCM and wrapped keys. */
#include "crypto_test.h"

#include "crypto/aead.h"
#include "crypto/wrap.h"

static void aes_256_gcm_has_the_known_answers (void **state)
{
	/* Test cases 14 and 16 of the GCM specification. */
	static const char *const cases[][5] = {
		{ "0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000", "",
			"00000000000000000000000000000000", "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919" },
		{ "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
			"feedfacedeadbeeffeedfacedeadbeefabaddad2",
			"d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
			"1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
			"522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
			"8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b" },
	};

	(void) state;
	for (size_t i = 0; i < ENC_ARRAY_LEN (cases); i++) {
		struct enc_buf b[5];
		uint8_t out[256];

		for (size_t k = 0; k < 5; k++) {
			b[k] = ENC_BUF_INIT (256);
			assert_int_equal (enc_get_hex (cases[i][k], strlen (cases[i][k]), &b[k], NULL), 0);
		}
		const struct enc_aead a = { b[0].data, b[1].data, b[2].data, b[2].len };
		assert_int_equal (enc_aead_seal (&a, b[3].data, b[3].len, out, NULL), 0);
		assert_memory_equal (out, b[4].data, b[4].len);
		assert_int_equal (enc_aead_open (&a, b[4].data, b[4].len, out, NULL), 0);
		assert_memory_equal (out, b[3].data, b[3].len);
		for (size_t k = 0; k < 5; k++)
			enc_buf_done (&b[k]);
	}
}

static void altered_ciphertext_gives_nothing (void **state)
{
	uint8_t key[32] = { 1 }, nonce[12] = { 2 }, sealed[8 + 16], out[8];
	const struct enc_aead a = { key, nonce, NULL, 0 };

	(void) state;
	assert_int_equal (enc_aead_seal (&a, "8 bytes.", 8, sealed, NULL), 0);
	for (size_t i = 0; i < sizeof sealed; i++) {
		sealed[i] ^= 1;
		assert_int_equal (enc_aead_open (&a, sealed, sizeof sealed, out, NULL), -ENC_EINTEGRITY);
		assert_memory_equal (out, "\0\0\0\0\0\0\0\0", 8);
		sealed[i] ^= 1;
	}
	assert_int_equal (enc_aead_open (&a, sealed, 15, out, NULL), -ENC_EINVAL);
}

static const struct enc_wrap_id id = { "volume", ID_K, ID_E, 3 };

static void a_wrap_made_elsewhere_opens (void **state)
{
	struct enc_buf wrap = ENC_BUF_INIT (256);
	uint8_t parent[32], want[32];
	struct enc_secret s = { 0 };

	(void) state;
	count_up (parent, 32, 0);
	count_up (want, 32, 64);
	vector ("wrap.hex", &wrap);
	const struct enc_wrap_parent p = { parent, 7 };
	assert_int_equal (enc_key_unwrap (&p, &id, wrap.data, wrap.len, &s), 0);
	assert_int_equal (s.len, 32);
	assert_memory_equal (s.data, want, 32);
	enc_secret_done (&s);
	enc_buf_done (&wrap);
}

static void a_wrap_opens_only_for_what_it_is_bound_to (void **state)
{
	static const struct enc_wrap_id others[] = {
		{ "munge", ID_K, ID_E, 3 }, { "volume", ID_F, ID_E, 3 }, { "volume", ID_K, ID_F, 3 }, { "volume", ID_K, ID_E, 4 },
		{ "volume", ID_K ID_E, "", 3 }, /* neighbours do not run into each other */
	};
	struct enc_buf wrap = ENC_BUF_INIT (256);
	uint8_t parent[32] = { 9 }, secret[32] = { 5 };
	struct enc_secret s = { 0 };
	struct enc_wrap_parent p = { parent, 1 };

	(void) state;
	assert_int_equal (enc_key_wrap (&p, &id, secret, sizeof secret, &wrap), 0);
	assert_int_equal (wrap.len, sizeof secret + ENC_WRAP_OVERHEAD);
	for (size_t i = 0; i < ENC_ARRAY_LEN (others); i++)
		assert_int_equal (enc_key_unwrap (&p, &others[i], wrap.data, wrap.len, &s), -ENC_EINTEGRITY);
	p.version = 2;
	assert_int_equal (enc_key_unwrap (&p, &id, wrap.data, wrap.len, &s), -ENC_EINTEGRITY);
	p.version = 1;
	parent[31] ^= 0x80;
	assert_int_equal (enc_key_unwrap (&p, &id, wrap.data, wrap.len, &s), -ENC_EINTEGRITY);
	assert_null (s.data);
	enc_buf_done (&wrap);
}

static void every_altered_or_missing_byte_is_seen (void **state)
{
	struct enc_buf wrap = ENC_BUF_INIT (256);
	uint8_t parent[32] = { 9 }, secret[32] = { 5 };
	struct enc_secret s = { 0 };
	const struct enc_wrap_parent p = { parent, 1 };

	(void) state;
	assert_int_equal (enc_key_wrap (&p, &id, secret, sizeof secret, &wrap), 0);
	for (size_t i = 0; i < wrap.len; i++) {
		wrap.data[i] ^= 0x10;
		assert_true (enc_key_unwrap (&p, &id, wrap.data, wrap.len, &s) < 0);
		wrap.data[i] ^= 0x10;
		assert_true (enc_key_unwrap (&p, &id, wrap.data, i, &s) < 0);
	}
	enc_buf_done (&wrap);
}

static void two_wraps_of_one_key_differ (void **state)
{
	struct enc_buf a = ENC_BUF_INIT (256), b = ENC_BUF_INIT (256);
	uint8_t parent[32] = { 9 }, secret[32] = { 5 };
	const struct enc_wrap_parent p = { parent, 1 };

	(void) state;
	assert_int_equal (enc_key_wrap (&p, &id, secret, sizeof secret, &a), 0);
	assert_int_equal (enc_key_wrap (&p, &id, secret, sizeof secret, &b), 0);
	assert_memory_not_equal (a.data, b.data, a.len);
	enc_buf_done (&a);
	enc_buf_done (&b);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (aes_256_gcm_has_the_known_answers),
		cmocka_unit_test (altered_ciphertext_gives_nothing),
		cmocka_unit_test (a_wrap_made_elsewhere_opens),
		cmocka_unit_test (a_wrap_opens_only_for_what_it_is_bound_to),
		cmocka_unit_test (every_altered_or_missing_byte_is_seen),
		cmocka_unit_test (two_wraps_of_one_key_differ),
	};

	return cmocka_run_group_tests_name ("wrap", tests, arena_up, arena_down);
}
