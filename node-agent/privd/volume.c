/* Family volume. A volume is encrypted as a whole by its driver; inside it are directories that are bound to their places.
 *
 *   scratch   <disk>/scratch-ID   key made here, never stored; over every place where a user can write
 *   project   <shared>/ID         key from keyd; home and data of the enclave
 *
 * What a stay opened is written to <run_dir>/volumes (id, kind, name, driver), so that a restarted privd can close it. */
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
#include "node-agent/privd/mounts.h"
#include "node-agent/privd/volume_driver.h"

#include "base/enc.h"

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

static const struct enc_volume_driver *const drivers[] = { &enc_volume_fscrypt, &enc_volume_luks };

static const struct enc_volume_driver *driver_of (const struct enc_doc_volume *v, struct enc_error *err)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (drivers); i++)
		if (strcmp (drivers[i]->name, v->driver) == 0)
			return drivers[i];
	(void)enc_fail (err, ENC_EUSAGE, "this node has no volume driver %s", v->driver);
	return NULL;
}

static int place_target (const struct enc_privd_conf *conf, const struct enc_volume_place *p, char **ret, struct enc_error *err)
{
	*ret = p->target ? enc_strdup (p->target) : enc_strf ("%s/%s", conf->root, p->inside);
	return *ret ? 0 : enc_fail (err, ENC_ENOMEM, "volume: no memory");
}

int enc_volume_directory (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, struct enc_error *err)
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

int enc_volume_renew (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, struct enc_error *err)
{
	enc_auto_close int base = enc_open_dir (conf->disk, err);
	char name[64];

	if (base < 0)
		return base;
	(void)snprintf (name, sizeof name, "scratch-%s", v->id);
	return enc_remove_tree (base, name, (uid_t)-1, NULL, err);
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
	const struct enc_volume_driver *driver = driver_of (v, err);
	enc_auto_close int fd = -1;
	int rc = 0;

	if (!driver)
		return -ENC_EUSAGE;
	if ((fd = driver->open (conf, task, v, err)) < 0)
		return fd;
	for (const struct enc_volume_place *p = enc_volume_places (v->kind); rc == 0 && p->inside; p++)
		rc = bind_place (conf, v, fd, p, err);
	return rc;
}

static int close_volume (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, struct enc_error *err)
{
	const struct enc_volume_driver *driver = driver_of (v, err);
	int rc;

	if (!driver)
		return -ENC_EUSAGE;
	for (const struct enc_volume_place *p = enc_volume_places (v->kind); p->inside; p++) {
		enc_auto_free char *target = NULL;
		if ((rc = place_target (conf, p, &target, err)) < 0 || (rc = enc_mount_drop (target, err)) < 0)
			return rc;
	}
	return driver->close (conf, v, err);
}

/* ---- what this stay opened: lines "id kind name driver" ---- */

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
		if (sscanf (line, "%26s %u %31s %15s", v->id, &kind, v->name, v->driver) != 4 || !enc_id_ok (v->id) || !enc_name_ok (v->name))
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
		enc_buf_putf (&text, "%s %u %s %s\n", opened->v[i].id, opened->v[i].kind, opened->v[i].name, opened->v[i].driver);
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
		const struct enc_volume_driver *driver = driver_of (v, err);
		if (!driver || !driver->can (v->kind, err))
			return enc_wrap (err, -ENC_EUSAGE, "open volume %s", v->name);
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
		const struct enc_volume_driver *driver = driver_of (&opened->v[i], NULL);
		enc_json_set_str (v, "driver", opened->v[i].driver);
		enc_json_set_str (v, "cipher", driver ? driver->cipher : NULL);
		enc_json_set_u64 (v, "key_bits", driver ? driver->key_bits : 0);
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
	"renameat", "renameat2", "rename", "readlinkat", "getdents64", "statfs", "fstatfs",
	/* libcryptsetup: udev's semaphores, or device files where there is no udev; the kernel's keyring. mkfs: fadvise64 */
	"mknod", "mknodat", "fadvise64", "semget", "semctl", "semop", "semtimedop", "add_key", "keyctl", "request_key", NULL };

const struct enc_family enc_family_volume = {
	.name = "volume",
	.caps = caps,
	.seccomp = ENC_SC_CHILDREN, /* mkfs */
	.syscalls = syscalls,
	.secmem = 262144,
	.open = volume_open,
	.tasks = { [ENC_JOB_VOLUMES] = task_volumes },
};
