#include "node-agent/privd/residue.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/mount.h>
#include <linux/rtnetlink.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "node-agent/privd/cover.h"
#include "node-agent/privd/fence_rules.h"
#include "node-agent/privd/fscrypt.h"
#include "node-agent/privd/journal.h"
#include "node-agent/privd/mounts.h"
#include "node-agent/privd/netlink.h"
#include "node-agent/privd/procs.h"
#include "node-agent/privd/volume_driver.h"

#include "base/enc.h"

#define ROW const struct enc_privd_conf *conf, const struct enc_residue *row

enum { KILL_MS = 10000, ENTRIES_MAX = 200000, DEPTH_MAX = 8 };

static bool is_person (const struct enc_privd_conf *conf, uid_t uid)
{
	return enc_uid_is_person (conf->uid_min, uid);
}

/* ---- processes ---- */

static bool is_site_user (const struct enc_privd_conf *conf, uid_t uid)
{
	struct stat st;
	char path[128];

	/* Named users are looked up by their home's owner, for no name service is asked here. */
	for (size_t i = 0; i < conf->site_users.n; i++) {
		(void)snprintf (path, sizeof path, "/home/%s", conf->site_users.v[i]);
		if (stat (path, &st) == 0 && st.st_uid == uid)
			return true;
	}
	return false;
}

/* People's processes; everything that lives in a login session, whoever it is; and job steps. */
static bool is_stray (const struct enc_proc *p, const void *arg)
{
	const struct enc_privd_conf *conf = arg;

	if (p->kernel)
		return false;
	if (is_person (conf, p->uid))
		return !is_site_user (conf, p->uid);
	return strncmp (p->cgroup, "/user.slice/", 12) == 0 || strncmp (p->comm, "slurmstepd", 10) == 0;
}

static int find_processes (ROW, size_t *ret_n, struct enc_error *err)
{
	(void)row, (void)err;
	*ret_n = enc_procs_count (is_stray, conf);
	return *ret_n == SIZE_MAX ? enc_fail (err, ENC_EFAILED, "processes cannot be counted") : 0;
}

static int clean_processes (ROW, struct enc_error *err)
{
	(void)row;
	return enc_procs_kill (is_stray, conf, KILL_MS, NULL, err);
}

/* ---- trees that everybody may write to: what people own, wherever it lies ---- */

struct sweep {
	const struct enc_privd_conf *conf;
	bool remove;
	size_t n;
	struct enc_error *err;
};

static int sweep_folder (struct sweep *s, int dir, unsigned depth);

static int sweep_entry (struct sweep *s, int dir, const char *name, unsigned depth)
{
	enc_auto_close int below = -1;
	struct stat st;

	if (fstatat (dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (is_person (s->conf, st.st_uid)) {
		s->n++;
		return s->remove ? enc_remove_tree (dir, name, (uid_t)-1, NULL, s->err) : 0;
	}
	if (!S_ISDIR (st.st_mode) || depth == 0)
		return 0;
	if ((below = openat (dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
		return 0;
	return sweep_folder (s, below, depth - 1);
}

static int sweep_folder (struct sweep *s, int dir, unsigned depth)
{
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	int rc = enc_dir_list (dir, ENTRIES_MAX, &names, s->err);

	for (size_t i = 0; rc == 0 && i < names.n; i++)
		rc = sweep_entry (s, dir, names.v[i], depth);
	return rc;
}

static int sweep (ROW, bool remove, size_t *ret_n, struct enc_error *err)
{
	struct sweep s = { .conf = conf, .remove = remove, .err = err };
	enc_auto_close int dir = open (row->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc;

	*ret_n = 0;
	if (dir < 0)
		return errno == ENOENT ? 0 : enc_fail_sys (err, "%s", row->path);
	rc = sweep_folder (&s, dir, DEPTH_MAX);
	*ret_n = s.n;
	return rc;
}

static int find_owned (ROW, size_t *ret_n, struct enc_error *err)
{
	return sweep (conf, row, false, ret_n, err);
}

static int clean_owned (ROW, struct enc_error *err)
{
	size_t n;

	return sweep (conf, row, true, &n, err);
}

/* ---- folders whose whole contents are residue ---- */

static int find_contents (ROW, size_t *ret_n, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	enc_auto_close int dir = open (row->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = 0;

	(void)conf;
	*ret_n = 0;
	if (dir < 0)
		return errno == ENOENT ? 0 : enc_fail_sys (err, "%s", row->path);
	if ((rc = enc_dir_list (dir, ENTRIES_MAX, &names, err)) == 0)
		*ret_n = names.n;
	return rc;
}

static int clean_contents (ROW, struct enc_error *err)
{
	enc_auto_close int dir = open (row->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)conf;
	if (dir < 0)
		return errno == ENOENT ? 0 : enc_fail_sys (err, "%s", row->path);
	return enc_remove_contents (dir, (uid_t)-1, NULL, err);
}

/* ---- job folders in a slurmd spool: scripts, environments, credentials of steps ---- */

static bool is_job_name (const char *name)
{
	return strncmp (name, "job", 3) == 0 || strncmp (name, "cred_state", 10) == 0 || strstr (name, "_stepd") || strstr (name, ".stepd");
}

static int spool (ROW, bool remove, size_t *ret_n, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	enc_auto_close int dir = open (row->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = 0;

	(void)conf;
	*ret_n = 0;
	if (dir < 0)
		return errno == ENOENT ? 0 : enc_fail_sys (err, "%s", row->path);
	rc = enc_dir_list (dir, ENTRIES_MAX, &names, err);
	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		if (!is_job_name (names.v[i]))
			continue;
		(*ret_n)++;
		if (remove)
			rc = enc_remove_tree (dir, names.v[i], (uid_t)-1, NULL, err);
	}
	return rc;
}

static int find_spool (ROW, size_t *ret_n, struct enc_error *err)
{
	return spool (conf, row, false, ret_n, err);
}

static int clean_spool (ROW, struct enc_error *err)
{
	size_t n;

	return spool (conf, row, true, &n, err);
}

/* ---- System V objects: /proc/sysvipc/KIND has the id in column 2 and the owner's uid in a column by kind ---- */

static const struct {
	const char *path;
	int uid_column;
} sysv[] = { { "/proc/sysvipc/shm", 8 }, { "/proc/sysvipc/sem", 5 }, { "/proc/sysvipc/msg", 8 } };

static int remove_sysv (size_t kind, int id)
{
	return kind == 0 ? shmctl (id, IPC_RMID, NULL) : kind == 1 ? semctl (id, 0, IPC_RMID) : msgctl (id, IPC_RMID, NULL);
}

static bool column (const char *line, int at, uint64_t *ret)
{
	char word[24];
	size_t len;

	for (int i = 1;; i++) {
		line += strspn (line, " ");
		len = strcspn (line, " \n");
		if (len == 0 || len >= sizeof word)
			return false;
		if (i == at)
			break;
		line += len;
	}
	memcpy (word, line, len);
	word[len] = '\0';
	return enc_parse_u64 (word, 0, UINT32_MAX, ret, NULL) == 0;
}

static int sysv_all (const struct enc_privd_conf *conf, bool remove, size_t *ret_n, struct enc_error *err)
{
	enc_auto_free char *line = NULL;
	size_t room = 0;
	uint64_t id, uid;

	*ret_n = 0;
	for (size_t k = 0; k < ENC_ARRAY_LEN (sysv); k++) {
		enc_auto_fclose FILE *table = fopen (sysv[k].path, "re");
		if (!table)
			return enc_fail_sys (err, "%s", sysv[k].path);
		while (getline (&line, &room, table) > 0) {
			if (!column (line, 2, &id) || !column (line, sysv[k].uid_column, &uid) || !is_person (conf, (uid_t)uid))
				continue;
			(*ret_n)++;
			if (remove && remove_sysv (k, (int)id) < 0 && errno != EINVAL && errno != EIDRM)
				return enc_fail_sys (err, "%s %d", sysv[k].path, (int)id);
		}
	}
	return 0;
}

static int find_sysv (ROW, size_t *ret_n, struct enc_error *err)
{
	(void)row;
	return sysv_all (conf, false, ret_n, err);
}

static int clean_sysv (ROW, struct enc_error *err)
{
	size_t n;

	(void)row;
	return sysv_all (conf, true, &n, err);
}

/* ---- POSIX message queues: seen through a mount of our own that nobody else has ---- */

static int open_mqueue (struct enc_error *err)
{
	enc_auto_close int fs = (int)syscall (SYS_fsopen, "mqueue", FSOPEN_CLOEXEC);
	int fd;

	if (fs < 0)
		return enc_fail_sys (err, "message queues");
	if (syscall (SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0 || (fd = (int)syscall (SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0)) < 0)
		return enc_fail_sys (err, "message queues");
	return fd;
}

static int mqueue (ROW, bool remove, size_t *ret_n, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	enc_auto_close int mount = open_mqueue (err);
	enc_auto_close int dir = mount < 0 ? -1 : openat (mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc;

	(void)row, (void)conf;
	*ret_n = 0;
	if (mount < 0)
		return mount;
	if (dir < 0)
		return enc_fail_sys (err, "message queues");
	rc = enc_dir_list (dir, ENTRIES_MAX, &names, err);
	*ret_n = names.n;
	for (size_t i = 0; rc == 0 && remove && i < names.n; i++)
		if (unlinkat (dir, names.v[i], 0) < 0 && errno != ENOENT)
			rc = enc_fail_sys (err, "message queue %s", names.v[i]);
	return rc;
}

static int find_mqueue (ROW, size_t *ret_n, struct enc_error *err)
{
	return mqueue (conf, row, false, ret_n, err);
}

static int clean_mqueue (ROW, struct enc_error *err)
{
	size_t n;

	return mqueue (conf, row, true, &n, err);
}

/* ---- mounts of an enclave ---- */

static int list_mounts (const struct enc_privd_conf *conf, struct enc_strs *ret, struct enc_error *err)
{
	static const char *const more[] = { "/run/enclave", "/var/spool/slurmd", "/var/spool/slurmctld", "/etc/slurm", "/etc/passwd", "/etc/group" };
	int rc = enc_mount_list (conf->root, ret, err);

	for (size_t i = 0; rc == 0 && i < ENC_ARRAY_LEN (more); i++)
		rc = enc_mount_list (more[i], ret, err);
	return rc == 0 ? enc_covers_list (ret, err) : rc;
}

static int find_mounts (ROW, size_t *ret_n, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs list = { 0 };
	int rc = list_mounts (conf, &list, err);

	(void)row;
	*ret_n = list.n;
	return rc;
}

static int clean_mounts (ROW, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs list = { 0 };
	int rc = list_mounts (conf, &list, err);

	(void)row;
	for (size_t i = 0; rc == 0 && i < list.n; i++)
		rc = enc_mount_drop (list.v[i], err);
	return rc;
}

/* ---- scratch that outlived its stay: the ciphertext, and its key in the kernel ---- */

static int scratch (ROW, bool remove, size_t *ret_n, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	enc_auto_close int dir = open (conf->disk, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint8_t id[ENC_FSCRYPT_ID];
	int rc;

	(void)row;
	*ret_n = 0;
	if (dir < 0)
		return errno == ENOENT ? 0 : enc_fail_sys (err, "%s", conf->disk);
	rc = enc_dir_list (dir, ENTRIES_MAX, &names, err);
	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		if (!enc_starts (names.v[i], "scratch-"))
			continue;
		(*ret_n)++;
		if (remove && (rc = enc_volume_luks_drop (conf, names.v[i] + strlen ("scratch-"), err)) < 0)
			return rc;
		enc_auto_close int fd = remove ? enc_open_beneath (dir, names.v[i], O_RDONLY | O_DIRECTORY, 0, err) : -1;
		bool encrypted = fd >= 0 && enc_fscrypt_policy (fd, id, NULL) == 0;
		enc_cleanup_close (&fd);
		fd = -1;
		if (encrypted)
			rc = enc_fscrypt_remove (dir, id, err);
		if (rc == 0 && remove)
			rc = enc_remove_tree (dir, names.v[i], (uid_t)-1, NULL, err);
	}
	return rc;
}

static int find_scratch (ROW, size_t *ret_n, struct enc_error *err)
{
	return scratch (conf, row, false, ret_n, err);
}

static int clean_scratch (ROW, struct enc_error *err)
{
	size_t n;

	return scratch (conf, row, true, &n, err);
}

/* ---- swap ---- */

static int swaps (bool off, size_t *ret_n, struct enc_error *err)
{
	enc_auto_fclose FILE *table = fopen ("/proc/swaps", "re");
	enc_auto_free char *line = NULL;
	size_t room = 0;
	char path[4096];

	*ret_n = 0;
	if (!table)
		return errno == ENOENT ? 0 : enc_fail_sys (err, "/proc/swaps");
	while (getline (&line, &room, table) > 0) {
		if (sscanf (line, "%4095s", path) != 1 || path[0] != '/')
			continue;
		(*ret_n)++;
		if (off && swapoff (path) < 0)
			return enc_fail_sys (err, "swap %s", path);
	}
	return 0;
}

static int find_swap (ROW, size_t *ret_n, struct enc_error *err)
{
	(void)conf, (void)row;
	return swaps (false, ret_n, err);
}

static int clean_swap (ROW, struct enc_error *err)
{
	size_t n;

	(void)conf, (void)row;
	return swaps (true, &n, err);
}

/* ---- the overlay's interface ---- */

static int find_overlay (ROW, size_t *ret_n, struct enc_error *err)
{
	(void)conf, (void)row, (void)err;
	*ret_n = if_nametoindex (ENC_OVERLAY_IFACE) != 0;
	return 0;
}

static int clean_overlay (ROW, struct enc_error *err)
{
	struct ifinfomsg info = { .ifi_family = AF_UNSPEC, .ifi_index = (int)if_nametoindex (ENC_OVERLAY_IFACE) };
	struct enc_nl_msg msg;
	struct enc_nl nl;
	int rc;

	(void)conf, (void)row;
	if (info.ifi_index == 0)
		return 0;
	if ((rc = enc_nl_open (&nl, NETLINK_ROUTE, err)) < 0)
		return rc;
	enc_nl_begin (&msg, RTM_DELLINK, 0, &info, sizeof info);
	rc = enc_nl_talk (&nl, &msg, NULL, NULL, err);
	enc_nl_done (&nl);
	return rc;
}

/* ---- files that privd itself put down for an enclave ---- */

static const struct {
	const char *folder, *name;
} own_files[] = {
	{ "/run/enclave", "slurm" }, { "/run/enclave", "munge" }, { "/run/enclave", "login" }, { "/run/enclave", "etc" }, { "/run/enclave", "members" },
	{ "/run/enclave", "enclave.json" }, { "/run/enclave", "door" }, { "/var/lib/extrausers", "passwd" }, { "/var/lib/extrausers", "group" },
	{ "/var/lib/extrausers", "shadow" },
};

static int own (bool remove, size_t *ret_n, struct enc_error *err)
{
	int rc = 0;

	*ret_n = 0;
	for (size_t i = 0; rc == 0 && i < ENC_ARRAY_LEN (own_files); i++) {
		enc_auto_close int dir = open (own_files[i].folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dir < 0 || faccessat (dir, own_files[i].name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		(*ret_n)++;
		if (remove)
			rc = enc_remove_tree (dir, own_files[i].name, (uid_t)-1, NULL, err);
	}
	return rc;
}

static int find_own (ROW, size_t *ret_n, struct enc_error *err)
{
	(void)conf, (void)row;
	return own (false, ret_n, err);
}

static int clean_own (ROW, struct enc_error *err)
{
	size_t n;

	(void)conf, (void)row;
	return own (true, &n, err);
}

/* ---- the journal: see journal.h ---- */

static int find_journal (ROW, size_t *ret_n, struct enc_error *err)
{
	(void)row;
	return enc_journal_entries (conf, ret_n, err);
}

static int clean_journal (ROW, struct enc_error *err)
{
	(void)row;
	return enc_journal_wipe (conf, err);
}

static int find_journal_on_disk (ROW, size_t *ret_n, struct enc_error *err)
{
	(void)row;
	return enc_journal_on_disk (conf, ret_n, err);
}

/* A journal is not altered: what reached a disk is for a person to judge, and keeps the node out until then. */
static int clean_nothing (ROW, struct enc_error *err)
{
	(void)conf, (void)row, (void)err;
	return 0;
}

/* ---- what cannot be counted: pages of closed files ---- */

static int find_nothing (ROW, size_t *ret_n, struct enc_error *err)
{
	(void)conf, (void)row, (void)err;
	*ret_n = 0;
	return 0;
}

static int drop_pages (ROW, struct enc_error *err)
{
	(void)conf, (void)row;
	/* Where many hosts share one kernel (a container) this would be theirs as well, and prove nothing. */
	if (access ("/run/systemd/container", F_OK) == 0)
		return 0;
	sync ();
	return enc_sys_write ("/proc/sys/vm/drop_caches", "3", err);
}

const struct enc_residue enc_residues[] = {
	{ "processes", NULL, find_processes, clean_processes },
	{ "linger", "/var/lib/systemd/linger", find_contents, clean_contents },
	{ "crontabs", "/var/spool/cron/crontabs", find_owned, clean_owned },
	{ "at-jobs", "/var/spool/cron/atjobs", find_owned, clean_owned },
	{ "mounts", NULL, find_mounts, clean_mounts },
	{ "scratch", NULL, find_scratch, clean_scratch },
	{ "overlay", NULL, find_overlay, clean_overlay },
	{ "enclave-files", NULL, find_own, clean_own },
	{ "tmp", "/tmp", find_owned, clean_owned },
	{ "var-tmp", "/var/tmp", find_owned, clean_owned },
	{ "shm", "/dev/shm", find_owned, clean_owned },
	{ "run-user", "/run/user", find_owned, clean_owned },
	{ "run-lock", "/run/lock", find_owned, clean_owned },
	{ "sysv-ipc", NULL, find_sysv, clean_sysv },
	{ "message-queues", NULL, find_mqueue, clean_mqueue },
	{ "slurmd-spool", "/var/spool/slurmd", find_spool, clean_spool },
	{ "site-slurmd-spool", "/var/lib/slurm/slurmd", find_spool, clean_spool },
	{ "crash-dumps", "/var/crash", find_contents, clean_contents },
	{ "core-dumps", "/var/lib/systemd/coredump", find_contents, clean_contents },
	{ "pinned-bpf", "/sys/fs/bpf", find_contents, clean_contents },
	{ "swap", NULL, find_swap, clean_swap },
	{ "journal", NULL, find_journal, clean_journal },
	{ "journal-on-disk", NULL, find_journal_on_disk, clean_nothing },
	{ "page-cache", NULL, find_nothing, drop_pages },
	{ NULL, NULL, NULL, NULL },
};
