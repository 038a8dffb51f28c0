/* Family probe: tries to reach what must be reachable and what must not be, all at once, and says what it saw. A refused connection
 * counts as reached: its packets passed. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/capability.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/harden.h"
#include "node-agent/privd/family.h"
#include "node-agent/privd/fence_rules.h"
#include "node-agent/privd/routes.h"

#include "base/enc.h"

enum { TRIES_MAX = 1200, WAIT_MS = 1200, ROWS_MAX = 300 };

enum kind { KIND_TCP, KIND_UDP, KIND_PING };

struct try {
	enum kind kind;
	const char *addr, *peer;
	uint32_t port;
	bool expect;          /* shall be reachable */
	int fd;
	const char *seen;     /* NULL: nothing yet */
};

struct tries {
	size_t n;
	struct try t[TRIES_MAX];
};

static void plan (struct tries *all, enum kind kind, const char *addr, uint32_t port, const char *peer, bool expect)
{
	if (all->n < TRIES_MAX && addr[0] && (port || kind == KIND_PING))
		all->t[all->n++] = (struct try){ .kind = kind, .addr = addr, .peer = peer, .port = port, .expect = expect, .fd = -1 };
}

static uint32_t role_port (const struct enc_doc *doc, uint8_t role)
{
	return role == ENC_ROLE_SCHEDULER ? doc->slurmctld_port : role == ENC_ROLE_COMPUTE ? doc->slurmd_port : doc->login_port;
}

/* Positive controls first: without them "unreachable" would prove nothing. */
static void plan_all (struct tries *all, const struct enc_doc *doc)
{
	static const uint32_t ports[] = { 22, 53, 443, 6817, 6818 };

	plan (all, KIND_TCP, doc->controller4, doc->controller_port, "controller", doc->fence != ENC_FENCE_NONE);
	plan (all, KIND_TCP, doc->controller6, doc->controller_port, "controller", doc->fence != ENC_FENCE_NONE);
	for (size_t i = 0; i < doc->peers_n && doc->overlay; i++) {
		const struct enc_doc_peer *p = &doc->peers[i];
		if (enc_fence_is_self (doc, p))
			continue;
		plan (all, KIND_PING, p->overlay, 0, p->node, true);
		if (doc->roles)
			plan (all, KIND_TCP, p->overlay, role_port (doc, p->role), p->node, true);
		plan (all, KIND_TCP, p->address4, role_port (doc, p->role), p->node, false);
		plan (all, KIND_PING, p->address4, 0, p->node, false);
		plan (all, KIND_PING, p->address6, 0, p->node, false);
	}
	for (size_t i = 0; i < doc->outsiders_n; i++) {
		for (size_t k = 0; k < ENC_ARRAY_LEN (ports); k++)
			plan (all, KIND_TCP, doc->outsiders[i], ports[k], doc->outsiders[i], false);
		plan (all, KIND_UDP, doc->outsiders[i], 53, doc->outsiders[i], false);
		plan (all, KIND_PING, doc->outsiders[i], 0, doc->outsiders[i], false);
	}
	/* Ways out that everybody tries first. */
	plan (all, KIND_UDP, doc->controller4, 53, "controller", false);
	plan (all, KIND_PING, doc->controller4, 0, "controller", false);
	plan (all, KIND_TCP, doc->controller4, 22, "controller", false);
}

static socklen_t address (const struct try *t, struct sockaddr_storage *ret)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;
	uint16_t port = t->kind == KIND_PING ? 0 : htons ((uint16_t)t->port);

	memset (ret, 0, sizeof *ret);
	if (inet_pton (AF_INET, t->addr, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = port;
		return sizeof *in;
	}
	if (inet_pton (AF_INET6, t->addr, &in6->sin6_addr) != 1)
		return 0;
	in6->sin6_family = AF_INET6;
	in6->sin6_port = port;
	return sizeof *in6;
}

static const char *word_of (int e)
{
	return e == 0 ? "reachable" : e == ECONNREFUSED ? "refused" : "unreachable";
}

static ssize_t send_ping (int fd, bool six, uint16_t id)
{
	struct icmphdr four = { .type = ICMP_ECHO };
	struct icmp6_hdr head6 = { .icmp6_type = ICMP6_ECHO_REQUEST };

	four.un.echo.id = htons (id);
	four.un.echo.sequence = htons (1);
	head6.icmp6_id = htons (id);
	head6.icmp6_seq = htons (1);
	/* Type 8, code 0, identifier and number: the sum of four 16-bit words. */
	uint32_t sum = 0x0800 + (uint32_t)id + 1;
	sum = (sum & 0xffff) + (sum >> 16);
	four.checksum = htons ((uint16_t)~sum);
	return six ? send (fd, &head6, sizeof head6, MSG_NOSIGNAL) : send (fd, &four, sizeof four, MSG_NOSIGNAL);
}

static void begin (struct try *t, uint16_t id)
{
	struct sockaddr_storage to;
	socklen_t len = address (t, &to);
	bool six = to.ss_family == AF_INET6;
	int type = t->kind == KIND_TCP ? SOCK_STREAM : t->kind == KIND_UDP ? SOCK_DGRAM : SOCK_RAW;
	int protocol = t->kind != KIND_PING ? 0 : six ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
	int rc;

	t->fd = socket (to.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
	if (t->fd < 0) {
		t->seen = "failed";
		return;
	}
	rc = connect (t->fd, (struct sockaddr *)&to, len);
	if (rc < 0 && errno == EINPROGRESS)
		return;
	if (rc < 0 || t->kind == KIND_TCP) {
		t->seen = word_of (rc < 0 ? errno : 0);
		return;
	}
	if ((t->kind == KIND_UDP ? send (t->fd, "probe", 5, MSG_NOSIGNAL) : send_ping (t->fd, six, id)) < 0)
		t->seen = word_of (errno);
}

static bool is_reply (const struct try *t, uint16_t id, const uint8_t *bytes, ssize_t n)
{
	bool six = strchr (t->addr, ':') != NULL;
	size_t at = six ? 0 : (size_t)(bytes[0] & 15) * 4;

	if (t->kind == KIND_UDP)
		return true;
	if (n < (ssize_t)(at + 8))
		return false;
	return bytes[at] == (six ? ICMP6_ECHO_REPLY : ICMP_ECHOREPLY) && bytes[at + 4] == id >> 8 && bytes[at + 5] == (id & 255);
}

static void hear (struct try *t, uint16_t id)
{
	uint8_t bytes[1500];
	socklen_t len = sizeof (int);
	int e = 0;
	ssize_t n;

	if (t->kind == KIND_TCP) {
		(void)getsockopt (t->fd, SOL_SOCKET, SO_ERROR, &e, &len);
		t->seen = word_of (e);
		return;
	}
	n = recv (t->fd, bytes, sizeof bytes, 0);
	if (n < 0 && errno != EAGAIN)
		t->seen = word_of (errno);
	else if (n >= 0 && is_reply (t, id, bytes, n))
		t->seen = "reachable";
}

static void run (struct tries *all, uint16_t id)
{
	int64_t deadline = enc_deadline_ms (WAIT_MS);
	static struct pollfd fds[TRIES_MAX];

	for (size_t i = 0; i < all->n; i++)
		begin (&all->t[i], (uint16_t)(id + i));
	while (!enc_passed (deadline)) {
		size_t open = 0;
		for (size_t i = 0; i < all->n; i++) {
			fds[i] = (struct pollfd){ .fd = all->t[i].seen ? -1 : all->t[i].fd, .events = all->t[i].kind == KIND_TCP ? POLLOUT : POLLIN };
			open += !all->t[i].seen;
		}
		if (open == 0 || poll (fds, all->n, enc_left_ms (deadline)) <= 0)
			break;
		for (size_t i = 0; i < all->n; i++)
			if (fds[i].revents && !all->t[i].seen)
				hear (&all->t[i], (uint16_t)(id + i));
	}
	for (size_t i = 0; i < all->n; i++) {
		/* The controller may listen on one family alone: an answer of its host is what shows that packets pass. */
		if (all->t[i].expect && strcmp (all->t[i].peer, "controller") == 0 && all->t[i].seen && strcmp (all->t[i].seen, "refused") == 0)
			all->t[i].seen = "reachable";
		enc_cleanup_close (&all->t[i].fd);
		if (!all->t[i].seen)
			all->t[i].seen = "unreachable";
	}
}

/* An answer has a bound: beyond so many rows only those are told that are not as expected. */
static size_t add_row (struct enc_json *rows, const char *what, const char *peer, const char *expected, const char *seen)
{
	struct enc_json *row;

	if (enc_json_len (rows) >= ROWS_MAX && (strcmp (expected, seen) == 0 || enc_json_len (rows) >= ROWS_MAX + 100))
		return strcmp (expected, seen) == 0;
	row = enc_json_add_object (rows);
	enc_json_set_str (row, "what", what);
	enc_json_set_str (row, "peer", peer);
	enc_json_set_str (row, "expected", expected);
	enc_json_set_str (row, "seen", seen);
	return strcmp (expected, seen) == 0;
}

/* What this host itself shows: the second layer stands. */
static size_t add_routes (struct enc_json *rows, const struct enc_task *task)
{
	bool open = task->flags & ENC_TASK_DOOR && task->doc->roles & ENC_ROLE_LOGIN;
	size_t foreign = 1;

	if (enc_routes_foreign (&foreign, NULL) < 0)
		return add_row (rows, "routes", "self", "closed", "failed");
	return add_row (rows, "routes", "self", open ? "open" : "closed", foreign == 0 ? "closed" : "open");
}

static int task_probe (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	static const char *const kinds[] = { "tcp", "udp", "ping" };
	enc_auto_free struct tries *all = calloc (1, sizeof *all);
	struct enc_json *rows = enc_json_set_array (evidence, "rows");
	size_t good = 0, n = 0;
	char what[64];

	(void)conf;
	if (!all)
		return enc_fail (err, ENC_ENOMEM, "probe: no memory");
	plan_all (all, task->doc);
	run (all, (uint16_t)enc_mono ());
	for (size_t i = 0; i < all->n; i++, n++) {
		const struct try *t = &all->t[i];
		(void)snprintf (what, sizeof what, t->port ? "%s %s %u" : "%s %s", kinds[t->kind], t->addr, t->port);
		good += add_row (rows, what, t->peer, t->expect ? "reachable" : "unreachable", t->seen);
	}
	if (task->doc->fence != ENC_FENCE_NONE) {
		good += add_routes (rows, task);
		n++;
	}
	enc_json_set_str (evidence, "probe", task->doc->probe_id);
	enc_json_set_u64 (evidence, "probes", n);
	enc_json_set_u64 (evidence, "as_expected", good);
	return 0;
}

static const int caps[] = { CAP_NET_RAW, -1 };

const struct enc_family enc_family_probe = {
	.name = "probe",
	.caps = caps,
	.seccomp = ENC_SC_NETWORK,
	.tasks = { [ENC_JOB_PROBE] = task_probe },
};
