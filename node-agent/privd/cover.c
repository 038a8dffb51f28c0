#include "node-agent/privd/cover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/file.h"
#include "node-agent/privd/bus.h"
#include "node-agent/privd/procs.h"

#include "base/enc.h"

#define SOURCE "enclave-cover"

enum { SETTLE_MS = 10000, RESTART_MS = 8000, NAMES_MAX = 10000, UNITS_MAX = 32 };

static const struct {
	const char *path, *size;
} covers[] = {
	{ "/var/log", "64m" },
	{ "/var/mail", "8m" },
	{ "/var/spool/mail", "8m" },
	{ "/var/spool/cron", "8m" },
	{ "/var/spool/at", "8m" },
	{ "/var/crash", "1m" },
	{ "/var/lib/systemd/coredump", "1m" },
	{ "/var/lib/plocate", "64m" },
	{ "/var/lib/mlocate", "64m" },
};

/* Is the uppermost mount there one of ours? */
static bool is_covered (const char *path)
{
	FILE *table = setmntent ("/proc/self/mounts", "re");
	const struct mntent *m;
	bool ours = false;

	while (table && (m = getmntent (table)))
		if (strcmp (m->mnt_dir, path) == 0)
			ours = strcmp (m->mnt_fsname, SOURCE) == 0;
	if (table)
		(void)endmntent (table);
	return ours;
}

int enc_covers_list (struct enc_strs *ret, struct enc_error *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ENC_ARRAY_LEN (covers); i++)
		if (is_covered (covers[i].path))
			rc = enc_strs_add (ret, covers[i].path, err);
	return rc;
}

/* ---- the same folders ---- */

static int copy_folder (int from, int to, const char *name, struct enc_error *err)
{
	struct enc_file_attr attr;
	struct stat st;

	/* With its folder there, a journal that is left to choose would choose it. */
	if (strcmp (name, "journal") == 0 || fstatat (from, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR (st.st_mode))
		return 0;
	attr = (struct enc_file_attr){ .mode = st.st_mode & 07777, .uid = st.st_uid, .gid = st.st_gid };
	return enc_mkdir_at (to, name, &attr, err);
}

/* Services expect the folder that their package made; no file comes along. */
static int copy_folders (int from, const char *path, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	enc_auto_close int to = enc_open_dir (path, err);
	int rc = to < 0 ? to : enc_dir_list (from, NAMES_MAX, &names, err);

	for (size_t i = 0; rc == 0 && i < names.n; i++)
		rc = copy_folder (from, to, names.v[i], err);
	return rc;
}

static int cover (size_t i, struct enc_error *err)
{
	enc_auto_close int under = open (covers[i].path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char options[128];
	struct stat st;

	if (under < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
		return 0;
	if (under < 0 || fstat (under, &st) < 0)
		return enc_fail_sys (err, "%s", covers[i].path);
	if (is_covered (covers[i].path))
		return 0;
	(void)snprintf (options, sizeof options, "size=%s,mode=%o,uid=%u,gid=%u", covers[i].size, st.st_mode & 07777, st.st_uid, st.st_gid);
	if (mount (SOURCE, covers[i].path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options) < 0)
		return enc_fail_sys (err, "cover %s", covers[i].path);
	return copy_folders (under, covers[i].path, err);
}

/* ---- who has files open there ---- */

struct holders {
	const struct devices *of;  /* files on these; NULL: files beneath a cover */
	pid_t pid;                 /* the last one found; 0 none */
	char comm[16];
	struct enc_strs units;     /* to be started anew */
};

struct devices {
	size_t n;
	dev_t v[ENC_ARRAY_LEN (covers)];
};

static bool is_on (int dir, const char *name, const struct devices *of)
{
	struct stat st;

	if (fstatat (dir, name, &st, 0) < 0)
		return false;
	for (size_t i = 0; i < of->n; i++)
		if (st.st_dev == of->v[i])
			return true;
	return false;
}

static bool is_beneath (int dir, const char *name)
{
	char to[4096];
	ssize_t n = readlinkat (dir, name, to, sizeof to - 1);
	struct stat file, top;

	if (n <= 0)
		return false;
	to[n] = '\0';
	for (size_t i = 0; i < ENC_ARRAY_LEN (covers); i++) {
		size_t len = strlen (covers[i].path);
		if (strncmp (to, covers[i].path, len) == 0 && to[len] == '/' && is_covered (covers[i].path))
			return fstatat (dir, name, &file, 0) == 0 && stat (covers[i].path, &top) == 0 && file.st_dev != top.st_dev;
	}
	return false;
}

static bool holds (pid_t pid, const struct devices *of)
{
	const struct dirent *entry;
	bool found = false;
	char path[64];
	DIR *dir;

	(void)snprintf (path, sizeof path, "/proc/%d/fd", pid);
	if (!(dir = opendir (path)))
		return false;
	while (!found && (entry = readdir (dir)))
		found = entry->d_name[0] != '.' && (of ? is_on (dirfd (dir), entry->d_name, of) : is_beneath (dirfd (dir), entry->d_name));
	(void)closedir (dir);
	return found;
}

static int see_process (const struct enc_proc *p, void *arg)
{
	struct holders *h = arg;
	const char *unit = strrchr (p->cgroup, '/');

	if (p->kernel || !holds (p->pid, h->of))
		return 0;
	h->pid = p->pid;
	(void)snprintf (h->comm, sizeof h->comm, "%s", p->comm);
	if (unit && enc_ends (unit, ".service") && !enc_strs_has (&h->units, unit + 1))
		return enc_strs_add (&h->units, unit + 1, NULL);
	return 0;
}

/* Some services refuse to be stopped by hand (auditd.service); they end by a signal and are started. */
static void start_anew (const char *unit)
{
	enc_bus_forgive (unit);
	if (enc_bus_unit (ENC_UNIT_RESTART, unit, RESTART_MS, NULL) == 0)
		return;
	(void)!enc_bus_kill (unit, SIGTERM, NULL);
	(void)!enc_bus_unit (ENC_UNIT_START, unit, RESTART_MS, NULL);
}

static int settle (const struct devices *of, struct enc_error *err)
{
	int64_t deadline = enc_deadline_ms (SETTLE_MS);

	for (;;) {
		struct holders h = { .of = of };
		int rc = enc_procs_each (see_process, &h, err);

		if (rc == 0 && h.pid && enc_passed (deadline))
			rc = enc_error_next (err, enc_fail (err, ENC_EBUSY, "process %d (%s) has a log file open", h.pid, h.comm),
				"add its unit to the site's units.json");
		for (size_t i = 0; rc == 0 && i < h.units.n; i++)
			start_anew (h.units.v[i]);
		enc_strs_done (&h.units);
		if (rc < 0 || h.pid == 0)
			return rc;
		(void)poll (NULL, 0, 20);
	}
}

/* ---- both ways ---- */

int enc_covers_up (struct enc_error *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ENC_ARRAY_LEN (covers); i++)
		rc = cover (i, err);
	return rc == 0 ? settle (NULL, err) : rc;
}

static char *down_path (const struct enc_privd_conf *conf)
{
	return enc_strf ("%s/covers-down", conf->run_dir);
}

/* The devices of covers that go now, and of those that went before a crash. */
static int note_devices (const struct enc_privd_conf *conf, struct devices *ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf old = ENC_BUF_INIT (sizeof ret->v);
	struct enc_file_attr attr = ENC_FILE_ATTR (0600);
	enc_auto_free char *path = down_path (conf);
	struct stat st;

	if (!path)
		return enc_fail (err, ENC_ENOMEM, "covers: no memory");
	for (size_t i = 0; i < ENC_ARRAY_LEN (covers); i++)
		if (is_covered (covers[i].path) && stat (covers[i].path, &st) == 0)
			ret->v[ret->n++] = st.st_dev;
	if (enc_file_read (path, sizeof ret->v, &old, NULL) == 0)
		for (size_t i = 0; i + sizeof (dev_t) <= old.len && ret->n < ENC_ARRAY_LEN (covers); i += sizeof (dev_t))
			memcpy (&ret->v[ret->n++], old.data + i, sizeof (dev_t));
	return ret->n ? enc_file_write (path, ret->v, ret->n * sizeof (dev_t), &attr, err) : 0;
}

/* A service that is started anew opens what it finds under its name, so the cover goes first and who still holds it is started after that: the
 * one place where a mount is detached. It counts as gone when nobody holds it any more. */
int enc_covers_down (const struct enc_privd_conf *conf, struct enc_error *err)
{
	enc_auto_free char *path = down_path (conf);
	struct devices devices = { 0 };
	int rc = note_devices (conf, &devices, err);

	if (rc < 0 || devices.n == 0 || !path)
		return rc;
	for (size_t i = 0; i < ENC_ARRAY_LEN (covers); i++)
		while (is_covered (covers[i].path))
			if (umount2 (covers[i].path, UMOUNT_NOFOLLOW | MNT_DETACH) < 0)
				return enc_fail_sys (err, "uncover %s", covers[i].path);
	if ((rc = settle (&devices, err)) < 0)
		return rc;
	return unlink (path) < 0 && errno != ENOENT ? enc_fail_sys (err, "%s", path) : 0;
}
