/* Leases, and the life of keys under them: made, locked, moved to the next enclave, destroyed. */
#include "world.h"

#include "base/file.h"

static int lease (const char *enclave, const char *name, int64_t not_after, const char *keys, const char *keys_head)
{
	char head[512], extra[128] = "", list[256] = "";

	if (keys_head)
		(void) snprintf (extra, sizeof extra, "'document':'%s',", sha_hex (keys_head, strlen (keys_head)));
	if (keys)
		(void) snprintf (list, sizeof list, ",'keys':%s", keys);
	(void) snprintf (head, sizeof head, "{'verb':'enclave.lease','enclave':'%s','object':'%s','not_after':%lld,%s'nonce':'NONCE'}", enclave, name,
		(long long) not_after, extra);
	return ordered (json_of ("{'op':'lease','enclave':'%s','name':'%s','not_after':%lld%s}", enclave, name, (long long) not_after, list), head);
}

static int end (const char *enclave)
{
	char head[256];

	(void) snprintf (head, sizeof head, "{'verb':'enclave.end','enclave':'%s','nonce':'NONCE'}", enclave);
	return ordered (json_of ("{'op':'lease','enclave':'%s'}", enclave), head);
}

static int on_key (const char *op, const char *enclave, const char *key)
{
	char head[256];

	(void) snprintf (head, sizeof head, "{'verb':'key.%s','enclave':'%s','object':'%s','nonce':'NONCE'}", op, enclave, key);
	return ordered (json_of ("{'op':'%s','enclave':'%s','key':'%s'}", op, enclave, key), head);
}

static struct enc_secret open_key (const char *id, int want)
{
	enc_auto_done (enc_key_row_done) struct enc_key_row row = { 0 };
	struct enc_secret s = { 0 };

	assert_int_equal (enc_keystore_key (w.k.store, id, &row, NULL), 0);
	assert_int_equal (enc_vault_open_key (w.k.vault, &row, &s, NULL), want);
	return s;
}

static void a_lease_is_extended_shortened_and_ended_for_good (void **state)
{
	struct enc_lease_row row;

	(void) state;
	assert_int_equal (lease (CXR, "cxr", NOW + 7 * 86400, NULL, NULL), 0);
	assert_int_equal (enc_keystore_lease (w.k.store, CXR, &row, NULL), 0);
	assert_int_equal (row.not_after, NOW + 7 * 86400);
	assert_int_equal (lease (CXR, "cxr", NOW + 60, NULL, NULL), 0);
	assert_int_equal (end (CXR), 0);
	assert_int_equal (end (CXR), 0);
	assert_int_equal (end (OTHER), 0);
	assert_int_equal (lease (CXR, "cxr", NOW + 86400, NULL, NULL), -ENC_ECONFLICT);
}

static void a_lease_has_bounds_and_one_name (void **state)
{
	(void) state;
	assert_int_equal (lease (OTHER, "other", NOW, NULL, NULL), -ENC_EDENIED);
	assert_int_equal (lease (OTHER, "other", NOW + 367 * 86400, NULL, NULL), -ENC_EDENIED);
	assert_int_equal (lease (OTHER, "Other", NOW + 60, NULL, NULL), -ENC_EINVAL);
	assert_int_equal (lease (CXR, "other", NOW + 60, NULL, NULL), -ENC_ECONFLICT);
}

static void invariant_03_no_key_is_made_without_a_live_lease (void **state)
{
	static const char head[] = "{'verb':'key.create','enclave':'" CXR "','object':'" STRAY "','nonce':'NONCE'}";

	(void) state;
	assert_int_equal (end (CXR), 0);
	assert_int_equal (ordered (json_of ("{'op':'key','enclave':'" CXR "','key':'" STRAY "','purpose':'volume','bytes':64}"), head), -ENC_EDENIED);
}

static void key_orders_have_bounds_and_are_idempotent (void **state)
{
	static const char head[] = "{'verb':'key.create','enclave':'" CXR "','object':'" VOLUME "','nonce':'NONCE'}";
	struct enc_secret before = open_key (VOLUME, 0);

	(void) state;
	assert_int_equal (ordered (json_of ("{'op':'key','enclave':'" CXR "','key':'" VOLUME "','purpose':'volume','bytes':64}"), head), 0);
	struct enc_secret after = open_key (VOLUME, 0);
	assert_memory_equal (before.data, after.data, 64);
	enc_secret_done (&before);
	enc_secret_done (&after);
	assert_int_equal (ordered (json_of ("{'op':'key','enclave':'" CXR "','key':'" VOLUME "','purpose':'volume','bytes':32}"), head), -ENC_ECONFLICT);
	assert_int_equal (ordered (json_of ("{'op':'key','enclave':'" CXR "','key':'" VOLUME "','purpose':'munge','bytes':64}"), head), -ENC_ECONFLICT);
	assert_int_equal (ordered (json_of ("{'op':'key','enclave':'" CXR "','key':'" VOLUME "','purpose':'root','bytes':64}"), head), -ENC_EINVAL);
	assert_int_equal (ordered (json_of ("{'op':'key','enclave':'" CXR "','key':'" VOLUME "','purpose':'volume','bytes':15}"), head), -ENC_EINVAL);
	assert_int_equal (ordered (json_of ("{'op':'key','enclave':'" CXR "','key':'" VOLUME "','purpose':'volume','bytes':1025}"), head), -ENC_EINVAL);
}

static void a_project_volume_moves_to_the_next_enclave_of_its_owner (void **state)
{
	struct enc_key_row row = { 0 };
	struct enc_secret before = open_key (VOLUME, 0);
	struct enc_buf kek = ENC_BUF_INIT (1024);

	(void) state;
	assert_int_equal (on_key ("lock", CXR, VOLUME), 0);
	/* not while the first enclave lives */
	assert_int_equal (lease (OTHER, "cxr2", NOW + 3600, "['" VOLUME "']", VOLUME), -ENC_EBUSY);
	assert_int_equal (enc_keystore_lease (w.k.store, OTHER, &(struct enc_lease_row){ 0 }, NULL), -ENC_ENOTFOUND);
	assert_int_equal (on_key ("destroy", CXR, MUNGE), 0);
	assert_int_equal (end (CXR), 0);
	/* the record must say which keys */
	assert_int_equal (lease (OTHER, "cxr2", NOW + 3600, "['" VOLUME "']", NULL), -ENC_EDENIED);
	assert_int_equal (lease (OTHER, "cxr2", NOW + 3600, NULL, VOLUME), -ENC_EDENIED);
	assert_int_equal (lease (OTHER, "cxr2", NOW + 3600, "['" VOLUME "']", STRAY), -ENC_EDENIED);
	assert_int_equal (lease (OTHER, "cxr2", NOW + 3600, "['" VOLUME "']", VOLUME), 0);
	assert_int_equal (enc_keystore_key (w.k.store, VOLUME, &row, NULL), 0);
	assert_string_equal (row.enclave, OTHER);
	assert_int_equal (row.state, ENC_KEY_LIVE);
	enc_key_row_done (&row);
	struct enc_secret after = open_key (VOLUME, 0);
	assert_memory_equal (before.data, after.data, 64);
	enc_secret_done (&before);
	enc_secret_done (&after);
	/* nothing is left under the old enclave's key, so it is gone */
	assert_int_equal (enc_keystore_kek (w.k.store, CXR, &kek, NULL), -ENC_ENOTFOUND);
	enc_buf_done (&kek);
}

static void a_munge_key_never_moves (void **state)
{
	(void) state;
	assert_int_equal (end (CXR), 0);
	assert_int_equal (lease (OTHER, "cxr2", NOW + 3600, "['" MUNGE "']", MUNGE), -ENC_EDENIED);
	assert_int_equal (lease (OTHER, "cxr2", NOW + 3600, "['" STRAY "']", STRAY), -ENC_ENOTFOUND);
	assert_int_equal (lease (OTHER, "cxr2", NOW + 3600, "['" VOLUME "','" VOLUME "']", VOLUME "," VOLUME), -ENC_EINVAL);
}

static void a_lock_is_undone_by_a_lease_that_names_the_key (void **state)
{
	struct enc_key_row row = { 0 };

	(void) state;
	assert_int_equal (on_key ("lock", CXR, VOLUME), 0);
	assert_string_equal (enc_json_get_str (w.answer, "state", ""), "locked");
	assert_int_equal (on_key ("lock", CXR, VOLUME), 0);
	assert_int_equal (lease (CXR, "cxr", NOW + 86400, "['" VOLUME "']", VOLUME), 0);
	assert_int_equal (enc_keystore_key (w.k.store, VOLUME, &row, NULL), 0);
	assert_int_equal (row.state, ENC_KEY_LIVE);
	enc_key_row_done (&row);
}

static void a_destroyed_key_is_gone_for_good (void **state)
{
	enc_auto_done (enc_key_row_done) struct enc_key_row before = { 0 }, row = { 0 };
	enc_auto_done (enc_buf_done) struct enc_buf db = ENC_BUF_INIT (1 << 22);
	enc_auto_free char *path = enc_strf ("%s/keys.db", w.folder);

	(void) state;
	assert_int_equal (enc_keystore_key (w.k.store, VOLUME, &before, NULL), 0);
	assert_int_equal (on_key ("destroy", CXR, VOLUME), 0);
	assert_string_equal (enc_json_get_str (w.answer, "state", ""), "destroyed");
	assert_int_equal (on_key ("destroy", CXR, VOLUME), 0);
	assert_int_equal (on_key ("destroy", CXR, STRAY), 0);
	assert_int_equal (enc_keystore_key (w.k.store, VOLUME, &row, NULL), 0);
	assert_int_equal (row.wrap.len, 0);
	/* also its wrap is no longer in the file */
	assert_int_equal (enc_file_read (path, 1 << 22, &db, NULL), 0);
	assert_null (memmem (db.data, db.len, before.wrap.data + 18, 32));
	assert_int_equal (lease (CXR, "cxr", NOW + 86400, "['" VOLUME "']", VOLUME), -ENC_ENOTFOUND);
	assert_int_equal (ordered (json_of ("{'op':'key','enclave':'" CXR "','key':'" VOLUME "','purpose':'volume','bytes':64}"),
		"{'verb':'key.create','enclave':'" CXR "','object':'" VOLUME "','nonce':'NONCE'}"), -ENC_ECONFLICT);
}

static void a_key_is_touched_under_its_own_enclave_alone (void **state)
{
	(void) state;
	assert_int_equal (on_key ("destroy", OTHER, VOLUME), -ENC_EDENIED);
	assert_int_equal (on_key ("lock", OTHER, VOLUME), -ENC_EDENIED);
	assert_int_equal (on_key ("lock", CXR, STRAY), -ENC_ENOTFOUND);
	struct enc_secret s = open_key (VOLUME, 0);
	enc_secret_done (&s);
}

#define T(name) cmocka_unit_test_setup_teardown (name, world_ready, world_down)

int main (void)
{
	const struct CMUnitTest tests[] = {
		T (a_lease_is_extended_shortened_and_ended_for_good), T (a_lease_has_bounds_and_one_name),
		T (invariant_03_no_key_is_made_without_a_live_lease), T (key_orders_have_bounds_and_are_idempotent),
		T (a_project_volume_moves_to_the_next_enclave_of_its_owner), T (a_munge_key_never_moves),
		T (a_lock_is_undone_by_a_lease_that_names_the_key), T (a_destroyed_key_is_gone_for_good),
		T (a_key_is_touched_under_its_own_enclave_alone),
	};

	return cmocka_run_group_tests_name ("keyd leases", tests, NULL, NULL);
}
