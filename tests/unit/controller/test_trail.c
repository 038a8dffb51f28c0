/* The log on disk, without the daemon: what is committed survives, what was
 * signed is missed when it is gone, and each attack on a copy is found. */
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

#include "base/buf.h"
#include "base/enctime.h"
#include "base/file.h"
#include "controller/auditd/trail.h"
#include "crypto/receipt.h"
#include "crypto/tlog/frame.h"
#include "crypto/tlog/verify.h"

struct place {
	char folder[64];
	struct enc_trail_conf conf;
};

static int setup (void **state)
{
	struct place *p = calloc (1, sizeof (*p));

	(void)snprintf (p->folder, sizeof (p->folder), "/tmp/enc-trail-XXXXXX");
	if (!mkdtemp (p->folder))
		return -1;
	p->conf = (struct enc_trail_conf){ .state = p->folder, .origin = "test.example/log", .segment_bytes = 1 << 20 };
	*state = p;
	return 0;
}

static int teardown (void **state)
{
	struct place *p = *state;
	int rc = enc_remove_tree (AT_FDCWD, p->folder, (uid_t)-1, NULL, NULL);

	free (p);
	return rc;
}

static struct enc_trail *must_open (struct place *p)
{
	struct enc_error err = { 0 };
	struct enc_trail *t = enc_trail_open (&p->conf, 0, &err);

	if (!t)
		fail_msg ("open: %s", err.text);
	return t;
}

static void append (struct enc_trail *t, unsigned n, int commit)
{
	for (unsigned i = 0; i < n; i++) {
		char body[256], when[ENC_TIME_SIZE];
		int len = snprintf (body, sizeof (body),
			"{\"idx\":%llu,\"origin\":\"test.example/log\",\"ts\":\"%s\",\"v\":1}",
			(unsigned long long)enc_trail_next (t), enc_time_format (enc_now (), true, when));

		assert_int_equal (enc_trail_add (t, body, (size_t)len, NULL), 0);
	}
	if (commit)
		assert_int_equal (enc_trail_commit (t, 0, NULL), 0);
}

/* A log of n records in batches of 7, signed after each third batch and at the end. */
static void make_log (struct place *p, unsigned n)
{
	struct enc_trail *t = must_open (p);

	for (unsigned done = 0; done < n; done += 7) {
		append (t, n - done < 7 ? n - done : 7, 1);
		if (done / 7 % 3 == 2)
			assert_int_equal (enc_trail_sign (t, 0, NULL), 0);
	}
	assert_int_equal (enc_trail_sign (t, 0, NULL), 0);
	enc_trail_free (t);
}

static void path_of (struct place *p, const char *name, char out[128])
{
	(void)snprintf (out, 128, "%s/%s", p->folder, name);
}

#define SEG "log/seg-00000000000000000000.log"

static struct enc_verify_report verify (struct place *p, const struct enc_verify_seen *seen, size_t n_seen)
{
	char folder[128], path[128];
	struct enc_verify_report report;
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (1024);
	struct enc_vkey vkey;
	struct enc_verify_conf conf = {
		.folder = folder, .vkey = &vkey, .seen = seen, .n_seen = n_seen, .tail_max_s = 10, .now = enc_now ()
	};

	path_of (p, "log", folder);
	path_of (p, "log.vkey", path);
	assert_int_equal (enc_file_read (path, 1024, &text, NULL), 0);
	assert_int_equal (enc_vkey_parse ((const char *)text.data, text.len, &vkey, NULL), 0);
	enc_logverify (&conf, &report);
	return report;
}

static void expect (struct place *p, enum enc_verify_result want)
{
	struct enc_verify_report report = verify (p, NULL, 0);

	if (report.result != want)
		fail_msg ("%s instead of %s (%s at %llu: %s)", enc_verify_result_name (report.result),
			enc_verify_result_name (want), report.bad.file, (unsigned long long)report.bad.offset,
			report.bad.why);
}

static int try_open (struct place *p)
{
	struct enc_error err = { 0 };
	struct enc_trail *t = enc_trail_open (&p->conf, 0, &err);

	enc_trail_free (t);
	return t ? 0 : -err.code;
}

/* Read, change and write a whole file. */
static uint8_t *load (struct place *p, const char *name, size_t *len)
{
	struct enc_buf text = ENC_BUF_INIT (1 << 24);
	char path[128];

	path_of (p, name, path);
	assert_int_equal (enc_file_read (path, 1 << 24, &text, NULL), 0);
	*len = text.len;
	return text.data;
}

static void store (struct place *p, const char *name, const void *data, size_t len)
{
	char path[128];

	path_of (p, name, path);
	assert_int_equal (enc_file_write (path, data, len, &ENC_FILE_ATTR (0600), NULL), 0);
}

static size_t offset_of (const uint8_t *data, size_t len, uint64_t index)
{
	size_t at = 0;
	struct enc_frame frame;

	while (at < len) {
		assert_int_equal (enc_frame_parse (data + at, len - at, &frame), ENC_FRAME_GOOD);
		if (frame.index == index)
			return at;
		at += frame.size;
	}
	return len;
}

/* ---- the sunny side ---- */

static void a_log_verifies_and_goes_on_after_a_restart (void **state)
{
	struct place *p = *state;
	struct enc_verify_report report;

	make_log (p, 500);
	expect (p, ENC_VERIFY_COMPLETE);
	make_log (p, 300);
	report = verify (p, NULL, 0);
	assert_int_equal (report.result, ENC_VERIFY_COMPLETE);
	assert_int_equal (report.head.size, 800);
	assert_true (report.checkpoints > 30);
}

static void segments_rotate_and_restart_anywhere (void **state)
{
	struct place *p = *state;
	struct enc_verify_report report;

	p->conf.segment_bytes = 4096;
	for (int i = 0; i < 30; i++)
		make_log (p, 29);
	report = verify (p, NULL, 0);
	assert_int_equal (report.result, ENC_VERIFY_COMPLETE);
	assert_int_equal (report.head.size, 870);
}

static void invariant_03_receipts_hold_for_each_record (void **state)
{
	struct place *p = *state;
	struct enc_trail *t;
	uint8_t *data;
	size_t len, at = 0;

	make_log (p, 700);
	t = must_open (p);
	data = load (p, SEG, &len);
	while (at < len) {
		char proof[ENC_PROOF_TEXT_MAX];
		struct enc_receipt receipt;
		struct enc_frame frame;
		ssize_t n;

		assert_int_equal (enc_frame_parse (data + at, len - at, &frame), ENC_FRAME_GOOD);
		n = enc_trail_prove (t, frame.index, proof, NULL);
		assert_true (n > 0 && n < 3072);
		assert_int_equal (
			enc_receipt_check (proof, (size_t)n, frame.body, frame.len, enc_trail_vkey (t), &receipt, NULL),
			0);
		assert_int_equal (receipt.index, frame.index);
		at += frame.size;
	}
	free (data);
	enc_trail_free (t);
}

static void lost_tiles_are_made_again (void **state)
{
	struct place *p = *state;
	char proof[ENC_PROOF_TEXT_MAX], path[128];
	struct enc_trail *t;

	make_log (p, 700);
	path_of (p, "log/tile", path);
	assert_int_equal (enc_remove_tree (AT_FDCWD, path, (uid_t)-1, NULL, NULL), 0);
	t = must_open (p);
	assert_int_equal (enc_remove_tree (AT_FDCWD, path, (uid_t)-1, NULL, NULL), 0);
	assert_true (enc_trail_prove (t, 3, proof, NULL) > 0);
	append (t, 400, 1);
	assert_int_equal (enc_trail_sign (t, 0, NULL), 0);
	enc_trail_free (t);
	expect (p, ENC_VERIFY_COMPLETE);
}

/* ---- crashes ---- */

static void invariant_05_committed_records_survive_a_kill_before_the_checkpoint (void **state)
{
	struct place *p = *state;
	struct enc_trail *t = must_open (p);

	append (t, 100, 1);
	/* No sign, no clean end: as after SIGKILL. */
	enc_trail_free (t);
	t = must_open (p);
	assert_int_equal (enc_trail_size (t), 100);
	assert_int_equal (enc_trail_repaired (t)->bytes, 0);
	enc_trail_free (t);
}

static void a_torn_tail_is_set_aside_and_the_rest_kept (void **state)
{
	struct place *p = *state;
	struct enc_trail *t;
	char path[256];
	uint8_t *data;
	size_t len;

	make_log (p, 50);
	t = must_open (p);
	append (t, 5, 1);
	enc_trail_free (t);
	data = load (p, SEG, &len);
	store (p, SEG, data, len - 3);
	t = must_open (p);
	assert_int_equal (enc_trail_size (t), 54);
	assert_true (enc_trail_repaired (t)->bytes > 0);
	(void)snprintf (path, sizeof (path), "%s/quarantine/%s", p->folder, enc_trail_repaired (t)->name);
	assert_int_equal (access (path, R_OK), 0);
	append (t, 5, 1);
	assert_int_equal (enc_trail_sign (t, 0, NULL), 0);
	enc_trail_free (t);
	free (data);
	expect (p, ENC_VERIFY_COMPLETE);
}

static void garbage_beyond_the_signed_end_is_set_aside (void **state)
{
	struct place *p = *state;
	struct enc_trail *t;
	uint8_t *data;
	size_t len;

	make_log (p, 50);
	data = load (p, SEG, &len);
	data = realloc (data, len + 4096);
	memset (data + len, 0, 4096);
	store (p, SEG, data, len + 4096);
	t = must_open (p);
	assert_int_equal (enc_trail_size (t), 50);
	assert_int_equal (enc_trail_repaired (t)->bytes, 4096);
	enc_trail_free (t);
	free (data);
}

static void a_torn_checkpoint_is_cut_and_made_again (void **state)
{
	struct place *p = *state;
	uint8_t *data;
	size_t len;
	char path[128];

	make_log (p, 50);
	data = load (p, "log/checkpoints", &len);
	store (p, "log/checkpoints", data, len - 20);
	/* It had not been published yet. */
	path_of (p, "log/checkpoint", path);
	assert_int_equal (unlink (path), 0);
	make_log (p, 1);
	expect (p, ENC_VERIFY_COMPLETE);
	free (data);
}

static void only_one_process_can_open_the_log (void **state)
{
	struct place *p = *state;
	struct enc_trail *t = must_open (p);

	assert_int_equal (try_open (p), -ENC_EBUSY);
	enc_trail_free (t);
	assert_int_equal (try_open (p), 0);
}

static void a_second_writer_that_ignores_the_lock_is_noticed (void **state)
{
	struct place *p = *state;
	struct enc_trail *t = must_open (p);
	struct enc_error err = { 0 };
	char path[128];
	int fd;

	append (t, 3, 1);
	path_of (p, SEG, path);
	fd = open (path, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_int_equal (write (fd, "x", 1), 1);
	append (t, 1, 0);
	assert_int_equal (enc_trail_commit (t, 0, &err), -ENC_EINTEGRITY);
	assert_int_equal (enc_trail_size (t), 3);
	(void)close (fd);
	enc_trail_free (t);
}

/* ---- attacks on the files ---- */

static void an_edited_byte_is_found_and_the_log_stays_shut (void **state)
{
	struct place *p = *state;
	uint8_t *data;
	size_t len;

	make_log (p, 60);
	data = load (p, SEG, &len);
	data[offset_of (data, len, 20) + ENC_FRAME_HEAD + 3] ^= 1;
	store (p, SEG, data, len);
	expect (p, ENC_VERIFY_ALTERED);
	assert_int_equal (try_open (p), -ENC_EINTEGRITY);
	free (data);
}

/* The attacker knows the format and repairs what needs no key. */
static void an_edit_with_a_good_crc_is_found_by_the_root (void **state)
{
	struct place *p = *state;
	struct enc_frame frame;
	uint8_t *data, copy[1024];
	size_t len, at;
	char *ts;

	make_log (p, 60);
	data = load (p, SEG, &len);
	at = offset_of (data, len, 20);
	assert_int_equal (enc_frame_parse (data + at, len - at, &frame), ENC_FRAME_GOOD);
	memcpy (copy, frame.body, frame.len);
	copy[frame.len] = '\0';
	ts = strstr ((char *)copy, "\"ts\":\"20");
	ts[6] = '1';
	(void)enc_frame_put (20, copy, frame.len, data + at);
	store (p, SEG, data, len);
	expect (p, ENC_VERIFY_ALTERED);
	assert_int_equal (try_open (p), -ENC_EINTEGRITY);
	free (data);
}

static void a_dropped_record_is_found (void **state)
{
	struct place *p = *state;
	uint8_t *data;
	size_t len, from, to;

	make_log (p, 60);
	data = load (p, SEG, &len);
	from = offset_of (data, len, 20);
	to = offset_of (data, len, 21);
	memmove (data + from, data + to, len - to);
	store (p, SEG, data, len - (to - from));
	expect (p, ENC_VERIFY_INCOMPLETE);
	assert_int_equal (try_open (p), -ENC_EINTEGRITY);
	free (data);
}

static void swapped_records_are_found (void **state)
{
	struct place *p = *state;
	uint8_t *data, *copy;
	size_t len, a, b, c;

	make_log (p, 60);
	data = load (p, SEG, &len);
	a = offset_of (data, len, 20);
	b = offset_of (data, len, 21);
	c = offset_of (data, len, 22);
	copy = malloc (c - a);
	memcpy (copy, data + b, c - b);
	memcpy (copy + (c - b), data + a, b - a);
	memcpy (data + a, copy, c - a);
	store (p, SEG, data, len);
	assert_true (verify (p, NULL, 0).result != ENC_VERIFY_COMPLETE);
	assert_int_equal (try_open (p), -ENC_EINTEGRITY);
	free (copy);
	free (data);
}

static void a_truncated_log_is_found (void **state)
{
	struct place *p = *state;
	uint8_t *data;
	size_t len;

	make_log (p, 60);
	data = load (p, SEG, &len);
	store (p, SEG, data, offset_of (data, len, 40));
	expect (p, ENC_VERIFY_INCOMPLETE);
	assert_int_equal (try_open (p), -ENC_EINTEGRITY);
	free (data);
}

/* Cut together with the checkpoints, the rest is whole in itself: only a head
 * that somebody kept elsewhere tells. `checkpoint` is such a one for the start. */
static void a_log_cut_with_its_checkpoints_is_found_by_a_head_that_was_kept (void **state)
{
	struct place *p = *state;
	struct enc_verify_seen seen;
	uint8_t *early, *early_heads, *kept;
	size_t early_len, heads_len;
	char path[128];

	make_log (p, 60);
	early = load (p, SEG, &early_len);
	early_heads = load (p, "log/checkpoints", &heads_len);
	make_log (p, 60);
	kept = load (p, "log/checkpoint", &seen.len);
	seen.text = (const char *)kept;
	store (p, SEG, early, early_len);
	store (p, "log/checkpoints", early_heads, heads_len);
	assert_int_equal (try_open (p), -ENC_EINTEGRITY);
	path_of (p, "log/checkpoint", path);
	assert_int_equal (unlink (path), 0);
	expect (p, ENC_VERIFY_COMPLETE);
	assert_int_equal (verify (p, &seen, 1).result, ENC_VERIFY_INCOMPLETE);
	free (early);
	free (early_heads);
	free (kept);
}

static void a_log_signed_anew_with_another_key_is_found (void **state)
{
	struct place *p = *state;
	struct place other;
	uint8_t *data;
	void *other_state = NULL;
	size_t len;

	make_log (p, 60);
	assert_int_equal (setup (&other_state), 0);
	other = *(struct place *)other_state;
	other.conf.state = other.folder;
	make_log (&other, 60);
	data = load (&other, SEG, &len);
	store (p, SEG, data, len);
	free (data);
	data = load (&other, "log/checkpoints", &len);
	store (p, "log/checkpoints", data, len);
	free (data);
	expect (p, ENC_VERIFY_ALTERED);
	assert_int_equal (try_open (p), -ENC_EINTEGRITY);
	assert_int_equal (teardown (&other_state), 0);
}

static void a_log_without_its_checkpoints_never_passes (void **state)
{
	struct place *p = *state;
	char path[128];

	make_log (p, 60);
	path_of (p, "log/checkpoints", path);
	assert_int_equal (unlink (path), 0);
	expect (p, ENC_VERIFY_UNSIGNED);
	assert_int_equal (try_open (p), -ENC_EINTEGRITY);
	store (p, "log/checkpoints", "", 0);
	expect (p, ENC_VERIFY_UNSIGNED);
	assert_int_equal (try_open (p), -ENC_EINTEGRITY);
	path_of (p, "log/checkpoint", path);
	assert_int_equal (unlink (path), 0);
	assert_int_equal (try_open (p), -ENC_EINTEGRITY);
}

static void a_missing_segment_is_found (void **state)
{
	struct place *p = *state;
	char path[128];

	p->conf.segment_bytes = 4096;
	make_log (p, 300);
	path_of (p, SEG, path);
	assert_int_equal (unlink (path), 0);
	expect (p, ENC_VERIFY_INCOMPLETE);
}

static void a_lost_or_open_key_stops_the_start (void **state)
{
	struct place *p = *state;
	char path[128];

	make_log (p, 6);
	path_of (p, "key", path);
	assert_int_equal (chmod (path, 0644), 0);
	assert_int_equal (try_open (p), -ENC_EDENIED);
	assert_int_equal (unlink (path), 0);
	assert_int_equal (try_open (p), -ENC_EINTEGRITY);
}

static void old_records_without_a_checkpoint_are_called_unsigned (void **state)
{
	struct place *p = *state;
	struct enc_trail *t;
	struct enc_verify_report report;

	make_log (p, 6);
	t = must_open (p);
	append (t, 2, 1);
	enc_trail_free (t);
	report = verify (p, NULL, 0);
	assert_int_equal (report.result, ENC_VERIFY_COMPLETE);
	assert_int_equal (report.unsigned_records, 2);
	/* The same bytes an hour later. */
	{
		char folder[128], path[128];
		enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (1024);
		struct enc_vkey vkey;
		struct enc_verify_conf conf = {
			.folder = folder, .vkey = &vkey, .tail_max_s = 10, .now = enc_now () + 3600 * ENC_NS_S
		};

		path_of (p, "log", folder);
		path_of (p, "log.vkey", path);
		assert_int_equal (enc_file_read (path, 1024, &text, NULL), 0);
		assert_int_equal (enc_vkey_parse ((const char *)text.data, text.len, &vkey, NULL), 0);
		enc_logverify (&conf, &report);
		assert_int_equal (report.result, ENC_VERIFY_UNSIGNED);
	}
}

#define T(name) cmocka_unit_test_setup_teardown (name, setup, teardown)

int main (void)
{
	const struct CMUnitTest tests[] = {
		T (a_log_verifies_and_goes_on_after_a_restart),
		T (segments_rotate_and_restart_anywhere),
		T (invariant_03_receipts_hold_for_each_record),
		T (lost_tiles_are_made_again),
		T (invariant_05_committed_records_survive_a_kill_before_the_checkpoint),
		T (a_torn_tail_is_set_aside_and_the_rest_kept),
		T (garbage_beyond_the_signed_end_is_set_aside),
		T (a_torn_checkpoint_is_cut_and_made_again),
		T (only_one_process_can_open_the_log),
		T (a_second_writer_that_ignores_the_lock_is_noticed),
		T (an_edited_byte_is_found_and_the_log_stays_shut),
		T (an_edit_with_a_good_crc_is_found_by_the_root),
		T (a_dropped_record_is_found),
		T (swapped_records_are_found),
		T (a_truncated_log_is_found),
		T (a_log_cut_with_its_checkpoints_is_found_by_a_head_that_was_kept),
		T (a_log_signed_anew_with_another_key_is_found),
		T (a_log_without_its_checkpoints_never_passes),
		T (a_missing_segment_is_found),
		T (a_lost_or_open_key_stops_the_start),
		T (old_records_without_a_checkpoint_are_called_unsigned),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
