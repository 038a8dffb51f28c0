/* Tiles: paths to the letter, the files of a tree of 70,000 leaves, and proofs
 * read back from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "crypto/tlog/tile.h"

static char folder[] = "/tmp/enc-tile-XXXXXX";
static int dirfd_;

static int setup (void **state)
{
	(void)state;
	if (!mkdtemp (folder))
		return -1;
	dirfd_ = open (folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dirfd_ < 0 ? -1 : 0;
}

static int teardown (void **state)
{
	(void)state;
	int rc = enc_remove_tree (AT_FDCWD, folder, (uid_t)-1, NULL, NULL);

	return rc < 0 ? -1 : close (dirfd_);
}

static void paths_are_those_of_the_format (void **state)
{
	char path[ENC_TILE_PATH_SIZE];

	(void)state;
	enc_tile_path (0, 1234067, 256, path);
	assert_string_equal (path, "tile/0/x001/x234/067");
	enc_tile_path (3, 0, 256, path);
	assert_string_equal (path, "tile/3/000");
	enc_tile_path (1, 5, 17, path);
	assert_string_equal (path, "tile/1/005.p/17");
	enc_tile_path (0, 1000, 256, path);
	assert_string_equal (path, "tile/0/x001/000");
	enc_tile_path (63, UINT64_MAX / 256, 255, path);
	assert_string_equal (path, "tile/63/x072/x057/x594/x037/x927/935.p/255");
}

static struct enc_hash leaf_of (uint64_t i)
{
	struct enc_hash hash;

	enc_hash_leaf (&i, sizeof (i), &hash);
	return hash;
}

static long size_of (unsigned level, uint64_t n, unsigned width)
{
	char path[ENC_TILE_PATH_SIZE];
	struct stat st;

	enc_tile_path (level, n, width, path);
	return fstatat (dirfd_, path, &st, 0) < 0 ? -1 : (long)st.st_size;
}

static struct enc_tree build (uint64_t size, uint64_t flush_every)
{
	struct enc_tiles *tiles = enc_tiles_new (dirfd_, 1);
	struct enc_tree tree;

	enc_tree_init (&tree);
	for (uint64_t i = 0; i < size; i++) {
		struct enc_hash leaf = leaf_of (i);

		assert_int_equal (enc_tree_append (&tree, &leaf, enc_tiles_node, tiles), 0);
		if (i % flush_every == flush_every - 1)
			assert_int_equal (enc_tiles_flush (tiles, tree.size, NULL), 0);
	}
	assert_int_equal (enc_tiles_flush (tiles, tree.size, NULL), 0);
	enc_tiles_free (tiles);
	return tree;
}

static void a_tree_of_70000_has_the_tiles_of_the_format (void **state)
{
	struct enc_tree tree = build (70000, 9999);

	(void)state;
	for (uint64_t n = 0; n < 273; n++)
		assert_int_equal (size_of (0, n, 256), 8192);
	assert_int_equal (size_of (0, 273, 112), 112 * 32);
	assert_int_equal (size_of (0, 273, 256), -1);
	assert_int_equal (size_of (1, 0, 256), 8192);
	assert_int_equal (size_of (1, 1, 17), 17 * 32);
	assert_int_equal (size_of (2, 0, 1), 32);
	assert_int_equal (size_of (3, 0, 1), -1);
	/* Partial tiles go when the full one is there. */
	assert_int_equal (size_of (0, 39, 9999 % 256), -1);
	assert_int_equal (tree.size, 70000);
}

static void proofs_and_right_edges_come_back_from_tiles (void **state)
{
	static const uint64_t asked[] = { 0, 1, 255, 256, 257, 65535, 65536, 69887, 69888, 69999 };
	struct enc_tiles *tiles = enc_tiles_new (dirfd_, 0);
	struct enc_tree_reader reader = { enc_tiles_read, tiles };
	struct enc_tree tree;
	struct enc_tree_head now = { .size = 70000 };

	(void)state;
	enc_tiles_set_size (tiles, 70000);
	assert_int_equal (enc_tree_load (&tree, 70000, &reader, NULL), 0);
	enc_tree_root (&tree, &now.root);
	for (size_t i = 0; i < sizeof (asked) / sizeof (asked[0]); i++) {
		struct enc_hash leaf = leaf_of (asked[i]);
		struct enc_path path;

		assert_int_equal (enc_tree_prove (asked[i], 70000, &reader, &path, NULL), 0);
		assert_int_equal (enc_tree_check (asked[i], 70000, &leaf, &path, &now.root), 0);
	}
	assert_int_equal (enc_tiles_read (0, 70000, &now.root, tiles), -ENC_EINVAL);
	enc_tiles_free (tiles);
}

static void appending_goes_on_after_a_load (void **state)
{
	struct enc_tiles *tiles = enc_tiles_new (dirfd_, 1);
	struct enc_tree_reader reader = { enc_tiles_read, tiles };
	struct enc_hash want, got;
	struct enc_tree tree, whole;

	(void)state;
	assert_int_equal (enc_tiles_load (tiles, 70000, NULL), 0);
	assert_int_equal (enc_tree_load (&tree, 70000, &reader, NULL), 0);
	for (uint64_t i = 70000; i < 70500; i++) {
		struct enc_hash leaf = leaf_of (i);

		assert_int_equal (enc_tree_append (&tree, &leaf, enc_tiles_node, tiles), 0);
	}
	assert_int_equal (enc_tiles_flush (tiles, 70500, NULL), 0);
	enc_tree_init (&whole);
	for (uint64_t i = 0; i < 70500; i++) {
		struct enc_hash leaf = leaf_of (i);

		assert_int_equal (enc_tree_append (&whole, &leaf, NULL, NULL), 0);
	}
	enc_tree_root (&tree, &got);
	enc_tree_root (&whole, &want);
	assert_true (enc_hash_equal (&want, &got));
	assert_int_equal (size_of (0, 273, 256), 8192);
	assert_int_equal (size_of (0, 275, 100), 3200);
	enc_tiles_free (tiles);
}

static void a_lost_or_short_tile_is_reported_and_never_made_up (void **state)
{
	struct enc_tiles *tiles = enc_tiles_new (dirfd_, 0);
	struct enc_hash hash;
	int fd;

	(void)state;
	enc_tiles_set_size (tiles, 70500);
	assert_int_equal (unlinkat (dirfd_, "tile/0/005", 0), 0);
	assert_int_equal (enc_tiles_read (0, 5 * 256, &hash, tiles), -ENC_ENOTFOUND);
	fd = openat (dirfd_, "tile/0/006", O_WRONLY | O_CLOEXEC);
	assert_true (fd >= 0 && ftruncate (fd, 8000) == 0 && close (fd) == 0);
	assert_int_equal (enc_tiles_read (0, 6 * 256, &hash, tiles), -ENC_ENOTFOUND);
	enc_tiles_free (tiles);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (paths_are_those_of_the_format),
		cmocka_unit_test (a_tree_of_70000_has_the_tiles_of_the_format),
		cmocka_unit_test (proofs_and_right_edges_come_back_from_tiles),
		cmocka_unit_test (appending_goes_on_after_a_load),
		cmocka_unit_test (a_lost_or_short_tile_is_reported_and_never_made_up),
	};

	return cmocka_run_group_tests (tests, setup, teardown);
}
