/* Adding, committing, signing and proving. Write order: frames, fdatasync, then
 * the tree in memory, then the acknowledgement; a head is signed and stored only
 * after all it covers is durable. */
#include "controller/auditd/trail.h"

#include "controller/auditd/trail_private.h"

#include "base/enctime.h"
#include "base/file.h"
#include "base/point.h"
#include "crypto/tlog/proof.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/enc.h"

const struct enc_trail_repair *enc_trail_repaired (const struct enc_trail *log)
{
	return &log->repair;
}

const char *enc_trail_origin (const struct enc_trail *log)
{
	return log->vkey.name;
}

const struct enc_vkey *enc_trail_vkey (const struct enc_trail *log)
{
	return &log->vkey;
}

int enc_trail_dirfd (const struct enc_trail *log)
{
	return log->log_fd;
}

int enc_trail_statefd (const struct enc_trail *log)
{
	return log->state_fd;
}

uint64_t enc_trail_size (const struct enc_trail *log)
{
	return log->tree.size;
}

uint64_t enc_trail_next (const struct enc_trail *log)
{
	return log->tree.size + log->n_leaves;
}

uint64_t enc_trail_segment (const struct enc_trail *log)
{
	return log->seg_first;
}

const struct enc_trail_signed *enc_trail_signed (const struct enc_trail *log)
{
	return &log->last;
}

size_t enc_trail_batch_bytes (const struct enc_trail *log)
{
	return log->batch.len;
}

int enc_trail_add (struct enc_trail *log, const void *body, size_t len, struct enc_error *err)
{
	uint8_t *room;

	if (len == 0 || len > ENC_FRAME_BODY_MAX)
		return enc_fail (err, ENC_ELIMIT, "record of %zu bytes", len);
	if (log->n_leaves == LOG_BATCH_RECORDS || log->batch.len + ENC_FRAME_MAX > LOG_BATCH_MAX)
		return enc_fail (err, ENC_EBUSY, "too many records wait for the disk");
	room = enc_buf_grow (&log->batch, ENC_FRAME_HEAD + len + ENC_FRAME_TAIL);
	if (!room)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	(void)enc_frame_put (enc_trail_next (log), body, (uint32_t)len, room);
	enc_hash_leaf (body, len, &log->leaves[log->n_leaves++]);
	return 0;
}

/* Nobody but us writes here: a file that has another length than we left it
 * means a second sequencer, or an attack. */
static int check_length (int fd, uint64_t end, struct enc_error *err)
{
	struct stat st;

	if (fstat (fd, &st) < 0)
		return enc_fail_sys (err, "cannot look at a log file");
	if (st.st_nlink == 0 || (uint64_t)st.st_size != end)
		return enc_fail (err, ENC_EINTEGRITY, "somebody else wrote to the log");
	return 0;
}

/* One try. Returns 0, or -errno; -EIO when it is unknown what the disk holds. */
static int write_once (int fd, uint64_t end, const struct enc_span *data, const char *point)
{
	const uint8_t *p = data->data;
	size_t left = data->len;

	while (left > 0) {
		ssize_t n = pwrite (fd, p, left, (off_t)end);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		left -= (size_t)n;
		end += (uint64_t)n;
	}
	if (enc_point (point, NULL) < 0)
		return -EIO;
	return fdatasync (fd) < 0 ? (errno == ENOSPC || errno == EDQUOT ? -ENOSPC : -EIO) : 0;
}

int enc_trail_write (struct enc_trail *log, int fd, uint64_t end, const struct enc_span *data, const char *point,
	int urgent, struct enc_error *err)
{
	int rc = check_length (fd, end, err);

	if (rc < 0)
		return rc;
	while ((rc = write_once (fd, end, data, point)) < 0) {
		int room = rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG;

		errno = -rc;
		if (ftruncate (fd, (off_t)end) < 0 || !room)
			return enc_fail (err, ENC_ESYS, "writing the log failed: %s", strerror (-rc));
		log->full = 1;
		if (!urgent || !enc_trail_space_release (log))
			return enc_error_next (err, enc_fail (err, ENC_EUNAVAIL, "the disk of the log is full"),
				"free space below %s", log->state_path);
	}
	return 0;
}

/* A segment begins empty and under its final name; nothing refers to it before a
 * record is in it, and an empty one is fine at the end. */
static int rotate (struct enc_trail *log, int urgent, struct enc_error *err)
{
	char name[ENC_SEGMENT_NAME_SIZE];
	int fd, rc;

	if (log->seg_end < log->conf.segment_bytes || log->seg_end == 0)
		return 0;
	/* A start reads from here on: the tiles for this size must be there. */
	if ((rc = enc_trail_sign (log, urgent, err)) < 0)
		return rc;
	enc_segment_name (log->tree.size, name);
	fd = openat (log->log_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return enc_fail (
			err, errno == ENOSPC ? ENC_EUNAVAIL : ENC_ESYS, "cannot begin %s: %s", name, strerror (errno));
	if (fsync (fd) < 0 || fsync (log->log_fd) < 0 || enc_point ("audit.rotate", NULL) < 0) {
		(void)close (fd);
		return enc_fail (err, ENC_ESYS, "cannot begin %s", name);
	}
	(void)close (log->seg_fd);
	log->seg_fd = fd;
	log->seg_first = log->tree.size;
	log->seg_end = 0;
	return 0;
}

static void drop_batch (struct enc_trail *log)
{
	enc_buf_clear (&log->batch);
	log->n_leaves = 0;
}

int enc_trail_commit (struct enc_trail *log, int urgent, struct enc_error *err)
{
	struct enc_span data = { log->batch.data, log->batch.len };
	int rc;

	if (log->n_leaves == 0)
		return 0;
	rc = enc_point ("audit.before_write", err);
	if (rc == 0)
		rc = rotate (log, urgent, err);
	if (rc == 0)
		rc = enc_trail_write (log, log->seg_fd, log->seg_end, &data, "audit.fsync", urgent, err);
	if (rc == 0 && enc_point ("audit.after_fsync", NULL) < 0)
		rc = enc_fail (err, ENC_ESYS, "fault point");
	if (rc < 0) {
		drop_batch (log);
		return rc;
	}
	log->seg_end += data.len;
	for (size_t i = 0; i < log->n_leaves; i++)
		if (enc_tree_append (&log->tree, &log->leaves[i], enc_tiles_node, log->tiles) < 0)
			rc = enc_fail (err, ENC_ESYS, "the tree in memory is broken");
	drop_batch (log);
	return rc;
}

/* The newest head for readers. It may be lost in a crash: `checkpoints` counts. */
static void publish (const struct enc_trail *log)
{
	enc_auto_close int fd =
		openat (log->log_fd, "checkpoint.new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0 && write (fd, log->last.text, log->last.len) == (ssize_t)log->last.len)
		(void)renameat (log->log_fd, "checkpoint.new", log->log_fd, "checkpoint");
}

int enc_trail_sign (struct enc_trail *log, int urgent, struct enc_error *err)
{
	struct enc_trail_signed fresh = { .head = { .size = log->tree.size } };
	struct enc_span data;
	ssize_t len;
	int rc;

	if (log->last.len > 0 && log->last.head.size == log->tree.size)
		return 0;
	enc_tree_root (&log->tree, &fresh.head.root);
	len = enc_checkpoint_sign (&fresh.head, &log->vkey, log->key, fresh.text, sizeof (fresh.text), err);
	if (len < 0)
		return (int)len;
	fresh.len = (size_t)len;
	fresh.at = enc_now ();
	data = (struct enc_span){ fresh.text, fresh.len };
	if ((rc = enc_point ("audit.before_sign", err)) < 0)
		return rc;
	if ((rc = enc_trail_write (log, log->heads_fd, log->heads_end, &data, "audit.sign", urgent, err)) < 0)
		return rc;
	log->heads_end += data.len;
	log->last = fresh;
	publish (log);
	/* Tiles are hints: proofs of recent records do not need the files. */
	rc = enc_tiles_flush (log->tiles, log->tree.size, NULL);
	return rc == -ENC_EINVAL ? enc_fail (err, ENC_ESYS, "the tiles in memory are broken") : 0;
}

/* Write all tiles again from the records, because one is missing. */
static int mend_tiles (struct enc_trail *log, struct enc_error *err)
{
	struct enc_segment_list list = { 0 };
	struct enc_tree before = log->tree;
	struct enc_trail_scan scan;
	int rc = enc_segment_list_read (log->log_fd, &list, err);

	if (rc < 0)
		return rc;
	rc = enc_trail_scan (log, &list, 0, &scan, err);
	enc_segment_list_done (&list);
	if (rc == 0 && (log->tree.size != before.size || !scan.signed_ok))
		rc = enc_fail (err, ENC_EINTEGRITY, "the records on disk are not those that were signed");
	log->tree = before;
	enc_tiles_set_size (log->tiles, log->last.head.size);
	return rc;
}

ssize_t enc_trail_prove_in (struct enc_trail *log, uint64_t index, const struct enc_tree_head *head, const char *checkpoint, size_t len,
	char *out, struct enc_error *err)
{
	struct enc_tree_reader reader = { enc_tiles_read, log->tiles };
	struct enc_proof proof = { .index = index, .checkpoint = checkpoint, .checkpoint_len = len };
	int rc;

	if (index >= head->size)
		return enc_fail (err, ENC_ENOTFOUND, "record %llu is not signed yet", (unsigned long long)index);
	rc = enc_tree_prove (index, head->size, &reader, &proof.path, err);
	if (rc == -ENC_ENOTFOUND && (rc = mend_tiles (log, err)) == 0)
		rc = enc_tree_prove (index, head->size, &reader, &proof.path, err);
	return rc < 0 ? rc : enc_proof_format (&proof, out, ENC_PROOF_TEXT_MAX, err);
}

ssize_t enc_trail_prove (struct enc_trail *log, uint64_t index, char *out, struct enc_error *err)
{
	return enc_trail_prove_in (log, index, &log->last.head, log->last.text, log->last.len, out, err);
}

int enc_trail_prove_grown (struct enc_trail *log, uint64_t from, uint64_t to, struct enc_path *ret, struct enc_error *err)
{
	struct enc_tree_reader reader = { enc_tiles_read, log->tiles };
	int rc;

	if (to > log->last.head.size || from == 0 || from > to)
		return enc_fail (err, ENC_ENOTFOUND, "no proof from %llu to %llu: %llu records are signed", (unsigned long long)from,
			(unsigned long long)to, (unsigned long long)log->last.head.size);
	ret->n = 0;
	if (from == to)
		return 0;
	rc = enc_tree_prove_grown (from, to, &reader, ret, err);
	if (rc == -ENC_ENOTFOUND && (rc = mend_tiles (log, err)) == 0)
		rc = enc_tree_prove_grown (from, to, &reader, ret, err);
	return rc;
}
