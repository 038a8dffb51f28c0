/* What plugins may know (docs/protocol.md section 7): any local user may ask, the answer is the same for all. */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "crypto/hash.h"
#include "node-agent/privd/told.h"

#include "base/enc.h"

/* Seats: what one user, and all users together, may hold of them. The rest is root's, so that nobody keeps a login or a job waiting. */
enum { CONNS_MAX = 256, USERS_MAX = 192, USER_MAX = 16, IDLE_S = 10, FILE_MAX = 64 * 1024 * 1024 };

/* The hash of a file, kept while the file stays the same. */
struct file_hash {
	struct stat st;
	uint8_t hash[32];
};

struct enc_facts_server {
	struct enc_privd *privd;
	struct event *listening;
	int fd;
	unsigned conns, users; /* users: those that are not root's */
	LIST_HEAD (, conn) list;
	struct file_hash plugin, plugstack;
};

struct conn {
	LIST_ENTRY (conn) next;
	struct enc_facts_server *server;
	uid_t uid;
	struct event *readable;
	int fd;
};

static bool same_stat (const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static void hash_file (const char *path, struct file_hash *h, uint8_t ret[32])
{
	enc_auto_done (enc_buf_done) struct enc_buf bytes = ENC_BUF_INIT (FILE_MAX);
	struct enc_hash hash;
	struct stat st;

	memset (ret, 0, 32);
	if (!path || stat (path, &st) < 0)
		return;
	if (!same_stat (&st, &h->st)) {
		if (enc_file_read (path, FILE_MAX, &bytes, NULL) < 0)
			return;
		enc_sha256 (bytes.data, bytes.len, &hash);
		memcpy (h->hash, hash.b, 32);
		h->st = st;
	}
	memcpy (ret, h->hash, 32);
}

static const char *plugstack (const struct enc_privd_conf *conf)
{
	for (size_t i = 0; i < conf->plugstacks.n; i++)
		if (access (conf->plugstacks.v[i], F_OK) == 0)
			return conf->plugstacks.v[i];
	return NULL;
}

static void gather (struct enc_facts_server *f, struct enc_facts *facts)
{
	const struct enc_node_state *s = &f->privd->state;
	bool inside = s->pool == ENC_POOL_ENCLAVE;

	*facts = (struct enc_facts){ .pool = (uint8_t)s->pool, .door = s->door, .agent_alive = enc_agent_link_alive (f->privd->agent),
		.generation = s->generation, .not_after = inside ? s->grant_until : 0, .member_version = s->member_version,
		.volumes_open = (uint8_t)s->volumes.n };
	if (s->enclave_id)
		(void)!enc_str_copy (facts->enclave_id, sizeof facts->enclave_id, s->enclave_id, NULL);
	if (s->enclave_name)
		(void)!enc_str_copy (facts->enclave_name, sizeof facts->enclave_name, s->enclave_name, NULL);
	hash_file (f->privd->conf.plugin, &f->plugin, facts->plugin_hash);
	hash_file (plugstack (&f->privd->conf), &f->plugstack, facts->plugstack_hash);
}

static void conn_close (struct conn *c)
{
	LIST_REMOVE (c, next);
	c->server->conns--;
	c->server->users -= c->uid != 0;
	event_free (c->readable);
	(void)close (c->fd);
	free (c);
}

/* A record for the log: answered with its number, or why not. */
static int told (struct conn *c, const uint8_t *bytes, size_t n, struct enc_buf *out)
{
	struct enc_error err = { 0 };
	uint64_t counter = 0;
	struct enc_told t;
	struct enc_peer peer;
	int rc;

	if ((rc = enc_told_decode (bytes, n, &t, NULL)) < 0)
		return rc;
	if ((rc = enc_peer_of (c->fd, &peer, &err)) == 0)
		rc = enc_told_take (c->server->privd, &peer, &t, &counter, &err);
	if (rc < 0)
		enc_log_err (ENC_LOG_WARN, &err, "uid %u tells", (unsigned)peer.uid);
	return enc_told_answer_encode ((uint16_t)-rc, counter, out, NULL);
}

static int facts_answer (struct conn *c, const uint8_t *bytes, size_t n, struct enc_buf *out)
{
	struct enc_facts facts;
	uint32_t uid;
	int rc;

	if ((rc = enc_facts_ask_decode (bytes, n, &uid, NULL)) < 0)
		return rc;
	gather (c->server, &facts);
	return enc_facts_encode (&facts, out, NULL);
}

static void on_question (evutil_socket_t fd, short what, void *arg)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (ENC_FACTS_SIZE_MAX);
	struct conn *c = arg;
	uint8_t bytes[ENC_TOLD_SIZE_MAX];
	ssize_t n = what & EV_READ ? recv (fd, bytes, sizeof bytes, 0) : 0;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 || (enc_told_is (bytes, (size_t)n) ? told (c, bytes, (size_t)n, &out) : facts_answer (c, bytes, (size_t)n, &out)) < 0 ||
		send (fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		conn_close (c);
}

static bool has_seat (const struct enc_facts_server *f, uid_t uid)
{
	const struct conn *c;
	unsigned n = 0;

	if (f->conns >= CONNS_MAX)
		return false;
	if (uid == 0)
		return true;
	LIST_FOREACH (c, &f->list, next)
		n += c->uid == uid;
	return n < USER_MAX && f->users < USERS_MAX;
}

static void on_connection (evutil_socket_t fd, short what, void *arg)
{
	struct enc_facts_server *f = arg;
	struct timeval idle = { .tv_sec = IDLE_S };
	struct enc_peer who;
	struct conn *c;
	int peer = accept4 (fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)what;
	if (peer < 0)
		return;
	if (enc_peer_of (peer, &who, NULL) < 0 || !has_seat (f, who.uid) || !(c = calloc (1, sizeof *c))) {
		(void)close (peer);
		return;
	}
	*c = (struct conn){ .server = f, .fd = peer, .uid = who.uid };
	c->readable = event_new (f->privd->base, peer, EV_READ | EV_PERSIST, on_question, c);
	if (!c->readable || event_add (c->readable, &idle) < 0) {
		(void)close (peer);
		free (c);
		return;
	}
	LIST_INSERT_HEAD (&f->list, c, next);
	f->conns++;
	f->users += who.uid != 0;
}

int enc_facts_listen (const char *path, struct enc_error *err)
{
	struct sockaddr_un self = { .sun_family = AF_UNIX };
	enc_auto_close int fd = socket (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc;

	if (fd < 0)
		return enc_fail_sys (err, "facts socket");
	if ((rc = enc_str_copy (self.sun_path, sizeof self.sun_path, path, err)) < 0)
		return rc;
	if (unlink (path) < 0 && errno != ENOENT)
		return enc_fail_sys (err, "%s", path);
	if (bind (fd, (struct sockaddr *)&self, sizeof self) < 0 || chmod (path, 0666) < 0 || listen (fd, 128) < 0)
		return enc_fail_sys (err, "%s", path);
	return ENC_TAKE_FD (fd);
}

int enc_facts_server_new (struct enc_privd *p, int fd, struct enc_error *err)
{
	struct enc_facts_server *f = calloc (1, sizeof *f);

	if (!f) {
		(void)close (fd);
		return enc_fail (err, ENC_ENOMEM, "facts: no memory");
	}
	*f = (struct enc_facts_server){ .privd = p, .fd = fd };
	f->listening = event_new (p->base, fd, EV_READ | EV_PERSIST, on_connection, f);
	if (!f->listening || event_add (f->listening, NULL) < 0) {
		enc_facts_server_free (f);
		return enc_fail (err, ENC_ENOMEM, "facts: no memory");
	}
	p->facts = f;
	return 0;
}

void enc_facts_server_free (struct enc_facts_server *f)
{
	if (!f)
		return;
	if (f->listening)
		event_free (f->listening);
	(void)close (f->fd);
	free (f);
}
