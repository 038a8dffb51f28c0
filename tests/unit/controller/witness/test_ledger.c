/* The witness's memory: what it cosigns, what it refuses and with which status, and what survives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "controller/witness/ledger.h"
#include "crypto/tlog/tree.h"

#define LEAVES 40
#define NOW 1700000000

struct world {
	char folder[64];
	struct enc_sign_key *key;
	struct enc_vkey log;
	struct enc_ledger *ledger;
	struct enc_hash leaf[2][LEAVES]; /* of two branches that part at leaf 20 */
	int branch;
};

/* RFC 6962 by its definition, so that the code under test does not prove itself. */
static struct enc_hash mth (const struct enc_hash *leaf, uint64_t n)
{
	struct enc_hash left, right, root;
	uint64_t k = 1;

	if (n == 0) {
		enc_hash_empty (&root);
		return root;
	}
	if (n == 1)
		return *leaf;
	while (k * 2 < n)
		k *= 2;
	left = mth (leaf, k);
	right = mth (leaf + k, n - k);
	enc_hash_node (&left, &right, &root);
	return root;
}

static int read_node (unsigned level, uint64_t index, struct enc_hash *ret, void *arg)
{
	struct world *w = arg;

	*ret = mth (w->leaf[w->branch] + (index << level), (uint64_t)1 << level);
	return 0;
}

static void open_ledger (struct world *w)
{
	struct enc_error err = { 0 };

	w->ledger = enc_ledger_open (w->folder, "w1.example", &w->log, 1, &err);
	if (!w->ledger)
		fail_msg ("%s", err.text);
}

static int setup (void **state)
{
	struct world *w = calloc (1, sizeof (*w));

	(void)snprintf (w->folder, sizeof (w->folder), "/tmp/enc-ledger-XXXXXX");
	if (!mkdtemp (w->folder))
		return -1;
	w->key = enc_sign_key_new (ENC_SIGN_ED25519, NULL, NULL);
	assert_int_equal (enc_vkey_init (&w->log, "test.example/log", enc_sign_key_pub (w->key), NULL), 0);
	for (int b = 0; b < 2; b++)
		for (int i = 0; i < LEAVES; i++) {
			char body[32];
			int n = snprintf (body, sizeof (body), "%d-%d", i < 20 ? 0 : b, i);

			enc_hash_leaf (body, (size_t)n, &w->leaf[b][i]);
		}
	open_ledger (w);
	*state = w;
	return 0;
}

static int teardown (void **state)
{
	struct world *w = *state;
	int rc;

	enc_ledger_free (w->ledger);
	rc = enc_remove_tree (AT_FDCWD, w->folder, (uid_t)-1, NULL, NULL);
	enc_sign_key_free (w->key);
	free (w);
	return rc;
}

static size_t make_body (struct world *w, uint64_t old, uint64_t from, uint64_t to, char *out, size_t size)
{
	struct enc_tree_head head = { .size = to, .root = mth (w->leaf[w->branch], to) };
	struct enc_tree_reader reader = { read_node, w };
	struct enc_path path = { 0 };
	size_t used = (size_t)snprintf (out, size, "old %llu\n", (unsigned long long)old);

	if (from > 0 && from < to)
		assert_int_equal (enc_tree_prove_grown (from, to, &reader, &path, NULL), 0);
	for (size_t i = 0; i < path.n; i++) {
		enc_hash_b64 (&path.hash[i], out + used);
		used += ENC_HASH_B64_SIZE - 1;
		out[used++] = '\n';
	}
	out[used++] = '\n';
	return used + (size_t)enc_checkpoint_sign (&head, &w->log, w->key, out + used, size - used, NULL);
}

static struct enc_ledger_answer add (struct world *w, uint64_t old, uint64_t to)
{
	char body[8192];
	size_t len = make_body (w, old, old, to, body, sizeof (body));
	struct enc_ledger_answer answer;

	enc_ledger_add (w->ledger, body, len, NOW, &answer, NULL);
	return answer;
}

static void what_continues_is_cosigned_and_the_line_holds (void **state)
{
	struct world *w = *state;
	char text[4096];
	struct enc_tree_head head;
	struct enc_note note;
	uint64_t time = 0;

	for (uint64_t size = 0; size < LEAVES; size += size < 5 ? 1 : 7) {
		struct enc_ledger_answer answer = add (w, size == 0 ? 0 : size <= 5 ? size - 1 : size - 7, size);

		assert_int_equal (answer.status, 200);
		assert_int_equal (add (w, size, size).status, 200); /* the same again gets a fresh time */
		head = (struct enc_tree_head){ size, mth (w->leaf[0], size) };
		ssize_t n = enc_checkpoint_sign (&head, &w->log, w->key, text, sizeof (text), NULL);

		(void)snprintf (text + n, sizeof (text) - (size_t)n, "%s", answer.text);
		assert_int_equal (enc_note_parse (text, strlen (text), &note, NULL), 0);
		assert_int_equal (enc_cosign_check (&note, enc_ledger_vkey (w->ledger), &time, NULL), 0);
		assert_int_equal (time, NOW);
	}
}

static void a_fork_is_refused (void **state)
{
	struct world *w = *state;

	assert_int_equal (add (w, 0, 25).status, 200);
	w->branch = 1;
	assert_int_equal (add (w, 25, 25).status, 409);
	assert_int_equal (add (w, 25, 30).status, 422);
	assert_int_equal (add (w, 19, 30).status, 409);
	w->branch = 0;
	assert_int_equal (add (w, 25, 30).status, 200);
}

static void a_rollback_is_refused_and_the_size_is_told (void **state)
{
	struct world *w = *state;
	struct enc_ledger_answer answer;

	assert_int_equal (add (w, 0, 30).status, 200);
	answer = add (w, 10, 20);
	assert_int_equal (answer.status, 409);
	assert_string_equal (answer.text, "30\n");
	assert_int_equal (add (w, 30, 20).status, 400);
	assert_int_equal (add (w, 0, 35).status, 409);
}

static void the_memory_survives_a_restart (void **state)
{
	struct world *w = *state;

	assert_int_equal (add (w, 0, 30).status, 200);
	enc_ledger_free (w->ledger);
	open_ledger (w);
	assert_int_equal (add (w, 0, 30).status, 409);
	w->branch = 1;
	assert_int_equal (add (w, 30, 35).status, 422);
	w->branch = 0;
	assert_int_equal (add (w, 30, 35).status, 200);
}

static void refused (struct world *w, enum enc_code code)
{
	struct enc_error err = { 0 };

	assert_null (enc_ledger_open (w->folder, "w1.example", &w->log, 1, &err));
	assert_int_equal (err.code, code);
}

/* A witness that forgot what it cosigned would cosign a fork. */
static void a_damaged_memory_stops_the_witness (void **state)
{
	struct world *w = *state;
	char path[256], name[80] = "";
	struct enc_hash hash;
	char hex[ENC_HASH_HEX_SIZE];
	int fd;

	assert_int_equal (add (w, 0, 30).status, 200);
	refused (w, ENC_EBUSY);
	enc_ledger_free (ENC_TAKE (w->ledger));
	enc_sha256 ("test.example/log", 16, &hash);
	enc_hash_hex (&hash, hex);
	(void)snprintf (name, sizeof (name), "log-%s", hex);
	(void)snprintf (path, sizeof (path), "%s/%s", w->folder, name);
	fd = open (path, O_WRONLY);
	assert_int_equal (pwrite (fd, "u", 1, 0), 1);
	refused (w, ENC_EINTEGRITY);
	assert_int_equal (pwrite (fd, "t", 1, 0), 1);
	(void)close (fd);
	(void)snprintf (path, sizeof (path), "%s/key", w->folder);
	assert_int_equal (unlink (path), 0);
	refused (w, ENC_EINTEGRITY);
}

static void bad_requests_change_nothing (void **state)
{
	static const char *const bad[] = { "", "old 0\n", "old 00\n\nx\n", "old -1\n\nx\n", "old 0\nAAAA\n\nx\n", "old 18446744073709551616\n\nx\n",
		"OLD 0\n\nx\n", "old 0\n\n", "old 0\r\n\nx\n" };
	struct world *w = *state;
	struct enc_ledger_answer answer;
	char body[8192];
	size_t len;

	for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++) {
		enc_ledger_add (w->ledger, bad[i], strlen (bad[i]), NOW, &answer, NULL);
		assert_true (answer.status == 400 || answer.status == 404);
	}
	/* More lines of proof than any tree has. */
	len = (size_t)snprintf (body, sizeof (body), "old 0\n");
	for (int i = 0; i < 64; i++)
		len += (size_t)snprintf (body + len, sizeof (body) - len, "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n");
	len += (size_t)snprintf (body + len, sizeof (body) - len, "\ntest.example/log\n");
	enc_ledger_add (w->ledger, body, len, NOW, &answer, NULL);
	assert_int_equal (answer.status, 400);
	/* A proof where none is due. */
	len = make_body (w, 0, 3, 5, body, sizeof (body));
	enc_ledger_add (w->ledger, body, len, NOW, &answer, NULL);
	assert_int_equal (answer.status, 422);
	assert_int_equal (add (w, 0, 5).status, 200);
}

static void strangers_logs_and_keys_are_told_apart (void **state)
{
	struct world *w = *state;
	struct enc_sign_key *other = enc_sign_key_new (ENC_SIGN_ED25519, NULL, NULL), *own = w->key;
	struct enc_vkey known = w->log;

	w->key = other;
	assert_int_equal (enc_vkey_init (&w->log, "test.example/log", enc_sign_key_pub (other), NULL), 0);
	assert_int_equal (add (w, 0, 5).status, 403);
	assert_int_equal (enc_vkey_init (&w->log, "test.example/other", enc_sign_key_pub (other), NULL), 0);
	assert_int_equal (add (w, 0, 5).status, 404);
	w->key = own;
	w->log = known;
	assert_int_equal (add (w, 0, 5).status, 200);
	enc_sign_key_free (other);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown (what_continues_is_cosigned_and_the_line_holds, setup, teardown),
		cmocka_unit_test_setup_teardown (a_fork_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown (a_rollback_is_refused_and_the_size_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown (the_memory_survives_a_restart, setup, teardown),
		cmocka_unit_test_setup_teardown (a_damaged_memory_stops_the_witness, setup, teardown),
		cmocka_unit_test_setup_teardown (bad_requests_change_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown (strangers_logs_and_keys_are_told_apart, setup, teardown),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
