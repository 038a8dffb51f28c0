#ifndef ENC_AUDITD_TRAIL_PRIVATE_H
#define ENC_AUDITD_TRAIL_PRIVATE_H

/* What trail.c, trail_open.c and trail_space.c share. */
#include "base/buf.h"
#include "controller/auditd/trail.h"
#include "crypto/sign.h"
#include "crypto/tlog/segment.h"
#include "crypto/tlog/tile.h"

#define LOG_BATCH_MAX (16u << 20)
#define LOG_BATCH_RECORDS 4096u

struct enc_trail {
	struct enc_trail_conf conf;
	char *state_path;

	int lock_fd;
	int state_fd;
	int log_fd;

	struct enc_sign_key *key;
	struct enc_vkey vkey;

	struct enc_tree tree; /* of durable records */
	struct enc_tiles *tiles;

	int seg_fd;
	uint64_t seg_first;
	uint64_t seg_end; /* bytes that are ours and durable */

	int heads_fd;
	uint64_t heads_end;
	struct enc_trail_signed last;

	struct enc_buf batch;
	struct enc_hash *leaves;
	size_t n_leaves;

	struct enc_trail_repair repair;

	int full;
	uint64_t free_bytes;
	uint64_t reserve_left;
};

int enc_trail_key_load (struct enc_trail *log, struct enc_error *err) ENC_MUST_USE;

/* Read segments from `from` on (an index at which one begins) into tree and
 * tiles. Stops at the first thing that is not a good record; says where. */
struct enc_trail_scan {
	uint64_t segment; /* the last one that was read */
	uint64_t offset;  /* end of its good records */
	enum enc_read_state state;
	int signed_ok; /* the tree had the signed root at the signed size */
};
int enc_trail_scan (struct enc_trail *log, const struct enc_segment_list *list, size_t from, struct enc_trail_scan *ret,
	struct enc_error *err) ENC_MUST_USE;

/* Append all of `data` at the end of a file of ours, and make it durable. The
 * file is cut back to `end` when it fails. */
int enc_trail_write (struct enc_trail *log, int fd, uint64_t end, const struct enc_span *data, const char *point,
	int urgent, struct enc_error *err) ENC_MUST_USE;

int enc_trail_space_open (struct enc_trail *log, struct enc_error *err) ENC_MUST_USE;
/* Give up a part of the reserve. Returns 1 if there was some. */
int enc_trail_space_release (struct enc_trail *log);

#endif
