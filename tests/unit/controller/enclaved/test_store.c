#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "controller/enclaved/store.h"
#include "node-agent/proto/document.h"

static char path[64];

static int setup (void **state)
{
	struct enc_error err = { 0 };

	(void) snprintf (path, sizeof path, "/tmp/enc-store-XXXXXX");
	close (mkstemp (path));
	*state = enc_db_open (path, enc_store_migrations, &err);
	return *state ? 0 : -1;
}

static int teardown (void **state)
{
	char side[80];

	enc_db_free (*state);
	(void) unlink (path);
	(void) snprintf (side, sizeof side, "%s-wal", path);
	(void) unlink (side);
	(void) snprintf (side, sizeof side, "%s-shm", path);
	(void) unlink (side);
	return 0;
}

static struct enc_enclave enclave (const char *id, const char *name, uint32_t slot)
{
	struct enc_enclave e = { .slot = slot, .created_at = 100, .expires_at = 200, .record_first = -1, .record_last = -1 };

	(void) snprintf (e.id, sizeof e.id, "%s", id);
	(void) snprintf (e.name, sizeof e.name, "%s", name);
	(void) snprintf (e.state, sizeof e.state, ENC_STATE_CREATING);
	return e;
}

static void a_row_comes_back_as_it_was_put (void **state)
{
	struct enc_enclave e = enclave ("aaaaaaaaaaaaaaaaaaaaaaaaaa", "cxr", 3), back = { 0 };
	char purpose[] = "chest x-ray reports; \"quoted\" ünïcode";

	e.purpose = purpose;
	assert_int_equal (enc_enclave_put (*state, &e, NULL), 0);
	assert_int_equal (enc_enclave_named (*state, "cxr", &back, NULL), 0);
	assert_string_equal (back.id, e.id);
	assert_string_equal (back.purpose, purpose);
	assert_int_equal (back.expires_at, 200);
	assert_int_equal (back.record_first, -1);
	assert_null (back.members_doc);
	enc_enclave_done (&back);
	assert_int_equal (enc_enclave_named (*state, "other", &back, NULL), -ENC_ENOTFOUND);
}

static void a_name_and_a_slot_are_free_again_once_closed (void **state)
{
	struct enc_enclave a = enclave ("aaaaaaaaaaaaaaaaaaaaaaaaaa", "cxr", 1), b = enclave ("bbbbbbbbbbbbbbbbbbbbbbbbbb", "cxr", 2), got = { 0 };
	uint32_t slot = 0;

	assert_int_equal (enc_enclave_put (*state, &a, NULL), 0);
	assert_int_equal (enc_slot_take (*state, &slot, NULL), 0);
	assert_int_equal (slot, 2);
	assert_int_equal (enc_enclave_state (*state, a.id, ENC_STATE_CLOSED, NULL, NULL), 0);
	assert_int_equal (enc_slot_take (*state, &slot, NULL), 0);
	assert_int_equal (slot, 1);
	assert_int_equal (enc_enclave_put (*state, &b, NULL), 0);
	assert_int_equal (enc_enclave_latest (*state, "cxr", &got, NULL), 0);
	assert_string_equal (got.id, b.id); /* the one alive before the closed one */
	enc_enclave_done (&got);
}

static int migrations_n (void)
{
	int n = 0;

	while (enc_store_migrations[n])
		n++;
	return n;
}

static void the_schema_is_counted_and_a_newer_one_is_refused (void **state)
{
	struct enc_db *again;
	struct enc_error err = { 0 };

	assert_int_equal (enc_db_version (*state), migrations_n ());
	again = enc_db_open (path, enc_store_migrations, &err);
	assert_non_null (again);
	enc_db_free (again);
	assert_int_equal (enc_db_exec (*state, &err, "INSERT INTO migrations VALUES (99, 0)", ""), 0);
	assert_null (enc_db_open (path, enc_store_migrations, &err));
	assert_non_null (strstr (err.text, "newer"));
}

static void a_migration_that_fails_leaves_the_old_schema (void **state)
{
	const char *broken[32] = { 0 }, *fine[32] = { 0 };
	struct enc_error err = { 0 };
	struct enc_db *db;

	(void) state;
	for (int i = 0; i < migrations_n (); i++)
		broken[i] = fine[i] = enc_store_migrations[i];
	broken[migrations_n ()] = "CREATE TABLE extra (a); CREATE TABLE nodes (name TEXT)";
	fine[migrations_n ()] = "CREATE TABLE extra (a)";
	assert_null (enc_db_open (path, broken, &err));
	db = enc_db_open (path, fine, &err);
	assert_non_null (db);
	assert_int_equal (enc_db_version (db), migrations_n () + 1);
	enc_db_free (db);
}

static void the_journal_tells_how_far_a_row_is (void **state)
{
	const char *id = "aaaaaaaaaaaaaaaaaaaaaaaaaa";
	struct enc_json *json;

	assert_int_equal (enc_journal_state (*state, id, "drain"), ENC_ROW_NONE);
	assert_int_equal (enc_journal_intent (*state, id, "drain", ENC_UP, NULL), 0);
	assert_int_equal (enc_journal_state (*state, id, "drain"), ENC_ROW_DOING);
	assert_int_equal (enc_journal_outcome (*state, id, "drain", ENC_UP, 0, 1500, "", NULL), 0);
	assert_int_equal (enc_journal_state (*state, id, "drain"), ENC_ROW_DONE);
	assert_int_equal (enc_journal_intent (*state, id, "drain", ENC_DOWN, NULL), 0);
	assert_int_equal (enc_journal_state (*state, id, "drain"), ENC_ROW_UNDOING);
	assert_int_equal (enc_journal_outcome (*state, id, "drain", ENC_DOWN, -ENC_EFAILED, 10, "no", NULL), 0);
	assert_int_equal (enc_journal_state (*state, id, "drain"), ENC_ROW_UNDO_FAILED);
	assert_int_equal (enc_journal_state (*state, id, "other"), ENC_ROW_NONE);
	json = enc_journal_json (*state, id);
	assert_int_equal (enc_json_len (json), 2);
	assert_string_equal (enc_json_get_str (enc_json_at (json, 0), "outcome", ""), "ok");
	assert_string_equal (enc_json_get_str (enc_json_at (json, 1), "outcome", ""), "failed");
	enc_json_free (json);
}

static void a_token_works_once_for_its_node_and_in_time (void **state)
{
	char pool[12] = "";

	assert_int_equal (enc_token_put (*state, "h1", "n1", "general", 1000, NULL), 0);
	assert_int_equal (enc_token_use (*state, "h1", "n2", 500, pool, NULL), -ENC_EDENIED);
	assert_int_equal (enc_token_use (*state, "h0", "n1", 500, pool, NULL), -ENC_EDENIED);
	assert_int_equal (enc_token_use (*state, "h1", "n1", 1000, pool, NULL), -ENC_EDENIED);
	assert_int_equal (enc_token_use (*state, "h1", "n1", 999, pool, NULL), 0);
	assert_string_equal (pool, "general");
	assert_int_equal (enc_token_use (*state, "h1", "n1", 999, pool, NULL), -ENC_EDENIED);
}

static void invariant_01_a_node_is_in_exactly_one_pool (void **state)
{
	struct enc_node n = { .pool = ENC_POOL_GENERAL }, back = { 0 };
	struct enc_nodes held = { 0 };

	(void) snprintf (n.name, sizeof n.name, "n1");
	(void) snprintf (n.declared, sizeof n.declared, "general");
	assert_int_equal (enc_node_put (*state, &n, NULL), 0);
	n.pool = ENC_POOL_QUARANTINE;
	n.role = ENC_ROLE_COMPUTE;
	(void) snprintf (n.enclave_id, sizeof n.enclave_id, "aaaaaaaaaaaaaaaaaaaaaaaaaa");
	assert_int_equal (enc_node_put (*state, &n, NULL), 0);
	assert_int_equal (enc_db_int (*state, 0, "SELECT count(*) FROM nodes WHERE name='n1'", ""), 1);
	assert_int_equal (enc_node_load (*state, "n1", &back, NULL), 0);
	assert_int_equal (back.pool, ENC_POOL_QUARANTINE);
	enc_node_done (&back);
	/* In quarantine it is nobody's: no row of the table touches it any more. */
	assert_int_equal (enc_nodes_of (*state, n.enclave_id, 7, &held, NULL), 0);
	assert_int_equal (held.n, 0);
	enc_nodes_done (&held);
}

static void events_are_numbered_and_read_from_where_one_was (void **state)
{
	struct enc_json *event = enc_json_object (), *list;
	int64_t last = 0;

	enc_json_set_str (event, "step", "drain");
	for (int i = 0; i < 3; i++)
		assert_int_equal (enc_event_add (*state, "op", event, NULL), 0);
	enc_json_free (event);
	list = enc_events_after (*state, "op", 1, &last);
	assert_int_equal (enc_json_len (list), 2);
	assert_int_equal (enc_json_get_i64 (enc_json_at (list, 0), "n", 0), 2);
	assert_int_equal (last, 3);
	enc_json_free (list);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown (a_row_comes_back_as_it_was_put, setup, teardown),
		cmocka_unit_test_setup_teardown (a_name_and_a_slot_are_free_again_once_closed, setup, teardown),
		cmocka_unit_test_setup_teardown (the_schema_is_counted_and_a_newer_one_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown (a_migration_that_fails_leaves_the_old_schema, setup, teardown),
		cmocka_unit_test_setup_teardown (the_journal_tells_how_far_a_row_is, setup, teardown),
		cmocka_unit_test_setup_teardown (a_token_works_once_for_its_node_and_in_time, setup, teardown),
		cmocka_unit_test_setup_teardown (invariant_01_a_node_is_in_exactly_one_pool, setup, teardown),
		cmocka_unit_test_setup_teardown (events_are_numbered_and_read_from_where_one_was, setup, teardown),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
