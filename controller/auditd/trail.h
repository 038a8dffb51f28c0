#ifndef ENC_AUDITD_TRAIL_H
#define ENC_AUDITD_TRAIL_H

#include "base/cleanup.h"
#include "base/error.h"
#include "crypto/checkpoint.h"

/* The log on disk and the only way to add to it. A record counts when
 * enc_trail_commit() has returned 0, not before.
 *
 *   STATE/lock            held while the log is open
 *   STATE/key             seed of the signing key, 0600
 *   STATE/log.vkey        its public half, for everybody
 *   STATE/log/seg-N.log   frames; checkpoints, checkpoint, tile/
 *   STATE/quarantine/     damaged bytes that were set aside
 *   STATE/reserve         space given up for urgent records when the disk is full */

struct enc_trail_conf {
	const char *state;  /* folder, owned by this user */
	const char *origin; /* name of a new log; an old one keeps its own */
	uint64_t segment_bytes;
	uint64_t reserve_bytes;
	uint64_t full_bytes; /* less free space than this counts as full */
};

/* What was found and mended when the log was opened. */
struct enc_trail_repair {
	uint64_t bytes;	 /* set aside; 0: nothing */
	uint64_t offset; /* where in the segment */
	uint64_t segment;
	struct enc_hash hash; /* of the bytes */
	char name[96];	      /* of the file in quarantine/ */
};

struct enc_trail;

/* Open, or make, the log. The valid records must reach the last signed head and
 * at least `floor` records (0 at a start), else ENC_EINTEGRITY: the log is not
 * touched then. ENC_EBUSY when another process has it open. */
struct enc_trail *enc_trail_open (
	const struct enc_trail_conf *conf, uint64_t floor, struct enc_error *err) ENC_MUST_USE;
void enc_trail_free (struct enc_trail *log);
ENC_DEFINE_AUTO (enc_trail, struct enc_trail, enc_trail_free);

const struct enc_trail_repair *enc_trail_repaired (const struct enc_trail *log);
const char *enc_trail_origin (const struct enc_trail *log);
const struct enc_vkey *enc_trail_vkey (const struct enc_trail *log);
int enc_trail_dirfd (const struct enc_trail *log); /* of STATE/log */
int enc_trail_statefd (const struct enc_trail *log);

/* Records that are durable; the index that the next added one gets. */
uint64_t enc_trail_size (const struct enc_trail *log);
uint64_t enc_trail_next (const struct enc_trail *log);

/* Put a body (canonical, at most ENC_FRAME_BODY_MAX) into the batch. */
int enc_trail_add (struct enc_trail *log, const void *body, size_t len, struct enc_error *err) ENC_MUST_USE;
size_t enc_trail_batch_bytes (const struct enc_trail *log);

/* Make the batch durable. On any failure none of it counts and the batch is
 * gone: ENC_EUNAVAIL when the disk is full (the log goes on), ENC_ESYS when it
 * may be damaged (close it and open it again with the size as floor),
 * ENC_EINTEGRITY when somebody else wrote to it. `urgent`: reserved space may be used. */
int enc_trail_commit (struct enc_trail *log, int urgent, struct enc_error *err) ENC_MUST_USE;

/* Sign the present head if it is not signed yet. Failures as above. */
int enc_trail_sign (struct enc_trail *log, int urgent, struct enc_error *err) ENC_MUST_USE;

struct enc_trail_signed {
	struct enc_tree_head head;
	int64_t at; /* wall ns when we signed it; 0 when an earlier process did */
	char text[ENC_CHECKPOINT_MAX];
	size_t len;
};
const struct enc_trail_signed *enc_trail_signed (const struct enc_trail *log);

/* The tlog-proof of a record in the signed head; `out` of ENC_PROOF_TEXT_MAX.
 * Returns its length, ENC_ENOTFOUND when the index is not signed yet. */
ssize_t enc_trail_prove (struct enc_trail *log, uint64_t index, char *out, struct enc_error *err) ENC_MUST_USE;

/* The same in an older head of this log, given as its checkpoint (with cosignatures). */
ssize_t enc_trail_prove_in (struct enc_trail *log, uint64_t index, const struct enc_tree_head *head, const char *checkpoint, size_t len,
	char *out, struct enc_error *err) ENC_MUST_USE;
/* The proof that the tree of `to` continues that of `from`; to is at most the signed size. */
int enc_trail_prove_grown (struct enc_trail *log, uint64_t from, uint64_t to, struct enc_path *ret, struct enc_error *err) ENC_MUST_USE;

/* Where the last committed batch begins and lies; for the side index. */
uint64_t enc_trail_segment (const struct enc_trail *log);

/* Look at the free space; gives reserved space back when there is room again.
 * Returns 1 while the log is full for everything but urgent records. */
int enc_trail_check_space (struct enc_trail *log);
int enc_trail_is_full (const struct enc_trail *log);
uint64_t enc_trail_free_bytes (const struct enc_trail *log);

#endif
