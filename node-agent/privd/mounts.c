#include "node-agent/privd/mounts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/file.h"

#include "base/enc.h"

enum { BUSY_MS = 2000, TABLE_MAX = 4 * 1024 * 1024 };

int enc_mount_list (const char *prefix, struct enc_strs *ret, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs found = { 0 };
	enc_auto_fclose FILE *table = fopen ("/proc/self/mountinfo", "re");
	enc_auto_free char *line = NULL;
	size_t room = 0, len = strlen (prefix);
	int rc;

	if (!table)
		return enc_fail_sys (err, "the mount table");
	while (getline (&line, &room, table) > 0) {
		/* id parent major:minor root MOUNTPOINT …; blanks in names are octal there, and none of ours has one. */
		char point[4096];
		if (sscanf (line, "%*u %*u %*s %*s %4095s", point) != 1)
			continue;
		if (strncmp (point, prefix, len) == 0 && (point[len] == '\0' || point[len] == '/' || strcmp (prefix, "/") == 0))
			if ((rc = enc_strs_add (&found, point, err)) < 0)
				return rc;
	}
	for (size_t i = found.n; i-- > 0;)
		if ((rc = enc_strs_add (ret, found.v[i], err)) < 0)
			return rc;
	return 0;
}

bool enc_mount_is (const char *target)
{
	enc_auto_done (enc_strs_done) struct enc_strs list = { 0 };

	return enc_mount_list (target, &list, NULL) == 0 && enc_strs_has (&list, target);
}

static bool same_file (int fd, const char *target)
{
	struct stat a, b;

	return fstat (fd, &a) == 0 && stat (target, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int enc_mount_bind (int fd, const char *target, struct enc_error *err)
{
	char source[32];

	if (same_file (fd, target))
		return 0;
	(void)snprintf (source, sizeof source, "/proc/self/fd/%d", fd);
	if (mount (source, target, NULL, MS_BIND, NULL) < 0)
		return enc_fail_sys (err, "mount over %s", target);
	if (mount (NULL, target, NULL, MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV, NULL) < 0) {
		int rc = enc_fail_sys (err, "mount options of %s", target);
		(void)umount2 (target, UMOUNT_NOFOLLOW);
		return rc;
	}
	return 0;
}

int enc_mount_memory (const char *what, const char *target, const char *mode, struct enc_error *err)
{
	char options[64];

	if (enc_mount_is (target))
		return 0;
	(void)snprintf (options, sizeof options, "mode=%s,noswap", mode);
	if (mount (what, target, "tmpfs", MS_NOSUID | MS_NODEV, options) == 0)
		return 0;
	/* Before Linux 6.4 there is no noswap; a clean node has no swap at all (see residue row swap). */
	(void)snprintf (options, sizeof options, "mode=%s", mode);
	return mount (what, target, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0 ? enc_fail_sys (err, "memory file system on %s", target) : 0;
}

/* Does a link in /proc lead to or below the target? */
static bool leads_below (int dir, const char *name, const char *target)
{
	char to[4096];
	ssize_t n = readlinkat (dir, name, to, sizeof to - 1);
	size_t len = strlen (target);

	if (n <= 0)
		return false;
	to[n] = '\0';
	return strncmp (to, target, len) == 0 && (to[len] == '/' || to[len] == '\0');
}

static bool process_holds (int proc, const char *pid, const char *target)
{
	static const char *const links[] = { "cwd", "root", "exe" };
	char path[300];
	const struct dirent *entry;
	bool holds = false;
	DIR *dir;
	int fd;

	for (size_t i = 0; i < ENC_ARRAY_LEN (links); i++) {
		(void)snprintf (path, sizeof path, "%s/%s", pid, links[i]);
		if (leads_below (proc, path, target))
			return true;
	}
	(void)snprintf (path, sizeof path, "%s/fd", pid);
	if ((fd = openat (proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 || !(dir = fdopendir (fd)))
		return false;
	while (!holds && (entry = readdir (dir)))
		holds = entry->d_name[0] != '.' && leads_below (fd, entry->d_name, target);
	(void)closedir (dir);
	return holds;
}

bool enc_proc_holds (pid_t pid, const char *target)
{
	char name[16];
	DIR *proc = opendir ("/proc");
	bool found;

	(void)snprintf (name, sizeof name, "%d", pid);
	found = proc && process_holds (dirfd (proc), name, target);
	if (proc)
		(void)closedir (proc);
	return found;
}

static void find_holder (const char *target, char *ret, size_t size)
{
	const struct dirent *entry;
	DIR *dir = opendir ("/proc");
	char path[300], comm[32];

	(void)snprintf (ret, size, "somebody");
	while (dir && (entry = readdir (dir))) {
		if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || !process_holds (dirfd (dir), entry->d_name, target))
			continue;
		(void)snprintf (path, sizeof path, "/proc/%.20s/comm", entry->d_name);
		if (enc_file_read_line (path, comm, sizeof comm, NULL) < 0)
			comm[0] = '\0';
		(void)snprintf (ret, size, "process %.20s (%.20s)", entry->d_name, comm);
		break;
	}
	if (dir)
		(void)closedir (dir);
}

int enc_mount_drop (const char *target, struct enc_error *err)
{
	int64_t deadline = enc_deadline_ms (BUSY_MS);
	char holder[64];

	while (enc_mount_is (target)) {
		if (umount2 (target, UMOUNT_NOFOLLOW) == 0)
			continue;
		if (errno != EBUSY)
			return enc_fail_sys (err, "unmount %s", target);
		if (enc_passed (deadline)) {
			find_holder (target, holder, sizeof holder);
			return enc_fail (err, ENC_EBUSY, "%s is held by %s", target, holder);
		}
		(void)poll (NULL, 0, 10);
	}
	return 0;
}
