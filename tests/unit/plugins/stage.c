#include "stage.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/enctime.h"
#include "base/file.h"
#include "crypto/checkpoint.h"
#include "crypto/hash.h"
#include "crypto/note.h"
#include "crypto/tlog/proof.h"

static char ssh_key[] = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== res1@ext";
static char *ssh_keys[] = { ssh_key };
static char datasets[1][32] = { "cxr-images" };

static const struct { const char *name; size_t offset; } paths[] = {
	{ "members", offsetof (struct enc_client_conf, members) }, { "keyd.vkey", offsetof (struct enc_client_conf, vkey) },
	{ "privd.sock", offsetof (struct enc_client_conf, facts) }, { "spank_enclave.so", offsetof (struct enc_client_conf, plugin) },
	{ "plugstack.conf", offsetof (struct enc_client_conf, plugstacks) }, { "slurm.conf", offsetof (struct enc_client_conf, nodes) },
	{ "jobs", offsetof (struct enc_client_conf, jobs) }, { "scratch", offsetof (struct enc_client_conf, scratch) },
	{ "log.vkey", offsetof (struct enc_client_conf, log_vkey) }, { "agent.sock", offsetof (struct enc_client_conf, agent) },
};

int stage_write (const char *path, const char *text)
{
	const struct enc_file_attr attr = ENC_FILE_ATTR (0644);
	return enc_file_write (path, text, strlen (text), &attr, NULL);
}

#define LOG_NAME "lab/log"

static int write_one_key (const char *path, const char *name, const struct enc_sign_key *key)
{
	char text[ENC_VKEY_TEXT_MAX];
	struct enc_vkey vkey;

	if (enc_vkey_init (&vkey, name, enc_sign_key_pub (key), NULL) < 0)
		return -1;
	enc_vkey_format (&vkey, text);
	return stage_write (path, text);
}

static int write_key (struct stage *s)
{
	return write_one_key (s->conf.vkey, "keyd", s->key) < 0 ? -1 : write_one_key (s->conf.log_vkey, LOG_NAME, s->log_key);
}

static void fill (struct stage *s)
{
	uint64_t now = (uint64_t)enc_now_s ();

	s->member[0] = (struct enc_member){ .user = "res1", .uid = 10008, .gid = 10008, .role = "researcher", .keys_n = 1, .keys = ssh_keys };
	s->member[1] = (struct enc_member){ .user = "res2", .uid = 10009, .gid = 10009, .role = "researcher" };
	s->members = (struct enc_members){ .enclave_id = STAGE_ENCLAVE_ID, .enclave_name = "cxr", .version = 5, .not_before = now - 60, .not_after = now + 3600,
		.members_n = 2, .members = s->member, .datasets_n = 1, .datasets = datasets };
	s->facts = (struct enc_facts){ .pool = ENC_POOL_ENCLAVE, .door = true, .agent_alive = true, .generation = 3, .not_after = now + 3600,
		.enclave_id = STAGE_ENCLAVE_ID, .enclave_name = "cxr", .member_version = 5, .volumes_open = 2 };
}

static const char *told_path (const struct stage *s, uint8_t kind, char ret[static 400])
{
	(void)snprintf (ret, 400, "%s.told%u", s->conf.facts, kind);
	return ret;
}

int stage_make (struct stage *s, const char *dir)
{
	memset (s, 0, sizeof *s);
	s->conf = (struct enc_client_conf){ .facts_uid = getuid (), .deadline_ms = 300, .receipt_ms = 1000, .recipes = ENC_SOURCE_DIR "/ops/recipes" };
	(void)snprintf (s->dir, sizeof s->dir, "%s", dir);
	for (size_t i = 0; i < ENC_ARRAY_LEN (paths); i++) {
		(void)snprintf (s->path[i], sizeof s->path[i], "%s/%s", dir, paths[i].name);
		*(const char **)((char *)&s->conf + paths[i].offset) = s->path[i];
	}
	fill (s);
	for (uint8_t kind = 1; kind <= ENC_TOLD_MAX; kind++) {
		char told[400];
		(void)unlink (told_path (s, kind, told)); /* of the test before */
	}
	s->key = enc_sign_key_new (ENC_SIGN_ED25519, NULL, NULL);
	s->log_key = enc_sign_key_new (ENC_SIGN_ED25519, NULL, NULL);
	return s->key && s->log_key && write_key (s) == 0 ? 0 : -1;
}

int stage_make_system (struct stage *s, const uint8_t seed[32])
{
	memset (s, 0, sizeof *s);
	s->conf = enc_client_conf;
	fill (s);
	s->key = enc_sign_key_new (ENC_SIGN_ED25519, seed, NULL);
	s->log_key = enc_sign_key_new (ENC_SIGN_ED25519, seed, NULL);
	return s->key && s->log_key && write_key (s) == 0 ? 0 : -1;
}

int stage_members (struct stage *s, const struct enc_sign_key *key)
{
	enc_auto_done (enc_buf_done) struct enc_buf body = ENC_BUF_INIT (ENC_ENVELOPE_BODY_MAX), out = ENC_BUF_INIT (ENC_ENVELOPE_MAX);
	const struct enc_file_attr attr = ENC_FILE_ATTR (0644);

	if (enc_members_put (&s->members, &body, NULL) < 0 || enc_envelope_sign (key ? key : s->key, ENC_ENVELOPE_MEMBERS, &body, &out, NULL) < 0)
		return -1;
	return enc_file_write (s->conf.members, out.data, out.len, &attr, NULL);
}

void stage_hash (const char *path, uint8_t ret[32])
{
	enc_auto_done (enc_buf_done) struct enc_buf file = ENC_BUF_INIT (16 * 1024 * 1024);
	struct enc_hash hash;

	memset (ret, 0, 32);
	if (enc_file_read (path, file.max, &file, NULL) < 0)
		return;
	enc_sha256 (file.data, file.len, &hash);
	memcpy (ret, hash.b, 32);
}

int stage_stack (struct stage *s)
{
	char line[400];

	(void)snprintf (line, sizeof line, "# one plugin\nrequired %s\n", s->conf.plugin);
	if (stage_write (s->conf.plugin, STAGE_PLUGIN_TEXT) < 0 || stage_write (s->conf.plugstacks[0], line) < 0)
		return -1;
	stage_hash (s->conf.plugin, s->facts.plugin_hash);
	stage_hash (s->conf.plugstacks[0], s->facts.plugstack_hash);
	return 0;
}

static void take_told (int fd, const struct stage *s, const uint8_t *bytes, size_t n)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (64);
	const struct enc_file_attr attr = ENC_FILE_ATTR (0644);
	struct enc_told t;
	char path[400];

	if (enc_told_decode (bytes, n, &t, NULL) < 0 || enc_file_write (told_path (s, t.kind, path), bytes, n, &attr, NULL) < 0)
		return;
	ENC_IGNORE (enc_told_answer_encode (0, 1, &out, NULL));
	(void)send (fd, out.data, out.len, MSG_NOSIGNAL);
}

int stage_told (const struct stage *s, uint8_t kind, struct enc_told *ret)
{
	enc_auto_done (enc_buf_done) struct enc_buf file = ENC_BUF_INIT (ENC_TOLD_SIZE_MAX);
	char path[400];

	if (enc_file_read (told_path (s, kind, path), file.max, &file, NULL) < 0)
		return -1;
	(void)unlink (path);
	return enc_told_decode (file.data, file.len, ret, NULL);
}

/* A log of two records, the session's the second. */
static void log_proof (const struct stage *s, const char *body, char *out, size_t size)
{
	struct enc_sign_key *foreign = enc_sign_key_new (ENC_SIGN_ED25519, NULL, NULL);
	struct enc_proof proof = { .index = 1, .path = { .n = 1 } };
	struct enc_tree_head head = { .size = 2 };
	char checkpoint[ENC_CHECKPOINT_MAX];
	struct enc_vkey vkey;
	struct enc_hash leaf;
	ssize_t n;

	enc_hash_leaf ("{}", 2, &proof.path.hash[0]);
	enc_hash_leaf (body, strlen (body), &leaf);
	enc_hash_node (&proof.path.hash[0], &leaf, &head.root);
	if (enc_vkey_init (&vkey, LOG_NAME, enc_sign_key_pub (s->log_key), NULL) < 0)
		_exit (1);
	n = enc_checkpoint_sign (&head, &vkey, s->log == STAGE_LOG_FORGED ? foreign : s->log_key, checkpoint, sizeof checkpoint, NULL);
	proof.checkpoint = checkpoint;
	proof.checkpoint_len = n > 0 ? (size_t)n : 0;
	if (enc_proof_format (&proof, out, size, NULL) <= 0)
		_exit (1);
	enc_sign_key_free (foreign);
}

static void answer_receipt (int fd, const struct stage *s)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (ENC_TOLD_RECEIPT_MAX);
	char session[27], body[400], proof[ENC_PROOF_TEXT_MAX];
	uint8_t ask[64];
	ssize_t n = recv (fd, ask, sizeof ask, 0);

	if (n <= 0 || enc_receipt_ask_decode (ask, (size_t)n, session, NULL) < 0)
		return;
	if (s->log == STAGE_LOG_SILENT) {
		(void)recv (fd, ask, sizeof ask, 0);
		return;
	}
	if (s->log == STAGE_LOG_OTHER)
		session[0] = session[0] == 'a' ? 'b' : 'a';
	(void)snprintf (body, sizeof body, "{\"action\":\"start\",\"actor\":{\"session\":\"%s\",\"user\":\"res1\"},\"class\":\"session\",\"idx\":1,"
		"\"obj\":{\"enclave_id\":\"%s\"},\"origin\":\"" LOG_NAME "\",\"outcome\":\"ok\"}", session,
		s->log == STAGE_LOG_ENCLAVE ? "zzzzzzzzzzzzzzzzzzzzzzzzzz" : STAGE_ENCLAVE_ID);
	log_proof (s, body, proof, sizeof proof);
	if (s->log == STAGE_LOG_NONSENSE)
		enc_buf_putf (&out, "hello");
	else
		ENC_IGNORE (enc_receipt_answer_encode (body, proof, &out, NULL));
	(void)send (fd, out.data, out.len, MSG_NOSIGNAL);
}

static void answer (int fd, const struct stage *s, enum stage_mood mood)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (4096);
	uint8_t ask[ENC_TOLD_SIZE_MAX];
	ssize_t n = recv (fd, ask, sizeof ask, 0);

	if (n <= 0 || mood == STAGE_HANGS_UP)
		return;
	if (mood == STAGE_ANSWERS && enc_told_is (ask, (size_t)n)) {
		take_told (fd, s, ask, (size_t)n);
		return;
	}
	if (mood == STAGE_SILENT) {
		(void)recv (fd, ask, sizeof ask, 0); /* until the other end gives up */
		return;
	}
	if (mood == STAGE_NONSENSE)
		enc_buf_putf (&out, "hello");
	else
		ENC_IGNORE (enc_facts_encode (&s->facts, &out, NULL));
	for (int i = 0; mood == STAGE_LONG && i < 400; i++)
		enc_buf_put_u8 (&out, 0);
	(void)send (fd, out.data, out.len, MSG_NOSIGNAL);
}

static void serve (int at, int log, const struct stage *s, enum stage_mood mood)
{
	struct pollfd both[] = { { .fd = at, .events = POLLIN }, { .fd = log, .events = POLLIN } };

	for (;;) {
		enc_auto_close int fd = -1;
		(void)poll (both, 2, -1);
		if (both[0].revents && (fd = accept (at, NULL, NULL)) >= 0)
			answer (fd, s, mood);
		else if (both[1].revents && (fd = accept (log, NULL, NULL)) >= 0)
			answer_receipt (fd, s);
	}
}

static int listen_at (const char *path)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	enc_auto_close int at = socket (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)unlink (path);
	(void)snprintf (to.sun_path, sizeof to.sun_path, "%s", path);
	if (at < 0 || bind (at, (const struct sockaddr *)&to, sizeof to) < 0 || chmod (path, 0666) < 0 || listen (at, 16) < 0)
		return -1;
	return ENC_TAKE_FD (at);
}

int stage_facts (struct stage *s, enum stage_mood mood)
{
	enc_auto_close int at = -1, log = -1;
	pid_t parent = getpid ();

	stage_quiet (s);
	at = listen_at (s->conf.facts);
	log = s->log == STAGE_LOG_AWAY ? -1 : listen_at (s->conf.agent);
	if (at < 0 || (log < 0 && s->log != STAGE_LOG_AWAY))
		return -1;
	if ((s->privd = fork ()) != 0)
		return s->privd > 0 ? 0 : -1;
	(void)prctl (PR_SET_PDEATHSIG, SIGKILL);
	if (getppid () == parent)
		serve (at, log, s, mood);
	_exit (0);
}

void stage_quiet (struct stage *s)
{
	if (s->privd > 0) {
		(void)kill (s->privd, SIGKILL);
		(void)waitpid (s->privd, NULL, 0);
	}
	s->privd = 0;
	(void)unlink (s->conf.facts);
	(void)unlink (s->conf.agent);
}

void stage_done (struct stage *s)
{
	stage_quiet (s);
	enc_sign_key_free (s->key);
	enc_sign_key_free (s->log_key);
}
