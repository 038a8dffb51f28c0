/* Hashes, keys, notes, checkpoints, proofs and receipts: known answers, round
 * trips, and each way in which a text can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crypto/receipt.h"

static const uint8_t seed[ENC_SIGN_SEED_SIZE] = { 7, 1, 2, 3 };
static const uint8_t other_seed[ENC_SIGN_SEED_SIZE] = { 8, 1, 2, 3 };

static struct enc_sign_key *make_key (const uint8_t *from, const char *name, struct enc_vkey *vkey)
{
	struct enc_sign_key *key = enc_sign_key_new (ENC_SIGN_ED25519, from, NULL);

	assert_non_null (key);
	assert_int_equal (enc_vkey_init (vkey, name, enc_sign_key_pub (key), NULL), 0);
	return key;
}

static void hashes_have_known_answers (void **state)
{
	struct enc_hash hash;
	char hex[ENC_HASH_HEX_SIZE];

	(void)state;
	enc_hash_empty (&hash);
	enc_hash_hex (&hash, hex);
	assert_string_equal (hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	enc_hash_leaf ("", 0, &hash);
	enc_hash_hex (&hash, hex);
	assert_string_equal (hex, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
	enc_sha256 ("abc", 3, &hash);
	enc_hash_hex (&hash, hex);
	assert_string_equal (hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void base64_has_one_spelling (void **state)
{
	static const char *const bad[] = { "Zg=", "Zg", "Zh==", "Zm9=", "Z===", "=g==", "Zg==Zg==", "Zm9v\n", "Zm 9",
		"Zm-v", "Zm9vY" };
	uint8_t out[16];
	char text[16];

	(void)state;
	assert_int_equal (enc_b64_get ("Zm9vYg==", 8, out, sizeof (out)), 4);
	assert_memory_equal (out, "foob", 4);
	assert_int_equal (enc_b64_put ("foob", 4, text, sizeof (text)), 8);
	assert_string_equal (text, "Zm9vYg==");
	assert_int_equal (enc_b64_put ("foob", 4, text, 8), -1);
	assert_int_equal (enc_b64_get ("Zm9vYg==", 8, out, 3), -1);
	for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++)
		assert_int_equal (enc_b64_get (bad[i], strlen (bad[i]), out, sizeof (out)), -1);
}

/* The example in the documentation of Go's signed notes. */
static void a_note_of_another_implementation_holds (void **state)
{
	static const char vkey_text[] = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
	static const char text[] =
		"If you think cryptography is the answer to your problem,\n"
		"then you don't know what your problem is.\n\n"
		"\xe2\x80\x94 PeterNeumann "
		"x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
	char again[ENC_VKEY_TEXT_MAX];
	struct enc_vkey vkey;
	struct enc_note note;

	(void)state;
	assert_int_equal (enc_vkey_parse (vkey_text, strlen (vkey_text), &vkey, NULL), 0);
	enc_vkey_format (&vkey, again);
	assert_string_equal (again, vkey_text);
	assert_int_equal (enc_note_parse (text, strlen (text), &note, NULL), 0);
	assert_int_equal (enc_note_check (&note, &vkey, NULL), 0);
}

static void a_vkey_with_another_key_id_is_refused (void **state)
{
	static const char bad_id[] = "PeterNeumann+c74f20a4+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
	static const char *const bad[] = { "", "+", "a+b", "a b+c74f20a3+AR", "PeterNeumann+c74f20a3+",
		"PeterNeumann+C74f20a3+ARpc", "PeterNeumann+c74f20a3" };
	struct enc_vkey vkey;

	(void)state;
	assert_int_equal (enc_vkey_parse (bad_id, strlen (bad_id), &vkey, NULL), -ENC_EINTEGRITY);
	for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++)
		assert_true (enc_vkey_parse (bad[i], strlen (bad[i]), &vkey, NULL) < 0);
}

static void p256_keys_are_refused_until_they_are_supported (void **state)
{
	struct enc_error err = { 0 };
	struct enc_sign_pub pub = { .alg = ENC_SIGN_ECDSA_P256, .len = 91 };

	(void)state;
	assert_null (enc_sign_key_new (ENC_SIGN_ECDSA_P256, seed, &err));
	assert_int_equal (err.code, ENC_EINVAL);
	assert_int_equal (enc_sign_check (&pub, "x", 1, pub.key, 64), -ENC_EINVAL);
}

static void notes_that_are_not_notes_are_refused (void **state)
{
	static const char *const bad[] = {
		"",
		"\n",
		"\n\n",
		"text\n",
		"text\n\n",
		"text\n\nmore\n",
		"text\n\n- name AAAAAAAA\n",
		"text\n\n\xe2\x80\x94 name\n",
		"text\n\n\xe2\x80\x94 name AAAA\n",
		"text\n\n\xe2\x80\x94 name AAAAAAA\n",
		"text\n\n\xe2\x80\x94 na+me AAAAAAAA\n",
		"text\n\n\xe2\x80\x94  AAAAAAAA\n",
		"text\n\n\xe2\x80\x94 name AAAAAAAA",
		"te\x01xt\n\n\xe2\x80\x94 name AAAAAAAA\n",
		"te\rxt\n\n\xe2\x80\x94 name AAAAAAAA\n",
		"te\xc0\x80xt\n\n\xe2\x80\x94 name AAAAAAAA\n",
		"te\xed\xa0\x80\n\n\xe2\x80\x94 name AAAAAAAA\n",
		"\n\n\xe2\x80\x94 name AAAAAAAA\n\n",
	};
	struct enc_note note;

	(void)state;
	assert_int_equal (enc_note_parse ("text\n\n\xe2\x80\x94 name AAAAAAAA\n", 24, &note, NULL), 0);
	for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++)
		if (enc_note_parse (bad[i], strlen (bad[i]), &note, NULL) == 0)
			fail_msg ("accepted bad note %zu", i);
}

static void a_checkpoint_holds_only_for_its_log_key_and_bytes (void **state)
{
	struct enc_vkey vkey, foreign, other;
	struct enc_sign_key *key = make_key (seed, "lab.example/log", &vkey);
	struct enc_sign_key *key2 = make_key (seed, "lab.example/other", &foreign);
	struct enc_sign_key *key3 = make_key (other_seed, "lab.example/log", &other);
	struct enc_tree_head head = { 42, { { 9 } } };
	struct enc_tree_head got;
	char text[ENC_CHECKPOINT_MAX];
	ssize_t len;

	(void)state;
	len = enc_checkpoint_sign (&head, &vkey, key, text, sizeof (text), NULL);
	assert_true (len > 0);
	assert_true (strncmp (text,
			     "lab.example/log\n42\nCQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n\xe2\x80\x94 "
			     "lab.example/log ",
			     80) == 0);
	assert_int_equal (enc_checkpoint_open (text, (size_t)len, &vkey, &got, NULL), 0);
	assert_true (got.size == 42 && enc_hash_equal (&got.root, &head.root));
	assert_int_equal (enc_checkpoint_open (text, (size_t)len, &foreign, &got, NULL), -ENC_ENOTFOUND);
	assert_int_equal (enc_checkpoint_open (text, (size_t)len, &other, &got, NULL), -ENC_ENOTFOUND);
	/* Any changed byte is noticed, in one way or the other. */
	for (ssize_t i = 0; i < len; i++) {
		text[i] ^= 1;
		assert_true (enc_checkpoint_open (text, (size_t)len, &vkey, &got, NULL) < 0);
		text[i] ^= 1;
	}
	for (ssize_t i = 0; i < len; i++)
		assert_true (enc_checkpoint_open (text, (size_t)i, &vkey, &got, NULL) < 0);
	enc_sign_key_free (key);
	enc_sign_key_free (key2);
	enc_sign_key_free (key3);
}

static void a_wrong_signature_by_a_known_key_spoils_the_note (void **state)
{
	struct enc_vkey vkey;
	struct enc_sign_key *key = make_key (seed, "n", &vkey);
	struct enc_note note;
	char good[512], bad[1024];
	ssize_t len;

	(void)state;
	len = enc_note_sign ("one\n", &vkey, key, good, sizeof (good), NULL);
	assert_true (len > 0);
	/* The same signature line once more, over another text. */
	(void)snprintf (bad, sizeof (bad), "two\n%s", good + 4);
	assert_int_equal (enc_note_parse (bad, strlen (bad), &note, NULL), 0);
	assert_int_equal (enc_note_check (&note, &vkey, NULL), -ENC_EINTEGRITY);
	enc_sign_key_free (key);
}

/* A log of three records with a receipt for the one in the middle. */
struct tiny {
	struct enc_vkey vkey;
	char record[3][128];
	struct enc_hash leaf[3];
	char proof[ENC_PROOF_TEXT_MAX];
	ssize_t proof_len;
};

static int tiny_read (unsigned level, uint64_t index, struct enc_hash *ret, void *arg)
{
	struct tiny *t = arg;

	if (level == 0)
		*ret = t->leaf[index];
	else
		enc_hash_node (&t->leaf[0], &t->leaf[1], ret);
	return 0;
}

static void make_tiny (struct tiny *t, uint64_t index)
{
	struct enc_sign_key *key = make_key (seed, "lab.example/log", &t->vkey);
	struct enc_tree_reader reader = { tiny_read, t };
	struct enc_tree_head head = { .size = 3 };
	struct enc_proof proof = { .index = index };
	char checkpoint[ENC_CHECKPOINT_MAX];
	struct enc_tree tree;

	enc_tree_init (&tree);
	for (int i = 0; i < 3; i++) {
		(void)snprintf (
			t->record[i], sizeof (t->record[i]), "{\"idx\":%d,\"origin\":\"lab.example/log\",\"v\":1}", i);
		enc_hash_leaf (t->record[i], strlen (t->record[i]), &t->leaf[i]);
		assert_int_equal (enc_tree_append (&tree, &t->leaf[i], NULL, NULL), 0);
	}
	enc_tree_root (&tree, &head.root);
	assert_int_equal (enc_tree_prove (index, 3, &reader, &proof.path, NULL), 0);
	proof.checkpoint_len =
		(size_t)enc_checkpoint_sign (&head, &t->vkey, key, checkpoint, sizeof (checkpoint), NULL);
	proof.checkpoint = checkpoint;
	t->proof_len = enc_proof_format (&proof, t->proof, sizeof (t->proof), NULL);
	assert_true (t->proof_len > 0);
	enc_sign_key_free (key);
}

static void invariant_03_a_receipt_is_for_one_record_at_one_place (void **state)
{
	struct enc_receipt receipt;
	struct tiny t;

	(void)state;
	make_tiny (&t, 1);
	assert_int_equal (enc_receipt_check (t.proof, (size_t)t.proof_len, t.record[1], strlen (t.record[1]), &t.vkey,
				  &receipt, NULL),
		0);
	assert_int_equal (receipt.index, 1);
	assert_int_equal (receipt.head.size, 3);
	assert_int_equal (enc_receipt_check (t.proof, (size_t)t.proof_len, t.record[0], strlen (t.record[0]), &t.vkey,
				  &receipt, NULL),
		-ENC_EINTEGRITY);
	t.record[1][8] ^= 1;
	assert_int_equal (enc_receipt_check (t.proof, (size_t)t.proof_len, t.record[1], strlen (t.record[1]), &t.vkey,
				  &receipt, NULL),
		-ENC_EINTEGRITY);
	t.record[1][8] ^= 1;
	for (ssize_t i = 0; i < t.proof_len; i++) {
		t.proof[i] ^= 1;
		assert_true (enc_receipt_check (t.proof, (size_t)t.proof_len, t.record[1], strlen (t.record[1]),
				     &t.vkey, &receipt, NULL) < 0);
		t.proof[i] ^= 1;
	}
}

static void a_record_that_lies_about_its_place_gets_no_receipt (void **state)
{
	struct enc_receipt receipt;
	struct tiny t;

	(void)state;
	make_tiny (&t, 1);
	/* A log that signs such records at all: the proof holds, the record does not name its index or log. */
	for (int variant = 0; variant < 2; variant++) {
		static const char *const lies[] = { "{\"idx\":2,\"origin\":\"lab.example/log\"}",
			"{\"idx\":0,\"origin\":\"lab.example/lab\"}" };
		struct enc_sign_key *key = make_key (seed, "lab.example/log", &t.vkey);
		struct enc_proof proof = { .index = 0 };
		struct enc_tree_head head = { .size = 1 };
		char checkpoint[ENC_CHECKPOINT_MAX];

		enc_hash_leaf (lies[variant], strlen (lies[variant]), &head.root);
		proof.checkpoint_len =
			(size_t)enc_checkpoint_sign (&head, &t.vkey, key, checkpoint, sizeof (checkpoint), NULL);
		proof.checkpoint = checkpoint;
		t.proof_len = enc_proof_format (&proof, t.proof, sizeof (t.proof), NULL);
		assert_int_equal (enc_receipt_check (t.proof, (size_t)t.proof_len, lies[variant],
					  strlen (lies[variant]), &t.vkey, &receipt, NULL),
			-ENC_EINTEGRITY);
		enc_sign_key_free (key);
	}
}

static void an_extra_line_is_skipped_and_bad_proofs_are_refused (void **state)
{
	static const char *const bad[] = { "", "c2sp.org/tlog-proof@v1", "c2sp.org/tlog-proof@v1\n",
		"c2sp.org/tlog-proof@v1\nindex 01\n\nx\n", "c2sp.org/tlog-proof@v1\nindex -1\n\nx\n",
		"c2sp.org/tlog-proof@v1\nindex 1\n", "c2sp.org/tlog-proof@v1\nindex 1\n\n",
		"c2sp.org/tlog-proof@v1\nindex 1\nAAAA\n\nx\n", "c2sp.org/tlog-proof@v2\nindex 1\n\nx\n" };
	static const char extra[] = "c2sp.org/tlog-proof@v1\nextra AAAA\nindex 7\n\nnote\n";
	struct enc_proof proof;

	(void)state;
	assert_int_equal (enc_proof_parse (extra, strlen (extra), &proof, NULL), 0);
	assert_int_equal (proof.index, 7);
	assert_int_equal (proof.checkpoint_len, 5);
	for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++)
		assert_int_equal (enc_proof_parse (bad[i], strlen (bad[i]), &proof, NULL), -ENC_EINVAL);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (hashes_have_known_answers),
		cmocka_unit_test (base64_has_one_spelling),
		cmocka_unit_test (a_note_of_another_implementation_holds),
		cmocka_unit_test (a_vkey_with_another_key_id_is_refused),
		cmocka_unit_test (p256_keys_are_refused_until_they_are_supported),
		cmocka_unit_test (notes_that_are_not_notes_are_refused),
		cmocka_unit_test (a_checkpoint_holds_only_for_its_log_key_and_bytes),
		cmocka_unit_test (a_wrong_signature_by_a_known_key_spoils_the_note),
		cmocka_unit_test (invariant_03_a_receipt_is_for_one_record_at_one_place),
		cmocka_unit_test (a_record_that_lies_about_its_place_gets_no_receipt),
		cmocka_unit_test (an_extra_line_is_skipped_and_bad_proofs_are_refused),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
