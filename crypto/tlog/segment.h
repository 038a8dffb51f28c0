#ifndef ENC_CRYPTO_TLOG_SEGMENT_H
#define ENC_CRYPTO_TLOG_SEGMENT_H

#include "base/error.h"
#include "crypto/checkpoint.h"
#include "crypto/tlog/frame.h"

/* Sequential reading of what a log folder holds: segments of frames, and the
 * file `checkpoints` of signed heads, one after the other. Plain reads, never
 * mmap: a file may be cut short while it is being read. */

struct enc_segment_list {
	uint64_t *first; /* index of each segment's first record, rising */
	size_t n;
};
/* Free with enc_segment_list_done(). */
int enc_segment_list_read (int dirfd, struct enc_segment_list *ret, struct enc_error *err) ENC_MUST_USE;
void enc_segment_list_done (struct enc_segment_list *list);

struct enc_segment;

/* Open segment `first` of the folder from byte `offset` on. Free with enc_segment_free(). */
struct enc_segment *enc_segment_open (int dirfd, uint64_t first, uint64_t offset, struct enc_error *err) ENC_MUST_USE;
void enc_segment_free (struct enc_segment *segment);

enum enc_read_state {
	ENC_READ_GOOD,
	ENC_READ_END,	/* the file ends here, cleanly */
	ENC_READ_SHORT, /* the file ends inside an item */
	ENC_READ_BAD,	/* an item is damaged */
	ENC_READ_ERROR	/* the file cannot be read */
};

/* The next frame; the body is valid until the next call. `ret_offset` is where
 * it starts, also for SHORT and BAD; the reader stays there. */
enum enc_read_state enc_segment_next (struct enc_segment *segment, struct enc_frame *ret, uint64_t *ret_offset);

/* One signed head of the file `checkpoints`, or `cosigned`. */
struct enc_heads;
struct enc_heads_item {
	const char *text; /* the note, valid until the next call */
	size_t len;
	uint64_t offset;
};

/* ENC_ENOTFOUND when there is no such file. Free with enc_heads_free(). */
struct enc_heads *enc_heads_open (int dirfd, const char *name, struct enc_error *err) ENC_MUST_USE;
void enc_heads_free (struct enc_heads *heads);
enum enc_read_state enc_heads_next (struct enc_heads *heads, struct enc_heads_item *ret);

#endif
