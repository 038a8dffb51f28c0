/* Detached volume headers: what the keeper of one may change unseen is nothing. */
#include "crypto_test.h"

#include "crypto/volume_header.h"

enum { META = 36864 };

static const struct enc_volume_header_id want = { ID_K, 1 << 30, 3 };
static uint8_t bytes[64], meta[META];
static const struct enc_volume_key key = { bytes, sizeof bytes };

static void sealed_header (struct enc_buf *out)
{
	count_up (bytes, sizeof bytes, 7);
	memset (meta, 0, sizeof meta);
	memcpy (meta, "LUKS\xba\xbe", 6);
	count_up (meta + 4096, 700, 1);
	meta[META - 1] = 9;
	assert_int_equal (enc_volume_header_seal (&want, &key, meta, sizeof meta, out, NULL), 0);
}

static void refused (const struct enc_volume_header_id *id, const struct enc_volume_key *with, const struct enc_buf *sealed, size_t len, const char *why)
{
	struct enc_buf out = ENC_BUF_INIT (ENC_VOLUME_HEADER_META);
	struct enc_error err = { 0 };

	assert_int_equal (enc_volume_header_open (id, with, sealed->data, len, &out, &err), -ENC_EINTEGRITY);
	if (!strstr (err.text, why))
		fail_msg ("\"%s\" does not say \"%s\"", err.text, why);
	assert_int_equal (out.len, 0);
	enc_buf_done (&out);
}

static void a_header_comes_back_as_it_was_and_small (void **state)
{
	struct enc_buf sealed = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX), out = ENC_BUF_INIT (ENC_VOLUME_HEADER_META);

	(void)state;
	sealed_header (&sealed);
	assert_true (sealed.len < 1200);
	assert_int_equal (enc_volume_header_open (&want, &key, sealed.data, sealed.len, &out, NULL), 0);
	assert_int_equal (out.len, sizeof meta);
	assert_memory_equal (out.data, meta, sizeof meta);
	enc_buf_done (&out);
	enc_buf_done (&sealed);
}

static void every_changed_byte_and_every_cut_is_refused (void **state)
{
	struct enc_buf sealed = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);

	(void)state;
	sealed_header (&sealed);
	for (size_t i = 0; i < sealed.len; i++) {
		sealed.data[i] ^= 0x20;
		refused (&want, &key, &sealed, sealed.len, "volume header");
		sealed.data[i] ^= 0x20;
	}
	for (size_t len = 0; len < sealed.len; len++)
		refused (&want, &key, &sealed, len, "cut short");
	enc_buf_done (&sealed);
}

static void another_volume_version_size_or_key_is_refused_by_name (void **state)
{
	const struct enc_volume_header_id volume = { ID_E, want.size_bytes, 3 }, newer = { ID_K, want.size_bytes, 4 },
					  older = { ID_K, want.size_bytes, 2 }, size = { ID_K, want.size_bytes + 4096, 3 };
	struct enc_buf sealed = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);
	uint8_t other[64] = { 1 };
	const struct enc_volume_key wrong = { other, sizeof other };

	(void)state;
	sealed_header (&sealed);
	refused (&volume, &key, &sealed, sealed.len, "another volume");
	refused (&newer, &key, &sealed, sealed.len, "older than the wanted 4");
	refused (&older, &key, &sealed, sealed.len, "newer than the wanted 2");
	refused (&size, &key, &sealed, sealed.len, "another size");
	refused (&want, &wrong, &sealed, sealed.len, "another key");
	enc_buf_done (&sealed);
}

/* An older header whose version was rewritten: the number lies under the MAC. */
static void a_rollback_with_a_new_number_is_refused (void **state)
{
	const struct enc_volume_header_id now = { ID_K, want.size_bytes, 4 };
	struct enc_buf sealed = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);

	(void)state;
	sealed_header (&sealed);
	sealed.data[1] = 4;
	refused (&now, &key, &sealed, sealed.len, "edited");
	enc_buf_done (&sealed);
}

static void a_short_key_or_no_metadata_seals_nothing (void **state)
{
	const struct enc_volume_key half = { bytes, 32 };
	struct enc_buf out = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);

	(void)state;
	assert_int_equal (enc_volume_header_seal (&want, &half, meta, sizeof meta, &out, NULL), -ENC_EINVAL);
	assert_int_equal (enc_volume_header_seal (&want, &key, meta, 0, &out, NULL), -ENC_EINVAL);
	assert_int_equal (enc_volume_header_seal (&want, &key, meta, ENC_VOLUME_HEADER_META + 1, &out, NULL), -ENC_EINVAL);
	assert_int_equal (out.len, 0);
	enc_buf_done (&out);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (a_header_comes_back_as_it_was_and_small),
		cmocka_unit_test (every_changed_byte_and_every_cut_is_refused),
		cmocka_unit_test (another_volume_version_size_or_key_is_refused_by_name),
		cmocka_unit_test (a_rollback_with_a_new_number_is_refused),
		cmocka_unit_test (a_short_key_or_no_metadata_seals_nothing),
	};
	return cmocka_run_group_tests (tests, arena_up, arena_down);
}
