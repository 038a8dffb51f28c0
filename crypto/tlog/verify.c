/* The verifier. Its one rule: what is not proved is not fine. A log without a
 * checkpoint, an unfinished one or one that cannot be read never passes. */
#include "crypto/tlog/verify.h"

#include "base/enctime.h"
#include "crypto/tlog/canon.h"
#include "crypto/tlog/segment.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/enc.h"

struct run {
	const struct enc_verify_conf *conf;
	struct enc_verify_report *report;
	int dirfd;
	struct enc_tree tree;
	struct enc_heads *heads;
	int have_next; /* `next` is a checkpoint that is still to be met */
	struct enc_tree_head next;
	struct enc_heads_item item;
	uint64_t last_size;
	struct enc_heads *cosigned;
	int have_cosigned; /* `due` is a cosigned checkpoint that is still to be met */
	struct enc_tree_head due;
	struct enc_heads_item due_item;
	char last_time[40];	      /* `ts` of the last record */
	char first_unsigned_time[40]; /* of the first one after the last checkpoint */
};

static const char *const result_names[] = { "complete", "altered", "incomplete", "unsigned", "unreadable" };

const char *enc_verify_result_name (enum enc_verify_result result)
{
	return result_names[result];
}

int enc_verify_result_exit (enum enc_verify_result result)
{
	if (result == ENC_VERIFY_COMPLETE)
		return 0;
	return result == ENC_VERIFY_UNREADABLE ? 8 : 7;
}

/* Note what is wrong, once; always returns -1. */
__attribute__ ((format (printf, 5, 6))) static int bad (
	struct run *run, enum enc_verify_result result, const char *file, uint64_t offset, const char *fmt, ...)
{
	struct enc_verify_report *report = run->report;
	va_list ap;

	if (report->has_bad)
		return -1;
	report->result = result;
	report->has_bad = 1;
	report->bad.index = run->tree.size;
	report->bad.offset = offset;
	(void)snprintf (report->bad.file, sizeof (report->bad.file), "%s", file);
	va_start (ap, fmt);
	(void)vsnprintf (report->bad.why, sizeof (report->bad.why), fmt, ap);
	va_end (ap);
	return -1;
}

/* ---- checkpoints ---- */

static int open_head (
	struct run *run, const char *text, size_t len, uint64_t offset, const char *file, struct enc_tree_head *ret)
{
	struct enc_error err = { 0 };

	if (enc_checkpoint_open (text, len, run->conf->vkey, ret, &err) < 0)
		return bad (run, ENC_VERIFY_ALTERED, file, offset, "%.100s", err.text);
	return 0;
}

/* Move to the next checkpoint of the file. Returns 0 also at its end. */
static int next_head (struct run *run)
{
	enum enc_read_state state = enc_heads_next (run->heads, &run->item);

	run->have_next = 0;
	switch (state) {
	case ENC_READ_END:
	case ENC_READ_SHORT: /* being written, or torn: nobody has been given it */
		return 0;
	case ENC_READ_BAD:
		return bad (run, ENC_VERIFY_ALTERED, "checkpoints", run->item.offset, "not a checkpoint");
	case ENC_READ_ERROR:
		return bad (run, ENC_VERIFY_UNREADABLE, "checkpoints", run->item.offset, "cannot be read");
	case ENC_READ_GOOD:
		break;
	}
	if (open_head (run, run->item.text, run->item.len, run->item.offset, "checkpoints", &run->next) < 0)
		return -1;
	if (run->next.size < run->last_size)
		return bad (run, ENC_VERIFY_ALTERED, "checkpoints", run->item.offset,
			"the tree shrinks from %llu to %llu", (unsigned long long)run->last_size,
			(unsigned long long)run->next.size);
	run->last_size = run->next.size;
	run->have_next = 1;
	return 0;
}

/* Compare the tree with every checkpoint of its size. */
static int meet_heads (struct run *run)
{
	while (run->have_next && run->next.size == run->tree.size) {
		struct enc_hash root;

		enc_tree_root (&run->tree, &root);
		if (!enc_hash_equal (&root, &run->next.root))
			return bad (run, ENC_VERIFY_ALTERED, "checkpoints", run->item.offset,
				"the records do not give the root that was signed for size %llu",
				(unsigned long long)run->next.size);
		run->report->head = run->next;
		run->report->checkpoints++;
		run->first_unsigned_time[0] = '\0';
		if (enc_time_parse (run->last_time, &run->report->newest, NULL) < 0)
			run->report->newest = 0;
		if (next_head (run) < 0)
			return -1;
	}
	return 0;
}

/* ---- witnesses ---- */

/* Move to the next cosigned checkpoint. They carry the log's own signature too. */
static int next_cosigned (struct run *run)
{
	enum enc_read_state state = enc_heads_next (run->cosigned, &run->due_item);
	uint64_t before = run->due.size;

	run->have_cosigned = 0;
	if (state == ENC_READ_END || state == ENC_READ_SHORT)
		return 0;
	if (state != ENC_READ_GOOD)
		return bad (run, state == ENC_READ_BAD ? ENC_VERIFY_ALTERED : ENC_VERIFY_UNREADABLE, "cosigned", run->due_item.offset,
			state == ENC_READ_BAD ? "not a checkpoint" : "cannot be read");
	if (open_head (run, run->due_item.text, run->due_item.len, run->due_item.offset, "cosigned", &run->due) < 0)
		return -1;
	if (run->due.size < before)
		return bad (run, ENC_VERIFY_ALTERED, "cosigned", run->due_item.offset, "the tree shrinks from %llu to %llu",
			(unsigned long long)before, (unsigned long long)run->due.size);
	run->have_cosigned = 1;
	return 0;
}

/* A quorum under one checkpoint: kept if it is the newest. */
static int judge_cosigned (struct run *run)
{
	struct enc_tlog_quorum quorum;
	struct enc_error err = { 0 };
	struct enc_note note;

	if (!run->conf->policy)
		return 0;
	if (enc_note_parse (run->due_item.text, run->due_item.len, &note, &err) < 0 ||
		enc_tlog_policy_judge (run->conf->policy, &note, &quorum, &err) < 0)
		return bad (run, ENC_VERIFY_ALTERED, "cosigned", run->due_item.offset, "%.100s", err.text);
	if (quorum.met && quorum.time >= run->report->quorum.time) {
		run->report->quorum = quorum;
		run->report->cosigned = run->due;
	}
	return 0;
}

static int meet_cosigned (struct run *run)
{
	while (run->have_cosigned && run->due.size == run->tree.size) {
		struct enc_hash root;

		enc_tree_root (&run->tree, &root);
		if (!enc_hash_equal (&root, &run->due.root))
			return bad (run, ENC_VERIFY_ALTERED, "cosigned", run->due_item.offset,
				"the records do not give the root that was cosigned for size %llu", (unsigned long long)run->due.size);
		if (judge_cosigned (run) < 0 || next_cosigned (run) < 0)
			return -1;
	}
	return 0;
}

static int start_cosigned (struct run *run)
{
	struct enc_error err = { 0 };

	run->cosigned = enc_heads_open (run->dirfd, "cosigned", &err);
	if (!run->cosigned)
		return err.code == ENC_ENOTFOUND ? 0 : bad (run, ENC_VERIFY_UNREADABLE, "cosigned", 0, "%.100s", err.text);
	return next_cosigned (run) < 0 ? -1 : meet_cosigned (run);
}

static int check_witnesses (struct run *run)
{
	struct enc_verify_report *report = run->report;
	uint64_t now = (uint64_t)(run->conf->now / 1000000000);

	if (run->have_cosigned)
		return bad (run, ENC_VERIFY_INCOMPLETE, "cosigned", run->due_item.offset, "%llu records were cosigned and %llu are there",
			(unsigned long long)run->due.size, (unsigned long long)run->tree.size);
	if (!run->conf->policy || enc_tlog_policy_required (run->conf->policy) == 0)
		return 0;
	if (!report->quorum.met)
		return bad (run, ENC_VERIFY_UNSIGNED, "cosigned", 0, "no quorum of witnesses has cosigned any of it");
	report->witness_age_s = now > report->quorum.time ? now - report->quorum.time : 0;
	if (report->witness_age_s > run->conf->witness_max_s)
		return bad (run, ENC_VERIFY_UNSIGNED, "cosigned", 0, "the last quorum of witnesses is %llu s old",
			(unsigned long long)report->witness_age_s);
	return 0;
}

/* Heads from elsewhere: a log cut back together with its own checkpoints is
 * whole in itself, and only they can tell. */
static int meet_seen (struct run *run, uint64_t size)
{
	for (size_t i = 0; i < run->conf->n_seen; i++) {
		const struct enc_verify_seen *seen = &run->conf->seen[i];
		struct enc_tree_head head;
		struct enc_hash root;

		if (open_head (run, seen->text, seen->len, 0, "the checkpoint given", &head) < 0)
			return -1;
		if (head.size != size)
			continue;
		enc_tree_root (&run->tree, &root);
		if (!enc_hash_equal (&root, &head.root))
			return bad (run, ENC_VERIFY_ALTERED, "the checkpoint given", 0,
				"it was signed for other records of size %llu", (unsigned long long)head.size);
	}
	return 0;
}

/* ---- records ---- */

static void keep_time (const struct enc_canon_want *ts, char out[40])
{
	size_t len = ts->found && ts->value.type == '"' && ts->value.len < 40 ? ts->value.len : 0;

	memcpy (out, ts->value.at, len);
	out[len] = '\0';
}

static int check_record (struct run *run, const struct enc_frame *frame, const char *file, uint64_t offset)
{
	struct enc_canon_want want[] = { { .key = "idx" }, { .key = "origin" }, { .key = "ts" } };
	const char *origin = run->conf->vkey->name;
	struct enc_hash leaf;
	size_t at = 0;
	uint64_t idx;

	if (frame->index != run->tree.size)
		return bad (run, frame->index > run->tree.size ? ENC_VERIFY_INCOMPLETE : ENC_VERIFY_ALTERED, file,
			offset, "index %llu stands where %llu is due", (unsigned long long)frame->index,
			(unsigned long long)run->tree.size);
	if (enc_canon_scan (frame->body, frame->len, want, ENC_ARRAY_LEN (want), &at) < 0)
		return bad (run, ENC_VERIFY_ALTERED, file, offset + ENC_FRAME_HEAD + at, "the record is not canonical");
	if (!want[0].found || enc_canon_uint (&want[0].value, &idx) < 0 || idx != frame->index)
		return bad (run, ENC_VERIFY_ALTERED, file, offset, "the record does not name its own index");
	if (!want[1].found || want[1].value.len != strlen (origin) ||
		memcmp (want[1].value.at, origin, want[1].value.len) != 0)
		return bad (run, ENC_VERIFY_ALTERED, file, offset, "the record is of another log");
	enc_hash_leaf (frame->body, frame->len, &leaf);
	if (enc_tree_append (&run->tree, &leaf, NULL, NULL) < 0)
		return bad (run, ENC_VERIFY_UNREADABLE, file, offset, "the log is too long");
	keep_time (&want[2], run->last_time);
	if (run->first_unsigned_time[0] == '\0')
		memcpy (run->first_unsigned_time, run->last_time, sizeof (run->last_time));
	return 0;
}

/* A frame that does not parse. Behind the last checkpoint of the last segment an
 * unfinished write is no harm; anything else there was changed. */
static int bad_frame (struct run *run, enum enc_read_state state, const char *file, uint64_t offset, int last_segment)
{
	if (state == ENC_READ_ERROR)
		return bad (run, ENC_VERIFY_UNREADABLE, file, offset, "cannot be read");
	if (state == ENC_READ_BAD)
		return bad (run, ENC_VERIFY_ALTERED, file, offset, "damaged record");
	if (!last_segment || run->have_next)
		return bad (run, ENC_VERIFY_INCOMPLETE, file, offset, "the file ends inside a record");
	return 0;
}

static int check_segment (struct run *run, uint64_t first, int last_segment)
{
	char name[ENC_SEGMENT_NAME_SIZE];
	struct enc_segment *segment;
	struct enc_frame frame;
	enum enc_read_state state;
	uint64_t offset = 0;
	int rc = 0;

	enc_segment_name (first, name);
	if (first != run->tree.size)
		return bad (run, first > run->tree.size ? ENC_VERIFY_INCOMPLETE : ENC_VERIFY_ALTERED, name, 0,
			"the file begins at %llu where %llu is due", (unsigned long long)first,
			(unsigned long long)run->tree.size);
	segment = enc_segment_open (run->dirfd, first, 0, NULL);
	if (!segment)
		return bad (run, ENC_VERIFY_UNREADABLE, name, 0, "cannot be read");
	while (rc == 0 && (state = enc_segment_next (segment, &frame, &offset)) == ENC_READ_GOOD) {
		rc = check_record (run, &frame, name, offset);
		if (rc == 0)
			rc = meet_heads (run);
		if (rc == 0)
			rc = meet_cosigned (run);
		if (rc == 0 && run->conf->n_seen > 0)
			rc = meet_seen (run, run->tree.size);
	}
	if (rc == 0 && state != ENC_READ_END) {
		rc = bad_frame (run, state, name, offset, last_segment);
		run->report->torn = rc == 0;
	}
	enc_segment_free (segment);
	return rc;
}

/* ---- the whole ---- */

static int check_end (struct run *run)
{
	struct enc_verify_report *report = run->report;
	int64_t since = 0;

	if (run->have_next)
		return bad (run, ENC_VERIFY_INCOMPLETE, "checkpoints", run->item.offset,
			"%llu records were signed and %llu are there", (unsigned long long)run->next.size,
			(unsigned long long)run->tree.size);
	for (size_t i = 0; i < run->conf->n_seen; i++) {
		struct enc_tree_head head;

		if (open_head (run, run->conf->seen[i].text, run->conf->seen[i].len, 0, "the checkpoint given", &head) <
			0)
			return -1;
		if (head.size > run->tree.size)
			return bad (run, ENC_VERIFY_INCOMPLETE, "the checkpoint given", 0,
				"%llu records were signed and %llu are there", (unsigned long long)head.size,
				(unsigned long long)run->tree.size);
	}
	report->unsigned_records = run->tree.size - report->head.size;
	if (report->checkpoints == 0)
		return bad (run, ENC_VERIFY_UNSIGNED, "checkpoints", 0, "there is no checkpoint");
	if (report->unsigned_records == 0)
		return 0;
	if (enc_time_parse (run->first_unsigned_time, &since, NULL) == 0 && run->conf->now > since)
		report->unsigned_age_s = (uint64_t)(run->conf->now - since) / 1000000000u;
	if (since == 0 || report->unsigned_age_s > run->conf->tail_max_s)
		return bad (run, ENC_VERIFY_UNSIGNED, "checkpoints", 0,
			"%llu records have waited %llu s for a signature", (unsigned long long)report->unsigned_records,
			(unsigned long long)report->unsigned_age_s);
	return 0;
}

static int check_all (struct run *run)
{
	struct enc_segment_list list = { 0 };
	struct enc_error err = { 0 };
	int rc;

	/* The checkpoints first: records only ever come before them. */
	run->heads = enc_heads_open (run->dirfd, "checkpoints", &err);
	if (!run->heads)
		return bad (run, err.code == ENC_ENOTFOUND ? ENC_VERIFY_UNSIGNED : ENC_VERIFY_UNREADABLE, "checkpoints",
			0, "%.100s", err.text);
	if (next_head (run) < 0 || meet_heads (run) < 0 || start_cosigned (run) < 0)
		return -1;
	if (enc_segment_list_read (run->dirfd, &list, &err) < 0)
		return bad (run, ENC_VERIFY_UNREADABLE, ".", 0, "%.100s", err.text);
	rc = 0;
	for (size_t i = 0; rc == 0 && i < list.n; i++)
		rc = check_segment (run, list.first[i], i + 1 == list.n);
	enc_segment_list_done (&list);
	if (rc == 0)
		rc = check_end (run);
	return rc == 0 ? check_witnesses (run) : rc;
}

void enc_logverify (const struct enc_verify_conf *conf, struct enc_verify_report *ret)
{
	struct run *run = calloc (1, sizeof (*run));

	memset (ret, 0, sizeof (*ret));
	ret->result = ENC_VERIFY_UNREADABLE;
	enc_hash_empty (&ret->head.root);
	if (!run)
		return;
	run->conf = conf;
	run->report = ret;
	run->dirfd = open (conf->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (run->dirfd < 0) {
		(void)bad (run, ENC_VERIFY_UNREADABLE, ".", 0, "the folder cannot be opened");
	} else if (check_all (run) == 0) {
		ret->result = ENC_VERIFY_COMPLETE;
	}
	ret->records = run->tree.size;
	enc_heads_free (run->heads);
	enc_heads_free (run->cosigned);
	if (run->dirfd >= 0)
		(void)close (run->dirfd);
	free (run);
}

/* Texts of ours, names of files we found: quote what JSON needs. */
static void put_quoted (char *out, size_t size, const char *text)
{
	size_t used = 0;

	for (; *text && used + 7 < size; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			out[used++] = '\\';
		out[used++] = c < 0x20 || c >= 0x7f ? '?' : (char)c;
	}
	out[used] = '\0';
}

void enc_verify_json (const struct enc_verify_conf *conf, const struct enc_verify_report *report,
	char out[static ENC_VERIFY_JSON_MAX])
{
	char root[ENC_HASH_B64_SIZE], file[96], why[256];
	unsigned required = conf->policy ? enc_tlog_policy_required (conf->policy) : 0;
	char age[24] = "null";
	char newest[24] = "null";
	char first_bad[460] = "null";

	enc_hash_b64 (&report->head.root, root);
	put_quoted (file, sizeof (file), report->bad.file);
	put_quoted (why, sizeof (why), report->bad.why);
	if (report->newest != 0)
		(void)snprintf (newest, sizeof (newest), "%lld", (long long)(conf->now - report->newest) / 1000000000);
	if (report->quorum.time != 0)
		(void)snprintf (age, sizeof (age), "%llu", (unsigned long long)report->witness_age_s);
	if (report->has_bad)
		(void)snprintf (first_bad, sizeof (first_bad),
			"{\"index\":%llu,\"file\":\"%s\",\"offset\":%llu,\"why\":\"%s\"}",
			(unsigned long long)report->bad.index, file, (unsigned long long)report->bad.offset, why);
	(void)snprintf (out, ENC_VERIFY_JSON_MAX,
		"{\"result\":\"%s\",\"size\":%llu,\"root\":\"%s\",\"checkpoints\":%llu,"
		"\"witnesses\":{\"required\":%u,\"cosigned\":%u,\"age_s\":%s,\"size\":%llu},\"newest_s\":%s,"
		"\"records\":%llu,\"unsigned\":%llu,\"unsigned_age_s\":%llu,\"torn\":%s,\"first_bad\":%s}",
		enc_verify_result_name (report->result), (unsigned long long)report->head.size, root,
		(unsigned long long)report->checkpoints, required, report->quorum.cosigned, age, (unsigned long long)report->cosigned.size,
		newest, (unsigned long long)report->records,
		(unsigned long long)report->unsigned_records, (unsigned long long)report->unsigned_age_s,
		report->torn ? "true" : "false", first_bad);
}
