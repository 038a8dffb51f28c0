/* Keys sealed to one boot of one node. The module's source is included, so that a boot key with a fixed private number can be
 * made: the product has no way to do that. */
#include "crypto_test.h"

#include "crypto/seal.c"

static const uint8_t boot[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
static const struct enc_seal_id id = { "n1", boot, 9, ID_K, 4127 };

static struct enc_boot_key *fixed_key (void)
{
	static const char point[] = "04515c3d6eb9e396b904d3feca7f54fdcd0cc1e997bf375dca515ad0a6c3b4035f"
				    "4536be3a50f318fbf9a5475902a221502bef0d57e08c53b2cc0a56f17d9f9354";
	struct enc_boot_key *key = calloc (1, sizeof *key);
	char group[] = "P-256";
	uint8_t d[32];

	for (size_t i = 0; i < sizeof d; i++)
		d[i] = (uint8_t) (sizeof d - i); /* 1, 2 … 32 big-endian, in the order of this machine */
	assert_int_equal (enc_hex_fixed (point, key->point, sizeof key->point, NULL), 0);
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string (OSSL_PKEY_PARAM_GROUP_NAME, group, 0),
		OSSL_PARAM_construct_BN (OSSL_PKEY_PARAM_PRIV_KEY, d, sizeof d),
		OSSL_PARAM_construct_octet_string (OSSL_PKEY_PARAM_PUB_KEY, key->point, sizeof key->point),
		OSSL_PARAM_construct_end (),
	};
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name (NULL, "EC", NULL);
	assert_int_equal (EVP_PKEY_fromdata_init (ctx), 1);
	assert_int_equal (EVP_PKEY_fromdata (ctx, &key->pair, EVP_PKEY_KEYPAIR, params), 1);
	EVP_PKEY_CTX_free (ctx);
	return key;
}

static void a_key_sealed_elsewhere_opens (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf sealed = ENC_BUF_INIT (256);
	enc_auto (enc_boot_key) struct enc_boot_key *key = fixed_key ();
	struct enc_secret s = { 0 };
	uint8_t want[32];

	(void) state;
	count_up (want, 32, 64);
	vector ("sealed.hex", &sealed);
	assert_int_equal (enc_seal_open (key, &id, enc_view_of (sealed.data, sealed.len), &s, NULL), 0);
	assert_int_equal (s.len, 32);
	assert_memory_equal (s.data, want, 32);
	enc_secret_done (&s);
}

static void a_sealed_key_opens_for_its_node_boot_generation_key_and_record_alone (void **state)
{
	static const uint8_t other_boot[16] = { 1 };
	const struct enc_seal_id others[] = {
		{ "n2", boot, 9, ID_K, 4127 }, { "n1", other_boot, 9, ID_K, 4127 }, { "n1", boot, 10, ID_K, 4127 },
		{ "n1", boot, 9, ID_F, 4127 }, { "n1", boot, 9, ID_K, 4128 },
	};
	enc_auto_done (enc_buf_done) struct enc_buf sealed = ENC_BUF_INIT (256);
	enc_auto (enc_boot_key) struct enc_boot_key *key = NULL;
	enc_auto (enc_boot_key) struct enc_boot_key *other = NULL;
	struct enc_secret in = { enc_secmem_alloc (64), 64 }, out = { 0 };
	struct enc_error err = { 0 };

	(void) state;
	memset (in.data, 7, 64);
	assert_int_equal (enc_boot_key_new (&key, NULL), 0);
	assert_int_equal (enc_boot_key_new (&other, NULL), 0);
	assert_int_equal (enc_seal (enc_boot_key_point (key), &id, &in, &sealed, NULL), 0);
	assert_int_equal (sealed.len, 64 + ENC_SEAL_OVERHEAD);
	for (size_t i = 0; i < ENC_ARRAY_LEN (others); i++)
		assert_int_equal (enc_seal_open (key, &others[i], enc_view_of (sealed.data, sealed.len), &out, &err), -ENC_EINTEGRITY);
	/* the boot key of another node, or of this node after a reboot */
	assert_int_equal (enc_seal_open (other, &id, enc_view_of (sealed.data, sealed.len), &out, &err), -ENC_EINTEGRITY);
	assert_null (out.data);
	assert_int_equal (enc_seal_open (key, &id, enc_view_of (sealed.data, sealed.len), &out, &err), 0);
	assert_memory_equal (out.data, in.data, 64);
	enc_secret_done (&in);
	enc_secret_done (&out);
}

static void every_altered_or_missing_byte_is_seen (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf sealed = ENC_BUF_INIT (256);
	enc_auto (enc_boot_key) struct enc_boot_key *key = NULL;
	struct enc_secret in = { enc_secmem_alloc (32), 32 }, out = { 0 };

	(void) state;
	assert_int_equal (enc_boot_key_new (&key, NULL), 0);
	assert_int_equal (enc_seal (enc_boot_key_point (key), &id, &in, &sealed, NULL), 0);
	for (size_t i = 0; i < sealed.len; i++) {
		sealed.data[i] ^= 4;
		assert_true (enc_seal_open (key, &id, enc_view_of (sealed.data, sealed.len), &out, NULL) < 0);
		sealed.data[i] ^= 4;
		assert_true (enc_seal_open (key, &id, enc_view_of (sealed.data, i), &out, NULL) < 0);
	}
	assert_null (out.data);
	enc_secret_done (&in);
}

static void a_boot_key_off_the_curve_is_refused (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf sealed = ENC_BUF_INIT (256);
	uint8_t point[ENC_SEAL_POINT] = { 4, 1, 2, 3 };
	struct enc_secret in = { enc_secmem_alloc (32), 32 };

	(void) state;
	assert_int_equal (enc_seal (point, &id, &in, &sealed, NULL), -ENC_EINVAL);
	point[0] = 0; /* the point at infinity's first byte */
	assert_int_equal (enc_seal (point, &id, &in, &sealed, NULL), -ENC_EINVAL);
	assert_int_equal (sealed.len, 0);
	enc_secret_done (&in);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (a_key_sealed_elsewhere_opens),
		cmocka_unit_test (a_sealed_key_opens_for_its_node_boot_generation_key_and_record_alone),
		cmocka_unit_test (every_altered_or_missing_byte_is_seen),
		cmocka_unit_test (a_boot_key_off_the_curve_is_refused),
	};

	return cmocka_run_group_tests_name ("seal", tests, arena_up, arena_down);
}
