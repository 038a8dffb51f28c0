#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "base/enc.h"

/* ---- open ---- */

static int open_how (int dirfd, const char *name, int flags, mode_t mode, uint64_t resolve, struct enc_error *err)
{
	struct open_how how = { .flags = (uint64_t) (flags | O_CLOEXEC),
				.mode = flags & (O_CREAT | O_TMPFILE) ? mode : 0,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | resolve };
	for (int tries = 0;; tries++) {
		long fd = syscall (SYS_openat2, dirfd, name, &how, sizeof (how));
		if (fd >= 0)
			return (int) fd;
		/* The kernel gives up with EAGAIN when something was renamed on the way. */
		if (errno == EINTR || (errno == EAGAIN && tries < 32))
			continue;
		if (errno == EXDEV || errno == ELOOP)
			return enc_fail (err, ENC_EDENIED, "%s leads out of its folder or through a link", name);
		return enc_fail_sys (err, "open %s", name);
	}
}

int enc_open_beneath (int dirfd, const char *name, int flags, mode_t mode, struct enc_error *err)
{
	return open_how (dirfd, name, flags, mode, 0, err);
}

int enc_open_beneath_mount (int dirfd, const char *name, int flags, mode_t mode, struct enc_error *err)
{
	return open_how (dirfd, name, flags, mode, RESOLVE_NO_XDEV, err);
}

int enc_open_dir (const char *path, struct enc_error *err)
{
	int fd = open (path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd >= 0 ? fd : enc_fail_sys (err, "open folder %s", path);
}

/* ---- read ---- */

static int read_fd (int fd, const char *name, size_t max, struct enc_buf *out, struct enc_error *err)
{
	struct stat st;
	if (fstat (fd, &st) < 0)
		return enc_fail_sys (err, "stat %s", name);
	if (!S_ISREG (st.st_mode))
		return enc_fail (err, ENC_EINVAL, "%s is not a regular file", name);
	size_t before = out->len;
	for (;;) {
		uint8_t chunk[16384];
		ssize_t n = read (fd, chunk, sizeof (chunk));
		if (n < 0 && errno == EINTR)
			continue;
		int rc = 0;
		if (n < 0)
			rc = enc_fail_sys (err, "read %s", name);
		else if (out->len - before + (size_t) n > max)
			rc = enc_fail (err, ENC_ELIMIT, "%s is larger than %zu bytes", name, max);
		if (rc == 0 && n > 0) {
			enc_buf_put (out, chunk, (size_t) n);
			rc = enc_wrap (err, enc_buf_check (out, err), "read %s", name);
		}
		if (out->secret)
			enc_wipe (chunk, sizeof (chunk));
		if (rc < 0) {
			if (out->len > before)
				out->len = before;
			return rc;
		}
		if (n == 0)
			return 0;
	}
}

int enc_file_read (const char *path, size_t max, struct enc_buf *out, struct enc_error *err)
{
	enc_auto_close int fd = open (path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return enc_fail_sys (err, "open %s", path);
	return read_fd (fd, path, max, out, err);
}

int enc_file_read_at (int dirfd, const char *name, size_t max, struct enc_buf *out, struct enc_error *err)
{
	enc_auto_close int fd = enc_open_beneath (dirfd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, err);
	if (fd < 0)
		return fd;
	return read_fd (fd, name, max, out, err);
}

int enc_file_read_trusted (const char *path, size_t max, struct enc_buf *out, struct enc_error *err)
{
	int rc = enc_path_trusted (path, err);
	if (rc < 0)
		return rc;
	enc_auto_close int fd = open (path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return enc_fail_sys (err, "open %s", path);
	rc = enc_fd_trusted (fd, geteuid (), false, err);
	if (rc < 0)
		return enc_wrap (err, rc, "%s", path);
	return read_fd (fd, path, max, out, err);
}

int enc_file_read_line (const char *path, char *out, size_t size, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (4096);
	int rc = enc_file_read (path, 4096, &b, err);
	if (rc < 0)
		return rc;
	const uint8_t *end = b.len ? memchr (b.data, '\n', b.len) : NULL;
	size_t len = end ? (size_t) (end - b.data) : b.len;
	if (len >= size || (len && memchr (b.data, 0, len)))
		return enc_fail (err, ENC_ELIMIT, "the first line of %s is too long", path);
	if (len)
		memcpy (out, b.data, len);
	out[len] = 0;
	return 0;
}

/* ---- write ---- */

int enc_write_all (int fd, const void *data, size_t len, struct enc_error *err)
{
	const uint8_t *at = (const uint8_t *) data;
	while (len) {
		ssize_t n = write (fd, at, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return enc_fail_sys (err, "write");
		at += n;
		len -= (size_t) n;
	}
	return 0;
}

int enc_sys_write (const char *path, const char *value, struct enc_error *err)
{
	enc_auto_close int fd = open (path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return enc_fail_sys (err, "open %s", path);
	ssize_t n = write (fd, value, strlen (value));
	if (n < 0)
		return enc_fail_sys (err, "write to %s", path);
	if ((size_t) n != strlen (value))
		return enc_fail (err, ENC_EFAILED, "%s took only a part of the value", path);
	return 0;
}

static bool name_ok (const char *name)
{
	size_t len = strlen (name);
	return len > 0 && len < 200 && !strchr (name, '/') && strcmp (name, ".") != 0 && strcmp (name, "..") != 0;
}

/* Owner first, then mode: never a moment in which the wrong one may read. */
static int set_attr (int fd, const char *name, const struct enc_file_attr *attr, struct enc_error *err)
{
	if ((attr->uid != (uid_t) -1 || attr->gid != (gid_t) -1) && fchown (fd, attr->uid, attr->gid) < 0)
		return enc_fail_sys (err, "set the owner of %s", name);
	if (fchmod (fd, attr->mode) < 0)
		return enc_fail_sys (err, "set the mode of %s", name);
	return 0;
}

static int fill_temp (int fd, const char *name, const void *data, size_t len, const struct enc_file_attr *attr, struct enc_error *err)
{
	int rc = set_attr (fd, name, attr, err);
	if (rc == 0)
		rc = enc_wrap (err, enc_write_all (fd, data, len, err), "%s", name);
	if (rc == 0 && fsync (fd) < 0)
		rc = enc_fail_sys (err, "fsync %s", name);
	return rc;
}

static int replace_at (int dirfd, const char *name, const void *data, size_t len, const struct enc_file_attr *attr,
		       unsigned rename_flags, struct enc_error *err)
{
	char id[ENC_ID_SIZE], temp[256];
	if (!name_ok (name))
		return enc_fail (err, ENC_EINVAL, "not a file name");
	int rc = enc_id_new (id, err);
	if (rc < 0)
		return rc;
	(void) snprintf (temp, sizeof (temp), ".%s.%s.new", name, id);
	enc_auto_close int dir = openat (dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return enc_fail_sys (err, "open the folder of %s", name);
	enc_auto_close int fd = openat (dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0);
	if (fd < 0)
		return enc_fail_sys (err, "create %s", name);
	rc = fill_temp (fd, name, data, len, attr, err);
	if (rc == 0 && renameat2 (dir, temp, dir, name, rename_flags) < 0)
		rc = enc_fail_sys (err, "put %s in place", name);
	if (rc < 0) {
		(void) unlinkat (dir, temp, 0);
		return rc;
	}
	if (fsync (dir) < 0)
		return enc_fail_sys (err, "fsync the folder of %s", name);
	return 0;
}

int enc_file_write_at (int dirfd, const char *name, const void *data, size_t len, const struct enc_file_attr *attr, struct enc_error *err)
{
	return replace_at (dirfd, name, data, len, attr, 0, err);
}

int enc_file_create_at (int dirfd, const char *name, const void *data, size_t len, const struct enc_file_attr *attr, struct enc_error *err)
{
	return replace_at (dirfd, name, data, len, attr, RENAME_NOREPLACE, err);
}

int enc_file_write (const char *path, const void *data, size_t len, const struct enc_file_attr *attr, struct enc_error *err)
{
	const char *slash = strrchr (path, '/');
	if (!slash)
		return replace_at (AT_FDCWD, path, data, len, attr, 0, err);
	enc_auto_free char *folder = strndup (path, slash == path ? 1 : (size_t) (slash - path));
	if (!folder)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	enc_auto_close int dir = enc_open_dir (folder, err);
	if (dir < 0)
		return dir;
	return replace_at (dir, slash + 1, data, len, attr, 0, err);
}

/* ---- trust ---- */

static int part_trusted (const char *part, bool link_ok, struct enc_error *err)
{
	struct stat st;
	if (lstat (part, &st) < 0)
		return enc_fail_sys (err, "stat %s", part);
	if (st.st_uid != 0 && st.st_uid != geteuid ())
		return enc_fail (err, ENC_EDENIED, "%s belongs to uid %u, not to root", part, (unsigned) st.st_uid);
	if (S_ISLNK (st.st_mode))
		return link_ok ? 0 : enc_fail (err, ENC_EDENIED, "%s is a link", part);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return enc_fail (err, ENC_EDENIED, "%s can be written by others than its owner", part);
	return 0;
}

static int parts_trusted (const char *path, bool link_ok, struct enc_error *err)
{
	enc_auto_free char *copy = strdup (path);
	if (!copy)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	int rc = part_trusted ("/", false, err);
	for (char *at = copy + 1; rc == 0 && *at;) {
		char *slash = strchrnul (at, '/');
		char saved = *slash;
		*slash = 0;
		rc = part_trusted (copy, link_ok, err);
		*slash = saved;
		at = saved ? slash + 1 : slash;
	}
	return rc;
}

int enc_path_trusted (const char *path, struct enc_error *err)
{
	if (path[0] != '/')
		return enc_fail (err, ENC_EINVAL, "%s is not an absolute path", path);
	/* The path as written (its links may be changed by their owners only), then what it leads to. */
	int rc = parts_trusted (path, true, err);
	if (rc < 0)
		return rc;
	enc_auto_free char *real = realpath (path, NULL);
	if (!real)
		return enc_fail_sys (err, "resolve %s", path);
	return parts_trusted (real, false, err);
}

int enc_fd_trusted (int fd, uid_t uid, bool secret, struct enc_error *err)
{
	struct stat st;
	if (fstat (fd, &st) < 0)
		return enc_fail_sys (err, "stat");
	if (!S_ISREG (st.st_mode))
		return enc_fail (err, ENC_EDENIED, "not a regular file");
	if (st.st_uid != 0 && st.st_uid != uid)
		return enc_fail (err, ENC_EDENIED, "belongs to uid %u", (unsigned) st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return enc_fail (err, ENC_EDENIED, "can be written by others than its owner");
	if (secret && st.st_mode & (S_IRWXG | S_IRWXO))
		return enc_fail (err, ENC_EDENIED, "is secret, and others than its owner can read it");
	return 0;
}

/* ---- folders ---- */

int enc_mkdir_at (int dirfd, const char *name, const struct enc_file_attr *attr, struct enc_error *err)
{
	if (!name_ok (name))
		return enc_fail (err, ENC_EINVAL, "not a folder name");
	if (mkdirat (dirfd, name, 0700) < 0 && errno != EEXIST)
		return enc_fail_sys (err, "make folder %s", name);
	enc_auto_close int fd = openat (dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOTDIR || errno == ELOOP ? enc_fail (err, ENC_ECONFLICT, "%s is there and is no folder", name)
							  : enc_fail_sys (err, "open folder %s", name);
	return set_attr (fd, name, attr, err);
}

int enc_dir_list (int dirfd, size_t max, struct enc_strs *out, struct enc_error *err)
{
	int fd = openat (dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir (fd) : NULL;
	if (!dir) {
		int rc = enc_fail_sys (err, "open folder");
		if (fd >= 0)
			(void) close (fd);
		return rc;
	}
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	int rc = 0;
	const struct dirent *e;
	while (rc == 0 && (e = readdir (dir))) {
		if (strcmp (e->d_name, ".") == 0 || strcmp (e->d_name, "..") == 0)
			continue;
		rc = names.n == max ? enc_fail (err, ENC_ELIMIT, "more than %zu entries in a folder", max)
				    : enc_strs_add (&names, e->d_name, err);
	}
	(void) closedir (dir);
	enc_strs_sort (&names);
	for (size_t i = 0; rc == 0 && i < names.n; i++)
		rc = enc_strs_add (out, names.v[i], err);
	return rc;
}
