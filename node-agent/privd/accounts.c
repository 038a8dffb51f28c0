#include "node-agent/privd/accounts.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "node-agent/privd/bus.h"
#include "node-agent/privd/mounts.h"
#include "node-agent/privd/procs.h"
#include "node-agent/privd/told.h"

#include "base/enc.h"

#define EXTRA "/var/lib/extrausers"
#define HIDE "/run/enclave/etc"
#define LOGIN_KEYS "/run/enclave/login/keys"

enum { TEXT_MAX = 4 * 1024 * 1024, END_MS = 5000, REST_MS = 3000 };

int enc_accounts_passwd (const struct enc_privd_conf *conf, const struct enc_members *m, struct enc_buf *out, struct enc_error *err)
{
	for (size_t i = 0; i < m->members_n; i++) {
		const struct enc_member *u = &m->members[i];
		enc_buf_putf (out, "%s:x:%u:%u::%s/home/%s:/bin/bash\n", u->user, u->uid, u->gid, conf->root, u->user);
	}
	return enc_buf_check (out, err);
}

static bool gid_seen (const struct enc_members *m, size_t before, uint32_t gid)
{
	for (size_t i = 0; i < before; i++)
		if (m->members[i].gid == gid)
			return true;
	return false;
}

int enc_accounts_group (const struct enc_members *m, uint32_t owner_gid, struct enc_buf *out, struct enc_error *err)
{
	bool owner_done = owner_gid == 0;

	for (size_t i = 0; i < m->members_n; i++) {
		const struct enc_member *u = &m->members[i];
		if (gid_seen (m, i, u->gid) || u->gid == owner_gid)
			continue;
		enc_buf_putf (out, "%s:x:%u:\n", u->user, u->gid);
	}
	/* The group of the volume: every member is in it, whatever his own is. */
	if (!owner_done) {
		enc_buf_putf (out, "%s:x:%u:", m->enclave_name, owner_gid);
		for (size_t i = 0; i < m->members_n; i++)
			enc_buf_putf (out, "%s%s", i ? "," : "", m->members[i].user);
		enc_buf_putf (out, "\n");
	}
	return enc_buf_check (out, err);
}

int enc_accounts_shadow (const struct enc_members *m, struct enc_buf *out, struct enc_error *err)
{
	for (size_t i = 0; i < m->members_n; i++)
		enc_buf_putf (out, "%s:*:19700:0:99999:7:::\n", m->members[i].user);
	return enc_buf_check (out, err);
}

/* Both files have the id in the third field. */
static bool is_system_line (const char *line, size_t len, uint64_t uid_min)
{
	const char *one = memchr (line, ':', len), *two = one ? memchr (one + 1, ':', len - (size_t)(one + 1 - line)) : NULL;
	char text[16];
	size_t n = two ? strcspn (two + 1, ":\n") : 0;
	uint64_t id;

	if (!two || n == 0 || n >= sizeof text)
		return false;
	memcpy (text, two + 1, n);
	text[n] = '\0';
	return enc_parse_u64 (text, 0, UINT32_MAX, &id, NULL) == 0 && !enc_uid_is_person (uid_min, id);
}

int enc_accounts_system_lines (const char *text, uint64_t uid_min, struct enc_buf *out, struct enc_error *err)
{
	while (*text) {
		size_t len = strcspn (text, "\n");
		if (is_system_line (text, len, uid_min)) {
			enc_buf_put (out, text, len);
			enc_buf_put_u8 (out, '\n');
		}
		text += len + (text[len] == '\n');
	}
	return enc_buf_check (out, err);
}

static int write_text (const char *path, const struct enc_buf *text, unsigned mode, struct enc_error *err)
{
	struct enc_file_attr attr = { .mode = mode, .uid = 0, .gid = 0 };

	return enc_file_write (path, text->data, text->len, &attr, err);
}

static int make_folder (const char *path, unsigned mode, struct enc_error *err)
{
	return mkdir (path, mode) < 0 && errno != EEXIST ? enc_fail_sys (err, "%s", path) : 0;
}

static int write_extrausers (const struct enc_privd_conf *conf, const struct enc_doc *doc, const struct enc_members *m, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf passwd = ENC_BUF_INIT (TEXT_MAX), group = ENC_BUF_INIT (TEXT_MAX), shadow = ENC_BUF_INIT (TEXT_MAX);
	uint32_t gid = 0;
	int rc;

	for (size_t i = 0; i < doc->volumes_n && gid == 0; i++)
		if (doc->volumes[i].kind == ENC_VOLUME_PROJECT)
			gid = doc->volumes[i].owner_gid;
	if ((rc = enc_accounts_passwd (conf, m, &passwd, err)) < 0 || (rc = enc_accounts_group (m, gid, &group, err)) < 0 ||
		(rc = enc_accounts_shadow (m, &shadow, err)) < 0 || (rc = make_folder (EXTRA, 0755, err)) < 0)
		return rc;
	if ((rc = write_text (EXTRA "/group", &group, 0644, err)) < 0 || (rc = write_text (EXTRA "/shadow", &shadow, 0600, err)) < 0)
		return rc;
	return write_text (EXTRA "/passwd", &passwd, 0644, err);
}

/* Lay a filtered copy over a file of /etc, so that the site's users are unknown here while the node is inside. */
static int hide_users (const char *path, const char *name, uint64_t uid_min, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (TEXT_MAX), kept = ENC_BUF_INIT (TEXT_MAX);
	enc_auto_close int fd = -1;
	char copy[64];
	int rc;

	if (enc_mount_is (path))
		return 0;
	if ((rc = enc_file_read (path, TEXT_MAX - 1, &text, err)) < 0)
		return rc;
	enc_buf_put_u8 (&text, 0);
	if ((rc = enc_accounts_system_lines ((const char *)text.data, uid_min, &kept, err)) < 0)
		return rc;
	(void)snprintf (copy, sizeof copy, HIDE "/%s", name);
	if ((rc = make_folder (HIDE, 0755, err)) < 0 || (rc = write_text (copy, &kept, 0644, err)) < 0)
		return rc;
	if ((fd = open (copy, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) < 0)
		return enc_fail_sys (err, "%s", copy);
	return enc_mount_bind (fd, path, err);
}

static int write_login_keys (const struct enc_members *m, struct enc_error *err)
{
	enc_auto_close int dir = -1;
	int rc;

	if ((rc = make_folder ("/run/enclave/login", 0755, err)) < 0 || (rc = make_folder (LOGIN_KEYS, 0755, err)) < 0)
		return rc;
	if ((dir = enc_open_dir (LOGIN_KEYS, err)) < 0)
		return dir;
	if ((rc = enc_remove_contents (dir, (uid_t)-1, NULL, err)) < 0)
		return rc;
	for (size_t i = 0; i < m->members_n; i++) {
		enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (ENC_MEMBER_KEYS_MAX * (ENC_MEMBER_KEY_LINE_MAX + 1));
		struct enc_file_attr attr = { .mode = 0644, .uid = 0, .gid = 0 };
		for (size_t k = 0; k < m->members[i].keys_n; k++)
			enc_buf_putf (&text, "%s\n", m->members[i].keys[k]);
		if ((rc = enc_buf_check (&text, err)) < 0 ||
			(rc = enc_file_write_at (dir, m->members[i].user, text.data, text.len, &attr, err)) < 0)
			return rc;
	}
	return 0;
}

static int make_homes (const struct enc_privd_conf *conf, const struct enc_members *m, struct enc_error *err)
{
	enc_auto_free char *home = enc_strf ("%s/home", conf->root);
	enc_auto_close int dir = -1;
	int rc;

	if (!home)
		return enc_fail (err, ENC_ENOMEM, "homes: no memory");
	if (!enc_mount_is (home))
		return 0; /* no project volume on this node */
	if ((dir = enc_open_dir (home, err)) < 0)
		return dir;
	for (size_t i = 0; i < m->members_n; i++) {
		struct enc_file_attr attr = { .mode = 0700, .uid = m->members[i].uid, .gid = m->members[i].gid };
		if ((rc = enc_mkdir_at (dir, m->members[i].user, &attr, err)) < 0)
			return enc_wrap (err, rc, "home of %s", m->members[i].user);
	}
	return 0;
}

/* ---- who is no member any more ---- */

struct gone {
	const struct enc_members *members;
	size_t n;
	uid_t uids[ENC_MEMBERS_MAX];
};

static void find_gone (struct gone *gone)
{
	enc_auto_fclose FILE *old = fopen (EXTRA "/passwd", "re");
	const struct passwd *p;

	while (old && gone->n < ENC_MEMBERS_MAX && (p = fgetpwent (old)))
		if (!gone->members || !enc_members_find_uid (gone->members, p->pw_uid))
			gone->uids[gone->n++] = p->pw_uid;
}

static bool is_gone (const struct enc_proc *p, const void *arg)
{
	const struct gone *gone = arg;

	for (size_t i = 0; i < gone->n; i++)
		if (gone->uids[i] == p->uid)
			return true;
	return false;
}

static void stop_slices (const struct gone *gone)
{
	char slice[48];

	for (size_t i = 0; i < gone->n; i++) {
		(void)snprintf (slice, sizeof slice, "user-%u.slice", gone->uids[i]);
		(void)!enc_bus_unit (ENC_UNIT_STOP, slice, END_MS, NULL);
	}
}

int enc_accounts_apply (const struct enc_privd_conf *conf, const struct enc_doc *doc, const struct enc_members *m, size_t *ret_ended, struct enc_error *err)
{
	enc_auto_free struct gone *gone = calloc (1, sizeof *gone);
	int rc;

	if (!gone)
		return enc_fail (err, ENC_ENOMEM, "accounts: no memory");
	gone->members = m;
	find_gone (gone);
	if ((rc = make_folder ("/run/enclave", 0755, err)) < 0 || (rc = write_extrausers (conf, doc, m, err)) < 0)
		return rc;
	if ((rc = hide_users ("/etc/passwd", "passwd", conf->uid_min, err)) < 0 || (rc = hide_users ("/etc/group", "group", conf->uid_min, err)) < 0)
		return rc;
	if ((rc = write_login_keys (m, err)) < 0 || (rc = make_homes (conf, m, err)) < 0)
		return rc;
	*ret_ended = gone->n;
	if (gone->n == 0)
		return 0;
	/* The account is gone already, so nothing new can begin under it. */
	if ((rc = enc_procs_kill (is_gone, gone, END_MS, NULL, err)) < 0)
		return rc;
	stop_slices (gone);
	return 0;
}

int enc_accounts_end_sessions (struct enc_error *err)
{
	enc_auto_free struct gone *gone = calloc (1, sizeof *gone);

	if (!gone)
		return enc_fail (err, ENC_ENOMEM, "accounts: no memory");
	find_gone (gone); /* without members: everybody */
	/* Sessions live in the users' slices; batch jobs live in slurmd's group and stay. */
	stop_slices (gone);
	return 0;
}

struct login {
	pid_t pid;
	char scope[64]; /* unit of the session; "" when the login service made none */
};

static int find_scope (const struct enc_proc *p, void *arg)
{
	struct login *login = arg;
	const char *last = strrchr (p->cgroup, '/');

	if (p->pid == login->pid && last && strncmp (last, "/session-", 9) == 0)
		(void)!enc_str_copy (login->scope, sizeof login->scope, last + 1, NULL);
	return 0;
}

int enc_accounts_end_session (pid_t pid, uint64_t start, struct enc_error *err)
{
	struct login login = { .pid = pid };
	int rc;

	if (enc_proc_start (pid) != start)
		return 0;
	if ((rc = enc_procs_each (find_scope, &login, err)) < 0)
		return rc;
	if (!login.scope[0])
		return kill (pid, SIGTERM) < 0 && errno != ESRCH ? enc_fail_sys (err, "end a session") : 0;
	/* All that belongs to it, also what has left its terminal; whatever does not go by itself is made to. */
	if (enc_bus_unit (ENC_UNIT_STOP, login.scope, END_MS, NULL) == 0)
		return 0;
	return enc_bus_kill (login.scope, SIGKILL, err);
}

struct rest {
	const uint32_t *logins;
	size_t n;
};

/* Root's are sshd's own, which is about to end by itself. */
static bool is_rest (const struct enc_proc *p, const void *arg)
{
	const struct rest *rest = arg;

	for (size_t i = 0; p->uid != 0 && p->login != UINT32_MAX && i < rest->n; i++)
		if (p->login == rest->logins[i])
			return true;
	return false;
}

int enc_accounts_end_rest (const uint32_t *logins, size_t n, struct enc_error *err)
{
	const struct rest rest = { logins, n };

	return enc_procs_kill (is_rest, &rest, REST_MS, NULL, err);
}

int enc_accounts_remove (const struct enc_privd_conf *conf, struct enc_error *err)
{
	static const char *const files[] = { EXTRA "/passwd", EXTRA "/group", EXTRA "/shadow" };
	enc_auto_free struct gone *gone = calloc (1, sizeof *gone);
	enc_auto_close int run = -1;
	int rc;

	(void)conf;
	if (!gone)
		return enc_fail (err, ENC_ENOMEM, "accounts: no memory");
	find_gone (gone);
	stop_slices (gone);
	if ((rc = enc_procs_kill (is_gone, gone, END_MS, NULL, err)) < 0)
		return rc;
	for (size_t i = 0; i < ENC_ARRAY_LEN (files); i++)
		if (unlink (files[i]) < 0 && errno != ENOENT)
			return enc_fail_sys (err, "%s", files[i]);
	if ((rc = enc_mount_drop ("/etc/passwd", err)) < 0 || (rc = enc_mount_drop ("/etc/group", err)) < 0)
		return rc;
	if ((run = enc_open_dir ("/run/enclave", NULL)) < 0)
		return 0;
	if ((rc = enc_remove_tree (run, "etc", (uid_t)-1, NULL, err)) < 0)
		return rc;
	return enc_remove_tree (run, "login", (uid_t)-1, NULL, err);
}
