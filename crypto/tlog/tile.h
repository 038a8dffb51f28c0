#ifndef ENC_CRYPTO_TLOG_TILE_H
#define ENC_CRYPTO_TLOG_TILE_H

#include "crypto/tlog/tree.h"

#include <sys/types.h>

/* C2SP tlog-tiles: the hashes of the tree as files of 256 below a folder.
 * Tile (l, n) holds the nodes of level 8·l from n·256 on. Files are hints: they
 * are rebuilt from the records and nothing is believed because a tile says so. */

#define ENC_TILE_WIDTH 256u
#define ENC_TILE_LEVELS 8u
#define ENC_TILE_PATH_SIZE 64

/* "tile/0/x001/x234/067" and, for width < 256, "….p/112". */
void enc_tile_path (unsigned level, uint64_t n, unsigned width, char out[static ENC_TILE_PATH_SIZE]);

struct enc_tiles;

/* Tiles below the open folder `dirfd` (borrowed). `writable` false: only reads.
 * Free with enc_tiles_free(). NULL when memory is short. */
struct enc_tiles *enc_tiles_new (int dirfd, int writable) ENC_MUST_USE;
void enc_tiles_free (struct enc_tiles *tiles);

/* An enc_tree_node_fn with the tiles as `arg`: collects the nodes that tiles
 * hold, and writes a tile when it is full. A tile that cannot be written is
 * skipped: it is made again from the records when it is missed. */
int enc_tiles_node (unsigned level, uint64_t index, const struct enc_hash *hash, void *tiles);

/* Write the partial tiles of a tree of `size` leaves, which must be the tree
 * that was collected (else ENC_EINVAL), and read as of that size from now on,
 * also when a tile could not be written (ENC_ESYS and the like). */
int enc_tiles_flush (struct enc_tiles *tiles, uint64_t size, struct enc_error *err) ENC_MUST_USE;

/* Begin again at a tree of `size` leaves whose tiles are on disk: fills the
 * partial tiles in memory. ENC_ENOTFOUND when one is missing. */
int enc_tiles_load (struct enc_tiles *tiles, uint64_t size, struct enc_error *err) ENC_MUST_USE;

/* The size that reads are made for; a node outside it is ENC_EINVAL. */
void enc_tiles_set_size (struct enc_tiles *tiles, uint64_t size);

/* An enc_tree_read_fn with the tiles as `arg`. */
int enc_tiles_read (unsigned level, uint64_t index, struct enc_hash *ret, void *tiles);

#endif
