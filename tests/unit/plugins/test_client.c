/* What plugins decide, from a member document and facts that are right, wrong, late, absent or another's. */
#include "tests/unit/base/test.h"

#include <errno.h>

#include "base/enctime.h"
#include "plugins/client/ticket.h"
#include "stage.h"

static struct stage s;
static struct enc_error err;
static struct enc_client_view view;

static int set_up (void **state)
{
	(void)state;
	return stage_make (&s, test_folder ()) || stage_members (&s, NULL) || stage_stack (&s) || stage_facts (&s, STAGE_ANSWERS) ? -1 : 0;
}

static int tear_down (void **state)
{
	stage_done (&s);
	(void)state;
	return 0;
}

/* Open with the facts and members as they now stand in the stage. */
static int open_now (void)
{
	int rc;

	if (stage_members (&s, NULL) < 0 || stage_facts (&s, STAGE_ANSWERS) < 0)
		return -1000;
	rc = enc_client_open (&s.conf, &view, &err);
	if (rc == 0)
		enc_client_close (&view);
	return rc;
}

T (a_healthy_node_lets_a_member_do_everything)
{
	const struct enc_member *who = NULL;

	ok (enc_client_open (&s.conf, &view, &err));
	ok (enc_client_judge (&view, ENC_ACT_ENTER, "res1", 10008, &who, &err));
	assert_string_equal (who->user, "res1");
	ok (enc_client_judge (&view, ENC_ACT_SUBMIT, NULL, 10009, NULL, &err));
	ok (enc_client_judge (&view, ENC_ACT_RUN, NULL, 10008, NULL, &err));
	ok (enc_client_stack (&s.conf, &view.facts, &err));
	enc_client_close (&view);
}

static void judge_stranger (struct enc_client_view *v, const char *user, uid_t uid, struct enc_error *ret)
{
	assert_int_equal (enc_client_judge (v, ENC_ACT_ENTER, user, uid, NULL, ret), -ENC_ENOTFOUND);
}

T (invariant_11_unknown_and_not_a_member_are_the_same_answer)
{
	struct enc_error unknown = { 0 }, other = { 0 }, mixed = { 0 }, shut = { 0 };

	ok (enc_client_open (&s.conf, &view, &err));
	judge_stranger (&view, "nobody-of-that-name", (uid_t)-1, &unknown);
	judge_stranger (&view, "outsider1", 10010, &other);
	judge_stranger (&view, "res1", 10009, &mixed); /* one member's name, another's uid */
	view.facts.door = view.facts.agent_alive = false;
	judge_stranger (&view, "outsider1", 10010, &shut); /* a stranger does not learn what state the enclave is in */
	assert_memory_equal (&unknown, &other, sizeof other);
	assert_memory_equal (&unknown, &mixed, sizeof other);
	assert_memory_equal (&unknown, &shut, sizeof other);
	enc_client_close (&view);
}

/* Median of many rounds of one question, in ns. */
static int64_t price (const char *user, uid_t uid)
{
	enum { ROUNDS = 301, EACH = 50 };
	int64_t best = INT64_MAX;

	for (int r = 0; r < ROUNDS; r++) {
		int64_t start = enc_mono ();
		for (int i = 0; i < EACH; i++)
			ENC_IGNORE (enc_client_judge (&view, ENC_ACT_ENTER, user, uid, NULL, &err));
		int64_t took = enc_mono () - start;
		best = took < best ? took : best;
	}
	return best;
}

T (invariant_11_unknown_and_not_a_member_take_the_same_time)
{
	int64_t unknown, other;

	ok (enc_client_open (&s.conf, &view, &err));
	unknown = price ("nobody-of-that-name", (uid_t)-1);
	other = price ("outsider1", 10010);
	assert_true (unknown < other * 2 && other < unknown * 2);
	enc_client_close (&view);
}

/* One thing each that must stop a member who would run a task; `at_open`: the whole node is then not believed. */
static void spoil (size_t what)
{
	switch (what) {
	case 0: s.facts.pool = ENC_POOL_AIRLOCK; break;
	case 1: s.facts.pool = ENC_POOL_GENERAL; break;
	case 2: s.facts.not_after = (uint64_t)enc_now_s () - 1; break;
	case 3: s.facts.not_after = 0; break;
	case 4: (void)snprintf (s.facts.enclave_id, 27, "zzcdefghijklmnopqrstuvwxyz"); break;
	case 5: (void)snprintf (s.facts.enclave_name, 32, "other"); break;
	case 6: s.facts.member_version = 6; break; /* privd has seen a newer one: this document was put back */
	case 7: s.members.not_after = (uint64_t)enc_now_s () - 1; break;
	case 8: s.members.not_before = (uint64_t)enc_now_s () + 3600; s.members.not_after = s.members.not_before + 60; break;
	case 9: s.facts.agent_alive = false; break;
	case 10: s.facts.volumes_open = 0; break;
	case 11: s.facts.generation = 0; break;
	case 12: s.facts.plugin_hash[0] ^= 1; break;
	case 13: memset (s.facts.plugin_hash, 0, 32); break;
	case 14: s.facts.plugstack_hash[31] ^= 1; break;
	default: memset (s.facts.plugstack_hash, 0, 32); break;
	}
}

static int run_now (void)
{
	int rc = enc_client_open (&s.conf, &view, &err);

	if (rc < 0)
		return rc;
	if ((rc = enc_client_judge (&view, ENC_ACT_RUN, NULL, 10008, NULL, &err)) == 0)
		rc = enc_client_stack (&s.conf, &view.facts, &err);
	enc_client_close (&view);
	return rc;
}

T (invariant_12_each_wrong_fact_alone_stops_a_task)
{
	assert_int_equal (run_now (), 0);
	for (size_t i = 0; i < 16; i++) {
		struct enc_facts facts = s.facts;
		struct enc_members members = s.members;

		spoil (i);
		assert_int_equal (stage_members (&s, NULL), 0);
		assert_int_equal (stage_facts (&s, STAGE_ANSWERS), 0);
		err = (struct enc_error){ 0 };
		if (run_now () >= 0)
			fail_msg ("case %zu let a task run", i);
		assert_true (err.text[0] != '\0');
		s.facts = facts;
		s.members = members;
	}
}

T (invariant_12_an_agent_that_is_dead_silent_or_lies_stops_a_task)
{
	static const struct { enum stage_mood mood; int code; } rows[] = { { STAGE_SILENT, ENC_ETIMEOUT }, { STAGE_HANGS_UP, ENC_EUNAVAIL },
		{ STAGE_NONSENSE, ENC_EPROTO }, { STAGE_LONG, ENC_EPROTO } };

	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++) {
		int64_t start = enc_mono ();
		assert_int_equal (stage_facts (&s, rows[i].mood), 0);
		fails (enc_client_open (&s.conf, &view, &err), rows[i].code);
		assert_true (enc_mono () - start < 2 * ENC_NS_S);
	}
	stage_quiet (&s);
	fails (enc_client_open (&s.conf, &view, &err), ENC_EUNAVAIL);
	/* Somebody else than root sits on the socket. */
	assert_int_equal (stage_facts (&s, STAGE_ANSWERS), 0);
	s.conf.facts_uid = getuid () + 1;
	fails (enc_client_open (&s.conf, &view, &err), ENC_EINTEGRITY);
}

T (invariant_12_a_plugin_removed_emptied_or_unlisted_stops_a_task)
{
	/* Around the plugin's path; without a second part the path is not there. */
	static const char *const texts[][2] = { { "", NULL }, { "# required PLUGIN\n", NULL }, { "optional ", "\n" }, { "required /usr/lib/other.so\n", NULL },
		{ "required ", "\nrequired /usr/lib/other.so\n" }, { "required ", " argument\n" }, { "include ", "\n" }, { "required\n", NULL }, { "required ", ".old\n" } };
	char line[400];

	for (size_t i = 0; i < ENC_ARRAY_LEN (texts); i++) {
		(void)snprintf (line, sizeof line, "%s%s%s", texts[i][0], texts[i][1] ? s.conf.plugin : "", texts[i][1] ? texts[i][1] : "");
		fails (enc_client_stack_text (line, s.conf.plugin, &err), ENC_EINTEGRITY);
		/* Even if privd's measurement agrees with it. */
		assert_int_equal (stage_write (s.conf.plugstacks[0], line), 0);
		stage_hash (s.conf.plugstacks[0], s.facts.plugstack_hash);
		fails (enc_client_stack (&s.conf, &s.facts, &err), ENC_EINTEGRITY);
	}
	assert_int_equal (unlink (s.conf.plugstacks[0]), 0);
	fails (enc_client_stack (&s.conf, &s.facts, &err), ENC_EINTEGRITY);
	assert_int_equal (stage_stack (&s), 0);
	assert_int_equal (stage_write (s.conf.plugin, ""), 0);
	fails (enc_client_stack (&s.conf, &s.facts, &err), ENC_EINTEGRITY);
	assert_int_equal (unlink (s.conf.plugin), 0);
	fails (enc_client_stack (&s.conf, &s.facts, &err), ENC_ENOTFOUND);
}

T (a_plugstack_may_have_comments_and_blanks)
{
	ok (enc_client_stack_text ("# a\n\n  required \t /x.so  \n#b\n", "/x.so", &err));
	ok (enc_client_stack_text ("required /x.so # the one\n", "/x.so", &err));
}

T (a_member_document_that_is_missing_or_not_keyds_is_no_document)
{
	enc_auto_done (enc_buf_done) struct enc_buf file = ENC_BUF_INIT (ENC_ENVELOPE_MAX);
	struct enc_sign_key *stranger = enc_sign_key_new (ENC_SIGN_ED25519, NULL, NULL);
	const struct enc_file_attr attr = ENC_FILE_ATTR (0644);
	struct enc_members m = { 0 };

	assert_int_equal (stage_members (&s, stranger), 0);
	fails (enc_client_members (&s.conf, &m, &err), ENC_EINTEGRITY);
	enc_sign_key_free (stranger);
	assert_int_equal (stage_members (&s, NULL), 0);
	ok (enc_file_read (s.conf.members, ENC_ENVELOPE_MAX, &file, &err));
	file.data[file.len / 2] ^= 4;
	ok (enc_file_write (s.conf.members, file.data, file.len, &attr, &err));
	assert_true (enc_client_members (&s.conf, &m, &err) < 0);
	assert_int_equal (stage_write (s.conf.members, ""), 0);
	assert_true (enc_client_members (&s.conf, &m, &err) < 0);
	assert_int_equal (unlink (s.conf.members), 0);
	fails (enc_client_members (&s.conf, &m, &err), ENC_EUNAVAIL);
	assert_int_equal (unlink (s.conf.vkey), 0);
	assert_true (enc_client_members (&s.conf, &m, &err) < 0);
	assert_null (m.members);
}

T (the_door_is_for_entering_only)
{
	s.facts.door = false;
	assert_int_equal (open_now (), 0);
	ok (enc_client_open (&s.conf, &view, &err));
	fails (enc_client_judge (&view, ENC_ACT_ENTER, "res1", 10008, NULL, &err), ENC_EDENIED);
	assert_true (err.next[0] != '\0');
	ok (enc_client_judge (&view, ENC_ACT_RUN, NULL, 10008, NULL, &err));
	enc_client_close (&view);
}

T (the_cache_reads_a_changed_document_at_once_and_asks_facts_again_in_time)
{
	struct enc_client_cache cache = { 0 };

	ok (enc_client_cached (&s.conf, &cache, &err));
	ok (enc_client_judge (&cache.view, ENC_ACT_SUBMIT, NULL, 10009, NULL, &err));
	s.members.members_n = 1;
	s.members.version = 6;
	assert_int_equal (stage_members (&s, NULL), 0);
	ok (enc_client_cached (&s.conf, &cache, &err));
	fails (enc_client_judge (&cache.view, ENC_ACT_SUBMIT, NULL, 10009, NULL, &err), ENC_ENOTFOUND);
	stage_quiet (&s);
	cache.facts_until = 1; /* long ago */
	fails (enc_client_cached (&s.conf, &cache, &err), ENC_EUNAVAIL);
	assert_int_equal (unlink (s.conf.members), 0);
	fails (enc_client_cached (&s.conf, &cache, &err), ENC_EUNAVAIL);
	enc_client_cache_done (&cache);
}

T (a_ticket_is_for_one_job_user_enclave_and_version)
{
	struct enc_ticket t = { .version = "0.1.0", .enclave_id = STAGE_ENCLAVE_ID, .generation = 3, .uid = 10008 }, w;

	fails (enc_ticket_check (&s.conf, 7, "gate", &t, &err), ENC_EDENIED);
	ok (enc_ticket_write (&s.conf, 7, "gate", &t, &err));
	ok (enc_ticket_check (&s.conf, 7, "gate", &t, &err));
	fails (enc_ticket_check (&s.conf, 8, "gate", &t, &err), ENC_EDENIED);
	fails (enc_ticket_check (&s.conf, 7, "plugin", &t, &err), ENC_EDENIED);
	w = t, w.uid = 10009;
	fails (enc_ticket_check (&s.conf, 7, "gate", &w, &err), ENC_EDENIED);
	w = t, w.generation = 2; /* the ticket would be of the future */
	fails (enc_ticket_check (&s.conf, 7, "gate", &w, &err), ENC_EDENIED);
	w = t, w.enclave_id[0] = 'z';
	fails (enc_ticket_check (&s.conf, 7, "gate", &w, &err), ENC_EDENIED);
	w = t, w.version[0] = '9';
	fails (enc_ticket_check (&s.conf, 7, "gate", &w, &err), ENC_EDENIED);
	ok (enc_job_places_remove (&s.conf, 7, &err));
	fails (enc_ticket_check (&s.conf, 7, "gate", &t, &err), ENC_EDENIED);
	ok (enc_job_places_remove (&s.conf, 7, &err));
}

T (private_folders_of_a_job_are_made_again_and_go_with_it)
{
	char path[400];
	struct stat st;

	assert_true (mkdir (s.conf.scratch, 0777) == 0 || errno == EEXIST);
	ok (enc_job_places_make (&s.conf, 9, getuid (), getgid (), false, &err));
	ok (enc_job_places_make (&s.conf, 9, getuid (), getgid (), false, &err));
	(void)snprintf (path, sizeof path, "%s/.jobs/9", s.conf.scratch);
	assert_int_equal (stat (path, &st), 0);
	assert_int_equal (st.st_mode & 07777, 0700);
	(void)snprintf (path, sizeof path, "%s/.jobs/9/left-over", s.conf.scratch);
	assert_int_equal (stage_write (path, "CANARY"), 0);
	ok (enc_job_places_remove (&s.conf, 9, &err));
	assert_true (access (path, F_OK) < 0);
}

T (a_proof_is_of_this_version_and_enclave)
{
	static const char *const bad[] = { NULL, "", "0.1.0", "0.1.0 " STAGE_ENCLAVE_ID, "0.1.0 " STAGE_ENCLAVE_ID " ", "0.1.0 " STAGE_ENCLAVE_ID " x",
		"0.0.9 " STAGE_ENCLAVE_ID " 5", "0.1.0 zbcdefghijklmnopqrstuvwxyz 5", "0.1.0 " STAGE_ENCLAVE_ID " 3", "0.1.0 " STAGE_ENCLAVE_ID " 7" };
	char proof[ENC_PROOF_SIZE], too_long[200];

	ok (enc_client_open (&s.conf, &view, &err));
	enc_job_proof_format (&view, proof);
	ok (enc_job_proof_check (&view, proof, true, &err));
	for (size_t i = 0; i < ENC_ARRAY_LEN (bad); i++)
		fails (enc_job_proof_check (&view, bad[i], true, &err), ENC_EDENIED);
	memset (too_long, '0', sizeof too_long);
	too_long[sizeof too_long - 1] = '\0';
	fails (enc_job_proof_check (&view, too_long, true, &err), ENC_EDENIED);
	view.members.version = 50; /* it waited in the queue */
	ok (enc_job_proof_check (&view, proof, false, &err));
	enc_client_close (&view);
}

#define STAGED(name) cmocka_unit_test_setup_teardown (name, set_up, tear_down)

int main (void)
{
	const struct CMUnitTest tests[] = {
		STAGED (a_healthy_node_lets_a_member_do_everything),
		STAGED (invariant_11_unknown_and_not_a_member_are_the_same_answer),
		STAGED (invariant_11_unknown_and_not_a_member_take_the_same_time),
		STAGED (invariant_12_each_wrong_fact_alone_stops_a_task),
		STAGED (invariant_12_an_agent_that_is_dead_silent_or_lies_stops_a_task),
		STAGED (invariant_12_a_plugin_removed_emptied_or_unlisted_stops_a_task),
		RUN (a_plugstack_may_have_comments_and_blanks),
		STAGED (a_member_document_that_is_missing_or_not_keyds_is_no_document),
		STAGED (the_door_is_for_entering_only),
		STAGED (the_cache_reads_a_changed_document_at_once_and_asks_facts_again_in_time),
		STAGED (a_ticket_is_for_one_job_user_enclave_and_version),
		STAGED (private_folders_of_a_job_are_made_again_and_go_with_it),
		STAGED (a_proof_is_of_this_version_and_enclave),
	};

	return cmocka_run_group_tests_name ("client", tests, NULL, test_folder_remove);
}
