#include "controller/witness/ledger.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/point.h"
#include "base/str.h"
#include "crypto/keyfile.h"
#include "crypto/tlog/tree.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "base/enc.h"

#define NOTE_MAX 8192

struct log {
	struct enc_vkey vkey;
	char hash[ENC_HASH_HEX_SIZE]; /* of the origin */
	struct enc_tree_head head;    /* last cosigned; size 0 and no note: none yet */
	char *note;
	size_t len;
};

struct enc_ledger {
	int dir_fd;
	int lock_fd;
	struct enc_sign_key *key;
	struct enc_vkey vkey;
	size_t n;
	struct log logs[ENC_LEDGER_LOGS];
};

/* ---- state ---- */

static void file_name (const struct log *log, char out[static 80])
{
	(void)snprintf (out, 80, "log-%s", log->hash);
}

/* Only what this witness itself cosigned counts as its memory. */
static int load_log (struct enc_ledger *l, struct log *log, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (NOTE_MAX);
	struct enc_note note;
	char name[80];
	uint64_t time;
	int rc;

	file_name (log, name);
	if ((rc = enc_file_read_at (l->dir_fd, name, NOTE_MAX, &text, err)) == -ENC_ENOTFOUND)
		return 0;
	if (rc < 0)
		return rc;
	if (enc_checkpoint_open ((const char *)text.data, text.len, &log->vkey, &log->head, err) < 0 ||
		enc_note_parse ((const char *)text.data, text.len, &note, err) < 0 || enc_cosign_check (&note, &l->vkey, &time, err) < 0)
		return enc_fail (err, ENC_EINTEGRITY, "%s: not a checkpoint that this witness cosigned", name);
	log->len = text.len;
	log->note = enc_buf_take_str (&text);
	return log->note ? 0 : enc_fail (err, ENC_ENOMEM, "out of memory");
}

static int open_folder (struct enc_ledger *l, const char *state, struct enc_error *err)
{
	if ((l->dir_fd = enc_open_dir (state, err)) < 0)
		return l->dir_fd;
	l->lock_fd = openat (l->dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (l->lock_fd < 0)
		return enc_fail_sys (err, "cannot open %s/lock", state);
	return flock (l->lock_fd, LOCK_EX | LOCK_NB) < 0 ? enc_fail (err, ENC_EBUSY, "another witness runs on %s", state) : 0;
}

static int load_key (struct enc_ledger *l, const char *name, struct enc_error *err)
{
	char text[ENC_VKEY_TEXT_MAX + 1];
	int rc = enc_keyfile_load (l->dir_fd, "key", &l->key, text, err);

	if (rc == -ENC_ENOTFOUND) {
		for (size_t i = 0; i < l->n; i++) {
			char file[80];

			file_name (&l->logs[i], file);
			if (faccessat (l->dir_fd, file, F_OK, 0) == 0)
				return enc_fail (err, ENC_EINTEGRITY, "there are cosigned checkpoints, and the key is gone");
		}
		rc = enc_keyfile_make (l->dir_fd, "key", name, &l->key, err);
	} else if (rc == 0 && !enc_streq (text, name)) {
		return enc_fail (err, ENC_EINTEGRITY, "the key is that of %s, not of %s", text, name);
	}
	if (rc < 0 || (rc = enc_cosign_vkey (&l->vkey, name, l->key, err)) < 0)
		return rc;
	enc_vkey_format (&l->vkey, text);
	memcpy (text + strlen (text), "\n", 2);
	return enc_file_write_at (l->dir_fd, "witness.vkey", text, strlen (text), &ENC_FILE_ATTR (0644), err);
}

static int open_all (struct enc_ledger *l, const char *state, const char *name, struct enc_error *err)
{
	int rc = open_folder (l, state, err);

	if (rc == 0)
		rc = load_key (l, name, err);
	for (size_t i = 0; rc == 0 && i < l->n; i++)
		rc = load_log (l, &l->logs[i], err);
	return rc;
}

struct enc_ledger *enc_ledger_open (
	const char *state, const char *name, const struct enc_vkey *logs, size_t n_logs, struct enc_error *err)
{
	enc_auto (enc_ledger) struct enc_ledger *l = calloc (1, sizeof (*l));

	if (!l || n_logs > ENC_LEDGER_LOGS) {
		(void)enc_fail (err, l ? ENC_ELIMIT : ENC_ENOMEM, l ? "too many logs" : "out of memory");
		return NULL;
	}
	l->dir_fd = l->lock_fd = -1;
	for (l->n = 0; l->n < n_logs; l->n++) {
		struct enc_hash hash;

		l->logs[l->n].vkey = logs[l->n];
		enc_sha256 (logs[l->n].name, strlen (logs[l->n].name), &hash);
		enc_hash_hex (&hash, l->logs[l->n].hash);
	}
	return open_all (l, state, name, err) < 0 ? NULL : ENC_TAKE (l);
}

void enc_ledger_free (struct enc_ledger *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		free (l->logs[i].note);
	enc_sign_key_free (l->key);
	if (l->dir_fd >= 0)
		(void)close (l->dir_fd);
	if (l->lock_fd >= 0)
		(void)close (l->lock_fd);
	free (l);
}

const struct enc_vkey *enc_ledger_vkey (const struct enc_ledger *l)
{
	return &l->vkey;
}

const char *enc_ledger_last (const struct enc_ledger *l, const char *hash, size_t *ret_len)
{
	for (size_t i = 0; i < l->n; i++)
		if (enc_streq (l->logs[i].hash, hash)) {
			*ret_len = l->logs[i].len;
			return l->logs[i].note;
		}
	return NULL;
}

/* ---- add-checkpoint ---- */

struct request {
	uint64_t old;
	struct enc_path path;
	const char *note;
	size_t len;
};

static int parse_old (const char *line, size_t len, uint64_t *ret)
{
	uint64_t v = 0;

	if (len < 5 || len > 4 + 19 || memcmp (line, "old ", 4) != 0 || (line[4] == '0' && len > 5))
		return -1;
	for (size_t i = 4; i < len; i++) {
		if (line[i] < '0' || line[i] > '9')
			return -1;
		v = v * 10 + (uint64_t)(line[i] - '0');
	}
	*ret = v;
	return 0;
}

static int parse (const char *body, size_t len, struct request *ret, struct enc_error *err)
{
	const char *end = body + len;
	const char *nl = memchr (body, '\n', len);

	ret->path.n = 0;
	if (!nl || parse_old (body, (size_t)(nl - body), &ret->old) < 0)
		return enc_fail (err, ENC_EINVAL, "no line with the old size");
	for (body = nl + 1; body < end; body = nl + 1) {
		nl = memchr (body, '\n', (size_t)(end - body));
		if (nl == body) {
			ret->note = body + 1;
			ret->len = (size_t)(end - ret->note);
			return 0;
		}
		if (!nl || ret->path.n == ENC_TREE_LEVELS || enc_hash_from_b64 (body, (size_t)(nl - body), &ret->path.hash[ret->path.n]) < 0)
			return enc_fail (err, ENC_EINVAL, "bad line of the consistency proof");
		ret->path.n++;
	}
	return enc_fail (err, ENC_EINVAL, "no checkpoint");
}

static struct log *find_log (struct enc_ledger *l, const struct request *in, struct enc_ledger_answer *out)
{
	const char *nl = memchr (in->note, '\n', in->len);
	size_t len = nl ? (size_t)(nl - in->note) : 0;

	for (size_t i = 0; i < l->n; i++)
		if (len == strlen (l->logs[i].vkey.name) && memcmp (in->note, l->logs[i].vkey.name, len) == 0) {
			(void)snprintf (out->origin, sizeof (out->origin), "%s", l->logs[i].vkey.name);
			return &l->logs[i];
		}
	return NULL;
}

/* Why not, and the status for it. */
static int refuse (struct enc_error *err, enum enc_code code, int status, const char *why)
{
	(void)enc_fail (err, code, "%s", why);
	return status;
}

/* Does the new head continue the one that was cosigned last? Returns a status. */
static int compare (const struct log *log, const struct request *in, const struct enc_tree_head *head, struct enc_error *err)
{
	struct enc_tree_head last = log->head;

	if (!log->note)
		enc_hash_empty (&last.root);
	if (in->old > head->size)
		return refuse (err, ENC_EINVAL, 400, "the old size is above that of the checkpoint");
	if (in->old != last.size)
		return refuse (err, ENC_ECONFLICT, 409, "the old size is not the one that was cosigned last");
	if (in->path.n > 0 && (last.size == 0 || head->size == last.size))
		return refuse (err, ENC_EINTEGRITY, 422, "a proof where none is due");
	if (head->size == last.size && !enc_hash_equal (&last.root, &head->root))
		return refuse (err, ENC_EINTEGRITY, 409, "a fork: another root for the size that was cosigned last");
	if (last.size > 0 && head->size > last.size && enc_tree_check_grown (&last, head, &in->path) < 0)
		return refuse (err, ENC_EINTEGRITY, 422, "a fork: no continuation of what was cosigned last");
	return 200;
}

/* Cosign and remember, in this order of effects: the line leaves only after the memory is on disk. */
static int cosign (struct enc_ledger *l, struct log *log, const struct request *in, const struct enc_tree_head *head, uint64_t now,
	struct enc_ledger_answer *out, struct enc_error *err)
{
	enc_auto_free char *kept = malloc (NOTE_MAX);
	char line[ENC_COSIGN_LINE_MAX], name[80];
	struct enc_note note;
	size_t used = 0;
	ssize_t n;

	/* Others' signatures stay out of the memory: who sends them is nobody whom we know. */
	if (!kept || enc_note_parse (in->note, in->len, &note, err) < 0 ||
		(n = enc_cosign (&note, &l->vkey, l->key, now, line, sizeof (line), err)) < 0 ||
		enc_note_pick (&note, &log->vkey, kept, NOTE_MAX - (size_t)n - 1, &used, err) < 0)
		return 500;
	memcpy (kept + used, line, (size_t)n + 1);
	used += (size_t)n;
	file_name (log, name);
	if (enc_point ("witness.before_store", err) < 0 ||
		enc_file_write_at (l->dir_fd, name, kept, used, &ENC_FILE_ATTR (0600), err) < 0 ||
		enc_point ("witness.after_store", err) < 0)
		return 500;
	free (log->note);
	log->note = ENC_TAKE (kept);
	log->len = used;
	log->head = *head;
	memcpy (out->text, line, (size_t)n + 1);
	return 200;
}

void enc_ledger_add (
	struct enc_ledger *l, const char *body, size_t len, uint64_t now, struct enc_ledger_answer *ret, struct enc_error *err)
{
	struct request in;
	struct enc_tree_head head;
	struct log *log;
	int rc;

	*ret = (struct enc_ledger_answer){ .status = 400 };
	if (len > ENC_LEDGER_BODY_MAX || parse (body, len, &in, err) < 0)
		return;
	log = find_log (l, &in, ret);
	if (!log) {
		ret->status = refuse (err, ENC_ENOTFOUND, 404, "not a log that this witness knows");
		return;
	}
	rc = enc_checkpoint_open (in.note, in.len, &log->vkey, &head, err);
	if (rc < 0) {
		ret->status = rc == -ENC_EINVAL ? 400 : 403;
		return;
	}
	ret->size = head.size;
	ret->status = compare (log, &in, &head, err);
	if (ret->status == 200)
		ret->status = cosign (l, log, &in, &head, now, ret, err);
	if (ret->status == 409)
		(void)snprintf (ret->text, sizeof (ret->text), "%llu\n", (unsigned long long)log->head.size);
}
