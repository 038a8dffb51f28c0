/* Opening the log and mending it after a crash. The rules: the good records must
 * reach the last head that was signed, and give its root, or the log stays shut
 * and untouched; damaged bytes beyond it are set aside, never thrown away. */
#include "controller/auditd/trail.h"

#include "controller/auditd/trail_private.h"

#include "base/enctime.h"
#include "base/file.h"
#include "base/point.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/enc.h"

/* ---- scanning ---- */

/* Does the tree have the signed root, now that it has the signed size? */
static void meet_signed (const struct enc_trail *log, struct enc_trail_scan *scan)
{
	struct enc_hash root;

	if (log->tree.size != log->last.head.size)
		return;
	enc_tree_root (&log->tree, &root);
	scan->signed_ok = enc_hash_equal (&root, &log->last.head.root);
}

static int scan_segment (struct enc_trail *log, uint64_t first, struct enc_trail_scan *scan, struct enc_error *err)
{
	struct enc_segment *segment = enc_segment_open (log->log_fd, first, 0, err);
	struct enc_frame frame;
	struct enc_hash leaf;
	int rc = 0;

	if (!segment)
		return -ENC_ESYS;
	scan->segment = first;
	while (rc == 0 && (scan->state = enc_segment_next (segment, &frame, &scan->offset)) == ENC_READ_GOOD) {
		if (frame.index != log->tree.size) {
			scan->state = ENC_READ_BAD;
			break;
		}
		enc_hash_leaf (frame.body, frame.len, &leaf);
		if (enc_tree_append (&log->tree, &leaf, enc_tiles_node, log->tiles) < 0)
			rc = enc_fail (err, ENC_ESYS, "the tree cannot be rebuilt");
		meet_signed (log, scan);
	}
	enc_segment_free (segment);
	if (rc == 0 && scan->state == ENC_READ_ERROR)
		return enc_fail (err, ENC_ESYS, "segment %llu cannot be read", (unsigned long long)first);
	return rc;
}

/* Stand at the beginning of a segment with what tiles say of all before it. */
static int stand_at (struct enc_trail *log, uint64_t size, struct enc_error *err)
{
	struct enc_tree_reader reader = { enc_tiles_read, log->tiles };
	int rc = enc_tiles_load (log->tiles, size, err);

	return rc < 0 ? rc : enc_tree_load (&log->tree, size, &reader, err);
}

int enc_trail_scan (struct enc_trail *log, const struct enc_segment_list *list, size_t from, struct enc_trail_scan *ret,
	struct enc_error *err)
{
	struct enc_trail_scan scan = { .state = ENC_READ_END };
	int rc = stand_at (log, from < list->n ? list->first[from] : 0, err);

	meet_signed (log, &scan);
	for (size_t i = from; rc == 0 && i < list->n && scan.state == ENC_READ_END; i++) {
		if (list->first[i] != log->tree.size)
			scan.state = ENC_READ_BAD;
		else
			rc = scan_segment (log, list->first[i], &scan, err);
	}
	/* Something is wrong before the last segment: no crash does that. */
	if (rc == 0 && scan.state != ENC_READ_END && (list->n == 0 || scan.segment != list->first[list->n - 1]))
		scan.signed_ok = 0;
	*ret = scan;
	return rc;
}

/* ---- heads ---- */

/* Keep the bytes from `offset` on of a file in quarantine/. */
static int set_aside (struct enc_trail *log, int fd, const char *file, uint64_t offset, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf bytes = ENC_BUF_INIT (LOG_BATCH_MAX * 4);
	enc_auto_close int dir = -1;
	struct stat st;
	uint8_t *room;
	int rc;

	if (fstat (fd, &st) < 0 || (uint64_t)st.st_size < offset)
		return enc_fail_sys (err, "cannot look at %s", file);
	log->repair.bytes = (uint64_t)st.st_size - offset;
	log->repair.offset = offset;
	room = enc_buf_grow (&bytes, log->repair.bytes);
	if (!room || pread (fd, room, bytes.len, (off_t)offset) != (ssize_t)bytes.len)
		return enc_fail (err, ENC_ESYS, "cannot read the damaged end of %s", file);
	enc_sha256 (bytes.data, bytes.len, &log->repair.hash);
	(void)snprintf (log->repair.name, sizeof (log->repair.name), "%s.%llu.%lld", file, (unsigned long long)offset,
		(long long)enc_now ());
	if ((rc = enc_mkdir_at (log->state_fd, "quarantine", &ENC_FILE_ATTR (0700), err)) < 0)
		return rc;
	dir = openat (log->state_fd, "quarantine", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if ((rc = enc_file_create_at (dir, log->repair.name, bytes.data, bytes.len, &ENC_FILE_ATTR (0600), err)) < 0)
		return rc;
	if (ftruncate (fd, (off_t)offset) < 0 || fsync (fd) < 0)
		return enc_fail_sys (err, "cannot cut %s", file);
	return 0;
}

static int take_head (struct enc_trail *log, const char *text, size_t len, struct enc_error *err)
{
	struct enc_tree_head head;
	int rc = len < sizeof (log->last.text) ? enc_checkpoint_open (text, len, &log->vkey, &head, err)
					       : enc_fail (err, ENC_EINVAL, "a checkpoint of %zu bytes", len);

	if (rc < 0)
		return enc_wrap (
			err, enc_fail (err, ENC_EINTEGRITY, "%s", err ? err->text : "bad checkpoint"), "checkpoints");
	log->last.head = head;
	memcpy (log->last.text, text, len);
	log->last.text[len] = '\0';
	log->last.len = len;
	return 0;
}

/* The last note of `checkpoints`. An unfinished one at the end was given to
 * nobody; anything else that is not a checkpoint was changed. */
static int read_heads (struct enc_trail *log, struct enc_error *err)
{
	struct enc_heads *heads = enc_heads_open (log->log_fd, "checkpoints", err);
	enc_auto_done (enc_buf_done) struct enc_buf last = ENC_BUF_INIT (ENC_NOTE_MAX);
	enum enc_read_state state;
	struct enc_heads_item item;

	if (!heads)
		return err && err->code == ENC_ENOTFOUND ? 0 : -ENC_ESYS;
	while ((state = enc_heads_next (heads, &item)) == ENC_READ_GOOD) {
		enc_buf_clear (&last);
		enc_buf_put (&last, item.text, item.len);
	}
	log->heads_end = item.offset;
	enc_heads_free (heads);
	if (state != ENC_READ_END && state != ENC_READ_SHORT)
		return enc_fail (
			err, ENC_EINTEGRITY, "checkpoints: damaged at byte %llu", (unsigned long long)item.offset);
	return last.len == 0 ? 0 : take_head (log, (const char *)last.data, last.len, err);
}

/* `checkpoint` is written after `checkpoints`: when it knows of more, the latter
 * was cut. It may also be older, or torn; that says nothing. */
static int compare_published (const struct enc_trail *log, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (ENC_NOTE_MAX);
	struct enc_tree_head head;

	if (enc_file_read_at (log->log_fd, "checkpoint", ENC_NOTE_MAX, &text, NULL) < 0 ||
		enc_checkpoint_open ((const char *)text.data, text.len, &log->vkey, &head, NULL) < 0)
		return 0;
	if (head.size > log->last.head.size || (log->last.len == 0 && head.size > 0))
		return enc_fail (err, ENC_EINTEGRITY, "checkpoints ends at %llu records, and %llu were signed",
			(unsigned long long)log->last.head.size, (unsigned long long)head.size);
	return 0;
}

/* ---- opening ---- */

static int open_folders (struct enc_trail *log, struct enc_error *err)
{
	int rc = enc_open_dir (log->state_path, err);

	if (rc < 0)
		return rc;
	log->state_fd = rc;
	log->lock_fd = openat (log->state_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (log->lock_fd < 0)
		return enc_fail_sys (err, "cannot open %s/lock", log->state_path);
	if (flock (log->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return enc_fail (err, ENC_EBUSY, "another process writes the log in %s", log->state_path);
	if ((rc = enc_mkdir_at (log->state_fd, "log", &ENC_FILE_ATTR (0700), err)) < 0)
		return rc;
	log->log_fd = openat (log->state_fd, "log", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return log->log_fd < 0 ? enc_fail_sys (err, "cannot open %s/log", log->state_path) : 0;
}

static int open_files (struct enc_trail *log, uint64_t segment, struct enc_error *err)
{
	char name[ENC_SEGMENT_NAME_SIZE];

	enc_segment_name (segment, name);
	log->seg_fd = openat (log->log_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	log->heads_fd = openat (log->log_fd, "checkpoints", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (log->seg_fd < 0 || log->heads_fd < 0)
		return enc_fail_sys (err, "cannot open the log's files");
	log->seg_first = segment;
	/* What a killed process wrote may be in memory only: durable before it is signed. */
	if (fsync (log->seg_fd) < 0 || fsync (log->heads_fd) < 0 || fsync (log->log_fd) < 0)
		return enc_fail_sys (err, "cannot make the log durable");
	return 0;
}

/* Fast: from the last segment on, with tiles for what lies before. If that does
 * not lead to the signed root, tiles may be to blame: read it all. */
static int find_end (
	struct enc_trail *log, const struct enc_segment_list *list, struct enc_trail_scan *ret, struct enc_error *err)
{
	size_t from = list->n > 0 ? list->n - 1 : 0;
	int rc;

	if (from > 0 && enc_trail_scan (log, list, from, ret, NULL) == 0 && ret->signed_ok)
		return 0;
	memset (ret, 0, sizeof (*ret));
	rc = enc_trail_scan (log, list, 0, ret, err);
	if (rc < 0)
		return rc;
	if (log->last.len > 0 && !ret->signed_ok)
		return enc_error_next (err,
			enc_fail (err, ENC_EINTEGRITY,
				"the records on disk do not lead to the signed head of %llu records",
				(unsigned long long)log->last.head.size),
			"enclave-verify %s/log --vkey %s/log.vkey", log->state_path, log->state_path);
	return 0;
}

static int check_floor (const struct enc_trail *log, uint64_t floor, struct enc_error *err)
{
	if (log->last.len == 0 && log->tree.size > 0)
		return enc_fail (err, ENC_EINTEGRITY, "there are %llu records and no checkpoint",
			(unsigned long long)log->tree.size);
	if (log->tree.size < floor || log->tree.size < log->last.head.size)
		return enc_fail (err, ENC_EINTEGRITY, "only %llu of at least %llu records are there",
			(unsigned long long)log->tree.size,
			(unsigned long long)(floor > log->last.head.size ? floor : log->last.head.size));
	return 0;
}

static int recover (struct enc_trail *log, uint64_t floor, struct enc_error *err)
{
	struct enc_segment_list list = { 0 };
	struct enc_trail_scan scan = { .state = ENC_READ_END };
	char name[ENC_SEGMENT_NAME_SIZE];
	int rc;

	if ((rc = read_heads (log, err)) < 0 || (rc = compare_published (log, err)) < 0)
		return rc;
	if ((rc = enc_segment_list_read (log->log_fd, &list, err)) < 0)
		return rc;
	rc = find_end (log, &list, &scan, err);
	enc_segment_list_done (&list);
	if (rc < 0 || (rc = check_floor (log, floor, err)) < 0 || (rc = open_files (log, scan.segment, err)) < 0)
		return rc;
	log->seg_end = scan.offset;
	enc_segment_name (scan.segment, name);
	log->repair.segment = scan.segment;
	if (scan.state != ENC_READ_END && (rc = set_aside (log, log->seg_fd, name, scan.offset, err)) < 0)
		return rc;
	if ((rc = enc_point ("audit.recover", err)) < 0)
		return rc;
	/* A torn checkpoint is cut without a word: it says nothing that the next one does not. */
	if (ftruncate (log->heads_fd, (off_t)log->heads_end) < 0)
		return enc_fail_sys (err, "cannot cut checkpoints");
	enc_tiles_set_size (log->tiles, log->last.head.size);
	return 0;
}

/* After a failed fsync the kernel may show pages that the disk never got. */
static void forget_cache (const struct enc_trail *log)
{
	struct enc_segment_list list = { 0 };
	char name[ENC_SEGMENT_NAME_SIZE] = "checkpoints";

	for (int i = 0; i < 2; i++) {
		enc_auto_close int fd = openat (log->log_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

		if (fd >= 0)
			(void)posix_fadvise (fd, 0, 0, POSIX_FADV_DONTNEED);
		if (i == 0 && enc_segment_list_read (log->log_fd, &list, NULL) == 0 && list.n > 0)
			enc_segment_name (list.first[list.n - 1], name);
	}
	enc_segment_list_done (&list);
}

static int open_all (struct enc_trail *log, uint64_t floor, struct enc_error *err)
{
	int rc = open_folders (log, err);

	if (rc == 0 && floor > 0)
		forget_cache (log);
	if (rc == 0)
		rc = enc_trail_key_load (log, err);
	if (rc == 0 && !(log->tiles = enc_tiles_new (log->log_fd, 1)))
		rc = enc_fail (err, ENC_ENOMEM, "out of memory");
	if (rc == 0)
		rc = recover (log, floor, err);
	if (rc == 0)
		rc = enc_trail_space_open (log, err);
	/* A new log is sealed before its first record: later, no seal means that it was taken away. */
	return rc == 0 && log->last.len == 0 ? enc_trail_sign (log, 1, err) : rc;
}

struct enc_trail *enc_trail_open (const struct enc_trail_conf *conf, uint64_t floor, struct enc_error *err)
{
	enc_auto (enc_trail) struct enc_trail *log = calloc (1, sizeof (*log));

	if (!log) {
		(void)enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	log->conf = *conf;
	log->lock_fd = log->state_fd = log->log_fd = log->seg_fd = log->heads_fd = -1;
	log->batch = ENC_BUF_INIT (LOG_BATCH_MAX);
	log->leaves = calloc (LOG_BATCH_RECORDS, sizeof (*log->leaves));
	log->state_path = enc_strdup (conf->state);
	if (!log->leaves || !log->state_path) {
		(void)enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	log->conf.state = log->state_path;
	return open_all (log, floor, err) < 0 ? NULL : ENC_TAKE (log);
}

void enc_trail_free (struct enc_trail *log)
{
	const int fds[] = { log ? log->heads_fd : -1, log ? log->seg_fd : -1, log ? log->log_fd : -1,
		log ? log->state_fd : -1, log ? log->lock_fd : -1 };

	if (!log)
		return;
	for (size_t i = 0; i < ENC_ARRAY_LEN (fds); i++)
		if (fds[i] >= 0)
			(void)close (fds[i]);
	enc_tiles_free (log->tiles);
	enc_sign_key_free (log->key);
	enc_buf_done (&log->batch);
	free (log->leaves);
	free (log->state_path);
	free (log);
}
