/* The member document: format, checks, and what a plugin asks it. */
#include "signed_test.h"

#include "crypto/members.h"

static char key_line[] = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== res1@login";
static char *key_lines[] = { key_line };
static char names[][32] = { "cxr-images" };
static struct enc_member one[] = { { "res1", 2001, 2000, "researcher", 1, key_lines } };

static struct enc_members sample (void)
{
	return (struct enc_members){ .enclave_id = ID_E, .enclave_name = "cxr", .version = 5, .not_before = 1000, .not_after = 2000,
		.flags = ENC_MEMBERS_SECOND_FACTOR, .members_n = 1, .members = one, .datasets_n = 1, .datasets = names };
}

static void a_member_document_lies_as_written_down (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf want = ENC_BUF_INIT (1024), body = ENC_BUF_INIT (1024), made = ENC_BUF_INIT (1024);
	struct enc_members m = sample (), back = { 0 };

	(void) state;
	vector ("members.hex", &want);
	assert_int_equal (enc_members_put (&m, &body, NULL), 0);
	assert_int_equal (enc_envelope_sign (fixed, ENC_ENVELOPE_MEMBERS, &body, &made, NULL), 0);
	assert_int_equal (made.len, want.len);
	assert_memory_equal (made.data, want.data, want.len);
	assert_int_equal (enc_members_read (view_of_buf (&want), enc_sign_key_pub (fixed), &back, NULL), 0);
	assert_string_equal (back.enclave_name, "cxr");
	assert_int_equal (back.flags, 1);
	assert_int_equal (back.members_n, 1);
	assert_string_equal (back.members[0].role, "researcher");
	assert_string_equal (back.members[0].keys[0], key_line);
	assert_string_equal (back.datasets[0], "cxr-images");
	enc_members_done (&back);
}

static void altered_cut_and_foreign_ones_are_refused (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf made = ENC_BUF_INIT (1024);
	struct enc_members back = { 0 };
	struct enc_view body = { 0 };

	(void) state;
	vector ("members.hex", &made);
	for (size_t i = 0; i < made.len; i++) {
		made.data[i] ^= 1;
		assert_true (enc_members_read (view_of_buf (&made), enc_sign_key_pub (fixed), &back, NULL) < 0);
		made.data[i] ^= 1;
	}
	assert_int_equal (enc_members_read (view_of_buf (&made), enc_sign_key_pub (stranger), &back, NULL), -ENC_EINTEGRITY);
	assert_int_equal (enc_envelope_check (view_of_buf (&made), ENC_ENVELOPE_MEMBERS, enc_sign_key_pub (fixed), &body, NULL), 0);
	for (size_t i = 0; i < body.left; i++)
		assert_int_equal (enc_members_get (enc_view_of (body.at, i), &back, NULL), -ENC_EINVAL);
	assert_null (back.members);
}

/* Each row spoils one thing. */
static void spoil (size_t what, struct enc_members *m, struct enc_member *who, char **line)
{
	static char injected[] = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5\ncommand=\"sh\" ssh-rsa AAAA";
	static char no_key[] = "command=\"sh\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5";

	switch (what) {
	case 0: who[0].uid = 0; break;
	case 1: who[0].uid = 999; break;
	case 2: who[0].gid = 27; break;
	case 3: memcpy (who[0].user, "Res 1", 6); break;
	case 4: who[1].uid = who[0].uid; break;
	case 5: memcpy (who[1].user, "res1", 5); break;
	case 6: memcpy (who[1].user, "aaa", 4); break;
	case 7: *line = injected; break;
	case 8: *line = no_key; break;
	case 9: who[0].role[0] = '\0'; break;
	case 10: m->version = 0; break;
	case 11: m->not_after = m->not_before; break;
	case 12: m->flags = 2; break;
	case 13: m->enclave_id[0] = '\0'; break;
	case 14: memcpy (m->datasets[0], "../x", 5); break;
	default: who[0].keys_n = ENC_MEMBER_KEYS_MAX + 1; break;
	}
}

static void a_document_with_a_senseless_member_is_neither_made_nor_read (void **state)
{
	(void) state;
	for (size_t i = 0; i < 16; i++) {
		enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (4096);
		char *line[] = { key_line };
		char set[][32] = { "cxr-images" };
		struct enc_member two[] = { { "res1", 2001, 2000, "researcher", 1, line }, { "res2", 2002, 2000, "researcher", 0, NULL } };
		struct enc_members m = sample ();
		struct enc_error err = { 0 };

		m.members = two;
		m.members_n = 2;
		m.datasets = set;
		assert_int_equal (enc_members_put (&m, &out, NULL), 0);
		enc_buf_clear (&out);
		spoil (i, &m, two, line);
		assert_int_equal (enc_members_put (&m, &out, &err), -ENC_EINVAL);
		assert_true (err.text[0] != '\0');
		assert_int_equal (out.len, 0);
	}
}

static void a_document_holds_for_its_enclave_version_and_time (void **state)
{
	struct enc_members m = sample ();

	(void) state;
	assert_int_equal (enc_members_hold (&m, ID_E, 5, 1000, NULL), 0);
	assert_int_equal (enc_members_hold (&m, ID_E, 5, 1999, NULL), 0);
	assert_int_equal (enc_members_hold (&m, ID_E, 6, 1500, NULL), -ENC_EDENIED);
	assert_int_equal (enc_members_hold (&m, ID_F, 5, 1500, NULL), -ENC_EDENIED);
	assert_int_equal (enc_members_hold (&m, ID_E, 5, 999, NULL), -ENC_EDENIED);
	assert_int_equal (enc_members_hold (&m, ID_E, 5, 2000, NULL), -ENC_EDENIED);
	assert_int_equal (enc_members_hold (&m, "", 5, 1500, NULL), -ENC_EDENIED);
}

static void members_are_found_by_name_and_uid (void **state)
{
	struct enc_members m = sample ();

	(void) state;
	assert_ptr_equal (enc_members_find (&m, "res1"), &one[0]);
	assert_null (enc_members_find (&m, "res"));
	assert_null (enc_members_find (&m, ""));
	assert_ptr_equal (enc_members_find_uid (&m, 2001), &one[0]);
	assert_null (enc_members_find_uid (&m, 0));
}

/* 600 members, each with a key, are near the bound of an envelope; the reader takes them. */
static void a_large_document_is_read_whole (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf body = ENC_BUF_INIT (ENC_ENVELOPE_BODY_MAX);
	struct enc_member *many = calloc (600, sizeof *many);
	struct enc_members m = sample (), back = { 0 };

	(void) state;
	for (unsigned i = 0; i < 600; i++) {
		many[i] = one[0];
		many[i].uid = 3000 + i;
		(void) snprintf (many[i].user, sizeof many[i].user, "u%04u", i);
	}
	m.members = many;
	m.members_n = 600;
	assert_int_equal (enc_members_put (&m, &body, NULL), 0);
	assert_int_equal (enc_members_get (view_of_buf (&body), &back, NULL), 0);
	assert_int_equal (back.members_n, 600);
	assert_string_equal (enc_members_find (&back, "u0599")->keys[0], key_line);
	enc_members_done (&back);
	free (many);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (a_member_document_lies_as_written_down),
		cmocka_unit_test (altered_cut_and_foreign_ones_are_refused),
		cmocka_unit_test (a_document_with_a_senseless_member_is_neither_made_nor_read),
		cmocka_unit_test (a_document_holds_for_its_enclave_version_and_time),
		cmocka_unit_test (members_are_found_by_name_and_uid),
		cmocka_unit_test (a_large_document_is_read_whole),
	};

	return cmocka_run_group_tests_name ("members", tests, keys_up, keys_down);
}
