/* Driver luks: the volume is a file of exactly its size on the node's disk, opened through dm-crypt, with a file system of its own.
 *
 *   <disk>/scratch-ID/image   the ciphertext, set aside in full, so that no job meets a disk that others filled
 *   <disk>/scratch-ID/open    where its file system is mounted, for root alone
 *
 * A device is one node's: volumes that several nodes mount at once (project) are not for this driver. Of a scratch volume whose making
 * was cut short nothing is worth keeping: device and directory go, and it is made anew. No discards: they would give back room that
 * was set aside, and show which blocks are free. No journal: nobody reads scratch after a crash. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/child.h"
#include "base/file.h"
#include "base/point.h"
#include "crypto/secmem.h"
#include "node-agent/privd/dm.h"
#include "node-agent/privd/luks.h"
#include "node-agent/privd/mounts.h"
#include "node-agent/privd/volume_driver.h"

#include "base/enc.h"

enum { KEY = 64, MKFS_MS = 120000, HEADER_VERSION = 1, PATH = 512 };

struct paths {
	char image[PATH], open[PATH], device[PATH];
};

static void paths_of (const struct enc_privd_conf *conf, const char *id, struct paths *ret)
{
	char name[ENC_LUKS_NAME];

	enc_luks_name (id, name);
	(void)snprintf (ret->image, sizeof ret->image, "%s/scratch-%s/image", conf->disk, id);
	(void)snprintf (ret->open, sizeof ret->open, "%s/scratch-%s/open", conf->disk, id);
	(void)snprintf (ret->device, sizeof ret->device, "/dev/mapper/%s", name);
}

static bool luks_can (uint8_t kind, struct enc_error *err)
{
	if (kind != ENC_VOLUME_SCRATCH) {
		(void)enc_fail (err, ENC_EUSAGE, "a luks device is one node's, and this volume is mounted by several");
		return false;
	}
	if (!enc_dm_has_crypt ()) {
		(void)enc_fail (err, ENC_EUSAGE, "the policy asks for luks, and this node's kernel has no dm-crypt");
		return false;
	}
	return true;
}

int enc_volume_luks_drop (const struct enc_privd_conf *conf, const char *id, struct enc_error *err)
{
	struct paths p;
	int rc;

	paths_of (conf, id, &p);
	if ((rc = enc_mount_drop (p.open, err)) < 0 || (rc = enc_point ("privd.luks.unmounted", err)) < 0)
		return rc;
	return enc_luks_close (id, err);
}

/* Set aside all of it: a disk that is too full says so now, and not to a job. */
static int make_image (int dir, const struct enc_doc_volume *v, struct enc_error *err)
{
	enc_auto_close int fd = enc_open_beneath (dir, "image", O_RDWR | O_CREAT | O_EXCL, 0600, err);

	if (fd < 0)
		return fd;
	if (fallocate (fd, 0, 0, (off_t)v->size_bytes) == 0)
		return 0;
	if (errno == ENOSPC || errno == EFBIG)
		return enc_fail (err, ENC_EFAILED, "this node's disk has no room for %llu bytes of scratch", (unsigned long long)v->size_bytes);
	return enc_fail_sys (err, "set room aside for scratch");
}

static int make_file_system (const char *device, struct enc_error *err)
{
	enc_auto (enc_cmd) struct enc_cmd *cmd = enc_cmd_new ("/usr/sbin/mkfs.ext4");

	enc_cmd_args (cmd, "-q", "-F", "-b", "4096", "-m", "0", "-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=1", device, NULL);
	enc_cmd_deadline_ms (cmd, MKFS_MS);
	return enc_cmd_run (cmd, NULL, err);
}

/* Key and header exist in this function only. */
static int open_device (const struct enc_luks *luks, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf header = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);
	enc_auto (enc_secmem) uint8_t *bytes = NULL;
	int rc = enc_secmem_random (KEY, &bytes, err);

	if (rc < 0)
		return rc;
	const struct enc_volume_key key = { bytes, KEY };
	if ((rc = enc_luks_format (luks, &key, &header, err)) < 0)
		return rc;
	return enc_luks_open (luks, &key, header.data, header.len, err);
}

static int make (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, const struct paths *p, struct enc_error *err)
{
	const struct enc_luks luks = { v->id, p->image, v->size_bytes, HEADER_VERSION };
	enc_auto_close int dir = enc_volume_directory (conf, v, err);
	int rc;

	if (dir < 0)
		return dir;
	if ((rc = make_image (dir, v, err)) < 0 || (rc = enc_point ("privd.luks.image", err)) < 0 || (rc = open_device (&luks, err)) < 0 ||
		(rc = make_file_system (p->device, err)) < 0 || (rc = enc_point ("privd.luks.mkfs", err)) < 0)
		return rc;
	if (mkdir (p->open, 0700) < 0 && errno != EEXIST)
		return enc_fail_sys (err, "scratch");
	if (mount (p->device, p->open, "ext4", MS_NOSUID | MS_NODEV | MS_NOATIME, "nodiscard") < 0)
		return enc_fail_sys (err, "mount scratch");
	return enc_point ("privd.luks.mounted", err);
}

static int luks_open (const struct enc_privd_conf *conf, ENC_UNUSED const struct enc_task *task, const struct enc_doc_volume *v, struct enc_error *err)
{
	const struct enc_luks luks = { .id = v->id, .size_bytes = v->size_bytes };
	struct paths p;
	int rc = 0;

	paths_of (conf, v->id, &p);
	if (enc_mount_is (p.open))
		rc = enc_luks_verify (&luks, err);
	else if ((rc = enc_volume_luks_drop (conf, v->id, err)) == 0 && (rc = enc_volume_renew (conf, v, err)) == 0 &&
		 (rc = make (conf, v, &p, err)) < 0) {
		if (enc_volume_luks_drop (conf, v->id, NULL) == 0)
			(void)!enc_volume_renew (conf, v, NULL);
	}
	return rc < 0 ? rc : enc_open_dir (p.open, err);
}

static int luks_close (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, struct enc_error *err)
{
	int rc = enc_volume_luks_drop (conf, v->id, err);

	if (rc < 0 || (rc = enc_point ("privd.luks.closed", err)) < 0)
		return rc;
	return enc_volume_renew (conf, v, err);
}

const struct enc_volume_driver enc_volume_luks = {
	.name = "luks", .cipher = "aes-256-xts", .key_bits = 512, .can = luks_can, .open = luks_open, .close = luks_close,
};
