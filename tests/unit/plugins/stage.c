#include "stage.h"

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
#include "crypto/hash.h"
#include "crypto/note.h"

static char ssh_key[] = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== res1@ext";
static char *ssh_keys[] = { ssh_key };
static char datasets[1][32] = { "cxr-images" };

static const struct { const char *name; size_t offset; } paths[] = {
	{ "members", offsetof (struct enc_client_conf, members) }, { "keyd.vkey", offsetof (struct enc_client_conf, vkey) },
	{ "privd.sock", offsetof (struct enc_client_conf, facts) }, { "spank_enclave.so", offsetof (struct enc_client_conf, plugin) },
	{ "plugstack.conf", offsetof (struct enc_client_conf, plugstacks) }, { "slurm.conf", offsetof (struct enc_client_conf, nodes) },
	{ "jobs", offsetof (struct enc_client_conf, jobs) }, { "scratch", offsetof (struct enc_client_conf, scratch) },
};

int stage_write (const char *path, const char *text)
{
	const struct enc_file_attr attr = ENC_FILE_ATTR (0644);
	return enc_file_write (path, text, strlen (text), &attr, NULL);
}

static int write_key (struct stage *s)
{
	char text[ENC_VKEY_TEXT_MAX];
	struct enc_vkey vkey;

	if (enc_vkey_init (&vkey, "keyd", enc_sign_key_pub (s->key), NULL) < 0)
		return -1;
	enc_vkey_format (&vkey, text);
	return stage_write (s->conf.vkey, text);
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

int stage_make (struct stage *s, const char *dir)
{
	memset (s, 0, sizeof *s);
	s->conf = (struct enc_client_conf){ .facts_uid = getuid (), .deadline_ms = 300, .recipes = ENC_SOURCE_DIR "/ops/recipes" };
	(void)snprintf (s->dir, sizeof s->dir, "%s", dir);
	for (size_t i = 0; i < ENC_ARRAY_LEN (paths); i++) {
		(void)snprintf (s->path[i], sizeof s->path[i], "%s/%s", dir, paths[i].name);
		*(const char **)((char *)&s->conf + paths[i].offset) = s->path[i];
	}
	fill (s);
	s->key = enc_sign_key_new (ENC_SIGN_ED25519, NULL, NULL);
	return s->key && write_key (s) == 0 ? 0 : -1;
}

int stage_make_system (struct stage *s, const uint8_t seed[32])
{
	memset (s, 0, sizeof *s);
	s->conf = enc_client_conf;
	fill (s);
	s->key = enc_sign_key_new (ENC_SIGN_ED25519, seed, NULL);
	return s->key && write_key (s) == 0 ? 0 : -1;
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

static void answer (int fd, const struct stage *s, enum stage_mood mood)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (4096);
	uint8_t ask[64];

	if (recv (fd, ask, sizeof ask, 0) <= 0 || mood == STAGE_HANGS_UP)
		return;
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

static void serve (int at, const struct stage *s, enum stage_mood mood)
{
	for (;;) {
		enc_auto_close int fd = accept (at, NULL, NULL);
		if (fd >= 0)
			answer (fd, s, mood);
	}
}

int stage_facts (struct stage *s, enum stage_mood mood)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	enc_auto_close int at = socket (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	pid_t parent = getpid ();

	stage_quiet (s);
	(void)snprintf (to.sun_path, sizeof to.sun_path, "%s", s->conf.facts);
	if (at < 0 || bind (at, (const struct sockaddr *)&to, sizeof to) < 0 || chmod (s->conf.facts, 0666) < 0 || listen (at, 16) < 0)
		return -1;
	if ((s->privd = fork ()) != 0)
		return s->privd > 0 ? 0 : -1;
	(void)prctl (PR_SET_PDEATHSIG, SIGKILL);
	if (getppid () == parent)
		serve (at, s, mood);
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
}

void stage_done (struct stage *s)
{
	stage_quiet (s);
	enc_sign_key_free (s->key);
}
