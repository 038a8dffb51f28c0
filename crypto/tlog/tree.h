#ifndef ENC_CRYPTO_TLOG_TREE_H
#define ENC_CRYPTO_TLOG_TREE_H

#include "base/error.h"
#include "crypto/hash.h"

/* RFC 6962 Merkle tree. A *node* (level, index) is the hash of the complete
 * subtree over leaves [index << level, (index + 1) << level). Sizes and
 * indexes stay below 2^62. */

#define ENC_TREE_LEVELS 63
#define ENC_TREE_SIZE_MAX ((uint64_t)1 << 62)

/* The right edge: all that is needed to append and to know the root. Bit k of
 * `size` set means that edge[k] is the node that ends there. */
struct enc_tree {
	uint64_t size;
	struct enc_hash edge[ENC_TREE_LEVELS];
};

/* Called for every node that an append completes, leaf first, so that tiles
 * can be written. Returns 0, or a negative code that ends the append. */
typedef int (*enc_tree_node_fn) (unsigned level, uint64_t index, const struct enc_hash *hash, void *arg);

/* Reads one node of a tree. Returns 0, or a negative enum enc_code. */
typedef int (*enc_tree_read_fn) (unsigned level, uint64_t index, struct enc_hash *ret, void *arg);

struct enc_tree_reader {
	enc_tree_read_fn read;
	void *arg;
};

void enc_tree_init (struct enc_tree *tree);

/* Append one leaf hash. `fn` may be NULL. Returns 0 or what `fn` returned; the
 * tree is then unchanged. */
int enc_tree_append (struct enc_tree *tree, const struct enc_hash *leaf, enc_tree_node_fn fn, void *arg);
void enc_tree_root (const struct enc_tree *tree, struct enc_hash *ret);

/* Rebuild the right edge of the tree of `size` leaves from its nodes. */
int enc_tree_load (
	struct enc_tree *tree, uint64_t size, const struct enc_tree_reader *reader, struct enc_error *err) ENC_MUST_USE;

/* A list of hashes: an inclusion proof has at most 62, a consistency proof 63. */
struct enc_path {
	size_t n;
	struct enc_hash hash[ENC_TREE_LEVELS + 1];
};

/* Make the proof that leaf `index` is in the tree of `size` leaves, or that
 * the tree of `size2` continues the one of `size1` (0 < size1 <= size2).
 * ENC_EINVAL when the numbers make no sense, else what the reader says. */
int enc_tree_prove (uint64_t index, uint64_t size, const struct enc_tree_reader *reader, struct enc_path *ret,
	struct enc_error *err) ENC_MUST_USE;
int enc_tree_prove_grown (uint64_t size1, uint64_t size2, const struct enc_tree_reader *reader, struct enc_path *ret,
	struct enc_error *err) ENC_MUST_USE;

/* Check such proofs. Return 0, or -ENC_EINTEGRITY. */
int enc_tree_check (uint64_t index, uint64_t size, const struct enc_hash *leaf, const struct enc_path *path,
	const struct enc_hash *root) ENC_MUST_USE;

struct enc_tree_head {
	uint64_t size;
	struct enc_hash root;
};
int enc_tree_check_grown (
	const struct enc_tree_head *old, const struct enc_tree_head *now, const struct enc_path *path) ENC_MUST_USE;

#endif
