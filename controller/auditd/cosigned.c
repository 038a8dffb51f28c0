#include "controller/auditd/cosigned.h"

#include "controller/auditd/trail_private.h"

#include "base/enctime.h"
#include "base/str.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/enc.h"

#define GIVEN 64
#define APPEND_S 10  /* while the log grows */
#define REFRESH_S 60 /* while it does not: the file says how old the last word is */

const char *const enc_cosign_state_names[] = { "new", "ok", "down", "refused", "conflict", NULL };

/* A checkpoint, and who has cosigned it so far. */
struct gathered {
	struct enc_tree_head head;
	char note[ENC_CHECKPOINT_MAX]; /* with our own signature alone */
	struct enc_tlog_quorum quorum;
	char lines[ENC_POLICY_WITNESSES][ENC_COSIGN_LINE_MAX];
};

struct heard {
	enum enc_cosign_state state;
	char text[160];
	uint64_t size; /* last cosigned, or what the witness says it saw */
	uint64_t time;
};

struct enc_cosigned {
	struct enc_trail *log;
	struct enc_tlog_policy *policy;
	struct enc_tree_head given[GIVEN];
	size_t n_given;
	struct gathered now;  /* the newest head that anybody cosigned */
	struct gathered last; /* the newest with a quorum */
	struct heard heard[ENC_POLICY_WITNESSES];
	struct enc_cosigned_head out;
	char *text; /* of `out` */
	int fd;
	uint64_t end;
	uint64_t written_size;
	int64_t written_at;
};

static int same_head (const struct enc_tree_head *a, const struct enc_tree_head *b)
{
	return a->size == b->size && enc_hash_equal (&a->root, &b->root);
}

static uint64_t now_s (void)
{
	return (uint64_t)(enc_now () / ENC_NS_S);
}

/* ---- opening ---- */

/* The signature lines of a note, by witness. */
static void take_lines (struct enc_cosigned *c, const struct enc_note *note, struct gathered *g)
{
	for (size_t i = 0; c->policy && i < enc_tlog_policy_witnesses (c->policy); i++) {
		char one[ENC_NOTE_MAX / 16];
		size_t len = 0;

		if (g->quorum.times[i] > 0 && enc_note_pick (note, &enc_tlog_policy_witness (c->policy, i)->vkey, one, sizeof (one), &len, NULL) == 0)
			(void)snprintf (g->lines[i], sizeof (g->lines[i]), "%s", one + note->text_len + 1);
	}
}

static int take_stored (struct enc_cosigned *c, const struct enc_heads_item *item, struct enc_error *err)
{
	struct enc_note note;
	struct gathered g = { 0 };
	size_t len;

	if (enc_checkpoint_open (item->text, item->len, &c->log->vkey, &g.head, err) < 0 ||
		enc_note_parse (item->text, item->len, &note, err) < 0 ||
		enc_note_pick (&note, &c->log->vkey, g.note, sizeof (g.note), &len, err) < 0)
		return enc_fail (err, ENC_EINTEGRITY, "cosigned: damaged at byte %llu", (unsigned long long)item->offset);
	if (g.head.size > c->log->last.head.size)
		return enc_error_next (err,
			enc_fail (err, ENC_EINTEGRITY, "witnesses cosigned %llu records, and the log's head has %llu",
				(unsigned long long)g.head.size, (unsigned long long)c->log->last.head.size),
			"copy %s and treat it as an incident", c->log->state_path);
	if (!c->policy || enc_tlog_policy_judge (c->policy, &note, &g.quorum, NULL) < 0 || !g.quorum.met)
		return 0;
	take_lines (c, &note, &g);
	c->last = c->now = g;
	c->written_size = g.head.size;
	return 0;
}

static int load (struct enc_cosigned *c, struct enc_error *err)
{
	struct enc_heads *heads = enc_heads_open (c->log->log_fd, "cosigned", err);
	enum enc_read_state state;
	struct enc_heads_item item;
	int rc = 0;

	if (!heads)
		return err && err->code == ENC_ENOTFOUND ? 0 : -ENC_ESYS;
	while (rc == 0 && (state = enc_heads_next (heads, &item)) == ENC_READ_GOOD)
		rc = take_stored (c, &item, err);
	c->end = item.offset;
	enc_heads_free (heads);
	if (rc == 0 && state != ENC_READ_END && state != ENC_READ_SHORT)
		return enc_fail (err, ENC_EINTEGRITY, "cosigned: damaged at byte %llu", (unsigned long long)item.offset);
	return rc;
}

struct enc_cosigned *enc_cosigned_open (struct enc_trail *log, struct enc_tlog_policy *policy, struct enc_error *err)
{
	enc_auto (enc_cosigned) struct enc_cosigned *c = calloc (1, sizeof (*c));

	if (!c) {
		enc_tlog_policy_free (policy);
		(void)enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	c->log = log;
	c->policy = policy;
	c->fd = -1;
	if (load (c, err) < 0)
		return NULL;
	c->fd = openat (log->log_fd, "cosigned", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	/* A torn end was never relied on. */
	if (c->fd < 0 || ftruncate (c->fd, (off_t)c->end) < 0) {
		(void)enc_fail_sys (err, "cannot open the file of cosigned checkpoints");
		return NULL;
	}
	return ENC_TAKE (c);
}

void enc_cosigned_free (struct enc_cosigned *c)
{
	if (!c)
		return;
	if (c->fd >= 0)
		(void)close (c->fd);
	enc_tlog_policy_free (c->policy);
	free (c->text);
	free (c);
}

void enc_cosigned_set_policy (struct enc_cosigned *c, struct enc_tlog_policy *policy)
{
	enc_tlog_policy_free (c->policy);
	c->policy = policy;
	memset (c->heard, 0, sizeof (c->heard));
	memset (&c->now, 0, sizeof (c->now));
	memset (&c->last, 0, sizeof (c->last));
}

/* ---- gathering ---- */

void enc_cosigned_gave (struct enc_cosigned *c, const struct enc_tree_head *head)
{
	if (c->n_given > 0 && same_head (&c->given[(c->n_given - 1) % GIVEN], head))
		return;
	c->given[c->n_given++ % GIVEN] = *head;
}

static int was_given (const struct enc_cosigned *c, const struct enc_tree_head *head)
{
	for (size_t i = 0; i < GIVEN && i < c->n_given; i++)
		if (same_head (&c->given[i], head))
			return 1;
	return 0;
}

static int find_witness (const struct enc_cosigned *c, const char *name, size_t *ret, struct enc_error *err)
{
	for (size_t i = 0; c->policy && i < enc_tlog_policy_witnesses (c->policy); i++)
		if (enc_streq (enc_tlog_policy_witness (c->policy, i)->name, name)) {
			*ret = i;
			return 0;
		}
	return enc_fail (err, ENC_ENOTFOUND, "no witness of that name in the policy");
}

static void put_line (struct enc_cosigned *c, struct gathered *g, size_t i, const char *line, uint64_t time)
{
	if (time < g->quorum.times[i])
		return;
	g->quorum.times[i] = time;
	(void)snprintf (g->lines[i], sizeof (g->lines[i]), "%s", line);
	enc_tlog_policy_weigh (c->policy, &g->quorum);
}

int enc_cosigned_add (struct enc_cosigned *c, const char *witness, const char *text, size_t len, struct enc_error *err)
{
	char own[ENC_CHECKPOINT_MAX], line[ENC_CHECKPOINT_MAX + ENC_COSIGN_LINE_MAX];
	const struct enc_vkey *vkey;
	struct enc_tree_head head;
	struct enc_note note;
	size_t i = 0, own_len, line_len;
	uint64_t time = 0;
	int rc;

	if ((rc = find_witness (c, witness, &i, err)) < 0)
		return rc;
	vkey = &enc_tlog_policy_witness (c->policy, i)->vkey;
	if ((rc = enc_checkpoint_open (text, len, &c->log->vkey, &head, err)) < 0 || (rc = enc_note_parse (text, len, &note, err)) < 0 ||
		(rc = enc_cosign_check (&note, vkey, &time, err)) < 0 ||
		(rc = enc_note_pick (&note, &c->log->vkey, own, sizeof (own), &own_len, err)) < 0 ||
		(rc = enc_note_pick (&note, vkey, line, sizeof (line), &line_len, err)) < 0)
		return rc;
	if (!was_given (c, &head))
		return enc_fail (err, ENC_ENOTFOUND, "not a head that was given out for cosigning");
	if (head.size > c->now.head.size || c->now.note[0] == '\0') {
		memset (&c->now, 0, sizeof (c->now));
		c->now.head = head;
		memcpy (c->now.note, own, own_len + 1);
	}
	if (same_head (&head, &c->now.head))
		put_line (c, &c->now, i, line + note.text_len + 1, time);
	if (same_head (&head, &c->last.head) && !same_head (&head, &c->now.head))
		put_line (c, &c->last, i, line + note.text_len + 1, time);
	if (c->now.quorum.met && c->now.quorum.cosigned > 0)
		c->last = c->now;
	if (head.size >= c->heard[i].size || c->heard[i].state == ENC_COSIGN_CONFLICT)
		c->heard[i] = (struct heard){ .state = ENC_COSIGN_OK, .size = head.size, .time = time };
	return 0;
}

int enc_cosigned_tell (
	struct enc_cosigned *c, const char *witness, enum enc_cosign_state state, const char *text, uint64_t size, struct enc_error *err)
{
	size_t i = 0;
	int changed, rc = find_witness (c, witness, &i, err);

	if (rc < 0)
		return rc;
	changed = c->heard[i].state != state;
	c->heard[i].state = state;
	(void)snprintf (c->heard[i].text, sizeof (c->heard[i].text), "%s", text ? text : "");
	if (state == ENC_COSIGN_CONFLICT)
		c->heard[i].size = size;
	return changed;
}

/* ---- giving ---- */

const struct enc_cosigned_head *enc_cosigned_last (struct enc_cosigned *c)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (ENC_NOTE_MAX);

	if (c->last.note[0] == '\0')
		return NULL;
	enc_buf_put (&text, c->last.note, strlen (c->last.note));
	for (size_t i = 0; i < ENC_POLICY_WITNESSES; i++)
		enc_buf_put (&text, c->last.lines[i], strlen (c->last.lines[i]));
	free (c->text);
	c->out = (struct enc_cosigned_head){ .head = c->last.head, .len = text.len };
	c->text = enc_buf_take_str (&text);
	c->out.text = c->text;
	return c->text ? &c->out : NULL;
}

int enc_cosigned_flush (struct enc_cosigned *c, int now, struct enc_error *err)
{
	int64_t at = enc_mono () / ENC_NS_S;
	int64_t wait = c->last.head.size > c->written_size ? APPEND_S : REFRESH_S;
	const struct enc_cosigned_head *last;
	struct enc_span data;
	int rc;

	if (c->last.note[0] == '\0' || (c->written_at != 0 && at - c->written_at < wait && !(now && wait == APPEND_S)))
		return 0;
	if (!(last = enc_cosigned_last (c)))
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	data = (struct enc_span){ last->text, last->len };
	c->written_at = at;
	if ((rc = enc_trail_write (c->log, c->fd, c->end, &data, "audit.cosigned", 0, err)) < 0)
		return rc;
	c->end += data.len;
	c->written_size = last->head.size;
	return 0;
}

uint64_t enc_cosigned_age (const struct enc_cosigned *c)
{
	uint64_t now = now_s ();

	if (!c->policy || enc_tlog_policy_required (c->policy) == 0)
		return 0;
	if (c->last.quorum.time == 0)
		return UINT64_MAX;
	return now > c->last.quorum.time ? now - c->last.quorum.time : 0;
}

void enc_cosigned_put (struct enc_cosigned *c, struct enc_json *out)
{
	struct enc_json *o = enc_json_set_object (out, "witnesses");
	uint64_t age = enc_cosigned_age (c);

	enc_json_set_u64 (o, "required", c->policy ? enc_tlog_policy_required (c->policy) : 0);
	enc_json_set_u64 (o, "cosigned", c->last.quorum.cosigned);
	if (c->last.quorum.time == 0 || age == UINT64_MAX)
		enc_json_set_null (o, "age_s");
	else
		enc_json_set_u64 (o, "age_s", age);
	enc_json_set_u64 (o, "size", c->last.head.size);
}

void enc_cosigned_alarm (const struct enc_cosigned *c, struct enc_json *out)
{
	int alarm = 0;

	for (size_t i = 0; i < ENC_POLICY_WITNESSES; i++)
		alarm |= c->heard[i].state == ENC_COSIGN_CONFLICT;
	enc_json_set_bool (out, "witness_alarm", alarm);
	if (c->last.quorum.time == 0)
		enc_json_set_null (out, "witness_age_s");
	else
		enc_json_set_u64 (out, "witness_age_s", enc_cosigned_age (c));
}

void enc_cosigned_list (struct enc_cosigned *c, struct enc_json *out)
{
	struct enc_json *list;
	char text[ENC_VKEY_TEXT_MAX];

	enc_cosigned_put (c, out);
	list = enc_json_set_array (out, "list");
	for (size_t i = 0; c->policy && i < enc_tlog_policy_witnesses (c->policy); i++) {
		const struct enc_tlog_witness *w = enc_tlog_policy_witness (c->policy, i);
		struct enc_json *o = enc_json_add_object (list);

		enc_vkey_format (&w->vkey, text);
		enc_json_set_str (o, "name", w->name);
		enc_json_set_str (o, "state", enc_cosign_state_names[c->heard[i].state]);
		enc_json_set_u64 (o, "size", c->heard[i].size);
		if (c->heard[i].time)
			enc_json_set_u64 (o, "age_s", now_s () > c->heard[i].time ? now_s () - c->heard[i].time : 0);
		else
			enc_json_set_null (o, "age_s");
		enc_json_set_str (o, "text", c->heard[i].text[0] ? c->heard[i].text : NULL);
		enc_json_set_str (o, "url", w->url[0] ? w->url : NULL);
		enc_json_set_str (o, "vkey", text);
	}
}
