/* Family volume. A volume is one directory, encrypted as a whole; inside it directories that are bound to their places.
 *
 *   scratch   <disk>/scratch-ID   key made here, never stored; over every place where a user can write
 *   project   <shared>/ID         key from keyd; home and data of the enclave
 *
 * What a stay opened is written to <run_dir>/volumes (id, kind, name), so that a restarted privd can close it. Hosts that are
 * containers of one machine share a super block, and with it its keys: there the holders of a project volume are counted by files
 * under <shared>/.holders, and the last one takes the key away (see close_key). */
#include "node-agent/privd/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/harden.h"
#include "crypto/secmem.h"
#include "node-agent/privd/fscrypt.h"
#include "node-agent/privd/mounts.h"

#include "base/enc.h"

enum { SCRATCH_KEY = 64 };

static const struct enc_volume_place scratch_places[] = {
	{ "scratch", NULL, 01777 },
	{ "tmp", "/tmp", 01777 },
	{ "var-tmp", "/var/tmp", 01777 },
	{ "slurmd", "/var/spool/slurmd", 0755 },
	{ "slurmctld", "/var/spool/slurmctld", 0700 },
	{ NULL, NULL, 0 },
};

static const struct enc_volume_place project_places[] = {
	{ "home", NULL, 0755 },
	{ "data", NULL, 02770 },
	{ NULL, NULL, 0 },
};

const struct enc_volume_place *enc_volume_places (uint8_t kind)
{
	return kind == ENC_VOLUME_SCRATCH ? scratch_places : project_places;
}

static int place_target (const struct enc_privd_conf *conf, const struct enc_volume_place *p, char **ret, struct enc_error *err)
{
	*ret = p->target ? enc_strdup (p->target) : enc_strf ("%s/%s", conf->root, p->inside);
	return *ret ? 0 : enc_fail (err, ENC_ENOMEM, "volume: no memory");
}

/* Open the volume's directory, making it (root's, 0711) if it is not there. */
static int open_directory (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, struct enc_error *err)
{
	bool scratch = v->kind == ENC_VOLUME_SCRATCH;
	struct enc_file_attr attr = { .mode = 0711, .uid = 0, .gid = 0 };
	enc_auto_close int base = enc_open_dir (scratch ? conf->disk : conf->shared, err);
	char name[64];
	int rc;

	if (base < 0)
		return base;
	(void)snprintf (name, sizeof name, "%s%s", scratch ? "scratch-" : "", v->id);
	if ((rc = enc_mkdir_at (base, name, &attr, err)) < 0)
		return enc_wrap (err, rc, "volume %s", v->name);
	return enc_open_beneath (base, name, O_RDONLY | O_DIRECTORY, 0, err);
}

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

/* A scratch directory whose key is gone (a reboot, a crash) is worth nothing: only its ciphertext is removed. */
static int renew_scratch (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, struct enc_error *err)
{
	enc_auto_close int base = enc_open_dir (conf->disk, err);
	char name[64];

	if (base < 0)
		return base;
	(void)snprintf (name, sizeof name, "scratch-%s", v->id);
	return enc_remove_tree (base, name, (uid_t)-1, NULL, err);
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

static int bind_place (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, int volume, const struct enc_volume_place *p, struct enc_error *err)
{
	bool group = v->kind == ENC_VOLUME_PROJECT && p->mode == 02770;
	struct enc_file_attr attr = { .mode = p->mode, .uid = 0, .gid = group ? v->owner_gid : 0 };
	enc_auto_close int fd = -1;
	enc_auto_free char *target = NULL;
	int rc;

	if ((rc = place_target (conf, p, &target, err)) < 0 || (rc = enc_mkdir_at (volume, p->inside, &attr, err)) < 0)
		return rc;
	if ((fd = enc_open_beneath (volume, p->inside, O_RDONLY | O_DIRECTORY, 0, err)) < 0)
		return fd;
	if (mkdir (target, 0755) < 0 && errno != EEXIST)
		return enc_fail_sys (err, "%s", target);
	return enc_mount_bind (fd, target, err);
}

static int open_volume (const struct enc_privd_conf *conf, const struct enc_task *task, const struct enc_doc_volume *v, struct enc_error *err)
{
	enc_auto_close int fd = open_directory (conf, v, err);
	bool others;
	int rc;

	if (fd < 0)
		return fd;
	if ((rc = hold (conf, v, true, &others, err)) < 0)
		return rc;
	rc = unlock (task, v, fd, err);
	if (rc == -ENC_EDENIED && v->kind == ENC_VOLUME_SCRATCH) {
		(void)close (ENC_TAKE_FD (fd));
		if ((rc = renew_scratch (conf, v, err)) < 0 || (fd = open_directory (conf, v, err)) < 0)
			return rc < 0 ? rc : fd;
		rc = unlock (task, v, fd, err);
	}
	for (const struct enc_volume_place *p = enc_volume_places (v->kind); rc == 0 && p->inside; p++)
		rc = bind_place (conf, v, fd, p, err);
	return rc;
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

static int close_volume (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, struct enc_error *err)
{
	enc_auto_close int fd = -1;
	int rc;

	for (const struct enc_volume_place *p = enc_volume_places (v->kind); p->inside; p++) {
		enc_auto_free char *target = NULL;
		if ((rc = place_target (conf, p, &target, err)) < 0 || (rc = enc_mount_drop (target, err)) < 0)
			return rc;
	}
	if ((fd = open_directory (conf, v, err)) < 0)
		return fd;
	if ((rc = close_key (conf, v, ENC_TAKE_FD (fd), err)) < 0 || v->kind != ENC_VOLUME_SCRATCH)
		return rc;
	return renew_scratch (conf, v, err);
}

/* ---- what this stay opened: lines "id kind name" ---- */

struct opened {
	size_t n;
	struct enc_doc_volume v[ENC_DOC_VOLUMES_MAX];
};

static int opened_path (const struct enc_privd_conf *conf, char **ret, struct enc_error *err)
{
	*ret = enc_strf ("%s/volumes", conf->run_dir);
	return *ret ? 0 : enc_fail (err, ENC_ENOMEM, "volume: no memory");
}

static int opened_load (const struct enc_privd_conf *conf, struct opened *ret, struct enc_error *err)
{
	enc_auto_free char *path = NULL, *line = NULL;
	enc_auto_fclose FILE *file = NULL;
	size_t room = 0;
	unsigned kind;
	int rc = opened_path (conf, &path, err);

	ret->n = 0;
	if (rc < 0)
		return rc;
	if (!(file = fopen (path, "re")))
		return errno == ENOENT ? 0 : enc_fail_sys (err, "%s", path);
	while (ret->n < ENC_DOC_VOLUMES_MAX && getline (&line, &room, file) > 0) {
		struct enc_doc_volume *v = &ret->v[ret->n];
		memset (v, 0, sizeof *v);
		if (sscanf (line, "%26s %u %31s", v->id, &kind, v->name) != 3 || !enc_id_ok (v->id) || !enc_name_ok (v->name))
			return enc_fail (err, ENC_EINTEGRITY, "%s is damaged", path);
		v->kind = (uint8_t)kind;
		ret->n++;
	}
	return 0;
}

static int opened_store (const struct enc_privd_conf *conf, const struct opened *opened, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (16384);
	struct enc_file_attr attr = ENC_FILE_ATTR (0600);
	enc_auto_free char *path = NULL;
	int rc = opened_path (conf, &path, err);

	for (size_t i = 0; i < opened->n; i++)
		enc_buf_putf (&text, "%s %u %s\n", opened->v[i].id, opened->v[i].kind, opened->v[i].name);
	if (rc < 0 || (rc = enc_buf_check (&text, err)) < 0)
		return rc;
	return enc_file_write (path, text.data, text.len, &attr, err);
}

static bool is_listed (const struct enc_doc_volume *list, size_t n, const char *id)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp (list[i].id, id) == 0)
			return true;
	return false;
}

static int make_root (const struct enc_privd_conf *conf, struct enc_error *err)
{
	return mkdir (conf->root, 0755) < 0 && errno != EEXIST ? enc_fail_sys (err, "%s", conf->root) : 0;
}

/* Close, last opened first, what shall not be open. */
static int close_others (const struct enc_privd_conf *conf, const struct enc_task *task, struct opened *opened, struct enc_error *err)
{
	bool all = task->flags & ENC_TASK_CLOSE;
	int rc;

	for (size_t i = opened->n; i-- > 0;) {
		const struct enc_doc_volume *v = &opened->v[i];
		if (!all && is_listed (task->doc->volumes, task->doc->volumes_n, v->id))
			continue;
		if ((rc = close_volume (conf, v, err)) < 0)
			return enc_wrap (err, rc, "close volume %s", v->name);
		memmove (&opened->v[i], &opened->v[i + 1], (opened->n - i - 1) * sizeof *opened->v);
		opened->n--;
		if ((rc = opened_store (conf, opened, err)) < 0)
			return rc;
	}
	return 0;
}

static int open_listed (const struct enc_privd_conf *conf, const struct enc_task *task, struct opened *opened, struct enc_error *err)
{
	int rc;

	for (size_t i = 0; i < task->doc->volumes_n; i++) {
		const struct enc_doc_volume *v = &task->doc->volumes[i];
		/* Written down first: a crash in between then closes too much, never too little. */
		if (!is_listed (opened->v, opened->n, v->id)) {
			if (opened->n == ENC_DOC_VOLUMES_MAX)
				return enc_fail (err, ENC_ELIMIT, "too many volumes");
			opened->v[opened->n++] = *v;
			if ((rc = opened_store (conf, opened, err)) < 0)
				return rc;
		}
		if ((rc = open_volume (conf, task, v, err)) < 0)
			return enc_wrap (err, rc, "open volume %s", v->name);
	}
	return 0;
}

static int task_volumes (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	enc_auto_free struct opened *opened = calloc (1, sizeof *opened);
	bool close_all = task->flags & ENC_TASK_CLOSE;
	struct enc_json *list = enc_json_set_array (evidence, "volumes");
	int rc;

	if (!opened)
		return enc_fail (err, ENC_ENOMEM, "volume: no memory");
	if ((rc = opened_load (conf, opened, err)) < 0 || (rc = close_others (conf, task, opened, err)) < 0)
		return rc;
	if (!close_all && task->doc->volumes_n > 0)
		if ((rc = make_root (conf, err)) < 0 || (rc = open_listed (conf, task, opened, err)) < 0)
			return rc;
	for (size_t i = 0; i < opened->n; i++) {
		struct enc_json *v = enc_json_add_object (list);
		enc_json_set_str (v, "name", opened->v[i].name);
		enc_json_set_str (v, "id", opened->v[i].id);
		enc_json_set_str (v, "cipher", "aes-256-xts");
		enc_json_set_u64 (v, "key_bits", 256);
	}
	return 0;
}

/* A boot begins without any volume: what an earlier one held is held no more. */
static int volume_open (const struct enc_privd_conf *conf, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	enc_auto_free char *list = NULL, *suffix = enc_strf (".%s", conf->node), *path = enc_strf ("%s/.holders", conf->shared);
	enc_auto_close int dir = path ? open (path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1;

	if (opened_path (conf, &list, err) < 0 || !suffix)
		return enc_fail (err, ENC_ENOMEM, "volume: no memory") - 1;
	if (dir < 0 || access (list, F_OK) == 0 || enc_dir_list (dir, 10000, &names, NULL) < 0)
		return -1;
	for (size_t i = 0; i < names.n; i++)
		if (enc_ends (names.v[i], suffix))
			(void)unlinkat (dir, names.v[i], 0);
	return -1;
}

static const int caps[] = { CAP_SYS_ADMIN, CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_SYS_PTRACE, -1 };

static const char *const syscalls[] = { "mount", "umount2", "mkdir", "mkdirat", "fchown", "fchownat", "fchmod", "fchmodat", "unlinkat",
	"renameat", "renameat2", "rename", "readlinkat", "getdents64", "statfs", "fstatfs", NULL };

const struct enc_family enc_family_volume = {
	.name = "volume",
	.caps = caps,
	.syscalls = syscalls,
	.secmem = 262144,
	.open = volume_open,
	.tasks = { [ENC_JOB_VOLUMES] = task_volumes },
};
