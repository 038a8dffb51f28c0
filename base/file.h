/* Files: bounded reads, atomic writes, checks of owner and mode, names that cannot lead elsewhere. */
#ifndef ENC_BASE_FILE_H
#define ENC_BASE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/error.h"

/* Read a regular file of at most `max` bytes; ENC_ELIMIT if it is larger. Follows symlinks, does not block on FIFOs.
 * The _at form never follows one below `dirfd` and refuses ".." (enc_open_beneath). `out` is appended to. */
ENC_MUST_USE int enc_file_read (const char *path, size_t max, struct enc_buf *out, struct enc_error *err);
ENC_MUST_USE int enc_file_read_at (int dirfd, const char *name, size_t max, struct enc_buf *out, struct enc_error *err);
/* As enc_file_read, but only if enc_path_trusted() holds for it. For what daemons believe: policies, keys, lists, hooks. */
ENC_MUST_USE int enc_file_read_trusted (const char *path, size_t max, struct enc_buf *out, struct enc_error *err);
/* The first line without its end, or the whole of a one-line /proc or /sys file. `out` is of `size` bytes. */
ENC_MUST_USE int enc_file_read_line (const char *path, char *out, size_t size, struct enc_error *err);

/* Mode and owner from birth; uid or gid (uid_t)-1 means "mine". */
struct enc_file_attr {
	mode_t mode;
	uid_t uid;
	gid_t gid;
};
#define ENC_FILE_ATTR(mode_) ((struct enc_file_attr){ .mode = (mode_), .uid = (uid_t) -1, .gid = (gid_t) -1 })

/* Replace a file as a whole: temporary file beside it, write, fsync, rename, fsync of the folder. Readers see the old or the new
 * contents, also after a crash. */
ENC_MUST_USE int enc_file_write (const char *path, const void *data, size_t len, const struct enc_file_attr *attr, struct enc_error *err);
ENC_MUST_USE int enc_file_write_at (int dirfd, const char *name, const void *data, size_t len, const struct enc_file_attr *attr,
				    struct enc_error *err);
/* As above, but ENC_ECONFLICT if the name exists. */
ENC_MUST_USE int enc_file_create_at (int dirfd, const char *name, const void *data, size_t len, const struct enc_file_attr *attr,
				     struct enc_error *err);
/* Write to an open descriptor until all is written; for sysfs and procfs files in one write. */
ENC_MUST_USE int enc_write_all (int fd, const void *data, size_t len, struct enc_error *err);
ENC_MUST_USE int enc_sys_write (const char *path, const char *value, struct enc_error *err);

/* Every part of the absolute path, up to the root, is owned by root (or by the caller's own uid, so that tests need no root)
 * and not writable by group or others; sticky folders such as /tmp are not trusted. ENC_EDENIED names the part. */
ENC_MUST_USE int enc_path_trusted (const char *path, struct enc_error *err);
/* The open file itself: regular, owner `uid` or root, no group or other write, and with `secret` no group or other read. */
ENC_MUST_USE int enc_fd_trusted (int fd, uid_t uid, bool secret, struct enc_error *err);

/* Open below a folder: no symlink on the way, no "..", no magic link, no other mount if `one_mount`. `flags` as open(2),
 * O_CLOEXEC is added. Returns the descriptor or a negative code. */
ENC_MUST_USE int enc_open_beneath (int dirfd, const char *name, int flags, mode_t mode, struct enc_error *err);
ENC_MUST_USE int enc_open_beneath_mount (int dirfd, const char *name, int flags, mode_t mode, struct enc_error *err);
/* Open a folder by absolute path. */
ENC_MUST_USE int enc_open_dir (const char *path, struct enc_error *err);
/* Make one folder (or leave an existing one) with exactly this mode and owner; ENC_ECONFLICT if the name is something else. */
ENC_MUST_USE int enc_mkdir_at (int dirfd, const char *name, const struct enc_file_attr *attr, struct enc_error *err);

/* Names in a folder but "." and "..", sorted; at most `max`. */
struct enc_strs;
ENC_MUST_USE int enc_dir_list (int dirfd, size_t max, struct enc_strs *out, struct enc_error *err);

struct enc_remove_stats {
	uint64_t files;
	uint64_t folders;
	uint64_t bytes;   /* st_size of files with one link */
	uint64_t foreign; /* mount points found and left */
};
/* Remove `name` below `dirfd` and all under it. Works by descriptors, never follows a link (links are removed themselves), never
 * leaves the mount of `name`; trees of any depth (what lies too deep is moved up first). Missing is success. `uid` other than (uid_t)-1: remove only what that
 * user owns; folders of others are entered, and stay. ENC_EBUSY if something was left. `stats` may be NULL and is added to. */
ENC_MUST_USE int enc_remove_tree (int dirfd, const char *name, uid_t uid, struct enc_remove_stats *stats, struct enc_error *err);
/* The same for all entries of a folder, which stays. */
ENC_MUST_USE int enc_remove_contents (int dirfd, uid_t uid, struct enc_remove_stats *stats, struct enc_error *err);

#endif
