#include "node-agent/privd/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <linux/openat2.h>
#include <openssl/evp.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"

#include "base/enc.h"

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif

enum { FILE_MAX = 256 * 1024 * 1024, PIECE = 65536, ENTRIES_MAX = 100000, DEPTH_MAX = 12 };

struct measure {
	const struct enc_privd_conf *conf;
	int root;            /* the root file system alone */
	EVP_MD_CTX *hash;    /* of the row at hand */
	struct enc_error *err;
};

typedef int (*how_fn) (struct measure *m, const char *const *paths);

static void put (struct measure *m, const void *data, size_t len)
{
	(void)EVP_DigestUpdate (m->hash, data, len);
}

/* A text and its end, so that two never run into one. */
static void put_text (struct measure *m, const char *text)
{
	put (m, text, strlen (text) + 1);
}

/* Open below the root file system, links staying inside of it; what is not there (another file system's mount point) by its name. */
static int open_path (const struct measure *m, const char *path)
{
	struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, .resolve = RESOLVE_IN_ROOT };
	int fd = (int)syscall (SYS_openat2, m->root, path, &how, sizeof how);

	return fd >= 0 || errno != ENOENT ? fd : open (path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static int put_fd (struct measure *m, int fd, const char *name)
{
	static uint8_t piece[PIECE];
	ssize_t n;

	while ((n = read (fd, piece, sizeof piece)) > 0)
		put (m, piece, (size_t)n);
	return n < 0 ? enc_fail_sys (m->err, "measure %s", name) : 0;
}

static void put_mode (struct measure *m, const struct stat *st)
{
	char text[64];

	(void)snprintf (text, sizeof text, "%o %u %u", st->st_mode, st->st_uid, st->st_gid);
	put_text (m, text);
}

static int put_tree (struct measure *m, int dir, const char *name, unsigned depth);

static int put_entry (struct measure *m, int dir, const char *name, unsigned depth)
{
	enc_auto_close int fd = -1;
	char link[4096];
	struct stat st;
	ssize_t n;

	if (fstatat (dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return enc_fail_sys (m->err, "measure %s", name);
	put_text (m, name);
	put_mode (m, &st);
	if (S_ISLNK (st.st_mode)) {
		if ((n = readlinkat (dir, name, link, sizeof link - 1)) < 0)
			return enc_fail_sys (m->err, "measure %s", name);
		put (m, link, (size_t)n);
		return 0;
	}
	if (!S_ISREG (st.st_mode) && !S_ISDIR (st.st_mode))
		return 0;
	if ((fd = openat (dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)) < 0)
		return enc_fail_sys (m->err, "measure %s", name);
	return S_ISDIR (st.st_mode) ? put_tree (m, fd, name, depth) : put_fd (m, fd, name);
}

static int put_tree (struct measure *m, int dir, const char *name, unsigned depth)
{
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	int rc;

	if (depth == 0)
		return enc_fail (m->err, ENC_ELIMIT, "measure %s: too deep", name);
	if ((rc = enc_dir_list (dir, ENTRIES_MAX, &names, m->err)) < 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < names.n; i++)
		rc = put_entry (m, dir, names.v[i], depth - 1);
	return rc;
}

/* ---- ways to measure ---- */

/* Files and folders, with names, modes and contents. */
static int how_paths (struct measure *m, const char *const *paths)
{
	int rc = 0;

	for (; rc == 0 && *paths; paths++) {
		enc_auto_close int fd = open_path (m, *paths);
		struct stat st;

		put_text (m, *paths);
		if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
			put_text (m, "absent");
			continue;
		}
		if (fd < 0 || fstat (fd, &st) < 0)
			return enc_fail_sys (m->err, "measure %s", *paths);
		put_mode (m, &st);
		rc = S_ISDIR (st.st_mode) ? put_tree (m, fd, *paths, DEPTH_MAX) : S_ISREG (st.st_mode) ? put_fd (m, fd, *paths) : 0;
	}
	return rc;
}

static int how_plugin (struct measure *m, const char *const *paths)
{
	const char *const own[] = { m->conf->plugin, NULL };
	int rc = how_paths (m, own);

	return rc < 0 ? rc : how_paths (m, paths);
}

static int how_templates (struct measure *m, const char *const *paths)
{
	const char *const own[] = { m->conf->templates, NULL };

	(void)paths;
	return how_paths (m, own);
}

static int how_kernel (struct measure *m, const char *const *paths)
{
	struct utsname u;

	(void)paths;
	if (uname (&u) < 0)
		return enc_fail_sys (m->err, "measure the kernel");
	put_text (m, u.release);
	put_text (m, u.version);
	put_text (m, u.machine);
	return 0;
}

/* Small files of /proc, or "absent". */
static int how_values (struct measure *m, const char *const *paths)
{
	char value[4096];

	for (; *paths; paths++) {
		put_text (m, *paths);
		if (enc_file_read_line (*paths, value, sizeof value, NULL) < 0)
			(void)snprintf (value, sizeof value, "absent");
		put_text (m, value);
	}
	return 0;
}

/* Names alone, sorted: sizes and use counts change. */
static int how_modules (struct measure *m, const char *const *paths)
{
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	enc_auto_fclose FILE *table = fopen (paths[0], "re");
	enc_auto_free char *line = NULL;
	size_t room = 0;
	int rc;

	while (table && getline (&line, &room, table) > 0) {
		line[strcspn (line, " \n")] = '\0';
		if ((rc = enc_strs_add (&names, line, m->err)) < 0)
			return rc;
	}
	enc_strs_sort (&names);
	for (size_t i = 0; i < names.n; i++)
		put_text (m, names.v[i]);
	return 0;
}

/* Lines of passwd and group that give root's rights. */
static int how_root_accounts (struct measure *m, const char *const *paths)
{
	for (; *paths; paths++) {
		enc_auto_close int fd = open_path (m, *paths);
		enc_auto_fclose FILE *file = fd >= 0 ? fdopen (fd, "r") : NULL;
		enc_auto_free char *line = NULL;
		size_t room = 0;

		if (!file)
			return enc_fail_sys (m->err, "measure %s", *paths);
		fd = -1;
		while (getline (&line, &room, file) > 0)
			if (strstr (line, ":0:") || enc_starts (line, "sudo:") || enc_starts (line, "adm:") || enc_starts (line, "shadow:"))
				put_text (m, line);
	}
	return 0;
}

/* Programs that run with other rights than their caller's. */
static int put_suid (struct measure *m, int dir, const char *at, unsigned depth)
{
	enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
	int rc = enc_dir_list (dir, ENTRIES_MAX, &names, m->err);

	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		enc_auto_free char *path = enc_strf ("%s/%s", at, names.v[i]);
		enc_auto_close int fd = -1;
		struct stat st;

		if (!path)
			return enc_fail (m->err, ENC_ENOMEM, "measure: no memory");
		if (fstatat (dir, names.v[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISREG (st.st_mode) && (st.st_mode & (S_ISUID | S_ISGID))) {
			put_text (m, path);
			put_mode (m, &st);
			if ((fd = openat (dir, names.v[i], O_RDONLY | O_NOFOLLOW | O_CLOEXEC)) >= 0)
				rc = put_fd (m, fd, path);
		} else if (S_ISDIR (st.st_mode) && depth > 0) {
			if ((fd = openat (dir, names.v[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) >= 0)
				rc = put_suid (m, fd, path, depth - 1);
		}
	}
	return rc;
}

static int how_suid (struct measure *m, const char *const *paths)
{
	int rc = 0;

	for (; rc == 0 && *paths; paths++) {
		enc_auto_close int fd = open_path (m, *paths);
		if (fd >= 0)
			rc = put_suid (m, fd, *paths, DEPTH_MAX);
	}
	return rc;
}

#define PATHS(...) (const char *const[]) { __VA_ARGS__, NULL }
#define SLURM_LIB "/usr/lib/x86_64-linux-gnu/slurm-wlm/"

static const struct {
	const char *name;
	how_fn how;
	const char *const *paths;
} rows[] = {
	{ "kernel", how_kernel, PATHS ("") },
	{ "kernel-command-line", how_values, PATHS ("/proc/cmdline") },
	{ "kernel-modules", how_modules, PATHS ("/proc/modules") },
	{ "sysctl", how_values, PATHS ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/kptr_restrict", "/proc/sys/kernel/modules_disabled",
		"/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/fs/suid_dumpable",
		"/proc/sys/fs/protected_symlinks", "/proc/sys/fs/protected_hardlinks") },
	{ "privd", how_paths, PATHS ("/usr/sbin/enclave-privd") },
	{ "agentd", how_paths, PATHS ("/usr/sbin/enclave-agentd") },
	{ "enclave-config", how_paths, PATHS ("/etc/enclave/privd.json", "/etc/enclave/units.json", "/etc/enclave/keyd.vkey", "/etc/enclave/log.vkey") },
	{ "enclave-programs", how_paths, PATHS ("/usr/libexec/enclave") },
	{ "enclave-templates", how_templates, PATHS ("") },
	{ "enclave-units", how_paths, PATHS ("/usr/lib/systemd/system/enclave-privd.service", "/usr/lib/systemd/system/enclave-munged@.service",
		"/usr/lib/systemd/system/enclave-slurmctld@.service", "/usr/lib/systemd/system/enclave-slurmd@.service",
		"/usr/lib/systemd/system/enclave-sshd@.service", "/usr/lib/systemd/system/enclave-overlay.service") },
	{ "plugins", how_plugin, PATHS (SLURM_LIB "job_submit_enclave.so", "/usr/lib/x86_64-linux-gnu/security/pam_enclave.so") },
	{ "slurm-plugins", how_paths, PATHS (SLURM_LIB) },
	{ "slurmd", how_paths, PATHS ("/usr/sbin/slurmd", "/usr/sbin/slurmstepd") },
	{ "slurmctld", how_paths, PATHS ("/usr/sbin/slurmctld") },
	{ "munged", how_paths, PATHS ("/usr/sbin/munged") },
	{ "sshd", how_paths, PATHS ("/usr/sbin/sshd") },
	{ "overlay-programs", how_paths, PATHS ("/usr/bin/wg", "/usr/bin/wireguard-go") },
	{ "sshd-config", how_paths, PATHS ("/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d") },
	{ "pam", how_paths, PATHS ("/etc/pam.d", "/etc/security") },
	{ "name-service", how_paths, PATHS ("/etc/nsswitch.conf") },
	{ "loader", how_paths, PATHS ("/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/ld.so.conf.d") },
	{ "root-accounts", how_root_accounts, PATHS ("/etc/passwd", "/etc/group") },
	{ "root-keys", how_paths, PATHS ("/root/.ssh") },
	{ "sudo", how_paths, PATHS ("/etc/sudoers", "/etc/sudoers.d") },
	{ "cron", how_paths, PATHS ("/etc/crontab", "/etc/cron.d", "/etc/cron.hourly", "/etc/cron.daily", "/var/spool/cron/crontabs/root") },
	{ "units-local", how_paths, PATHS ("/etc/systemd/system", "/etc/systemd/user") },
	{ "init-scripts", how_paths, PATHS ("/etc/rc.local", "/etc/profile", "/etc/profile.d", "/etc/environment") },
	{ "suid-programs", how_suid, PATHS ("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", "/usr/local", "/opt") },
};

static int one_row (struct measure *m, size_t i, struct enc_json *list)
{
	uint8_t digest[EVP_MAX_MD_SIZE];
	enc_auto_free char *hex = NULL;
	struct enc_json *row;
	int rc;

	if (EVP_DigestInit_ex (m->hash, EVP_sha256 (), NULL) != 1)
		return enc_fail (m->err, ENC_EFAILED, "measure: no SHA-256");
	if ((rc = rows[i].how (m, rows[i].paths)) < 0)
		return enc_wrap (m->err, rc, "row %s", rows[i].name);
	if (EVP_DigestFinal_ex (m->hash, digest, NULL) != 1 || !(hex = enc_hex (digest, 32)))
		return enc_fail (m->err, ENC_ENOMEM, "measure: no memory");
	row = enc_json_add_object (list);
	enc_json_set_str (row, "name", rows[i].name);
	enc_json_set_str (row, "digest", hex);
	return 0;
}

int enc_measure (const struct enc_privd_conf *conf, struct enc_json *evidence, struct enc_error *err)
{
	struct measure m = { .conf = conf, .root = -1, .err = err };
	struct enc_json *list = enc_json_set_array (evidence, "rows");
	int rc = 0;

	if ((m.root = (int)syscall (SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE | O_CLOEXEC)) < 0)
		return enc_fail_sys (err, "measure: the root file system");
	if (!(m.hash = EVP_MD_CTX_new ()))
		rc = enc_fail (err, ENC_ENOMEM, "measure: no memory");
	for (size_t i = 0; rc == 0 && i < ENC_ARRAY_LEN (rows); i++)
		rc = one_row (&m, i, list);
	EVP_MD_CTX_free (m.hash);
	(void)close (m.root);
	return rc;
}
