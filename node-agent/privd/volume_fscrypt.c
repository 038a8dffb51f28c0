/* Driver fscrypt: the volume is an encrypted directory. Its size is not enforced.
 *
 * Hosts that are containers of one machine share a super block, and with it its keys: there the holders of a project volume are
 * counted by files under <shared>/.holders, and the last one takes the key away (see close_key). */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "crypto/secmem.h"
#include "node-agent/privd/fscrypt.h"
#include "node-agent/privd/volume_driver.h"

#include "base/enc.h"

enum { SCRATCH_KEY = 64 };

/* ---- holders, where hosts share one kernel ---- */

static bool kernel_is_shared (void)
{
	return access ("/run/systemd/container", F_OK) == 0;
}

/* Note or forget that this node holds the volume; `ret_others` tells whether another one does. */
static int hold (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, bool holds, bool *ret_others, struct enc_error *err)
{
	struct enc_file_attr folder = { .mode = 0700, .uid = 0, .gid = 0 }, file = ENC_FILE_ATTR (0600);
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	enc_auto_close int shared = -1, dir = -1;
	char own[128];
	int rc;

	*ret_others = false;
	if (!kernel_is_shared () || v->kind != ENC_VOLUME_PROJECT)
		return 0;
	if ((shared = enc_open_dir (conf->shared, err)) < 0)
		return shared;
	if ((rc = enc_mkdir_at (shared, ".holders", &folder, err)) < 0)
		return rc;
	if ((dir = enc_open_beneath (shared, ".holders", O_RDONLY | O_DIRECTORY, 0, err)) < 0)
		return dir;
	(void)snprintf (own, sizeof own, "%s.%s", v->id, conf->node);
	if (holds)
		return enc_file_write_at (dir, own, "", 0, &file, err);
	if (unlinkat (dir, own, 0) < 0 && errno != ENOENT)
		return enc_fail_sys (err, "holder of %s", v->name);
	if ((rc = enc_dir_list (dir, 10000, &names, err)) < 0)
		return rc;
	for (size_t i = 0; i < names.n; i++)
		*ret_others |= enc_starts (names.v[i], v->id);
	return 0;
}

static int scratch_key (int fd, uint8_t ret_id[ENC_FSCRYPT_ID], struct enc_error *err)
{
	enc_auto (enc_secmem) uint8_t *key = NULL;
	int rc = enc_secmem_random (SCRATCH_KEY, &key, err);

	return rc < 0 ? rc : enc_fscrypt_add (fd, key, SCRATCH_KEY, ret_id, err);
}

/* After this the directory is encrypted, under the right key, and the key is there. */
static int unlock (const struct enc_task *task, const struct enc_doc_volume *v, int fd, struct enc_error *err)
{
	uint8_t id[ENC_FSCRYPT_ID], policy[ENC_FSCRYPT_ID];
	const struct enc_task_key *key = v->key[0] ? enc_task_key_find (task, v->key) : NULL;
	enum enc_fscrypt_key status;
	int rc = enc_fscrypt_policy (fd, policy, err);

	if (rc < 0 && rc != -ENC_ENOTFOUND)
		return rc;
	if (rc == 0 && !key) {
		if ((rc = enc_fscrypt_status (fd, policy, &status, err)) < 0)
			return rc;
		return status == ENC_FSCRYPT_PRESENT ? 0 : enc_fail (err, ENC_EDENIED, "its key did not come with the order");
	}
	if (!key && v->kind != ENC_VOLUME_SCRATCH)
		return enc_fail (err, ENC_EDENIED, "its key did not come with the order");
	bool fresh = rc == -ENC_ENOTFOUND;
	if ((rc = key ? enc_fscrypt_add (fd, key->data, key->len, id, err) : scratch_key (fd, id, err)) < 0)
		return rc;
	if (!fresh && memcmp (id, policy, sizeof id) != 0) {
		(void)!enc_fscrypt_remove (fd, id, NULL);
		return enc_fail (err, ENC_EINTEGRITY, "the key is not the one it was made with");
	}
	if ((rc = enc_fscrypt_protect (fd, id, err)) < 0)
		return rc;
	return enc_fscrypt_policy (fd, policy, err); /* read back: the cipher is what we asked for */
}

static int fscrypt_open (const struct enc_privd_conf *conf, const struct enc_task *task, const struct enc_doc_volume *v, struct enc_error *err)
{
	enc_auto_close int fd = enc_volume_directory (conf, v, err);
	bool others;
	int rc;

	if (fd < 0)
		return fd;
	if ((rc = hold (conf, v, true, &others, err)) < 0)
		return rc;
	rc = unlock (task, v, fd, err);
	if (rc == -ENC_EDENIED && v->kind == ENC_VOLUME_SCRATCH) {
		(void)close (ENC_TAKE_FD (fd));
		if ((rc = enc_volume_renew (conf, v, err)) < 0 || (fd = enc_volume_directory (conf, v, err)) < 0)
			return rc < 0 ? rc : fd;
		rc = unlock (task, v, fd, err);
	}
	return rc < 0 ? rc : ENC_TAKE_FD (fd);
}

/* Take the key away and look whether it is gone. Done from the file system's root: the encrypted directory itself, were it open,
 * would count as a file in use. */
static int close_key (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, int volume, struct enc_error *err)
{
	enc_auto_close int opened = volume, fd = -1;
	uint8_t id[ENC_FSCRYPT_ID];
	enum enc_fscrypt_key status;
	bool others;
	int rc = enc_fscrypt_policy (opened, id, err);

	if (rc == -ENC_ENOTFOUND)
		return 0;
	if (rc < 0 || (rc = hold (conf, v, false, &others, err)) < 0 || others)
		return rc;
	if ((fd = enc_open_dir (v->kind == ENC_VOLUME_SCRATCH ? conf->disk : conf->shared, err)) < 0)
		return fd;
	(void)close (ENC_TAKE_FD (opened));
	rc = enc_fscrypt_remove (fd, id, err);
	if (rc < 0)
		return rc;
	if ((rc = enc_fscrypt_status (fd, id, &status, err)) < 0)
		return rc;
	return status == ENC_FSCRYPT_ABSENT ? 0 : enc_fail (err, ENC_EFAILED, "its key is still there");
}

static int fscrypt_close (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, struct enc_error *err)
{
	enc_auto_close int fd = enc_volume_directory (conf, v, err);
	int rc;

	if (fd < 0)
		return fd;
	rc = close_key (conf, v, ENC_TAKE_FD (fd), err);
	return rc < 0 || v->kind != ENC_VOLUME_SCRATCH ? rc : enc_volume_renew (conf, v, err);
}

static bool fscrypt_can (ENC_UNUSED uint8_t kind, ENC_UNUSED struct enc_error *err)
{
	return true; /* whether a file system has it shows when a directory is to be encrypted */
}

const struct enc_volume_driver enc_volume_fscrypt = {
	.name = "fscrypt", .cipher = "aes-256-xts", .key_bits = 512, .can = fscrypt_can, .open = fscrypt_open, .close = fscrypt_close,
};
