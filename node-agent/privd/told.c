#include "node-agent/privd/told.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/enctime.h"
#include "base/file.h"
#include "base/log.h"
#include "node-agent/privd/procs.h"

#include "base/enc.h"

enum { SESSIONS_MAX = 256, FILE_MAX = 64 * 1024, FLOOD_MAX = 30, FLOOD_S = 60 };

struct session {
	struct enc_sessions *all;
	char id[27], user[33], source[46];
	pid_t pid;
	uint64_t start;      /* of the process */
	uint32_t login;      /* its audit session, that of all it starts */
	int64_t opened;      /* Unix seconds */
	bool ordered;
	int pidfd;
	struct event *gone;
};

struct enc_sessions {
	struct enc_privd *p;
	char *path;
	uid_t slurm;
	struct session *v[SESSIONS_MAX];
	size_t n;
	/* failures of this minute: beyond FLOOD_MAX they are counted only */
	int64_t minute;
	unsigned failures;
	uint64_t untold;
};

/* One row a kind: the event, and what of a told thing it may carry. */
enum { HAS_SESSION = 1, HAS_PEER = 2, HAS_FACTOR = 4, HAS_REASON = 8, HAS_JOB = 16, HAS_TRAFFIC = 32, BY_SLURM = 64, FLOODS = 128 };
static const struct kind {
	const char *class, *action, *outcome;
	unsigned has;
} kinds[ENC_TOLD_MAX + 1] = {
	[ENC_TOLD_LOGIN] = { "auth", "login", "ok", HAS_PEER | HAS_FACTOR },
	[ENC_TOLD_LOGIN_FAILED] = { "auth", "failed", "denied", HAS_PEER | HAS_FACTOR | HAS_REASON | FLOODS },
	[ENC_TOLD_SESSION_START] = { "session", "start", "ok", HAS_SESSION | HAS_PEER | HAS_FACTOR },
	[ENC_TOLD_SESSION_END] = { "session", "end", "ok", HAS_SESSION | HAS_PEER | HAS_REASON | HAS_TRAFFIC },
	[ENC_TOLD_JOB_START] = { "job", "start", "ok", HAS_JOB },
	[ENC_TOLD_JOB_END] = { "job", "end", "ok", HAS_JOB | HAS_REASON },
	[ENC_TOLD_JOB_REFUSED] = { "job", "refused", "denied", HAS_JOB | HAS_REASON | BY_SLURM | FLOODS },
};

/* ---- records ---- */

static void set_actor (struct enc_json *event, const struct enc_told *t, unsigned has)
{
	struct enc_json *actor = enc_json_set_object (event, "actor");

	/* What a stranger called himself is not told on: people type their password there. */
	enc_json_set_str (actor, "user", t->user[0] ? t->user : "unknown");
	if (has & HAS_SESSION)
		enc_json_set_str (actor, "session", t->session);
	if ((has & HAS_FACTOR) && t->factor[0])
		enc_json_set_bool (actor, "mfa", strchr (t->factor, '+') != NULL);
	if ((has & HAS_PEER) && t->source[0])
		enc_json_set_str (enc_json_set_object (event, "peer"), "ip", t->source);
}

static void set_data (struct enc_json *event, const struct enc_told *t, unsigned has)
{
	struct enc_json *data = enc_json_set_object (event, "data");

	if ((has & HAS_FACTOR) && t->factor[0])
		enc_json_set_str (data, "factor", t->factor);
	if ((has & HAS_REASON) && t->reason[0])
		enc_json_set_str (data, "reason", t->reason);
	if (has & HAS_TRAFFIC) {
		enc_json_set_u64 (data, "seconds", t->seconds);
		if (t->bytes_in || t->bytes_out) {
			enc_json_set_u64 (data, "bytes_in", t->bytes_in);
			enc_json_set_u64 (data, "bytes_out", t->bytes_out);
		}
	}
}

static uint64_t put (struct enc_sessions *s, const struct enc_told *t, uint64_t count)
{
	const struct kind *k = &kinds[t->kind];
	struct enc_json *event = enc_json_object (), *obj = enc_json_set_object (event, "obj");
	char job[16];

	enc_json_set_str (event, "class", k->class);
	enc_json_set_str (event, "action", k->action);
	enc_json_set_str (event, "outcome", k->outcome);
	enc_json_set_str (obj, "node", s->p->conf.node);
	enc_json_set_str (obj, "enclave_id", s->p->state.enclave_id);
	if ((k->has & HAS_JOB) && t->job) {
		(void)snprintf (job, sizeof job, "%u", t->job);
		enc_json_set_str (obj, "job", job);
	}
	set_actor (event, t, k->has);
	set_data (event, t, k->has);
	if (count)
		enc_json_set_u64 (enc_json_get (event, "data"), "count", count);
	return enc_spool_put (&s->p->spool, event);
}

/* Somebody who knocks without end must not push other records out: so many a minute are told one by one, then a number. */
static bool flooded (struct enc_sessions *s)
{
	int64_t minute = enc_now_s () / FLOOD_S;

	if (minute != s->minute) {
		s->minute = minute;
		s->failures = 0;
	}
	if (s->failures++ < FLOOD_MAX)
		return false;
	s->untold++;
	return true;
}

/* ---- sessions ---- */

uint64_t enc_proc_start (pid_t pid)
{
	enc_auto_done (enc_buf_done) struct enc_buf file = ENC_BUF_INIT (4096);
	char path[32], *at, *text;
	uint64_t value = 0;

	(void)snprintf (path, sizeof path, "/proc/%d/stat", (int)pid);
	if (enc_file_read (path, file.max - 1, &file, NULL) < 0 || !(text = enc_buf_take_str (&file)))
		return 0;
	/* After the name, which may hold anything, in the last ")": the start is field 22. */
	at = strrchr (text, ')');
	for (int field = 2; at && field < 22; field++)
		if ((at = strchr (at + 1, ' ')) == NULL)
			break;
	if (at) {
		at[1 + strcspn (at + 1, " \n")] = '\0';
		(void)!enc_parse_u64 (at + 1, 1, UINT64_MAX, &value, NULL);
	}
	free (text);
	return value;
}

static void keep (const struct enc_sessions *s)
{
	struct enc_file_attr attr = ENC_FILE_ATTR (0600);
	enc_auto (enc_json) struct enc_json *list = enc_json_array ();
	enc_auto_free char *text = NULL;
	struct enc_error err = { 0 };
	size_t len;

	for (size_t i = 0; i < s->n; i++) {
		struct enc_json *row = enc_json_add_object (list);
		enc_json_set_str (row, "id", s->v[i]->id);
		enc_json_set_str (row, "user", s->v[i]->user);
		enc_json_set_str (row, "source", s->v[i]->source);
		enc_json_set_i64 (row, "pid", s->v[i]->pid);
		enc_json_set_u64 (row, "start", s->v[i]->start);
		enc_json_set_u64 (row, "login", s->v[i]->login);
		enc_json_set_i64 (row, "opened", s->v[i]->opened);
	}
	if (!(text = enc_json_write (list, &len, &err)) || enc_file_write (s->path, text, len, &attr, &err) < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "sessions are not written");
}

static struct session *find (const struct enc_sessions *s, const char *id)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp (s->v[i]->id, id) == 0)
			return s->v[i];
	return NULL;
}

static void drop (struct session *one)
{
	struct enc_sessions *s = one->all;
	size_t i = 0;

	while (i < s->n && s->v[i] != one)
		i++;
	if (i < s->n)
		s->v[i] = s->v[--s->n];
	if (one->gone)
		event_free (one->gone);
	if (one->pidfd >= 0)
		(void)close (one->pidfd);
	free (one);
}

static void ended (struct session *one, const char *reason)
{
	struct enc_told t = { .kind = ENC_TOLD_SESSION_END };
	struct enc_sessions *s = one->all;

	memcpy (t.session, one->id, sizeof t.session);
	memcpy (t.user, one->user, sizeof t.user);
	memcpy (t.source, one->source, sizeof t.source);
	(void)snprintf (t.reason, sizeof t.reason, "%s", one->ordered ? "ended by order" : reason);
	t.seconds = (uint64_t)(enc_now_s () - one->opened);
	(void)put (s, &t, 0);
	enc_runner_end_rest (s->p->runner, one->login);
	drop (one);
	keep (s);
}

static void on_gone (evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	ended (arg, "its process ended without a word");
}

/* Watch the process. False when it is not the one any more. */
static bool watch (struct session *one)
{
	one->pidfd = (int)syscall (SYS_pidfd_open, one->pid, 0);
	if (one->pidfd < 0 || enc_proc_start (one->pid) != one->start)
		return false;
	one->gone = event_new (one->all->p->base, one->pidfd, EV_READ, on_gone, one);
	return one->gone && event_add (one->gone, NULL) == 0;
}

static struct session *add (struct enc_sessions *s, const struct enc_told *t, pid_t pid, struct enc_error *err)
{
	struct session *one = s->n < SESSIONS_MAX ? calloc (1, sizeof *one) : NULL;

	if (!one) {
		(void)enc_fail (err, ENC_ELIMIT, "too many sessions are open");
		return NULL;
	}
	*one = (struct session){ .all = s, .pid = pid, .start = enc_proc_start (pid), .login = enc_proc_login (pid), .opened = enc_now_s (), .pidfd = -1 };
	memcpy (one->id, t->session, sizeof one->id);
	memcpy (one->user, t->user, sizeof one->user);
	memcpy (one->source, t->source, sizeof one->source);
	s->v[s->n++] = one;
	return one;
}

static int session_starts (struct enc_sessions *s, const struct enc_peer *peer, const struct enc_told *t, uint64_t *ret, struct enc_error *err)
{
	struct session *one;

	if (!t->user[0] || find (s, t->session))
		return enc_fail (err, ENC_EINVAL, "a session of nobody, or one that is open already");
	if (!(one = add (s, t, peer->pid, err)))
		return -ENC_ELIMIT;
	if (!watch (one)) {
		drop (one);
		return enc_fail (err, ENC_EUNAVAIL, "the session's process is gone");
	}
	*ret = put (s, t, 0);
	keep (s);
	return 0;
}

static int session_ends (struct enc_sessions *s, const struct enc_told *t, uint64_t *ret, struct enc_error *err)
{
	struct session *one = find (s, t->session);
	struct enc_told end = *t;

	if (!one)
		return enc_fail (err, ENC_ENOTFOUND, "no such session is open");
	memcpy (end.user, one->user, sizeof end.user);
	memcpy (end.source, one->source, sizeof end.source);
	if (one->ordered)
		(void)snprintf (end.reason, sizeof end.reason, "ended by order");
	end.seconds = (uint64_t)(enc_now_s () - one->opened);
	*ret = put (s, &end, 0);
	enc_runner_end_rest (s->p->runner, one->login);
	drop (one);
	keep (s);
	return 0;
}

/* ---- taking ---- */

static bool may_tell (const struct enc_sessions *s, const struct enc_peer *peer, const struct kind *k)
{
	return peer->uid == 0 || ((k->has & BY_SLURM) && peer->uid == s->slurm);
}

int enc_told_take (struct enc_privd *p, const struct enc_peer *peer, const struct enc_told *t, uint64_t *ret_counter, struct enc_error *err)
{
	struct enc_sessions *s = p->sessions;
	const struct kind *k = &kinds[t->kind];

	if (!may_tell (s, peer, k) || p->state.pool != ENC_POOL_ENCLAVE || !p->state.enclave_id)
		return enc_fail (err, ENC_EDENIED, "%s.%s is not yours to tell, or this node is in no enclave", k->class, k->action);
	if (t->kind == ENC_TOLD_SESSION_START)
		return session_starts (s, peer, t, ret_counter, err);
	if (t->kind == ENC_TOLD_SESSION_END)
		return session_ends (s, t, ret_counter, err);
	if ((k->has & FLOODS) && flooded (s)) {
		*ret_counter = 0;
		return 0;
	}
	*ret_counter = put (s, t, (k->has & FLOODS) ? s->untold : 0);
	if (k->has & FLOODS)
		s->untold = 0;
	return 0;
}

int enc_session_task (struct enc_privd *p, const char *id, struct enc_buf *out, struct enc_error *err)
{
	const struct session *one = find (p->sessions, id);

	if (!one)
		return enc_fail (err, ENC_ENOTFOUND, "no such session is open");
	enc_buf_put_u32 (out, (uint32_t)one->pid);
	enc_buf_put_u64 (out, one->start);
	return enc_buf_check (out, err);
}

void enc_session_ordered (struct enc_privd *p, const char *id)
{
	struct session *one = find (p->sessions, id);

	if (one)
		one->ordered = true;
}

/* ---- start ---- */

static void take_back (struct enc_sessions *s, const struct enc_json *row)
{
	struct enc_told t = { 0 };
	struct session *one;

	if (enc_str_copy (t.session, sizeof t.session, enc_json_get_str (row, "id", ""), NULL) < 0 || !enc_id_ok (t.session) ||
		enc_str_copy (t.user, sizeof t.user, enc_json_get_str (row, "user", ""), NULL) < 0 ||
		enc_str_copy (t.source, sizeof t.source, enc_json_get_str (row, "source", ""), NULL) < 0)
		return;
	if (!(one = add (s, &t, (pid_t)enc_json_get_i64 (row, "pid", 0), NULL)))
		return;
	one->start = enc_json_get_u64 (row, "start", 0);
	one->login = (uint32_t)enc_json_get_u64 (row, "login", UINT32_MAX);
	one->opened = enc_json_get_i64 (row, "opened", one->opened);
	if (!watch (one))
		ended (one, "its process ended while nobody looked");
}

int enc_sessions_new (struct enc_privd *p, struct enc_error *err)
{
	struct enc_sessions *s = calloc (1, sizeof *s);
	enc_auto (enc_json) struct enc_json *list = NULL;

	if (!s || !(s->path = enc_strf ("%s/sessions", p->conf.run_dir))) {
		free (s);
		return enc_fail (err, ENC_ENOMEM, "sessions: no memory");
	}
	s->p = p;
	p->sessions = s;
	if (enc_uid_of_user ("slurm", &s->slurm, NULL, NULL) < 0)
		s->slurm = 0;
	if (access (s->path, F_OK) == 0)
		list = enc_json_load (s->path, FILE_MAX, NULL);
	for (size_t i = 0; i < enc_json_len (list); i++)
		take_back (s, enc_json_at (list, i));
	return 0;
}

void enc_sessions_free (struct enc_sessions *s)
{
	if (!s)
		return;
	while (s->n)
		drop (s->v[s->n - 1]);
	free (s->path);
	free (s);
}
