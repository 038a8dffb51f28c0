/* Each level keeps its rightmost tile in memory, so appends and the proofs of
 * recent records touch no file. Older tiles come through a small cache. */
#include "crypto/tlog/tile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/enc.h"

#define CACHE 16

struct tile {
	uint64_t n;
	unsigned width; /* 0: empty */
	unsigned level;
	struct enc_hash hash[ENC_TILE_WIDTH];
};

struct enc_tiles {
	int dirfd;
	int writable;
	uint64_t size;
	struct tile edge[ENC_TILE_LEVELS];
	struct tile cache[CACHE];
};

void enc_tile_path (unsigned level, uint64_t n, unsigned width, char out[static ENC_TILE_PATH_SIZE])
{
	unsigned part[7];
	unsigned count = 0;
	int used = snprintf (out, ENC_TILE_PATH_SIZE, "tile/%u", level);

	do {
		part[count++] = (unsigned)(n % 1000);
		n /= 1000;
	} while (n > 0 && count < ENC_ARRAY_LEN (part));
	while (count-- > 0)
		used += snprintf (
			out + used, ENC_TILE_PATH_SIZE - (size_t)used, count ? "/x%03u" : "/%03u", part[count]);
	if (width < ENC_TILE_WIDTH)
		(void)snprintf (out + used, ENC_TILE_PATH_SIZE - (size_t)used, ".p/%u", width);
}

struct enc_tiles *enc_tiles_new (int dirfd, int writable)
{
	struct enc_tiles *tiles = calloc (1, sizeof (*tiles));

	if (tiles) {
		tiles->dirfd = dirfd;
		tiles->writable = writable;
	}
	return tiles;
}

void enc_tiles_free (struct enc_tiles *tiles)
{
	free (tiles);
}

/* Make the folders above `path`. */
static int make_parents (int dirfd, const char *path)
{
	char part[ENC_TILE_PATH_SIZE];

	for (const char *slash = strchr (path, '/'); slash; slash = strchr (slash + 1, '/')) {
		size_t len = (size_t)(slash - path);

		memcpy (part, path, len);
		part[len] = '\0';
		if (mkdirat (dirfd, part, 0750) < 0 && errno != EEXIST)
			return -1;
	}
	return 0;
}

/* Readers may look at any time, so a tile appears by rename. No fsync: a lost
 * tile is made again from the records. */
static int write_tile (const struct enc_tiles *tiles, const struct tile *tile)
{
	static const char temp[] = "tile/.new";
	char path[ENC_TILE_PATH_SIZE];
	size_t len = tile->width * sizeof (tile->hash[0]);
	enc_auto_close int fd = -1;

	enc_tile_path (tile->level, tile->n, tile->width, path);
	if (make_parents (tiles->dirfd, path) < 0)
		return -1;
	fd = openat (tiles->dirfd, temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0640);
	if (fd < 0 || write (fd, tile->hash, len) != (ssize_t)len)
		return -1;
	return renameat (tiles->dirfd, temp, tiles->dirfd, path);
}

/* Partial tiles that a full one has replaced. Their folder mostly does not exist. */
static void drop_partials (const struct enc_tiles *tiles, const struct tile *tile)
{
	char folder[ENC_TILE_PATH_SIZE];
	char path[ENC_TILE_PATH_SIZE];

	enc_tile_path (tile->level, tile->n, 1, folder);
	*strrchr (folder, '/') = '\0';
	if (unlinkat (tiles->dirfd, folder, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return;
	for (unsigned width = 1; width < ENC_TILE_WIDTH; width++) {
		enc_tile_path (tile->level, tile->n, width, path);
		(void)unlinkat (tiles->dirfd, path, 0);
	}
	(void)unlinkat (tiles->dirfd, folder, AT_REMOVEDIR);
}

int enc_tiles_node (unsigned level, uint64_t index, const struct enc_hash *hash, void *arg)
{
	struct enc_tiles *tiles = arg;
	struct tile *tile = &tiles->edge[level / 8];

	if (level % 8 != 0)
		return 0;
	if (index % ENC_TILE_WIDTH == 0) {
		tile->n = index / ENC_TILE_WIDTH;
		tile->level = level / 8;
		tile->width = 0;
	}
	if (tile->width != index % ENC_TILE_WIDTH)
		return -ENC_EINVAL;
	tile->hash[tile->width++] = *hash;
	if (tile->width < ENC_TILE_WIDTH || !tiles->writable)
		return 0;
	/* The records are durable by now: a tile that cannot be written must not
	 * stop the tree. It is made again when it is missed. */
	if (write_tile (tiles, tile) == 0)
		drop_partials (tiles, tile);
	return 0;
}

void enc_tiles_set_size (struct enc_tiles *tiles, uint64_t size)
{
	/* A partial tile in the cache is too narrow for a larger tree. */
	for (unsigned i = 0; i < CACHE; i++)
		if (tiles->cache[i].width < ENC_TILE_WIDTH)
			tiles->cache[i].width = 0;
	tiles->size = size;
}

int enc_tiles_flush (struct enc_tiles *tiles, uint64_t size, struct enc_error *err)
{
	int rc = 0;

	for (unsigned level = 0; level < ENC_TILE_LEVELS; level++) {
		unsigned width = (unsigned)(size >> (8 * level)) % ENC_TILE_WIDTH;
		struct tile *tile = &tiles->edge[level];

		if (width == 0)
			continue;
		if (tile->width != width)
			return enc_fail (err, ENC_EINVAL, "tiles were not collected for a tree of %llu",
				(unsigned long long)size);
		if (write_tile (tiles, tile) < 0)
			rc = enc_fail_sys (err, "cannot write tile at level %u", level);
	}
	enc_tiles_set_size (tiles, size);
	return rc;
}

/* How many hashes tile n of a level has in the tree of tiles->size leaves. */
static unsigned tile_width (const struct enc_tiles *tiles, unsigned level, uint64_t n)
{
	uint64_t nodes = tiles->size >> (8 * level);
	uint64_t before = n * ENC_TILE_WIDTH;

	if (nodes <= before)
		return 0;
	return nodes - before < ENC_TILE_WIDTH ? (unsigned)(nodes - before) : ENC_TILE_WIDTH;
}

static int read_file (int dirfd, const char *path, struct enc_hash *out, unsigned width)
{
	size_t len = width * sizeof (*out);
	enc_auto_close int fd = openat (dirfd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return errno == ENOENT ? -ENC_ENOTFOUND : -ENC_ESYS;
	return pread (fd, out, len, 0) == (ssize_t)len ? 0 : -ENC_ENOTFOUND;
}

static int load_tile (const struct enc_tiles *tiles, unsigned level, uint64_t n, struct tile *ret)
{
	unsigned width = tile_width (tiles, level, n);
	char path[ENC_TILE_PATH_SIZE];
	int rc;

	ret->width = 0;
	enc_tile_path (level, n, width, path);
	rc = read_file (tiles->dirfd, path, ret->hash, width);
	if (rc == -ENC_ENOTFOUND && width < ENC_TILE_WIDTH) {
		/* The full tile replaces its partial ones. */
		enc_tile_path (level, n, ENC_TILE_WIDTH, path);
		rc = read_file (tiles->dirfd, path, ret->hash, width);
	}
	if (rc < 0)
		return rc;
	ret->level = level;
	ret->n = n;
	ret->width = width;
	return 0;
}

int enc_tiles_load (struct enc_tiles *tiles, uint64_t size, struct enc_error *err)
{
	tiles->size = size;
	memset (tiles->cache, 0, sizeof (tiles->cache));
	for (unsigned level = 0; level < ENC_TILE_LEVELS; level++) {
		uint64_t n = (size >> (8 * level)) / ENC_TILE_WIDTH;
		struct tile *tile = &tiles->edge[level];
		int rc;

		tile->width = 0;
		tile->level = level;
		tile->n = n;
		if (tile_width (tiles, level, n) == 0)
			continue;
		rc = load_tile (tiles, level, n, tile);
		if (rc < 0)
			return enc_fail (
				err, (enum enc_code) - rc, "tile %u/%llu is not there", level, (unsigned long long)n);
	}
	return 0;
}

static const struct tile *find_tile (struct enc_tiles *tiles, unsigned level, uint64_t n, int *rc)
{
	struct tile *tile = &tiles->edge[level];

	*rc = 0;
	if (tile->width > 0 && tile->n == n)
		return tile;
	tile = &tiles->cache[(n * ENC_TILE_LEVELS + level) % CACHE];
	if (tile->width > 0 && tile->level == level && tile->n == n)
		return tile;
	*rc = load_tile (tiles, level, n, tile);
	return *rc < 0 ? NULL : tile;
}

int enc_tiles_read (unsigned level, uint64_t index, struct enc_hash *ret, void *arg)
{
	struct enc_tiles *tiles = arg;
	unsigned up = level % 8;
	uint64_t first = index << up;
	struct enc_hash sum[ENC_TILE_WIDTH / 2];
	const struct tile *tile;
	unsigned at;
	int rc;

	if (level / 8 >= ENC_TILE_LEVELS || (index + 1) << level > tiles->size)
		return -ENC_EINVAL;
	tile = find_tile (tiles, level / 8, first / ENC_TILE_WIDTH, &rc);
	if (!tile)
		return rc;
	at = (unsigned)(first % ENC_TILE_WIDTH);
	if (at + (1u << up) > tile->width)
		return -ENC_ENOTFOUND;
	if (up == 0) {
		*ret = tile->hash[at];
		return 0;
	}
	for (unsigned i = 0; i < 1u << (up - 1); i++)
		enc_hash_node (&tile->hash[at + 2 * i], &tile->hash[at + 2 * i + 1], &sum[i]);
	for (unsigned n = 1u << (up - 1); n > 1; n /= 2)
		for (unsigned i = 0; i < n / 2; i++)
			enc_hash_node (&sum[2 * i], &sum[2 * i + 1], &sum[i]);
	*ret = sum[0];
	return 0;
}
