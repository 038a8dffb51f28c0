/* RFC 6962 trees: the right edge, and proofs over a reader of nodes. Proofs
 * are checked by the algorithms of RFC 9162, sections 2.1.3.2 and 2.1.4.2. */
#include "crypto/tlog/tree.h"

#include <string.h>

#include "base/enc.h"

void enc_tree_init (struct enc_tree *tree)
{
	memset (tree, 0, sizeof (*tree));
}

int enc_tree_append (struct enc_tree *tree, const struct enc_hash *leaf, enc_tree_node_fn fn, void *arg)
{
	struct enc_hash node = *leaf;
	uint64_t index = tree->size;
	unsigned level = 0;

	if (tree->size >= ENC_TREE_SIZE_MAX)
		return -ENC_EINVAL;
	for (;;) {
		int rc = fn ? fn (level, index, &node, arg) : 0;

		if (rc < 0)
			return rc;
		if (!(index & 1))
			break;
		enc_hash_node (&tree->edge[level], &node, &node);
		index >>= 1;
		level++;
	}
	tree->edge[level] = node;
	tree->size++;
	return 0;
}

void enc_tree_root (const struct enc_tree *tree, struct enc_hash *ret)
{
	struct enc_hash root;
	int have = 0;

	if (tree->size == 0) {
		enc_hash_empty (ret);
		return;
	}
	for (unsigned level = 0; level < ENC_TREE_LEVELS; level++) {
		if (!(tree->size >> level & 1))
			continue;
		if (have)
			enc_hash_node (&tree->edge[level], &root, &root);
		else
			root = tree->edge[level];
		have = 1;
	}
	*ret = root;
}

static int read_node (const struct enc_tree_reader *reader, unsigned level, uint64_t index, struct enc_hash *ret)
{
	return reader->read (level, index, ret, reader->arg);
}

int enc_tree_load (struct enc_tree *tree, uint64_t size, const struct enc_tree_reader *reader, struct enc_error *err)
{
	struct enc_tree made;

	if (size > ENC_TREE_SIZE_MAX)
		return enc_fail (err, ENC_EINVAL, "tree size out of range");
	enc_tree_init (&made);
	made.size = size;
	for (unsigned level = 0; level < ENC_TREE_LEVELS; level++) {
		int rc;

		if (!(size >> level & 1))
			continue;
		rc = read_node (reader, level, (size >> level) - 1, &made.edge[level]);
		if (rc < 0)
			return enc_fail (err, (enum enc_code) - rc, "tree node at level %u is not readable", level);
	}
	*tree = made;
	return 0;
}

/* The level of the largest complete subtree strictly inside n leaves:
 * 2^k < n <= 2^(k+1), n > 1. */
static unsigned split_level (uint64_t n)
{
	return 63 - (unsigned)__builtin_clzll (n - 1);
}

/* The hash over leaves [lo, lo + n). `lo` is a multiple of the largest power of
 * two <= n, which holds for every subtree that the RFC's recursion meets. */
static int range_hash (const struct enc_tree_reader *reader, uint64_t lo, uint64_t n, struct enc_hash *ret)
{
	struct enc_hash sum = { { 0 } };
	uint64_t end = lo + n;
	int have = 0;

	for (unsigned level = 0; n > 0; level++) {
		struct enc_hash node;
		int rc;

		if (!(n >> level & 1))
			continue;
		rc = read_node (reader, level, (end >> level) - 1, &node);
		if (rc < 0)
			return rc;
		if (have)
			enc_hash_node (&node, &sum, &sum);
		else
			sum = node;
		have = 1;
		n -= (uint64_t)1 << level;
		end -= (uint64_t)1 << level;
	}
	*ret = sum;
	return 0;
}

/* The walk from the root towards a leaf collects siblings from the top; proofs
 * list them from the bottom. */
static void path_reverse (struct enc_path *path)
{
	for (size_t i = 0; i < path->n / 2; i++) {
		struct enc_hash swap = path->hash[i];

		path->hash[i] = path->hash[path->n - 1 - i];
		path->hash[path->n - 1 - i] = swap;
	}
}

static int path_add (struct enc_path *path, const struct enc_tree_reader *reader, uint64_t lo, uint64_t n)
{
	int rc = range_hash (reader, lo, n, &path->hash[path->n]);

	if (rc == 0)
		path->n++;
	return rc;
}

int enc_tree_prove (uint64_t index, uint64_t size, const struct enc_tree_reader *reader, struct enc_path *ret,
	struct enc_error *err)
{
	struct enc_path path = { 0 };
	uint64_t lo = 0;
	uint64_t n = size;

	if (size > ENC_TREE_SIZE_MAX || index >= size)
		return enc_fail (err, ENC_EINVAL, "no leaf %llu in a tree of %llu", (unsigned long long)index,
			(unsigned long long)size);
	while (n > 1) {
		uint64_t k = (uint64_t)1 << split_level (n);
		int right = index - lo >= k;
		int rc = right ? path_add (&path, reader, lo, k) : path_add (&path, reader, lo + k, n - k);

		if (rc < 0)
			return enc_fail (err, (enum enc_code) - rc, "a node of the proof for leaf %llu is not readable",
				(unsigned long long)index);
		lo += right ? k : 0;
		n = right ? n - k : k;
	}
	path_reverse (&path);
	*ret = path;
	return 0;
}

int enc_tree_prove_grown (uint64_t size1, uint64_t size2, const struct enc_tree_reader *reader, struct enc_path *ret,
	struct enc_error *err)
{
	struct enc_path path = { 0 };
	uint64_t lo = 0;
	uint64_t n = size2;
	int rc = 0;

	if (size1 == 0 || size1 > size2 || size2 > ENC_TREE_SIZE_MAX)
		return enc_fail (err, ENC_EINVAL, "no consistency proof from %llu to %llu", (unsigned long long)size1,
			(unsigned long long)size2);
	while (rc == 0 && lo + n != size1) {
		uint64_t k = (uint64_t)1 << split_level (n);
		int right = size1 - lo > k;

		rc = right ? path_add (&path, reader, lo, k) : path_add (&path, reader, lo + k, n - k);
		lo += right ? k : 0;
		n = right ? n - k : k;
	}
	/* The old root itself is known to whoever checks, so it is not listed. */
	if (rc == 0 && lo != 0)
		rc = path_add (&path, reader, lo, n);
	if (rc < 0)
		return enc_fail (err, (enum enc_code) - rc, "a node of the consistency proof is not readable");
	path_reverse (&path);
	*ret = path;
	return 0;
}

int enc_tree_check (uint64_t index, uint64_t size, const struct enc_hash *leaf, const struct enc_path *path,
	const struct enc_hash *root)
{
	struct enc_hash sum = *leaf;
	uint64_t fn = index;
	uint64_t sn = size - 1;

	if (size > ENC_TREE_SIZE_MAX || index >= size)
		return -ENC_EINTEGRITY;
	for (size_t i = 0; i < path->n; i++) {
		if (sn == 0)
			return -ENC_EINTEGRITY;
		if ((fn & 1) || fn == sn) {
			enc_hash_node (&path->hash[i], &sum, &sum);
			while (!(fn & 1) && fn != 0) {
				fn >>= 1;
				sn >>= 1;
			}
		} else {
			enc_hash_node (&sum, &path->hash[i], &sum);
		}
		fn >>= 1;
		sn >>= 1;
	}
	return sn == 0 && enc_hash_equal (&sum, root) ? 0 : -ENC_EINTEGRITY;
}

/* The loop of RFC 9162 section 2.1.4.2 for 0 < old < now; `path` starts with
 * the seed, index 0. */
static int check_grown (const struct enc_tree_head *old, const struct enc_tree_head *now, const struct enc_path *path)
{
	struct enc_hash fr = path->hash[0];
	struct enc_hash sr = path->hash[0];
	uint64_t fn = old->size - 1;
	uint64_t sn = now->size - 1;

	while (fn & 1) {
		fn >>= 1;
		sn >>= 1;
	}
	for (size_t i = 1; i < path->n; i++) {
		if (sn == 0)
			return -ENC_EINTEGRITY;
		if ((fn & 1) || fn == sn) {
			enc_hash_node (&path->hash[i], &fr, &fr);
			enc_hash_node (&path->hash[i], &sr, &sr);
			while (!(fn & 1) && fn != 0) {
				fn >>= 1;
				sn >>= 1;
			}
		} else {
			enc_hash_node (&sr, &path->hash[i], &sr);
		}
		fn >>= 1;
		sn >>= 1;
	}
	return sn == 0 && enc_hash_equal (&fr, &old->root) && enc_hash_equal (&sr, &now->root) ? 0 : -ENC_EINTEGRITY;
}

int enc_tree_check_grown (const struct enc_tree_head *old, const struct enc_tree_head *now, const struct enc_path *path)
{
	struct enc_path seeded;

	if (old->size == 0 || old->size > now->size || now->size > ENC_TREE_SIZE_MAX)
		return -ENC_EINTEGRITY;
	if (old->size == now->size)
		return path->n == 0 && enc_hash_equal (&old->root, &now->root) ? 0 : -ENC_EINTEGRITY;
	if (path->n == 0)
		return -ENC_EINTEGRITY;
	if (old->size & (old->size - 1))
		return check_grown (old, now, path);
	/* A power of two: the old root is itself the seed. */
	if (path->n >= ENC_TREE_LEVELS + 1)
		return -ENC_EINTEGRITY;
	seeded.n = path->n + 1;
	seeded.hash[0] = old->root;
	memcpy (&seeded.hash[1], path->hash, path->n * sizeof (path->hash[0]));
	return check_grown (old, now, &seeded);
}
