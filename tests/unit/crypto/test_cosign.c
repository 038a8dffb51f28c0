/* Cosignatures and the policy that says how many of whom are enough. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "crypto/checkpoint.h"
#include "crypto/tlog/policy.h"

#define WITNESSES 5

struct world {
	struct enc_sign_key *log_key;
	struct enc_vkey log;
	struct enc_sign_key *key[WITNESSES];
	struct enc_vkey vkey[WITNESSES];
	char text[4096]; /* checkpoint and the cosignatures added so far */
	size_t len;
};

static int setup (void **state)
{
	struct world *w = calloc (1, sizeof (*w));
	struct enc_tree_head head = { .size = 7 };
	uint8_t seed[ENC_SIGN_SEED_SIZE] = { 1 };

	w->log_key = enc_sign_key_new (ENC_SIGN_ED25519, seed, NULL);
	assert_int_equal (enc_vkey_init (&w->log, "test.example/log", enc_sign_key_pub (w->log_key), NULL), 0);
	for (size_t i = 0; i < WITNESSES; i++) {
		char name[] = "w0.example";

		name[1] = (char)('1' + i);
		seed[1] = (uint8_t)(i + 1);
		w->key[i] = enc_sign_key_new (ENC_SIGN_ED25519, seed, NULL);
		assert_int_equal (enc_cosign_vkey (&w->vkey[i], name, w->key[i], NULL), 0);
	}
	w->len = (size_t)enc_checkpoint_sign (&head, &w->log, w->log_key, w->text, sizeof (w->text), NULL);
	*state = w;
	return 0;
}

static int teardown (void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < WITNESSES; i++)
		enc_sign_key_free (w->key[i]);
	enc_sign_key_free (w->log_key);
	free (w);
	return 0;
}

static void cosign (struct world *w, size_t i, uint64_t time)
{
	struct enc_note note;
	ssize_t n;

	assert_int_equal (enc_note_parse (w->text, w->len, &note, NULL), 0);
	n = enc_cosign (&note, &w->vkey[i], w->key[i], time, w->text + w->len, sizeof (w->text) - w->len, NULL);
	assert_true (n > 0);
	w->len += (size_t)n;
}

static int check (struct world *w, size_t i, uint64_t *time)
{
	struct enc_note note;

	assert_int_equal (enc_note_parse (w->text, w->len, &note, NULL), 0);
	return enc_cosign_check (&note, &w->vkey[i], time, NULL);
}

static struct enc_tlog_policy *policy (struct world *w, const char *tail)
{
	char text[4096], vkey[ENC_VKEY_TEXT_MAX];
	size_t used = 0;
	struct enc_error err = { 0 };
	struct enc_tlog_policy *p;

	for (size_t i = 0; i < WITNESSES; i++) {
		enc_vkey_format (&w->vkey[i], vkey);
		used += (size_t)snprintf (text + used, sizeof (text) - used, "witness W%zu %s https://witness.example:745%zu/\n", i + 1, vkey, i + 1);
	}
	(void)snprintf (text + used, sizeof (text) - used, "%s", tail);
	p = enc_tlog_policy_parse (text, strlen (text), &err);
	if (!p)
		assert_true (err.code != 0);
	return p;
}

static void a_cosignature_holds_for_its_witness_text_and_time (void **state)
{
	struct world *w = *state;
	struct enc_tree_head head;
	uint64_t time = 0;
	char *at;

	assert_int_equal (check (w, 0, &time), -ENC_ENOTFOUND);
	cosign (w, 0, 1700000000);
	cosign (w, 1, 1700000005);
	assert_int_equal (check (w, 0, &time), 0);
	assert_int_equal (time, 1700000000);
	assert_int_equal (check (w, 1, &time), 0);
	assert_int_equal (check (w, 2, &time), -ENC_ENOTFOUND);
	assert_int_equal (enc_checkpoint_open (w->text, w->len, &w->log, &head, NULL), 0);
	/* The newest counts when a witness cosigned twice. */
	cosign (w, 0, 1700000009);
	assert_int_equal (check (w, 0, &time), 0);
	assert_int_equal (time, 1700000009);
	/* Another size under the same lines. */
	at = strstr (w->text, "\n7\n");
	at[1] = '8';
	assert_int_equal (check (w, 1, &time), -ENC_EINTEGRITY);
}

static void a_wrong_byte_anywhere_in_a_cosignature_is_found (void **state)
{
	struct world *w = *state;
	uint64_t time;
	size_t from = w->len;

	cosign (w, 0, 1700000000);
	/* Behind the name and the eight digits that hold the key id and more: the time and the signature. */
	for (size_t i = from + strlen ("— w1.example ") + 8; i + 3 < w->len; i++) {
		char kept = w->text[i];

		w->text[i] = kept == 'A' ? 'B' : 'A';
		assert_int_not_equal (check (w, 0, &time), 0);
		w->text[i] = kept;
	}
	assert_int_equal (check (w, 0, &time), 0);
}

static void keys_of_logs_and_witnesses_do_not_stand_for_each_other (void **state)
{
	struct world *w = *state;
	struct enc_tree_head head;
	struct enc_note note;
	uint64_t time;

	assert_int_equal (enc_note_parse (w->text, w->len, &note, NULL), 0);
	assert_int_equal (enc_cosign_check (&note, &w->log, &time, NULL), -ENC_EINVAL);
	assert_int_not_equal (enc_checkpoint_open (w->text, w->len, &w->vkey[0], &head, NULL), 0);
}

static void a_vkey_of_a_witness_has_the_known_form (void **state)
{
	struct world *w = *state;
	char text[ENC_VKEY_TEXT_MAX];
	struct enc_vkey again;

	enc_vkey_format (&w->vkey[0], text);
	/* Type byte 4 and a key of 32 bytes: "BA" and what follows, 44 characters. */
	assert_memory_equal (text, "w1.example+", 11);
	assert_memory_equal (text + 19, "+B", 2);
	assert_int_equal (strlen (text + 20), 44);
	assert_int_equal (enc_vkey_parse (text, strlen (text), &again, NULL), 0);
	assert_int_equal (again.pub.alg, ENC_COSIGN_ED25519);
}

static const struct {
	const char *tail;
	unsigned required;
	unsigned met; /* bit by set of witnesses: which sets of W1..W5 are enough */
} quorums[] = {
	{ "quorum none\n", 0, 0 },
	{ "quorum W2\n", 1, 2 },
	{ "group a 2 W1 W2 W3\nquorum a\n", 2, 3 },
	{ "# comment\n\n  group a all W1 W2\t\ngroup b any W3 W4 W5\ngroup c all a b\nquorum c\n", 3, 7 },
	{ "group a any W1 W2\ngroup b 2 W3 W4 W5\ngroup c any a b\nquorum c\n", 1, 1 },
};

static void the_quorum_is_what_the_policy_says (void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < sizeof (quorums) / sizeof (quorums[0]); i++) {
		enc_auto (enc_tlog_policy) struct enc_tlog_policy *p = policy (w, quorums[i].tail);
		struct enc_tlog_quorum q = { 0 };

		assert_non_null (p);
		assert_int_equal (enc_tlog_policy_required (p), quorums[i].required);
		for (unsigned k = 0; k < WITNESSES; k++)
			q.times[k] = quorums[i].met >> k & 1 ? 100 + k : 0;
		enc_tlog_policy_weigh (p, &q);
		assert_true (q.met);
		/* One less is never enough where this set was the smallest. */
		for (unsigned k = 0; k < WITNESSES && quorums[i].met; k++) {
			struct enc_tlog_quorum less = q;

			if (!(quorums[i].met >> k & 1))
				continue;
			less.times[k] = 0;
			enc_tlog_policy_weigh (p, &less);
			assert_false (less.met);
		}
	}
}

static void the_time_of_a_quorum_is_that_of_its_oldest_needed_member (void **state)
{
	struct world *w = *state;
	enc_auto (enc_tlog_policy) struct enc_tlog_policy *p = policy (w, "group a 2 W1 W2 W3\nquorum a\n");
	struct enc_tlog_quorum q = { .times = { 100, 50, 80 } };

	enc_tlog_policy_weigh (p, &q);
	assert_true (q.met);
	assert_int_equal (q.cosigned, 3);
	assert_int_equal (q.time, 80);
}

static void a_wrong_cosignature_of_a_known_witness_spoils_the_judgement (void **state)
{
	struct world *w = *state;
	enc_auto (enc_tlog_policy) struct enc_tlog_policy *p = policy (w, "quorum W1\n");
	struct enc_tlog_quorum q;
	struct enc_note note;

	cosign (w, 0, 1700000000);
	assert_int_equal (enc_note_parse (w->text, w->len, &note, NULL), 0);
	assert_int_equal (enc_tlog_policy_judge (p, &note, &q, NULL), 0);
	assert_true (q.met);
	cosign (w, 1, 1700000000);
	w->text[w->len - 8] = w->text[w->len - 8] == 'A' ? 'B' : 'A';
	assert_int_equal (enc_note_parse (w->text, w->len, &note, NULL), 0);
	assert_int_equal (enc_tlog_policy_judge (p, &note, &q, NULL), -ENC_EINTEGRITY);
}

static void policies_that_are_not_policies_are_refused (void **state)
{
	static const char *const bad[] = { "", "quorum W9\n", "quorum W1", "quorum W1\nquorum W1\n", "group a 3 W1 W2\nquorum a\n",
		"group a 0 W1\nquorum a\n", "group a 02 W1 W2\nquorum a\n", "group none any W1\nquorum none\n", "group a any W1 W1\nquorum a\n",
		"group a any W1\ngroup b any W1\nquorum a\n", "group a any a\nquorum a\n", "group W1 any W2\nquorum W1\n", "fly W1\nquorum W1\n",
		"log nonsense\nquorum none\n", "witness W9 nonsense\nquorum none\n", "quorum W1 W2\n", "quorum W1\n\x01\n", "group a any\nquorum none\n" };
	struct world *w = *state;

	for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++) {
		enc_auto (enc_tlog_policy) struct enc_tlog_policy *p = policy (w, bad[i]);

		if (p)
			fail_msg ("taken: %s", bad[i]);
	}
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown (a_cosignature_holds_for_its_witness_text_and_time, setup, teardown),
		cmocka_unit_test_setup_teardown (a_wrong_byte_anywhere_in_a_cosignature_is_found, setup, teardown),
		cmocka_unit_test_setup_teardown (keys_of_logs_and_witnesses_do_not_stand_for_each_other, setup, teardown),
		cmocka_unit_test_setup_teardown (a_vkey_of_a_witness_has_the_known_form, setup, teardown),
		cmocka_unit_test_setup_teardown (the_quorum_is_what_the_policy_says, setup, teardown),
		cmocka_unit_test_setup_teardown (the_time_of_a_quorum_is_that_of_its_oldest_needed_member, setup, teardown),
		cmocka_unit_test_setup_teardown (a_wrong_cosignature_of_a_known_witness_spoils_the_judgement, setup, teardown),
		cmocka_unit_test_setup_teardown (policies_that_are_not_policies_are_refused, setup, teardown),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
