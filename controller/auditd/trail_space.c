/* Disk space. A file of reserved bytes is given up piece by piece, for urgent
 * records alone, and taken back when there is room: a full disk must not mean
 * that break-glass goes unrecorded. */
#include "controller/auditd/trail_private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/enc.h"

#define PIECE ((uint64_t)4 << 20)

static uint64_t free_space (const struct enc_trail *log)
{
	struct statvfs vfs;

	return fstatvfs (log->log_fd, &vfs) < 0 ? 0 : (uint64_t)vfs.f_bavail * vfs.f_frsize;
}

/* Make the reserve as large as it should be, as far as space allows. */
static void refill (struct enc_trail *log)
{
	enc_auto_close int fd = openat (log->state_fd, "reserve", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0)
		return;
	/* What is not given in full is not kept: the file shrinks back to what it was. */
	if (log->conf.reserve_bytes > 0 && posix_fallocate (fd, 0, (off_t)log->conf.reserve_bytes) != 0 &&
		ftruncate (fd, (off_t)log->reserve_left) < 0)
		return;
	if (fstat (fd, &st) == 0)
		log->reserve_left = (uint64_t)st.st_size;
}

int enc_trail_space_open (struct enc_trail *log, struct enc_error *err)
{
	struct stat st;

	if (fstatat (log->state_fd, "reserve", &st, AT_SYMLINK_NOFOLLOW) == 0)
		log->reserve_left = (uint64_t)st.st_size;
	(void)enc_trail_check_space (log);
	if (log->reserve_left == 0 && log->conf.reserve_bytes > 0)
		return enc_fail (err, ENC_EUNAVAIL, "no room for the %llu reserved bytes",
			(unsigned long long)log->conf.reserve_bytes);
	return 0;
}

int enc_trail_space_release (struct enc_trail *log)
{
	enc_auto_close int fd = openat (log->state_fd, "reserve", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	uint64_t keep = log->reserve_left > PIECE ? log->reserve_left - PIECE : 0;

	if (fd < 0 || log->reserve_left == 0 || ftruncate (fd, (off_t)keep) < 0)
		return 0;
	log->reserve_left = keep;
	return 1;
}

int enc_trail_check_space (struct enc_trail *log)
{
	uint64_t missing = log->conf.reserve_bytes - log->reserve_left;

	log->free_bytes = free_space (log);
	if (log->free_bytes >= log->conf.full_bytes + missing) {
		if (missing > 0)
			refill (log);
		log->full = 0;
	} else if (log->free_bytes < log->conf.full_bytes) {
		log->full = 1;
	}
	return log->full;
}

int enc_trail_is_full (const struct enc_trail *log)
{
	return log->full;
}

uint64_t enc_trail_free_bytes (const struct enc_trail *log)
{
	return log->free_bytes;
}
