/* Who may call, sealed and unsealed, passphrases, what is stored. */
#include "world.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "crypto/secmem.h"

static const char *state_name (void)
{
	assert_int_equal (call_as (0, json_of ("{'op':'status'}"), NULL), 0);
	return enc_json_get_str (w.answer, "state", "?");
}

static void init_unseal_and_seal_change_the_state (void **state)
{
	size_t others = enc_secmem_used (); /* of the test's own keys */

	(void) state;
	assert_string_equal (state_name (), "uninitialised");
	assert_string_equal (enc_json_get_str (w.answer, "driver", ""), "file");
	assert_int_equal (with_passphrase ("unseal", PASSPHRASE), -ENC_ECONFLICT);
	assert_int_equal (with_passphrase ("init", PASSPHRASE), 0);
	assert_non_null (strstr (enc_json_get_str (w.answer, "keyd_vkey", ""), "enclave/keyd+"));
	assert_non_null (strstr (enc_json_get_str (w.answer, "ca", ""), "BEGIN CERTIFICATE"));
	assert_string_equal (state_name (), "unsealed");
	assert_int_equal (with_passphrase ("init", PASSPHRASE), -ENC_ECONFLICT);
	assert_int_equal (with_passphrase ("seal", NULL), 0);
	assert_string_equal (state_name (), "sealed");
	assert_int_equal (enc_secmem_used (), others);
	assert_int_equal (with_passphrase ("unseal", "wrong horse battery"), -ENC_EDENIED);
	assert_string_equal (state_name (), "sealed");
	assert_int_equal (with_passphrase ("unseal", PASSPHRASE), 0);
	assert_string_equal (state_name (), "unsealed");
	assert_int_equal (with_passphrase ("unseal", "wrong horse battery"), -ENC_EDENIED);
	assert_string_equal (state_name (), "unsealed");
}

static void a_restart_seals_and_keeps_the_keys (void **state)
{
	char before[ENC_VKEY_TEXT_MAX];

	(void) state;
	assert_int_equal (with_passphrase ("init", PASSPHRASE), 0);
	(void) snprintf (before, sizeof before, "%s", enc_json_get_str (w.answer, "keyd_vkey", ""));
	int64_t (*wall_s) (void) = w.k.wall_s, (*mono_fn) (void) = w.k.mono;
	enc_keyd_done (&w.k);
	w.k.wall_s = wall_s;
	w.k.mono = mono_fn;
	assert_int_equal (enc_keyd_open (&w.k, &w.conf, NULL), 0);
	assert_string_equal (state_name (), "sealed");
	assert_string_equal (enc_json_get_str (w.answer, "keyd_vkey", ""), before);
	assert_int_equal (with_passphrase ("unseal", PASSPHRASE), 0);
	assert_string_equal (enc_json_get_str (w.answer, "keyd_vkey", ""), before);
}

static struct enc_secret kept;

static void keep (const struct enc_secret *root)
{
	enc_secret_done (&kept);
	if (root) {
		kept = (struct enc_secret){ enc_secmem_alloc (root->len), root->len };
		memcpy (kept.data, root->data, root->len);
	}
}

static void a_kept_root_key_unseals_after_a_crash_and_another_one_does_not (void **state)
{
	(void) state;
	w.k.root_changed = keep;
	assert_int_equal (with_passphrase ("init", PASSPHRASE), 0);
	assert_int_equal (kept.len, 32);
	enc_vault_seal (w.k.vault);
	kept.data[0] ^= 1;
	assert_int_equal (enc_vault_adopt (w.k.vault, &kept, &w.err), -ENC_EINTEGRITY);
	assert_string_equal (state_name (), "sealed");
	kept.data[0] ^= 1;
	assert_int_equal (enc_vault_adopt (w.k.vault, &kept, NULL), 0);
	assert_string_equal (state_name (), "unsealed");
	/* sealing on purpose takes the kept one back too */
	assert_int_equal (with_passphrase ("seal", NULL), 0);
	assert_null (kept.data);
}

static void init_unseal_and_seal_are_roots_alone (void **state)
{
	static const char *const ops[] = { "init", "unseal", "seal" };

	(void) state;
	for (size_t i = 0; i < ENC_ARRAY_LEN (ops); i++) {
		assert_int_equal (enc_strs_add (&w.caller.ops, ops[i], NULL), 0);
		assert_int_equal (call (json_of ("{'op':'%s'}", ops[i])), -ENC_EDENIED);
	}
}

static void callers_get_what_is_listed_for_them (void **state)
{
	(void) state;
	assert_true (enc_keyd_admits (&w.k, 0));
	assert_true (enc_keyd_admits (&w.k, CALLER));
	assert_false (enc_keyd_admits (&w.k, CALLER + 1));
	assert_int_equal (call (json_of ("{'op':'nonce'}")), 0);
	assert_true (enc_strs_remove (&w.caller.ops, "nonce"));
	assert_int_equal (call (json_of ("{'op':'nonce'}")), -ENC_EDENIED);
	assert_int_equal (call_as (0, json_of ("{'op':'nonce'}"), NULL), -ENC_EDENIED); /* root has no role */
	assert_int_equal (call_as (CALLER + 1, json_of ("{'op':'status'}"), NULL), -ENC_EDENIED);
	assert_int_equal (call (json_of ("{'op':'shell'}")), -ENC_EUSAGE);
	assert_int_equal (call (json_of ("{'op':7}")), -ENC_EUSAGE);
	assert_int_equal (call (json_of ("[]")), -ENC_EUSAGE);
}

static void a_passphrase_in_json_or_a_file_is_refused (void **state)
{
	struct enc_fds fds = { .fd = { open ("/dev/null", O_RDONLY | O_CLOEXEC) }, .n = 1 };

	(void) state;
	assert_int_equal (call_as (0, json_of ("{'op':'init','passphrase':'" PASSPHRASE "'}"), NULL), -ENC_EUSAGE);
	assert_int_equal (call_as (0, json_of ("{'op':'init'}"), &fds), -ENC_EINVAL);
	assert_int_equal (with_passphrase ("init", "short"), -ENC_EINVAL);
	assert_string_equal (state_name (), "uninitialised");
	close (fds.fd[0]);
}

/* Every key that exists in clear is looked for in every answer and every file. */
static void invariant_06_no_secret_stands_in_answers_or_files (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf db = ENC_BUF_INIT (1 << 22);
	char *path = enc_strf ("%s/keys.db", w.folder);
	struct enc_key_row row = { 0 };
	struct enc_secret volume = { 0 };

	(void) state;
	assert_int_equal (enc_file_read (path, 1 << 22, &db, NULL), 0);
	assert_int_equal (enc_keystore_key (w.k.store, VOLUME, &row, NULL), 0);
	assert_int_equal (enc_vault_open_key (w.k.vault, &row, &volume, NULL), 0);
	assert_int_equal (volume.len, 64);
	const struct enc_secret *root = enc_vault_root (w.k.vault);
	uint8_t *seed = enc_secmem_alloc (ENC_SIGN_SEED_SIZE);
	enc_sign_key_seed (enc_vault_signer (w.k.vault), seed);
	assert_null (memmem (db.data, db.len, root->data, root->len));
	assert_null (memmem (db.data, db.len, volume.data, 16));
	assert_null (memmem (db.data, db.len, seed, 16));
	assert_null (memmem (db.data, db.len, PASSPHRASE, strlen (PASSPHRASE)));
	enc_secmem_free (seed);
	enc_secret_done (&volume);
	enc_key_row_done (&row);
	free (path);
}

static void a_clock_that_went_back_stops_everything (void **state)
{
	(void) state;
	assert_int_equal (call (json_of ("{'op':'nonce'}")), 0);
	wall -= 3600;
	assert_int_equal (call (json_of ("{'op':'nonce'}")), -ENC_EFAILED);
	assert_non_null (strstr (w.err.text, "clock"));
	wall = 1000;
	assert_int_equal (call (json_of ("{'op':'nonce'}")), -ENC_EFAILED);
	wall = NOW;
	assert_int_equal (call (json_of ("{'op':'nonce'}")), 0);
}

static void a_damaged_or_foreign_store_is_refused (void **state)
{
	const struct enc_file_attr attr = ENC_FILE_ATTR (0600);
	struct enc_keystore *s = NULL;
	char *path = enc_strf ("%s/keys.db", w.folder);

	(void) state;
	int64_t (*wall_s) (void) = w.k.wall_s, (*mono_fn) (void) = w.k.mono;
	enc_keyd_done (&w.k);
	assert_int_equal (enc_file_write (path, "not a database, but long enough to be read as one", 49, &attr, NULL), 0);
	assert_int_equal (enc_keystore_open (w.folder, &s, &w.err), -ENC_EINTEGRITY);
	assert_null (s);
	assert_int_equal (unlink (path), 0);
	w.k.wall_s = wall_s;
	w.k.mono = mono_fn;
	assert_int_equal (enc_keyd_open (&w.k, &w.conf, NULL), 0);
	free (path);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown (init_unseal_and_seal_change_the_state, world_up, world_down),
		cmocka_unit_test_setup_teardown (a_restart_seals_and_keeps_the_keys, world_up, world_down),
		cmocka_unit_test_setup_teardown (a_kept_root_key_unseals_after_a_crash_and_another_one_does_not, world_up, world_down),
		cmocka_unit_test_setup_teardown (init_unseal_and_seal_are_roots_alone, world_up, world_down),
		cmocka_unit_test_setup_teardown (callers_get_what_is_listed_for_them, world_up, world_down),
		cmocka_unit_test_setup_teardown (a_passphrase_in_json_or_a_file_is_refused, world_up, world_down),
		cmocka_unit_test_setup_teardown (invariant_06_no_secret_stands_in_answers_or_files, world_ready, world_down),
		cmocka_unit_test_setup_teardown (a_clock_that_went_back_stops_everything, world_up, world_down),
		cmocka_unit_test_setup_teardown (a_damaged_or_foreign_store_is_refused, world_up, world_down),
	};

	return cmocka_run_group_tests_name ("keyd vault", tests, NULL, NULL);
}
