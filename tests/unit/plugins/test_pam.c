/* The door, through a real libpam: pam_wrapper gives it a service of our own, nss_wrapper users of our own. */
#include "tests/unit/base/test.h"

#include <libpamtest.h>

#include "base/enctime.h"
#include "base/str.h"
#include "stage.h"

static struct stage s;

static int set_up (void **state)
{
	(void)state;
	if (stage_make (&s, test_folder ()) || stage_members (&s, NULL) || stage_facts (&s, STAGE_ANSWERS))
		return -1;
	return setenv ("ENC_TEST_STAGE", s.dir, 1);
}

static int tear_down (void **state)
{
	(void)state;
	stage_done (&s);
	return 0;
}

/* What libpam says of the account, or of opening a session. `ret_said`: what the user would read. */
static int ask (const char *user, enum pamtest_ops op, char ret_said[PAM_MAX_MSG_SIZE])
{
	char said[PAM_MAX_MSG_SIZE] = "", info[PAM_MAX_MSG_SIZE] = "";
	char *errors[] = { said, NULL }, *infos[] = { info, NULL };
	struct pamtest_conv_data conv = { .out_err = errors, .out_info = infos };
	struct pam_testcase cases[] = { pam_test (op, PAM_SUCCESS) };

	(void)_pamtest ("enclave-door", user, &conv, cases, 1, NULL);
	if (ret_said)
		(void)snprintf (ret_said, PAM_MAX_MSG_SIZE, "%s", said);
	return cases[0].op_rv;
}

T (a_member_passes_an_open_door)
{
	assert_int_equal (ask ("res1", PAMTEST_ACCOUNT, NULL), PAM_SUCCESS);
	assert_int_equal (ask ("res1", PAMTEST_OPEN_SESSION, NULL), PAM_SUCCESS);
	assert_int_equal (ask ("res1", PAMTEST_CLOSE_SESSION, NULL), PAM_SUCCESS);
}

T (invariant_04_nobody_passes_a_shut_door_and_a_member_is_told)
{
	char said[PAM_MAX_MSG_SIZE];

	s.facts.door = false;
	assert_int_equal (stage_facts (&s, STAGE_ANSWERS), 0);
	assert_int_equal (ask ("res1", PAMTEST_ACCOUNT, said), PAM_PERM_DENIED);
	assert_non_null (strstr (said, "door is shut"));
	assert_int_equal (ask ("res1", PAMTEST_OPEN_SESSION, NULL), PAM_SESSION_ERR);
	assert_int_equal (ask ("outsider1", PAMTEST_ACCOUNT, said), PAM_PERM_DENIED);
	assert_string_equal (said, "");
}

T (invariant_11_a_stranger_and_an_unknown_user_get_the_same_answer)
{
	char stranger[PAM_MAX_MSG_SIZE], unknown[PAM_MAX_MSG_SIZE];

	assert_int_equal (ask ("outsider1", PAMTEST_ACCOUNT, stranger), PAM_PERM_DENIED);
	assert_int_equal (ask ("no-such-user", PAMTEST_ACCOUNT, unknown), PAM_PERM_DENIED);
	assert_string_equal (stranger, unknown);
	assert_string_equal (stranger, "");
}

/* One transaction: opened and closed by the same handle. */
static int whole_session (const char *user)
{
	struct pam_testcase cases[] = { pam_test (PAMTEST_OPEN_SESSION, PAM_SUCCESS), pam_test (PAMTEST_CLOSE_SESSION, PAM_SUCCESS) };
	struct pamtest_conv_data conv = { 0 };

	(void)_pamtest ("enclave-door", user, &conv, cases, 2, NULL);
	return cases[0].op_rv;
}

T (each_outcome_is_told_exactly_and_a_stranger_without_his_name)
{
	struct enc_told t;

	assert_int_equal (ask ("res1", PAMTEST_ACCOUNT, NULL), PAM_SUCCESS);
	assert_int_equal (stage_told (&s, ENC_TOLD_LOGIN, &t), 0);
	assert_string_equal (t.user, "res1");
	assert_int_equal (stage_told (&s, ENC_TOLD_LOGIN_FAILED, &t), -1);
	assert_int_equal (ask ("my-secret-passphrase", PAMTEST_ACCOUNT, NULL), PAM_PERM_DENIED);
	assert_int_equal (stage_told (&s, ENC_TOLD_LOGIN_FAILED, &t), 0);
	assert_string_equal (t.user, "");
	assert_null (strstr (t.reason, "secret"));
	s.facts.door = false;
	assert_int_equal (stage_facts (&s, STAGE_ANSWERS), 0);
	assert_int_equal (ask ("res1", PAMTEST_ACCOUNT, NULL), PAM_PERM_DENIED);
	assert_int_equal (stage_told (&s, ENC_TOLD_LOGIN_FAILED, &t), 0);
	assert_string_equal (t.user, "res1");
	assert_non_null (strstr (t.reason, "door is shut"));
}

T (a_session_is_told_with_its_end)
{
	struct enc_told start, end;

	assert_int_equal (whole_session ("res1"), PAM_SUCCESS);
	assert_int_equal (stage_told (&s, ENC_TOLD_SESSION_START, &start), 0);
	assert_int_equal (stage_told (&s, ENC_TOLD_SESSION_END, &end), 0);
	assert_string_equal (start.user, "res1");
	assert_true (enc_id_ok (start.session));
	assert_string_equal (start.session, end.session);
	assert_string_equal (end.reason, "");
}

T (invariant_05_no_session_without_the_log_s_receipt_for_it)
{
	static const enum stage_log bad[] = { STAGE_LOG_SILENT, STAGE_LOG_AWAY, STAGE_LOG_FORGED, STAGE_LOG_OTHER, STAGE_LOG_ENCLAVE, STAGE_LOG_NONSENSE };
	struct enc_told end;

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		int64_t start = enc_mono ();
		s.log = bad[i];
		assert_int_equal (stage_facts (&s, STAGE_ANSWERS), 0);
		assert_int_equal (whole_session ("res1"), PAM_SESSION_ERR);
		assert_int_equal (stage_told (&s, ENC_TOLD_SESSION_END, &end), 0);
		assert_non_null (strstr (end.reason, "log does not answer"));
		assert_true (enc_mono () - start < 4 * ENC_NS_S);
	}
	s.log = STAGE_LOG_ANSWERS;
	assert_int_equal (stage_facts (&s, STAGE_ANSWERS), 0);
	assert_int_equal (whole_session ("res1"), PAM_SUCCESS);
	assert_int_equal (unlink (s.conf.log_vkey), 0);
	assert_int_equal (whole_session ("res1"), PAM_SESSION_ERR);
}

T (a_code_that_was_refused_is_told_and_never_let_in)
{
	struct pam_testcase cases[] = { pam_test (PAMTEST_AUTHENTICATE, PAM_AUTH_ERR) };
	struct pamtest_conv_data conv = { 0 };
	struct enc_told t;

	(void)_pamtest ("enclave-refused", "res1", &conv, cases, 1, NULL);
	assert_int_equal (cases[0].op_rv, PAM_AUTH_ERR);
	assert_int_equal (stage_told (&s, ENC_TOLD_LOGIN_FAILED, &t), 0);
	assert_string_equal (t.user, "res1");
	assert_string_equal (t.reason, "code is wrong");
}

static int64_t fastest (const char *user)
{
	int64_t best = INT64_MAX;

	for (int i = 0; i < 60; i++) {
		int64_t start = enc_mono ();
		(void)ask (user, PAMTEST_ACCOUNT, NULL);
		int64_t took = enc_mono () - start;
		best = took < best ? took : best;
	}
	return best;
}

T (invariant_11_a_stranger_and_an_unknown_user_wait_equally_long)
{
	int64_t stranger = fastest ("outsider1"), unknown = fastest ("no-such-user");

	assert_true (stranger < 2 * unknown && unknown < 2 * stranger);
}

T (a_member_whose_name_has_another_uid_here_is_a_stranger)
{
	assert_int_equal (ask ("res2", PAMTEST_ACCOUNT, NULL), PAM_PERM_DENIED); /* passwd says 20009 */
}

T (what_cannot_be_told_is_refused_in_time)
{
	static const enum stage_mood moods[] = { STAGE_SILENT, STAGE_HANGS_UP, STAGE_NONSENSE, STAGE_LONG };
	char said[PAM_MAX_MSG_SIZE];

	for (size_t i = 0; i < 4; i++) {
		int64_t start = enc_mono ();
		assert_int_equal (stage_facts (&s, moods[i]), 0);
		assert_int_equal (ask ("res1", PAMTEST_ACCOUNT, said), PAM_PERM_DENIED);
		assert_string_equal (said, "");
		assert_true (enc_mono () - start < 2 * ENC_NS_S);
	}
	stage_quiet (&s);
	assert_int_equal (ask ("res1", PAMTEST_ACCOUNT, NULL), PAM_PERM_DENIED);
	assert_int_equal (stage_facts (&s, STAGE_ANSWERS), 0);
	assert_int_equal (ask ("res1", PAMTEST_ACCOUNT, NULL), PAM_SUCCESS);
	assert_int_equal (unlink (s.conf.members), 0);
	assert_int_equal (ask ("res1", PAMTEST_ACCOUNT, NULL), PAM_PERM_DENIED);
}

T (an_expired_lease_or_a_member_removed_is_refused)
{
	s.members.members = &s.member[1];
	s.members.members_n = 1;
	assert_int_equal (stage_members (&s, NULL), 0);
	assert_int_equal (ask ("res1", PAMTEST_ACCOUNT, NULL), PAM_PERM_DENIED);
	s.members.members = s.member;
	s.members.not_after = (uint64_t)enc_now_s () - 1;
	assert_int_equal (stage_members (&s, NULL), 0);
	assert_int_equal (ask ("res1", PAMTEST_ACCOUNT, NULL), PAM_PERM_DENIED);
}

#define STAGED(name) cmocka_unit_test_setup_teardown (name, set_up, tear_down)

int main (void)
{
	const struct CMUnitTest tests[] = {
		STAGED (a_member_passes_an_open_door),
		STAGED (invariant_04_nobody_passes_a_shut_door_and_a_member_is_told),
		STAGED (invariant_11_a_stranger_and_an_unknown_user_get_the_same_answer),
		STAGED (each_outcome_is_told_exactly_and_a_stranger_without_his_name),
		STAGED (a_session_is_told_with_its_end),
		STAGED (invariant_05_no_session_without_the_log_s_receipt_for_it),
		STAGED (a_code_that_was_refused_is_told_and_never_let_in),
		STAGED (invariant_11_a_stranger_and_an_unknown_user_wait_equally_long),
		STAGED (a_member_whose_name_has_another_uid_here_is_a_stranger),
		STAGED (what_cannot_be_told_is_refused_in_time),
		STAGED (an_expired_lease_or_a_member_removed_is_refused),
	};

	return cmocka_run_group_tests_name ("pam", tests, NULL, test_folder_remove);
}
