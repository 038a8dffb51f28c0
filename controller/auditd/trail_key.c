/* The signing key: STATE/key (crypto/keyfile.h), made once, with the log. */
#include "controller/auditd/trail_private.h"

#include "base/file.h"
#include "crypto/keyfile.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/enc.h"

/* The public half lies beside it, for everybody to copy. */
static int write_vkey (struct enc_trail *log, struct enc_error *err)
{
	char text[ENC_VKEY_TEXT_MAX + 1];
	char old[ENC_VKEY_TEXT_MAX + 1] = "";
	enc_auto_close int fd = openat (log->state_fd, "log.vkey", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	enc_vkey_format (&log->vkey, text);
	memcpy (text + strlen (text), "\n", 2);
	if (fd >= 0 && read (fd, old, sizeof (old) - 1) >= 0 && strcmp (old, text) == 0)
		return 0;
	return enc_file_write_at (log->state_fd, "log.vkey", text, strlen (text), &ENC_FILE_ATTR (0644), err);
}

/* A log whose key is gone is not given a new one: nobody could tell it from another log. */
static int make_key (struct enc_trail *log, struct enc_error *err)
{
	struct enc_segment_list list = { 0 };
	size_t n_segments;
	int rc = enc_segment_list_read (log->log_fd, &list, err);

	if (rc < 0)
		return rc;
	n_segments = list.n;
	enc_segment_list_done (&list);
	if (n_segments > 0 || faccessat (log->log_fd, "checkpoints", F_OK, 0) == 0)
		return enc_fail (err, ENC_EINTEGRITY, "there is a log, and its key is gone");
	return enc_keyfile_make (log->state_fd, "key", log->conf.origin, &log->key, err);
}

int enc_trail_key_load (struct enc_trail *log, struct enc_error *err)
{
	char name[ENC_NOTE_NAME_MAX + 1];
	int rc = enc_keyfile_load (log->state_fd, "key", &log->key, name, err);

	if (rc == -ENC_ENOTFOUND) {
		(void)snprintf (name, sizeof (name), "%s", log->conf.origin);
		rc = make_key (log, err);
	}
	if (rc == 0)
		rc = enc_vkey_init (&log->vkey, name, enc_sign_key_pub (log->key), err);
	return rc < 0 ? rc : write_vkey (log, err);
}
