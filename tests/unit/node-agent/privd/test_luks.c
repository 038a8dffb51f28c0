/* The luks driver as far as it goes without a device mapper: real headers of libcryptsetup, the kernel's table lines, refusals.
 * What needs the kernel is in tests/vm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <libcryptsetup.h>
#include <sys/stat.h>

#include "base/file.h"
#include "crypto/hash.h"
#include "crypto/secmem.h"
#include "node-agent/privd/dm.h"
#include "node-agent/privd/luks.h"
#include "tests/unit/node-agent/proto/fixture.h"

#include "base/enc.h"

#define OTHER_ID "cccccccccccccccccccccccccc"
#define KEY_IN_KERNEL "aes-xts-plain64 :64:logon:cryptsetup:0f3a-d0 0 7:0 0"

enum { SIZE = 8 * 1024 * 1024, META = 32768 };

static char image[] = "/tmp/enc-luks-XXXXXX";
static uint8_t key_bytes[64], other_bytes[64];
static const struct enc_volume_key key = { key_bytes, sizeof key_bytes }, other = { other_bytes, sizeof other_bytes };
static struct enc_luks volume = { FIX_ID, image, SIZE, 1 };

static int setup (void **state)
{
	int fd = mkstemp (image);

	(void)state;
	if (fd < 0 || ftruncate (fd, SIZE) < 0 || close (fd) < 0)
		return -1;
	for (size_t i = 0; i < sizeof key_bytes; i++) {
		key_bytes[i] = (uint8_t)(3 * i + 1);
		other_bytes[i] = (uint8_t)(5 * i + 1);
	}
	return enc_secmem_init (512 * 1024, NULL);
}

static int teardown (void **state)
{
	(void)state;
	enc_secmem_done ();
	return unlink (image);
}

static void make (struct enc_buf *sealed)
{
	assert_int_equal (enc_luks_format (&volume, &key, sealed, NULL), 0);
}

static void refused (const struct enc_luks *v, const struct enc_volume_key *with, const struct enc_buf *sealed, const char *why)
{
	struct enc_error err = { 0 };

	assert_int_equal (enc_luks_check (v, with, sealed->data, sealed->len, &err), -ENC_EINTEGRITY);
	if (!strstr (err.text, why))
		fail_msg ("\"%s\" does not say \"%s\"", err.text, why);
}

static void a_header_is_made_sealed_small_and_accepted (void **state)
{
	struct enc_buf sealed = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);

	(void)state;
	make (&sealed);
	assert_true (sealed.len < 8192);
	assert_int_equal (enc_luks_check (&volume, &key, sealed.data, sealed.len, NULL), 0);
	enc_buf_done (&sealed);
}

static void a_header_does_not_hold_the_key_and_the_image_stays_empty (void **state)
{
	struct enc_buf sealed = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX), bytes = ENC_BUF_INIT (SIZE);

	(void)state;
	make (&sealed);
	for (size_t i = 0; i + 16 < sealed.len; i++)
		assert_memory_not_equal (sealed.data + i, key_bytes, 16);
	assert_int_equal (enc_file_read (image, SIZE, &bytes, NULL), 0);
	for (size_t i = 0; i < bytes.len; i += 8)
		assert_memory_equal (bytes.data + i, "\0\0\0\0\0\0\0\0", 8);
	enc_buf_done (&bytes);
	enc_buf_done (&sealed);
}

static void an_edited_foreign_older_or_cut_header_and_a_wrong_key_are_refused (void **state)
{
	struct enc_buf sealed = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);
	struct enc_luks foreign = volume, newer = volume;

	(void)state;
	foreign.id = OTHER_ID;
	newer.version = 2;
	make (&sealed);
	refused (&foreign, &key, &sealed, "another volume");
	refused (&newer, &key, &sealed, "older");
	refused (&volume, &other, &sealed, "another key");
	sealed.data[sealed.len / 2] ^= 1;
	refused (&volume, &key, &sealed, "edited");
	sealed.data[sealed.len / 2] ^= 1;
	sealed.len /= 2;
	refused (&volume, &key, &sealed, "cut short");
	enc_buf_done (&sealed);
}

/* Put another cipher (of as many letters) into both copies of the metadata, and make their checksums right again. */
static void patch_cipher (uint8_t *meta, const char *cipher)
{
	enum { COPY = META / 2, CHECKSUM = 0x1c0, CHECKSUM_SIZE = 64 };

	for (uint8_t *copy = meta; copy < meta + META; copy += COPY) {
		uint8_t *at = memmem (copy, COPY, "aes-xts-plain64", 15);
		struct enc_hash sum;
		assert_non_null (at);
		memcpy (at, cipher, 15);
		memset (copy + CHECKSUM, 0, CHECKSUM_SIZE);
		enc_sha256 (copy, COPY, &sum);
		memcpy (copy + CHECKSUM, sum.b, sizeof sum.b);
	}
}

/* A header that somebody with the key made (or a driver gone wrong): the MAC holds, what it asks for does not. */
struct foreign {
	const char *cipher; /* as long as ours */
	size_t key_len;
	uint32_t sector;
	bool slot;
	const char *why;
};

static void seal_foreign (const struct foreign *f, struct enc_buf *sealed)
{
	const struct enc_volume_header_id id = { volume.id, volume.size_bytes, volume.version };
	const struct crypt_pbkdf_type cheap = { .type = "pbkdf2", .hash = "sha256", .iterations = 1000, .flags = CRYPT_PBKDF_NO_BENCHMARK };
	struct crypt_params_luks2 params = { .pbkdf = &cheap, .sector_size = f->sector, .data_device = image };
	char name[] = "/tmp/enc-luks-header-XXXXXX";
	struct enc_buf meta = ENC_BUF_INIT (1 << 24);
	struct crypt_device *cd = NULL;
	int fd = mkstemp (name);

	assert_int_equal (ftruncate (fd, 1 << 20), 0);
	assert_int_equal (crypt_init_data_device (&cd, name, image), 0);
	(void)crypt_metadata_locking (cd, 0);
	assert_int_equal (crypt_set_metadata_size (cd, META / 2, (1 << 20) - META), 0);
	assert_int_equal (crypt_set_pbkdf_type (cd, &cheap), 0);
	assert_int_equal (crypt_format (cd, CRYPT_LUKS2, "aes", "xts-plain64", NULL, (const char *)key_bytes, f->key_len, &params), 0);
	if (f->slot)
		assert_int_equal (crypt_keyslot_add_by_volume_key (cd, 0, (const char *)key_bytes, f->key_len, "word", 4), 0);
	crypt_free (cd);
	assert_int_equal (enc_file_read (name, 1 << 24, &meta, NULL), 0);
	patch_cipher (meta.data, f->cipher);
	assert_int_equal (enc_volume_header_seal (&id, &key, meta.data, META, sealed, NULL), 0);
	enc_buf_done (&meta);
	(void)close (fd);
	assert_int_equal (unlink (name), 0);
}

static void a_header_with_another_cipher_key_sector_or_a_keyslot_is_refused_though_its_mac_holds (void **state)
{
	static const struct foreign cases[] = {
		{ "cipher_null-ecb", 64, 4096, false, "cipher cipher_null-ecb" },
		{ "aes-cbc-plain64", 64, 4096, false, "cipher aes-cbc-plain64" },
		{ "aes-xts-plain64", 32, 4096, false, "not made with this key" },
		{ "aes-xts-plain64", 64, 512, false, "other sectors" },
		{ "aes-xts-plain64", 64, 4096, true, "keyslot" },
	};
	static const struct foreign ours = { "aes-xts-plain64", 64, 4096, false, NULL };
	struct enc_buf sealed = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);

	(void)state;
	seal_foreign (&ours, &sealed); /* the counterpart: made the same way, nothing foreign in it */
	assert_int_equal (enc_luks_check (&volume, &key, sealed.data, sealed.len, NULL), 0);
	for (size_t i = 0; i < ENC_ARRAY_LEN (cases); i++) {
		enc_buf_clear (&sealed);
		seal_foreign (&cases[i], &sealed);
		refused (&volume, &key, &sealed, cases[i].why);
	}
	enc_buf_done (&sealed);
}

static void metadata_that_is_not_luks_is_refused_though_its_mac_holds (void **state)
{
	const struct enc_volume_header_id id = { volume.id, volume.size_bytes, volume.version };
	struct enc_buf sealed = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);
	static uint8_t noise[META];

	(void)state;
	memset (noise, 0x5a, sizeof noise);
	assert_int_equal (enc_volume_header_seal (&id, &key, noise, 30000, &sealed, NULL), 0);
	refused (&volume, &key, &sealed, "another length");
	enc_buf_clear (&sealed);
	memset (noise + 4096, 0, sizeof noise - 4096);
	assert_int_equal (enc_volume_header_seal (&id, &key, noise, META, &sealed, NULL), 0);
	refused (&volume, &key, &sealed, "not LUKS2");
	enc_buf_done (&sealed);
}

static void a_backing_file_of_another_size_and_a_crooked_size_are_refused (void **state)
{
	struct enc_buf sealed = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);
	struct enc_luks crooked = volume, missing = volume;

	(void)state;
	make (&sealed);
	assert_int_equal (truncate (image, SIZE - 4096), 0);
	refused (&volume, &key, &sealed, "has 8384512 bytes, not 8388608");
	assert_int_equal (truncate (image, SIZE), 0);
	enc_buf_clear (&sealed);
	crooked.size_bytes = SIZE - 100;
	assert_int_equal (enc_luks_format (&crooked, &key, &sealed, NULL), -ENC_EINVAL);
	missing.image = "/tmp/enc-luks-is-not-there";
	assert_int_equal (enc_luks_format (&missing, &key, &sealed, NULL), -ENC_ENOTFOUND);
	assert_int_equal (sealed.len, 0);
	enc_buf_done (&sealed);
}

static void without_a_device_nothing_is_open_and_closing_is_done (void **state)
{
	(void)state;
	assert_int_equal (enc_luks_verify (&volume, NULL), -ENC_ENOTFOUND);
	assert_int_equal (enc_luks_close (volume.id, NULL), 0);
}

static void a_kernel_table_is_believed_only_if_it_is_exactly_ours (void **state)
{
	static const struct {
		const char *line, *why; /* NULL: good */
	} cases[] = {
		{ KEY_IN_KERNEL " 1 sector_size:4096", NULL },
		{ KEY_IN_KERNEL " 3 no_read_workqueue no_write_workqueue sector_size:4096", NULL },
		{ KEY_IN_KERNEL " 2 allow_discards sector_size:4096", "options" },
		{ KEY_IN_KERNEL " 2 sector_size:4096 integrity:28:aead", "options" },
		{ KEY_IN_KERNEL " 2 sector_size:4096 iv_large_sectors", "options" },
		{ KEY_IN_KERNEL, "sectors of 512" },
		{ KEY_IN_KERNEL " 2 sector_size:4096", "table" },
		{ "cipher_null-ecb - 0 7:0 0 1 sector_size:4096", "cipher_null" },
		{ "aes-cbc-essiv:sha256 :64:logon:x 0 7:0 0 1 sector_size:4096", "aes-cbc" },
		{ "capi:xts(aes)-plain :64:logon:x 0 7:0 0 1 sector_size:4096", "capi" },
		{ "aes-xts-plain64 :32:logon:x 0 7:0 0 1 sector_size:4096", "256 bits" },
		{ "aes-xts-plain64 00112233445566778899aabbccddeeff 0 7:0 0 1 sector_size:4096", "128 bits" },
		{ "aes-xts-plain64 - 0 7:0 0 1 sector_size:4096", "0 bits" },
		{ "aes-xts-plain64 :64:logon:x 8 7:0 0 1 sector_size:4096", "whole volume" },
		{ "aes-xts-plain64 :64:logon:x 0 7:0 2048 1 sector_size:4096", "whole volume" },
		{ "aes-xts-plain64 key 0 7:0 0", "table" },
		{ "0 7:0 0", "table" },
		{ "", "table" },
	};

	(void)state;
	for (size_t i = 0; i < ENC_ARRAY_LEN (cases); i++) {
		struct enc_dm_crypt t = { .size_bytes = SIZE };
		struct enc_error err = { 0 };
		int rc = enc_dm_crypt_parse (cases[i].line, &t, &err);
		if (rc == 0)
			rc = enc_dm_crypt_check (&t, SIZE, &err);
		if (rc != (cases[i].why ? -ENC_EINTEGRITY : 0) || (cases[i].why && !strstr (err.text, cases[i].why)))
			fail_msg ("\"%s\": %d, \"%s\"", cases[i].line, rc, err.text);
	}
	struct enc_dm_crypt t = { .size_bytes = SIZE + 4096 };
	assert_int_equal (enc_dm_crypt_parse (KEY_IN_KERNEL " 1 sector_size:4096", &t, NULL), 0);
	assert_int_equal (enc_dm_crypt_check (&t, SIZE, NULL), -ENC_EINTEGRITY);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (a_header_is_made_sealed_small_and_accepted),
		cmocka_unit_test (a_header_does_not_hold_the_key_and_the_image_stays_empty),
		cmocka_unit_test (an_edited_foreign_older_or_cut_header_and_a_wrong_key_are_refused),
		cmocka_unit_test (a_header_with_another_cipher_key_sector_or_a_keyslot_is_refused_though_its_mac_holds),
		cmocka_unit_test (metadata_that_is_not_luks_is_refused_though_its_mac_holds),
		cmocka_unit_test (a_backing_file_of_another_size_and_a_crooked_size_are_refused),
		cmocka_unit_test (without_a_device_nothing_is_open_and_closing_is_done),
		cmocka_unit_test (a_kernel_table_is_believed_only_if_it_is_exactly_ours),
	};
	return cmocka_run_group_tests (tests, setup, teardown);
}
