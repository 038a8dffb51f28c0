/* The signing key: one line "ALGORITHM NAME SEED" in STATE/key, made once. */
#include "controller/auditd/trail_private.h"

#include "base/file.h"
#include "base/str.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/enc.h"

#define LINE_MAX_LEN 256
#define ALGORITHM "ed25519"

/* The line lives in guarded, locked memory and is wiped with it. */
static void free_line (char **line)
{
	if (*line)
		sodium_free (*line);
}
#define auto_line __attribute__ ((cleanup (free_line)))

static char *new_line (struct enc_error *err)
{
	char *line = sodium_init () < 0 ? NULL : sodium_malloc (LINE_MAX_LEN);

	if (!line || sodium_mlock (line, LINE_MAX_LEN) != 0) {
		(void)enc_fail (err, ENC_EUNAVAIL, "memory for the log's key cannot be locked: raise LimitMEMLOCK");
		if (line)
			sodium_free (line);
		return NULL;
	}
	sodium_memzero (line, LINE_MAX_LEN);
	return line;
}

static int take_key (struct enc_trail *log, struct enc_sign_key *key, const char *name, struct enc_error *err)
{
	int rc = key ? enc_vkey_init (&log->vkey, name, enc_sign_key_pub (key), err) : -ENC_EUNAVAIL;

	if (rc < 0) {
		enc_sign_key_free (key);
		return rc;
	}
	log->key = key;
	return 0;
}

static int parse_key (struct enc_trail *log, char *line, struct enc_error *err)
{
	static const char prefix[] = ALGORITHM " ";
	uint8_t seed[ENC_SIGN_SEED_SIZE];
	char *name = line + sizeof (prefix) - 1;
	char *space = strncmp (line, prefix, sizeof (prefix) - 1) == 0 ? strchr (name, ' ') : NULL;
	int rc;

	if (!space || enc_b64_get (space + 1, strcspn (space + 1, "\n"), seed, sizeof (seed)) != (ssize_t)sizeof (seed))
		return enc_fail (err, ENC_EINTEGRITY, "the log's key file is damaged");
	*space = '\0';
	rc = take_key (log, enc_sign_key_new (ENC_SIGN_ED25519, seed, err), name, err);
	enc_wipe (seed, sizeof (seed));
	return rc;
}

static int make_key (struct enc_trail *log, struct enc_error *err)
{
	auto_line char *line = new_line (err);
	struct enc_sign_key *key = line ? enc_sign_key_new (ENC_SIGN_ED25519, NULL, err) : NULL;
	uint8_t seed[ENC_SIGN_SEED_SIZE];
	char b64[ENC_B64_LEN (sizeof (seed)) + 1];
	int rc, len;

	if (!key)
		return -ENC_EUNAVAIL;
	if ((rc = take_key (log, key, log->conf.origin, err)) < 0)
		return rc;
	enc_sign_key_seed (log->key, seed);
	(void)enc_b64_put (seed, sizeof (seed), b64, sizeof (b64));
	len = snprintf (line, LINE_MAX_LEN, ALGORITHM " %s %s\n", log->vkey.name, b64);
	enc_wipe (seed, sizeof (seed));
	enc_wipe (b64, sizeof (b64));
	return enc_file_create_at (log->state_fd, "key", line, (size_t)len, &ENC_FILE_ATTR (0600), err);
}

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

int enc_trail_key_load (struct enc_trail *log, struct enc_error *err)
{
	enc_auto_close int fd = openat (log->state_fd, "key", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_line char *line = NULL;
	ssize_t n;
	int rc;

	if (fd < 0) {
		struct enc_segment_list list = { 0 };
		size_t n_segments;

		if ((rc = enc_segment_list_read (log->log_fd, &list, err)) < 0)
			return rc;
		n_segments = list.n;
		enc_segment_list_done (&list);
		if (n_segments > 0 || faccessat (log->log_fd, "checkpoints", F_OK, 0) == 0)
			return enc_fail (err, ENC_EINTEGRITY, "there is a log, and its key is gone");
		rc = make_key (log, err);
		return rc < 0 ? rc : write_vkey (log, err);
	}
	if ((rc = enc_fd_trusted (fd, geteuid (), true, err)) < 0)
		return enc_wrap (err, rc, "the log's key");
	if (!(line = new_line (err)))
		return -ENC_EUNAVAIL;
	n = read (fd, line, LINE_MAX_LEN - 1);
	if (n <= 0)
		return enc_fail (err, ENC_EINTEGRITY, "the log's key file is empty");
	rc = parse_key (log, line, err);
	return rc < 0 ? rc : write_vkey (log, err);
}
