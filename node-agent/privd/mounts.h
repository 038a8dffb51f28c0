/* The mounts that privd makes. Every one is nosuid,nodev; none is ever detached lazily, so that a mount that is gone is unused. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/str.h"

/* Bind `fd` (a directory opened before) over the directory `target`; a mount of the same device and inode there is nothing to do. */
int enc_mount_bind (int fd, const char *target, struct enc_error *err) ENC_MUST_USE;

/* A fresh memory file system over `target`, once: `what` is its name in the mount table. Never swapped where the kernel can. */
int enc_mount_memory (const char *what, const char *target, const char *mode, struct enc_error *err) ENC_MUST_USE;

/* Unmount; not mounted is success. Tried again for two seconds while busy, then ENC_EBUSY names the process that holds it. */
int enc_mount_drop (const char *target, struct enc_error *err) ENC_MUST_USE;

/* Is something mounted exactly there? */
bool enc_mount_is (const char *target);

/* All mount points at or below `prefix`, the last made first. */
int enc_mount_list (const char *prefix, struct enc_strs *ret, struct enc_error *err) ENC_MUST_USE;

/* Has this process a file at or below `target` open, or is it in it? */
bool enc_proc_holds (pid_t pid, const char *target);
