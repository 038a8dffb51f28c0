/* Removing trees that others made, as root.
 *
 * Everything goes by descriptors: a folder is opened without following links and only then looked at, so that nothing can be put
 * in its place between the look and the act; unlinkat() removes names, never targets. Mount points (also bind mounts of the
 * same device) are left and counted. A tree may be deeper than we have descriptors: a folder at DEPTH is renamed into the top folder and
 * taken in a later pass. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "base/enc.h"

#define DEPTH 48
#define PASSES 100000

struct walk {
	int top;   /* where deep folders are moved to */
	uid_t uid; /* whose things go; (uid_t)-1: all */
	dev_t dev;
	struct enc_remove_stats stats;
	bool moved; /* another pass is needed */
	bool left;  /* something that should go is still there */
};

static bool is_target (const struct walk *w, const struct stat *st)
{
	return w->uid == (uid_t) -1 || st->st_uid == w->uid;
}

static void remove_name (struct walk *w, int parent, const char *name, const struct stat *st)
{
	if (!is_target (w, st))
		return;
	if (unlinkat (parent, name, 0) == 0) {
		w->stats.files++;
		if (S_ISREG (st->st_mode) && st->st_nlink == 1)
			w->stats.bytes += (uint64_t) st->st_size;
	} else if (errno != ENOENT) {
		w->left = true;
	}
}

static bool is_mount (int fd, const struct walk *w)
{
	struct statx sx;
	if (statx (fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &sx) < 0)
		return true;
	if (sx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT && sx.stx_attributes & STATX_ATTR_MOUNT_ROOT)
		return true;
	struct stat st;
	return fstat (fd, &st) < 0 || st.st_dev != w->dev;
}

static void move_up (struct walk *w, int parent, const char *name)
{
	char id[ENC_ID_SIZE], to[ENC_ID_SIZE + 8];
	if (enc_id_new (id, NULL) < 0) {
		w->left = true;
		return;
	}
	(void) snprintf (to, sizeof (to), ".deep-%s", id);
	if (renameat2 (parent, name, w->top, to, RENAME_NOREPLACE) == 0)
		w->moved = true;
	else
		w->left = true;
}

static void remove_inside (struct walk *w, int fd, unsigned depth);

static void remove_folder (struct walk *w, int parent, const char *name, unsigned depth)
{
	enc_auto_close int fd = openat (parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	if (fd < 0 || fstat (fd, &st) < 0) {
		w->left |= errno != ENOENT;
		return;
	}
	if (is_mount (fd, w)) {
		w->stats.foreign++;
		w->left = true;
		return;
	}
	if (depth >= DEPTH && is_target (w, &st)) {
		move_up (w, parent, name);
		return;
	}
	if (depth >= 4 * DEPTH) { /* only folders of others stand between: they stay, and so does what is below */
		w->left = true;
		return;
	}
	remove_inside (w, fd, depth + 1);
	if (!is_target (w, &st))
		return;
	if (unlinkat (parent, name, AT_REMOVEDIR) == 0)
		w->stats.folders++;
	else if (errno != ENOENT)
		w->left = true;
}

static void remove_entry (struct walk *w, int parent, const char *name, unsigned depth)
{
	struct stat st;
	if (fstatat (parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		w->left |= errno != ENOENT;
	else if (S_ISDIR (st.st_mode))
		remove_folder (w, parent, name, depth);
	else
		remove_name (w, parent, name, &st);
}

static void remove_inside (struct walk *w, int fd, unsigned depth)
{
	int own = openat (fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = own >= 0 ? fdopendir (own) : NULL;
	if (!dir) {
		if (own >= 0)
			(void) close (own);
		w->left = true;
		return;
	}
	const struct dirent *e;
	while ((e = readdir (dir)))
		if (strcmp (e->d_name, ".") != 0 && strcmp (e->d_name, "..") != 0)
			remove_entry (w, fd, e->d_name, depth);
	(void) closedir (dir);
}

int enc_remove_contents (int dirfd, uid_t uid, struct enc_remove_stats *stats, struct enc_error *err)
{
	struct stat st;
	if (fstat (dirfd, &st) < 0)
		return enc_fail_sys (err, "stat folder");
	struct walk w = { .top = dirfd, .uid = uid, .dev = st.st_dev };
	unsigned pass = 0;
	do { /* what was moved up makes its old parents fail in this pass only: judge the last one */
		w.moved = w.left = false;
		w.stats.foreign = 0;
		remove_inside (&w, dirfd, 0);
	} while (w.moved && ++pass < PASSES);
	if (stats) {
		stats->files += w.stats.files;
		stats->folders += w.stats.folders;
		stats->bytes += w.stats.bytes;
		stats->foreign += w.stats.foreign;
	}
	if (w.stats.foreign)
		return enc_fail (err, ENC_EBUSY, "%llu mount points are still there", (unsigned long long) w.stats.foreign);
	return w.left ? enc_fail (err, ENC_EBUSY, "not everything could be removed") : 0;
}

int enc_remove_tree (int dirfd, const char *name, uid_t uid, struct enc_remove_stats *stats, struct enc_error *err)
{
	enc_auto_close int fd = openat (dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct walk w = { .top = -1, .uid = uid };
	struct stat st;
	if (fd < 0) {
		if (errno == ENOENT)
			return 0;
		if (errno != ENOTDIR && errno != ELOOP)
			return enc_fail_sys (err, "open %s", name);
		if (fstatat (dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			remove_name (&w, dirfd, name, &st);
		if (stats) {
			stats->files += w.stats.files;
			stats->bytes += w.stats.bytes;
		}
		return w.left ? enc_fail (err, ENC_EBUSY, "%s could not be removed", name) : 0;
	}
	if (fstat (fd, &st) < 0)
		return enc_fail_sys (err, "stat %s", name);
	w.dev = st.st_dev;
	if (is_mount (fd, &w))
		return enc_fail (err, ENC_EBUSY, "%s is a mount point", name);
	int rc = enc_remove_contents (fd, uid, stats, err);
	if (rc < 0 || !is_target (&w, &st))
		return enc_wrap (err, rc, "%s", name);
	if (unlinkat (dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return enc_fail_sys (err, "remove folder %s", name);
	if (stats)
		stats->folders++;
	return 0;
}
