/* Trees: roots, proofs and their checks against the definition in RFC 6962, and
 * against other people's test data where it is present. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crypto/tlog/tree.h"

#define LEAVES 130

struct world {
	struct enc_hash leaf[LEAVES];
};

/* The definition, as slow as it reads. */
static struct enc_hash mth (const struct enc_hash *leaf, uint64_t n)
{
	struct enc_hash left, right, out;
	uint64_t k = 1;

	if (n == 0) {
		enc_hash_empty (&out);
		return out;
	}
	if (n == 1)
		return leaf[0];
	while (k * 2 < n)
		k *= 2;
	left = mth (leaf, k);
	right = mth (leaf + k, n - k);
	enc_hash_node (&left, &right, &out);
	return out;
}

static int read_node (unsigned level, uint64_t index, struct enc_hash *ret, void *arg)
{
	const struct world *w = arg;

	assert_true (((index + 1) << level) <= LEAVES);
	*ret = mth (w->leaf + (index << level), (uint64_t)1 << level);
	return 0;
}

static struct world *make_world (void)
{
	struct world *w = calloc (1, sizeof (*w));

	assert_non_null (w);
	for (unsigned i = 0; i < LEAVES; i++)
		enc_hash_leaf (&i, sizeof (i), &w->leaf[i]);
	return w;
}

static void incremental_root_equals_the_definition (void **state)
{
	struct world *w = make_world ();
	struct enc_tree tree;

	(void)state;
	enc_tree_init (&tree);
	for (uint64_t n = 0; n <= LEAVES; n++) {
		struct enc_hash want = mth (w->leaf, n);
		struct enc_hash got;

		enc_tree_root (&tree, &got);
		assert_int_equal (tree.size, n);
		assert_true (enc_hash_equal (&want, &got));
		if (n < LEAVES)
			assert_int_equal (enc_tree_append (&tree, &w->leaf[n], NULL, NULL), 0);
	}
	free (w);
}

static void right_edge_is_rebuilt_from_nodes (void **state)
{
	struct world *w = make_world ();
	struct enc_tree_reader reader = { read_node, w };

	(void)state;
	for (uint64_t n = 0; n <= LEAVES; n++) {
		struct enc_hash want = mth (w->leaf, n);
		struct enc_tree tree;
		struct enc_hash got;

		assert_int_equal (enc_tree_load (&tree, n, &reader, NULL), 0);
		enc_tree_root (&tree, &got);
		assert_true (enc_hash_equal (&want, &got));
	}
	free (w);
}

static void every_inclusion_proof_holds_and_no_other_leaf_does (void **state)
{
	struct world *w = make_world ();
	struct enc_tree_reader reader = { read_node, w };

	(void)state;
	for (uint64_t n = 1; n <= LEAVES; n += n < 70 ? 1 : 13)
		for (uint64_t i = 0; i < n; i++) {
			struct enc_hash root = mth (w->leaf, n);
			struct enc_path path;

			assert_int_equal (enc_tree_prove (i, n, &reader, &path, NULL), 0);
			assert_int_equal (enc_tree_check (i, n, &w->leaf[i], &path, &root), 0);
			assert_int_equal (
				enc_tree_check (i, n, &w->leaf[(i + 1) % LEAVES], &path, &root), -ENC_EINTEGRITY);
			if (n > 1)
				assert_int_equal (
					enc_tree_check (i ^ 1, n, &w->leaf[i], &path, &root), -ENC_EINTEGRITY);
			if (path.n > 0) {
				path.hash[path.n / 2].b[5] ^= 1;
				assert_int_equal (enc_tree_check (i, n, &w->leaf[i], &path, &root), -ENC_EINTEGRITY);
			}
		}
	free (w);
}

static void every_consistency_proof_holds_and_a_fork_does_not (void **state)
{
	struct world *w = make_world ();
	struct enc_tree_reader reader = { read_node, w };

	(void)state;
	for (uint64_t n = 1; n <= LEAVES; n += n < 70 ? 1 : 13)
		for (uint64_t m = 1; m <= n; m++) {
			struct enc_tree_head old = { m, mth (w->leaf, m) };
			struct enc_tree_head now = { n, mth (w->leaf, n) };
			struct enc_path path;

			assert_int_equal (enc_tree_prove_grown (m, n, &reader, &path, NULL), 0);
			assert_int_equal (enc_tree_check_grown (&old, &now, &path), 0);
			old.root.b[31] ^= 1;
			assert_int_equal (enc_tree_check_grown (&old, &now, &path), -ENC_EINTEGRITY);
			old.root.b[31] ^= 1;
			now.root.b[0] ^= 1;
			assert_int_equal (enc_tree_check_grown (&old, &now, &path), -ENC_EINTEGRITY);
		}
	free (w);
}

static void impossible_sizes_are_refused (void **state)
{
	struct enc_hash hash = { { 1 } };
	struct enc_path path = { 0 };
	struct enc_tree_reader reader = { read_node, NULL };

	(void)state;
	assert_int_equal (enc_tree_check (0, 0, &hash, &path, &hash), -ENC_EINTEGRITY);
	assert_int_equal (enc_tree_check (5, 5, &hash, &path, &hash), -ENC_EINTEGRITY);
	assert_int_equal (enc_tree_check (UINT64_MAX, UINT64_MAX, &hash, &path, &hash), -ENC_EINTEGRITY);
	assert_int_equal (enc_tree_prove (3, 3, &reader, &path, NULL), -ENC_EINVAL);
	assert_int_equal (enc_tree_prove_grown (0, 3, &reader, &path, NULL), -ENC_EINVAL);
	assert_int_equal (enc_tree_prove_grown (4, 3, &reader, &path, NULL), -ENC_EINVAL);
}

/* ---- data made by others, in the folder $ENC_TEST_DATA: one flat JSON object a line ---- */

static const char *member (const char *line, const char *key)
{
	char quoted[40];
	const char *p;

	(void)snprintf (quoted, sizeof (quoted), "\"%s\": ", key);
	p = strstr (line, quoted);
	return p ? p + strlen (quoted) : NULL;
}

static int get_hash (const char *line, const char *key, struct enc_hash *ret)
{
	const char *p = member (line, key);

	return p && *p == '"' ? enc_hash_from_b64 (p + 1, strcspn (p + 1, "\""), ret) : -1;
}

static int get_path (const char *line, struct enc_path *ret)
{
	const char *p = member (line, "proof");

	ret->n = 0;
	if (!p || *p != '[')
		return p && strncmp (p, "null", 4) == 0 ? 0 : -1;
	for (p++; *p != ']';) {
		size_t len;

		p += strspn (p, ", \"");
		if (*p == ']' || ret->n == ENC_TREE_LEVELS)
			break;
		len = strcspn (p, "\"");
		if (p[-1] != '"' || enc_hash_from_b64 (p, len, &ret->hash[ret->n++]) < 0)
			return -1;
		p += len + 1;
	}
	/* An empty string in the list is swallowed by the skipping above. */
	return strstr (line, "\"\"") && strstr (line, "\"\"") < strchr (line, ']') ? -1 : 0;
}

static int judge_inclusion (const char *line)
{
	struct enc_hash leaf, root;
	struct enc_path path;

	if (get_hash (line, "leafHash", &leaf) < 0 || get_hash (line, "root", &root) < 0 || get_path (line, &path) < 0)
		return -1;
	return enc_tree_check (strtoull (member (line, "leafIdx"), NULL, 10),
		strtoull (member (line, "treeSize"), NULL, 10), &leaf, &path, &root);
}

static int judge_consistency (const char *line)
{
	struct enc_tree_head old, now;
	struct enc_path path;

	if (get_hash (line, "root1", &old.root) < 0 || get_hash (line, "root2", &now.root) < 0 ||
		get_path (line, &path) < 0)
		return -1;
	old.size = strtoull (member (line, "size1"), NULL, 10);
	now.size = strtoull (member (line, "size2"), NULL, 10);
	return enc_tree_check_grown (&old, &now, &path);
}

static void agree_with_file (const char *name, int (*judge) (const char *))
{
	const char *folder = getenv ("ENC_TEST_DATA");
	char line[16384];
	int lines = 0, good = 0;
	FILE *file;

	(void)snprintf (line, sizeof (line), "%s/%s", folder ? folder : ".", name);
	file = fopen (line, "re");
	if (!file) {
		print_message ("SKIPPED: %s is not in $ENC_TEST_DATA, other people's proofs were NOT tried\n", name);
		skip ();
	}
	while (fgets (line, sizeof (line), file)) {
		int want_good = strncmp (member (line, "wantErr"), "false", 5) == 0;

		if ((judge (line) == 0) != want_good)
			fail_msg ("disagree on %.120s", line);
		lines++;
		good += want_good;
	}
	fclose (file);
	assert_true (lines > 20 && good > 0);
}

static void inclusion_proofs_of_others_agree (void **state)
{
	(void)state;
	agree_with_file ("merkle-inclusion.jsonl", judge_inclusion);
}

static void consistency_proofs_of_others_agree (void **state)
{
	(void)state;
	agree_with_file ("merkle-consistency.jsonl", judge_consistency);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (incremental_root_equals_the_definition),
		cmocka_unit_test (right_edge_is_rebuilt_from_nodes),
		cmocka_unit_test (every_inclusion_proof_holds_and_no_other_leaf_does),
		cmocka_unit_test (every_consistency_proof_holds_and_a_fork_does_not),
		cmocka_unit_test (impossible_sizes_are_refused),
		cmocka_unit_test (inclusion_proofs_of_others_agree),
		cmocka_unit_test (consistency_proofs_of_others_agree),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
