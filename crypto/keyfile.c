#include "crypto/keyfile.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "crypto/hash.h"
#include "crypto/sign.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/enc.h"

#define LINE_MAX_LEN 256
#define PREFIX "ed25519 "

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
		(void)enc_fail (err, ENC_EUNAVAIL, "memory for a signing key cannot be locked: raise LimitMEMLOCK");
		if (line)
			sodium_free (line);
		return NULL;
	}
	sodium_memzero (line, LINE_MAX_LEN);
	return line;
}

static int parse (const char *file, const char *line, struct enc_sign_key **ret, char *name, struct enc_error *err)
{
	const char *start = line + sizeof (PREFIX) - 1;
	const char *space = strncmp (line, PREFIX, sizeof (PREFIX) - 1) == 0 ? strchr (start, ' ') : NULL;
	uint8_t seed[ENC_SIGN_SEED_SIZE];
	size_t len = space ? (size_t)(space - start) : 0;

	if (!enc_note_name_ok (start, len) ||
		enc_b64_get (space + 1, strcspn (space + 1, "\n"), seed, sizeof (seed)) != (ssize_t)sizeof (seed))
		return enc_fail (err, ENC_EINTEGRITY, "the signing key in %s is damaged", file);
	*ret = enc_sign_key_new (ENC_SIGN_ED25519, seed, err);
	enc_wipe (seed, sizeof (seed));
	if (!*ret)
		return -ENC_EUNAVAIL;
	memcpy (name, start, len);
	name[len] = '\0';
	return 0;
}

int enc_keyfile_load (int dirfd, const char *file, struct enc_sign_key **ret, char name[static ENC_NOTE_NAME_MAX + 1], struct enc_error *err)
{
	enc_auto_close int fd = openat (dirfd, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_line char *line = NULL;
	int rc;

	if (fd < 0)
		return errno == ENOENT ? enc_fail (err, ENC_ENOTFOUND, "no signing key in %s", file)
				       : enc_fail_sys (err, "cannot open the signing key in %s", file);
	if ((rc = enc_fd_trusted (fd, geteuid (), true, err)) < 0)
		return enc_wrap (err, rc, "the signing key in %s", file);
	if (!(line = new_line (err)))
		return -ENC_EUNAVAIL;
	if (read (fd, line, LINE_MAX_LEN - 1) <= 0)
		return enc_fail (err, ENC_EINTEGRITY, "the signing key in %s is empty", file);
	return parse (file, line, ret, name, err);
}

int enc_keyfile_make (int dirfd, const char *file, const char *name, struct enc_sign_key **ret, struct enc_error *err)
{
	auto_line char *line = NULL;
	struct enc_sign_key *key;
	uint8_t seed[ENC_SIGN_SEED_SIZE];
	char b64[ENC_B64_LEN (sizeof (seed)) + 1];
	int rc, len;

	if (!enc_note_name_ok (name, strnlen (name, ENC_NOTE_NAME_MAX + 1)))
		return enc_fail (err, ENC_EINVAL, "bad key name");
	if (!(line = new_line (err)) || !(key = enc_sign_key_new (ENC_SIGN_ED25519, NULL, err)))
		return -ENC_EUNAVAIL;
	enc_sign_key_seed (key, seed);
	(void)enc_b64_put (seed, sizeof (seed), b64, sizeof (b64));
	len = snprintf (line, LINE_MAX_LEN, PREFIX "%s %s\n", name, b64);
	enc_wipe (seed, sizeof (seed));
	enc_wipe (b64, sizeof (b64));
	rc = enc_file_create_at (dirfd, file, line, (size_t)len, &ENC_FILE_ATTR (0600), err);
	if (rc < 0)
		enc_sign_key_free (key);
	else
		*ret = key;
	return rc;
}
