/* The table `services` says which units a role has, in the order in which they start; they stop the other way round. Units are
 * instances of the enclave's id. Files are the same for all roles and are made before the first unit starts; with the last role
 * they go. */
#include "node-agent/privd/roles.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/peer.h"
#include "node-agent/privd/bus.h"
#include "node-agent/privd/cover.h"
#include "node-agent/privd/journal.h"
#include "node-agent/privd/mounts.h"
#include "node-agent/privd/procs.h"
#include "node-agent/privd/render.h"

#include "base/enc.h"

#define RUN "/run/enclave"
#define SLURM_DIR RUN "/slurm"
#define MUNGE_DIR RUN "/munge"

enum { START_MS = 30000, STOP_MS = 15000, KILL_MS = 5000, TEMPLATE_MAX = 65536, RENDERED_MAX = 1024 * 1024 };

static const struct {
	const char *unit;     /* instance of the enclave's id */
	uint8_t roles;        /* wanted by any of these */
	bool optional;        /* only where the unit is installed */
} services[] = {
	{ "enclave-munged", ENC_ROLE_SCHEDULER | ENC_ROLE_COMPUTE | ENC_ROLE_LOGIN, false },
	{ "enclave-slurmctld", ENC_ROLE_SCHEDULER, false },
	{ "enclave-schedd-enclave", ENC_ROLE_SCHEDULER, true },
	{ "enclave-slurmd", ENC_ROLE_COMPUTE, false },
	{ "enclave-sshd", ENC_ROLE_LOGIN, false },
};

static const struct {
	const char *template, *path;
	uint8_t roles;
} files[] = {
	{ "enclave-slurm.conf.in", SLURM_DIR "/slurm.conf", ENC_ROLE_SCHEDULER | ENC_ROLE_COMPUTE | ENC_ROLE_LOGIN },
	{ "enclave-cgroup.conf.in", SLURM_DIR "/cgroup.conf", ENC_ROLE_SCHEDULER | ENC_ROLE_COMPUTE | ENC_ROLE_LOGIN },
	{ "enclave-plugstack.conf.in", SLURM_DIR "/plugstack.conf", ENC_ROLE_SCHEDULER | ENC_ROLE_COMPUTE | ENC_ROLE_LOGIN },
	{ "enclave-sshd_config.in", RUN "/login/sshd_config", ENC_ROLE_LOGIN },
};

static int make_folder (const char *path, unsigned mode, struct enc_error *err)
{
	return mkdir (path, mode) < 0 && errno != EEXIST ? enc_fail_sys (err, "%s", path) : 0;
}

static int write_file (const char *path, const void *data, size_t len, unsigned mode, uid_t uid, gid_t gid, struct enc_error *err)
{
	struct enc_file_attr attr = { .mode = mode, .uid = uid, .gid = gid };

	return enc_file_write (path, data, len, &attr, err);
}

static int render_file (const struct enc_privd_conf *conf, const struct enc_doc *doc, size_t i, struct enc_error *err)
{
	bool unified = access ("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
	struct enc_render_host host = { .cgroup_plugin = unified ? "cgroup/v2" : "cgroup/v1", .cgroup_mount = "/sys/fs/cgroup", .spank_plugin = conf->plugin };
	enc_auto_done (enc_buf_done) struct enc_buf template = ENC_BUF_INIT (TEMPLATE_MAX), out = ENC_BUF_INIT (RENDERED_MAX);
	enc_auto_free char *from = enc_strf ("%s/%s", conf->templates, files[i].template);
	int rc;

	if (!from)
		return enc_fail (err, ENC_ENOMEM, "roles: no memory");
	if ((rc = enc_file_read_trusted (from, TEMPLATE_MAX - 1, &template, err)) < 0)
		return rc;
	enc_buf_put_u8 (&template, 0);
	if ((rc = enc_render ((const char *)template.data, doc, &host, &out, err)) < 0)
		return enc_wrap (err, rc, "%s", files[i].template);
	return write_file (files[i].path, out.data, out.len, 0644, 0, 0, err);
}

/* What people and their tools may know of where they are. */
static int write_about (const struct enc_doc *doc, uint8_t want, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *about = enc_json_object ();
	enc_auto_free char *text = NULL;
	struct enc_json *roles;
	size_t len;

	enc_json_set_str (about, "name", doc->enclave_name);
	enc_json_set_str (about, "partition", "protected");
	roles = enc_json_set_array (about, "roles");
	for (unsigned bit = ENC_ROLE_COMPUTE; bit <= ENC_ROLE_LOGIN; bit <<= 1)
		if (want & bit)
			enc_json_add_str (roles, enc_role_name ((uint8_t)bit));
	if (!(text = enc_json_write (about, &len, err)))
		return -ENC_ENOMEM;
	return write_file (RUN "/enclave.json", text, len, 0644, 0, 0, err);
}

/* The key of the stay's munge stands on a file system that is memory and never swapped, readable by munge alone. */
static int write_munge_key (const struct enc_task *task, struct enc_error *err)
{
	const struct enc_task_key *key = enc_task_key_find (task, task->doc->munge_key);
	uid_t uid;
	gid_t gid;
	int rc;

	if (!key && access (MUNGE_DIR "/munge.key", F_OK) == 0)
		return 0; /* given before, in this stay */
	if (!key || key->len < 32)
		return enc_fail (err, ENC_EDENIED, "roles: the munge key did not come with the order");
	if ((rc = enc_uid_of_user ("munge", &uid, &gid, err)) < 0 || (rc = make_folder (MUNGE_DIR, 0755, err)) < 0)
		return rc;
	if (!enc_mount_is (MUNGE_DIR) && mount ("enclave-munge", MUNGE_DIR, "ramfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0755") < 0)
		return enc_fail_sys (err, "memory for the munge key");
	if (chown (MUNGE_DIR, uid, gid) < 0)
		return enc_fail_sys (err, MUNGE_DIR);
	return write_file (MUNGE_DIR "/munge.key", key->data, key->len, 0400, uid, gid, err);
}

/* slurmctld runs as slurm and owns its state. */
static int give_state (struct enc_error *err)
{
	uid_t uid;
	gid_t gid;
	int rc = enc_uid_of_user ("slurm", &uid, &gid, err);

	if (rc < 0)
		return rc;
	if (!enc_mount_is (ENC_STATE_DIR))
		return enc_fail (err, ENC_EDENIED, "roles: no encrypted scratch under " ENC_STATE_DIR);
	return chown (ENC_STATE_DIR, uid, gid) < 0 ? enc_fail_sys (err, ENC_STATE_DIR) : 0;
}

/* Commands of members find the enclave's scheduler where any Slurm command looks. */
static int cover_site_slurm (struct enc_error *err)
{
	enc_auto_close int fd = -1;

	if (access ("/etc/slurm", F_OK) < 0)
		return 0;
	if ((fd = open (SLURM_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		return enc_fail_sys (err, SLURM_DIR);
	return enc_mount_bind (fd, "/etc/slurm", err);
}

static int make_files (const struct enc_privd_conf *conf, const struct enc_task *task, uint8_t want, struct enc_error *err)
{
	static const char *const folders[] = { RUN, SLURM_DIR, RUN "/login" };
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ENC_ARRAY_LEN (folders); i++)
		rc = make_folder (folders[i], 0755, err);
	for (size_t i = 0; rc == 0 && i < ENC_ARRAY_LEN (files); i++)
		if (files[i].roles & want)
			rc = render_file (conf, task->doc, i, err);
	if (rc == 0)
		rc = write_about (task->doc, want, err);
	if (rc == 0)
		rc = write_munge_key (task, err);
	if (rc == 0 && (want & ENC_ROLE_SCHEDULER))
		rc = give_state (err);
	return rc == 0 ? cover_site_slurm (err) : rc;
}

static int remove_files (struct enc_error *err)
{
	static const char *const names[] = { "slurm", "munge", "enclave.json" };
	enc_auto_close int run = -1;
	int rc;

	if ((rc = enc_mount_drop ("/etc/slurm", err)) < 0 || (rc = enc_mount_drop (MUNGE_DIR, err)) < 0)
		return rc;
	if ((run = enc_open_dir (RUN, NULL)) < 0)
		return 0;
	for (size_t i = 0; rc == 0 && i < ENC_ARRAY_LEN (names); i++)
		rc = enc_remove_tree (run, names[i], (uid_t)-1, NULL, err);
	return rc;
}

static void unit_name (size_t i, const char *id, char *ret, size_t size)
{
	(void)snprintf (ret, size, "%s@%s.service", services[i].unit, id);
}

static bool unit_installed (size_t i)
{
	static const char *const folders[] = { "/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd/system" };
	char path[128];

	for (size_t k = 0; k < ENC_ARRAY_LEN (folders); k++) {
		(void)snprintf (path, sizeof path, "%s/%s@.service", folders[k], services[i].unit);
		if (access (path, F_OK) == 0)
			return true;
	}
	return false;
}

static int start_units (const char *id, uint8_t want, struct enc_error *err)
{
	char unit[96], state[32];
	int rc;

	for (size_t i = 0; i < ENC_ARRAY_LEN (services); i++) {
		if (!(services[i].roles & want) || (services[i].optional && !unit_installed (i)))
			continue;
		unit_name (i, id, unit, sizeof unit);
		if ((rc = enc_bus_unit_state (unit, state, sizeof state, err)) < 0)
			return rc;
		if (strcmp (state, "active") == 0)
			continue;
		if ((rc = enc_bus_unit (ENC_UNIT_START, unit, START_MS, err)) < 0)
			return rc;
	}
	return 0;
}

static bool is_step (const struct enc_proc *p, const void *arg)
{
	(void)arg;
	return strncmp (p->comm, "slurmstepd", 10) == 0;
}

static int stop_units (const char *id, uint8_t keep, struct enc_error *err)
{
	char unit[96];
	int rc;

	for (size_t i = ENC_ARRAY_LEN (services); i-- > 0;) {
		if ((services[i].roles & keep) || (services[i].optional && !unit_installed (i)))
			continue;
		unit_name (i, id, unit, sizeof unit);
		if ((rc = enc_bus_unit (ENC_UNIT_STOP, unit, STOP_MS, err)) < 0)
			return rc;
		(void)!enc_bus_kill (unit, SIGKILL, NULL); /* what the unit left in its group */
	}
	return keep & ENC_ROLE_COMPUTE ? 0 : enc_procs_kill (is_step, NULL, KILL_MS, NULL, err);
}

/* The enclave whose roles were brought up, so that they can be taken down under a document that no longer names it. */
static int known_id (const struct enc_privd_conf *conf, char ret[27])
{
	enc_auto_free char *path = enc_strf ("%s/roles", conf->run_dir);

	ret[0] = '\0';
	return path && enc_file_read_line (path, ret, 27, NULL) == 0 && enc_id_ok (ret) ? 0 : -ENC_ENOTFOUND;
}

static int store_id (const struct enc_privd_conf *conf, const char *id, struct enc_error *err)
{
	enc_auto_free char *path = enc_strf ("%s/roles", conf->run_dir), *text = enc_strf ("%s\n", id);
	struct enc_file_attr attr = ENC_FILE_ATTR (0600);

	if (!path || !text)
		return enc_fail (err, ENC_ENOMEM, "roles: no memory");
	if (id[0])
		return enc_file_write (path, text, strlen (text), &attr, err);
	return unlink (path) < 0 && errno != ENOENT ? enc_fail_sys (err, "%s", path) : 0;
}

/* Before anybody can say anything here. */
static int keep_text_in_memory (const struct enc_privd_conf *conf, struct enc_error *err)
{
	int rc = enc_journal_hold (conf, err);

	if (rc == 0)
		rc = enc_journal_begin (conf, err);
	return rc == 0 ? enc_covers_up (err) : rc;
}

int enc_roles_apply (const struct enc_privd_conf *conf, const struct enc_task *task, uint8_t want, struct enc_error *err)
{
	char id[27];
	int rc = 0;

	if (known_id (conf, id) == 0 && (rc = stop_units (id, want, err)) < 0)
		return rc;
	if (want == 0) {
		if ((rc = remove_files (err)) < 0 || (rc = enc_covers_down (conf, err)) < 0)
			return rc;
		return store_id (conf, "", err);
	}
	if ((rc = keep_text_in_memory (conf, err)) < 0 || (rc = store_id (conf, task->doc->enclave_id, err)) < 0 || (rc = make_files (conf, task, want, err)) < 0)
		return rc;
	return start_units (task->doc->enclave_id, want, err);
}
