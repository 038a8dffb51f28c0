/* Plays the controller, the key service and the agent of one node for tests of privd.
 *
 *   node_driver keygen SEED VKEY                a key service's key: seed file, and its verifier key line
 *   node_driver --config CONF --foreground      what privd starts as its agent: CONF is {"socket","seed"}; each connection to the socket
 *                                               sends one JSON line and gets one:
 *
 *   {"verb":5,"document":{…},"grant":{"pool":…}|null,"sealed":{"KEYID":"hex"},"members":{…},"text":"…","raw":"hex","seed":"FILE"}
 *   → {"code","text","next","evidence"}  or {"lost":true} when privd closed the connection
 *
 * Members of "grant" replace what fits the document (node, boot, generation, document, pool, enclave, not_before, not_after), so that a
 * test names only what is wrong with it. "raw" sends bytes as they are. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/enctime.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "crypto/attestation.h"
#include "crypto/grant.h"
#include "crypto/members.h"
#include "crypto/note.h"
#include "crypto/seal.h"
#include "crypto/secmem.h"
#include "crypto/sign.h"
#include "node-agent/proto/document.h"
#include "node-agent/proto/order.h"

#include "base/enc.h"

enum { PRIVD = 3, LINE_MAX_ = 1 << 20, ANSWER_MS = 200000 };

static struct {
	const char *seed_file;
	uint8_t boot[16];
	uint8_t point[ENC_SEAL_POINT];
	bool has_point;
	uint64_t request;
} self;

static void die (const char *what, const struct enc_error *err)
{
	fprintf (stderr, "node_driver: %s: %s\n", what, err ? err->text : "");
	exit (1);
}

static struct enc_sign_key *load_seed (const char *path)
{
	struct enc_buf seed = ENC_BUF_INIT (64);
	struct enc_error err = { 0 };

	if (enc_file_read (path, 64, &seed, &err) < 0 || seed.len != 32)
		die (path, &err);
	struct enc_sign_key *key = enc_sign_key_new (ENC_SIGN_ED25519, seed.data, &err);
	if (!key)
		die ("key", &err);
	enc_buf_done (&seed);
	return key;
}

static int keygen (const char *seed_path, const char *vkey_path)
{
	struct enc_file_attr attr = ENC_FILE_ATTR (0644);
	char text[ENC_VKEY_TEXT_MAX + 1];
	uint8_t seed[32];
	struct enc_vkey vkey;
	struct enc_error err = { 0 };

	if (enc_random (seed, sizeof seed, &err) < 0 || enc_file_write (seed_path, seed, sizeof seed, &attr, &err) < 0)
		die ("seed", &err);
	struct enc_sign_key *key = load_seed (seed_path);
	if (enc_vkey_init (&vkey, "keyd.test", enc_sign_key_pub (key), &err) < 0)
		die ("vkey", &err);
	enc_vkey_format (&vkey, text);
	if (enc_file_write (vkey_path, text, strlen (text), &attr, &err) < 0)
		die ("vkey", &err);
	enc_sign_key_free (key);
	return 0;
}

/* ---- a document from JSON ---- */

#define TEXT(m) { #m, offsetof (struct enc_doc, m), sizeof (((struct enc_doc *)0)->m), 't' }
#define NUM(m) { #m, offsetof (struct enc_doc, m), sizeof (((struct enc_doc *)0)->m), 'n' }
#define PTEXT(m) { #m, offsetof (struct enc_doc_peer, m), sizeof (((struct enc_doc_peer *)0)->m), 't' }
#define PNUM(m) { #m, offsetof (struct enc_doc_peer, m), sizeof (((struct enc_doc_peer *)0)->m), 'n' }
#define VTEXT(m) { #m, offsetof (struct enc_doc_volume, m), sizeof (((struct enc_doc_volume *)0)->m), 't' }
#define VNUM(m) { #m, offsetof (struct enc_doc_volume, m), sizeof (((struct enc_doc_volume *)0)->m), 'n' }

struct member {
	const char *name;
	size_t offset, size;
	char kind;
};

static const struct member doc_members[] = { TEXT (node), NUM (generation), NUM (pool), TEXT (enclave_id), TEXT (enclave_name), NUM (not_after), NUM (units),
	NUM (fence), TEXT (controller4), TEXT (controller6), NUM (controller_port), NUM (overlay), NUM (overlay_port), TEXT (overlay_net), NUM (clean),
	TEXT (clean_id), TEXT (challenge), TEXT (probe_id), NUM (roles), TEXT (slurm_cluster), NUM (slurmctld_port), NUM (slurmd_port),
	NUM (srun_port_first), NUM (srun_port_last), TEXT (munge_key), NUM (door), NUM (login_port), { NULL, 0, 0, 0 } };
static const struct member peer_members[] = { PTEXT (node), PNUM (role), PTEXT (address4), PTEXT (address6), PTEXT (overlay), PNUM (cpus),
	PNUM (memory_mb), { NULL, 0, 0, 0 } };
static const struct member volume_members[] = { VTEXT (name), VTEXT (key), VNUM (kind), VTEXT (driver), VTEXT (id), VNUM (size_bytes), VNUM (owner_gid),
	{ NULL, 0, 0, 0 } };

static void fill (const struct member *m, const struct enc_json *from, uint8_t *to)
{
	for (; m->name; m++) {
		const struct enc_json *v = enc_json_get (from, m->name);
		uint64_t n = enc_json_u64 (v, 0);
		if (!v)
			continue;
		if (m->kind == 't')
			(void)snprintf ((char *)to + m->offset, m->size, "%s", enc_json_str (v) ? enc_json_str (v) : "");
		else
			memcpy (to + m->offset, &n, m->size);
	}
}

static void make_document (const struct enc_json *from, struct enc_doc *doc)
{
	const struct enc_json *list;

	memset (doc, 0, sizeof *doc);
	fill (doc_members, from, (uint8_t *)doc);
	list = enc_json_get (from, "peers");
	for (size_t i = 0; i < enc_json_len (list); i++, doc->peers_n++) {
		const struct enc_json *p = enc_json_at (list, i);
		const char *key = enc_json_get_str (p, "overlay_key", NULL);
		fill (peer_members, p, (uint8_t *)&doc->peers[i]);
		if (key)
			(void)!enc_base64_fixed (key, doc->peers[i].overlay_key, 32, NULL);
	}
	list = enc_json_get (from, "volumes");
	for (size_t i = 0; i < enc_json_len (list); i++, doc->volumes_n++)
		fill (volume_members, enc_json_at (list, i), (uint8_t *)&doc->volumes[i]);
	list = enc_json_get (from, "outsiders");
	for (size_t i = 0; i < enc_json_len (list); i++, doc->outsiders_n++)
		(void)snprintf (doc->outsiders[i], sizeof doc->outsiders[i], "%s", enc_json_str (enc_json_at (list, i)));
}

/* ---- what keyd would sign ---- */

static struct enc_grant make_grant (const struct enc_json *over, const struct enc_doc *doc, const struct enc_buf *bytes)
{
	struct enc_grant g = { .generation = doc->generation, .pool = doc->pool, .record = 7 };
	uint64_t now = (uint64_t)enc_now_s ();
	const char *text;

	(void)snprintf (g.node, sizeof g.node, "%s", enc_json_get_str (over, "node", doc->node));
	(void)snprintf (g.enclave, sizeof g.enclave, "%s", enc_json_get_str (over, "enclave", doc->enclave_id));
	memcpy (g.boot, self.boot, sizeof g.boot);
	if ((text = enc_json_get_str (over, "boot", NULL)))
		(void)!enc_hex_fixed (text, g.boot, sizeof g.boot, NULL);
	enc_doc_digest (bytes->data, bytes->len, g.document);
	if ((text = enc_json_get_str (over, "document", NULL)))
		(void)!enc_hex_fixed (text, g.document, sizeof g.document, NULL);
	g.generation = enc_json_get_u64 (over, "generation", g.generation);
	g.pool = (uint8_t)enc_json_get_u64 (over, "pool", g.pool);
	g.not_before = (uint64_t)((int64_t)now + enc_json_get_i64 (over, "not_before", -5));
	g.not_after = (uint64_t)((int64_t)now + enc_json_get_i64 (over, "not_after", 3600));
	return g;
}

static void make_members (const struct enc_json *from, const struct enc_sign_key *key, struct enc_buf *out)
{
	enc_auto_done (enc_buf_done) struct enc_buf body = ENC_BUF_INIT (ENC_ENVELOPE_BODY_MAX);
	const struct enc_json *list = enc_json_get (from, "members");
	struct enc_members m = { .version = enc_json_get_u64 (from, "version", 1) };
	struct enc_error err = { 0 };

	m.not_before = (uint64_t)enc_now_s () - 5;
	m.not_after = (uint64_t)(enc_now_s () + enc_json_get_i64 (from, "not_after", 3600));
	(void)snprintf (m.enclave_id, sizeof m.enclave_id, "%s", enc_json_get_str (from, "enclave_id", ""));
	(void)snprintf (m.enclave_name, sizeof m.enclave_name, "%s", enc_json_get_str (from, "enclave_name", ""));
	m.members_n = enc_json_len (list);
	m.members = calloc (m.members_n + 1, sizeof *m.members);
	for (size_t i = 0; i < m.members_n; i++) {
		const struct enc_json *u = enc_json_at (list, i);
		struct enc_member *to = &m.members[i];
		(void)snprintf (to->user, sizeof to->user, "%s", enc_json_get_str (u, "user", ""));
		(void)snprintf (to->role, sizeof to->role, "%s", enc_json_get_str (u, "role", "researcher"));
		to->uid = to->gid = (uint32_t)enc_json_get_u64 (u, "uid", 10008);
		const char *line = enc_json_get_str (u, "key", NULL);
		if (line) {
			to->keys = calloc (1, sizeof (char *));
			to->keys[0] = enc_strdup (line);
			to->keys_n = 1;
		}
	}
	if (enc_members_put (&m, &body, &err) < 0 || enc_envelope_sign (key, ENC_ENVELOPE_MEMBERS, &body, out, &err) < 0)
		fprintf (stderr, "node_driver: members: %s\n", err.text);
	enc_members_done (&m);
}

static void make_sealed (const struct enc_json *from, const struct enc_doc *doc, const struct enc_grant *g, struct enc_order *order, struct enc_buf *store)
{
	struct enc_json_iter it = { 0 };
	struct enc_error err = { 0 };

	while (enc_json_next (from, &it) && order->sealed_n < ENC_ORDER_SEALED_MAX) {
		struct enc_seal_id id = { .node = doc->node, .boot = self.boot, .generation = doc->generation, .key = it.key, .record = g->record };
		const char *hex = enc_json_str (it.value);
		struct enc_buf *out = &store[order->sealed_n];
		struct enc_secret secret = { .len = strlen (hex) / 2 };
		if (enc_secmem_get (secret.len, &secret.data, &err) < 0 || enc_hex_fixed (hex, secret.data, secret.len, &err) < 0)
			die ("sealed", &err);
		*out = ENC_BUF_INIT (ENC_ORDER_SEALED_SIZE_MAX);
		if (enc_seal (self.point, &id, &secret, out, &err) < 0)
			die ("sealed", &err);
		(void)snprintf (order->sealed[order->sealed_n].key, 27, "%s", it.key);
		order->sealed[order->sealed_n++].data = enc_view_of (out->data, out->len);
		enc_secmem_free (secret.data);
	}
}

/* ---- talking to privd ---- */

static bool all_io (bool out, void *data, size_t len)
{
	for (size_t at = 0; at < len;) {
		struct pollfd p = { .fd = PRIVD, .events = out ? POLLOUT : POLLIN };
		if (poll (&p, 1, ANSWER_MS) <= 0)
			return false;
		ssize_t n = out ? send (PRIVD, (uint8_t *)data + at, len - at, MSG_NOSIGNAL) : recv (PRIVD, (uint8_t *)data + at, len - at, 0);
		if (n <= 0)
			return false;
		at += (size_t)n;
	}
	return true;
}

static struct enc_json *receive (void)
{
	static uint8_t body[ENC_ORDER_SIZE_MAX];
	struct enc_json *out = enc_json_object ();
	struct enc_answer answer;
	struct enc_error err = { 0 };
	uint8_t head[4];
	size_t len;

	if (!all_io (false, head, 4) || enc_order_length (head, &len, &err) < 0 || !all_io (false, body, len) || enc_answer_decode (body, len, &answer, &err) < 0) {
		enc_json_set_bool (out, "lost", true);
		return out;
	}
	enc_json_set_u64 (out, "code", answer.code);
	enc_json_set_str (out, "text", answer.text);
	enc_json_set_str (out, "next", answer.next);
	enc_json_set (out, "evidence", answer.evidence.left ? enc_json_parse ((const char *)answer.evidence.at, answer.evidence.left, LINE_MAX_, NULL) : enc_json_new_null ());
	return out;
}

/* Remember what later orders need: the boot nonce, and the boot key out of an attestation. */
static void learn (const struct enc_json *answer)
{
	const struct enc_json *e = enc_json_get (answer, "evidence");
	const char *boot = enc_json_get_str (e, "boot", NULL), *attestation = enc_json_get_str (e, "attestation", NULL);
	struct enc_buf bytes = ENC_BUF_INIT (ENC_ENVELOPE_MAX);
	struct enc_attestation a = { 0 };

	if (boot)
		(void)!enc_hex_fixed (boot, self.boot, sizeof self.boot, NULL);
	if (attestation && enc_get_base64 (attestation, strlen (attestation), &bytes, NULL) == 0 && bytes.len > 80) {
		struct enc_view body = enc_view_of (bytes.data + ENC_ENVELOPE_HEAD, bytes.len - ENC_ENVELOPE_HEAD - ENC_ENVELOPE_SIGNATURE);
		if (enc_attestation_decode (body, &a, NULL) == 0) {
			memcpy (self.point, a.boot_key, sizeof self.point);
			self.has_point = true;
			enc_attestation_done (&a);
		}
	}
	enc_buf_done (&bytes);
}

static bool send_raw (const char *hex)
{
	struct enc_buf bytes = ENC_BUF_INIT (4 * LINE_MAX_);
	bool ok = enc_get_hex (hex, strlen (hex), &bytes, NULL) == 0 && all_io (true, bytes.data, bytes.len);

	enc_buf_done (&bytes);
	return ok;
}

static struct enc_json *serve (const struct enc_json *request)
{
	static struct enc_doc doc;
	struct enc_buf document = ENC_BUF_INIT (ENC_DOC_SIZE_MAX), grant = ENC_BUF_INIT (ENC_ENVELOPE_MAX), extra = ENC_BUF_INIT (ENC_ENVELOPE_MAX);
	struct enc_buf sealed[ENC_ORDER_SEALED_MAX] = { 0 }, out = ENC_BUF_INIT (ENC_ORDER_SIZE_MAX + 4);
	struct enc_order order = { .verb = (uint8_t)enc_json_get_u64 (request, "verb", 10), .request = ++self.request };
	const struct enc_json *j;
	struct enc_grant g = { 0 };
	struct enc_error err = { 0 };
	struct enc_json *answer;
	const char *text;

	if ((text = enc_json_get_str (request, "raw", NULL))) {
		(void)send_raw (text);
		return receive ();
	}
	struct enc_sign_key *key = load_seed (enc_json_get_str (request, "seed", self.seed_file));
	if ((j = enc_json_get (request, "document"))) {
		make_document (j, &doc);
		if (enc_doc_encode (&doc, &document, &err) < 0) {
			answer = enc_json_object ();
			enc_json_set_str (answer, "driver", err.text);
			return answer;
		}
		order.document = enc_view_of (document.data, document.len);
		j = enc_json_get (request, "grant");
		if (enc_json_type (j) == ENC_JSON_OBJECT) {
			g = make_grant (j, &doc, &document);
			if (enc_grant_sign (&g, key, &grant, &err) < 0)
				die ("grant", &err);
			order.grant = enc_view_of (grant.data, grant.len);
		}
		make_sealed (enc_json_get (request, "sealed"), &doc, &g, &order, sealed);
	}
	if ((j = enc_json_get (request, "members")))
		make_members (j, key, &extra);
	if ((text = enc_json_get_str (request, "text", NULL)))
		enc_buf_put (&extra, text, strlen (text));
	if (enc_json_get (request, "stored"))
		enc_buf_put_u64 (&extra, enc_json_get_u64 (request, "stored", 0));
	order.extra = enc_view_of (extra.data, extra.len);
	if (enc_order_encode (&order, &out, &err) < 0)
		die ("order", &err);
	(void)all_io (true, out.data, out.len); /* a lost connection shows in receiving */
	answer = receive ();
	learn (answer);
	enc_sign_key_free (key);
	return answer;
}

static void one_connection (int fd)
{
	static char line[LINE_MAX_];
	size_t at = 0;
	ssize_t n;

	while (at < sizeof line - 1 && (n = read (fd, line + at, sizeof line - 1 - at)) > 0) {
		at += (size_t)n;
		if (line[at - 1] == '\n')
			break;
	}
	enc_auto (enc_json) struct enc_json *request = enc_json_parse (line, at, sizeof line, NULL);
	if (!request)
		return;
	enc_auto (enc_json) struct enc_json *answer = serve (request);
	size_t len;
	enc_auto_free char *text = enc_json_write (answer, &len, NULL);
	(void)!write (fd, text, len);
	(void)!write (fd, "\n", 1);
	if (enc_json_get_bool (answer, "lost", false))
		exit (0);
}

static int agent (const char *conf_path)
{
	enc_auto (enc_json) struct enc_json *conf = enc_json_load (conf_path, 65536, NULL);
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct enc_error err = { 0 };
	int fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!conf || enc_secmem_init (262144, &err) < 0)
		die (conf_path, &err);
	self.seed_file = enc_json_get_str (conf, "seed", "");
	(void)snprintf (addr.sun_path, sizeof addr.sun_path, "%s", enc_json_get_str (conf, "socket", ""));
	(void)unlink (addr.sun_path);
	if (bind (fd, (struct sockaddr *)&addr, sizeof addr) < 0 || listen (fd, 8) < 0)
		die ("socket", NULL);
	for (;;) {
		/* privd's end of the connection is also the end of this one. */
		struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = PRIVD, .events = POLLRDHUP } };
		if (poll (p, 2, -1) < 0 || p[1].revents)
			return 0;
		int c = accept (fd, NULL, NULL);
		if (c >= 0) {
			one_connection (c);
			(void)close (c);
		}
	}
}

int main (int argc, char **argv)
{
	if (argc == 4 && strcmp (argv[1], "keygen") == 0)
		return keygen (argv[2], argv[3]);
	if (argc >= 3 && strcmp (argv[1], "--config") == 0)
		return agent (argv[2]);
	return 2;
}
