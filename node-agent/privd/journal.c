/* Marks, both empty files whose time counts:
 *   <state_dir>/journal-held    since when nothing may be written to disk; outlives a reboot, as the drop-in does
 *   <run_dir>/journal-wiped     what was said before it is gone */
#include "node-agent/privd/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/file.h"
#include "base/json.h"
#include "node-agent/privd/bus.h"
#include "node-agent/privd/mounts.h"
#include "node-agent/privd/procs.h"

#include "base/enc.h"

#define UNIT "systemd-journald.service"
#define SOCKET "/run/systemd/journal/io.systemd.journal"
#define RUNTIME "/run/log/journal"
#define PERSISTENT "/var/log/journal"
#define DROP_IN "zz-enclave.conf" /* drop-ins are read in the order of their names, and the last one counts */
#define OWN_FOLDER "# Its folder goes with it.\n"

enum { RESTART_MS = 15000, CALL_MS = 10000, ENTRIES_MAX = 10000, SETTING_MAX = 8192, REPLY_MAX = 65536 };

static const struct {
	const char *folder, *text;
} settings[] = {
	{ "/etc/systemd/journald.conf.d",
	  "# While this node is held by an enclave; enclave-privd(8) takes it away.\n[Journal]\nStorage=volatile\nRuntimeMaxUse=32M\n"
	  "ForwardToSyslog=no\nForwardToKMsg=no\nForwardToConsole=no\nForwardToWall=no\n" },
	{ "/etc/systemd/coredump.conf.d",
	  "# While this node is held by an enclave; enclave-privd(8) takes it away.\n[Coredump]\nStorage=none\nProcessSizeMax=0\n" },
};

/* ---- drop-ins ---- */

static int read_setting (size_t i, struct enc_buf *ret, struct enc_error *err)
{
	char path[128];

	(void)snprintf (path, sizeof path, "%s/" DROP_IN, settings[i].folder);
	if (access (path, F_OK) < 0 && errno == ENOENT)
		return enc_fail (err, ENC_ENOTFOUND, "%s is not there", path);
	return enc_file_read (path, SETTING_MAX, ret, err);
}

static bool has_text (const struct enc_buf *b, const char *text)
{
	size_t len = strlen (text);

	return b->len >= len && memcmp (b->data + b->len - len, text, len) == 0;
}

static bool owns_folder (const struct enc_buf *b)
{
	return b->len >= strlen (OWN_FOLDER) && memcmp (b->data, OWN_FOLDER, strlen (OWN_FOLDER)) == 0;
}

static int put_setting (size_t i, bool *ret_changed, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf old = ENC_BUF_INIT (SETTING_MAX);
	struct enc_file_attr attr = ENC_FILE_ATTR (0644);
	enc_auto_free char *text = NULL;
	bool made;
	char path[128];
	int rc = read_setting (i, &old, err);

	if (rc == 0 && has_text (&old, settings[i].text))
		return 0;
	made = mkdir (settings[i].folder, 0755) == 0;
	if (!made && errno != EEXIST)
		return enc_fail_sys (err, "%s", settings[i].folder);
	text = enc_strf ("%s%s", made || owns_folder (&old) ? OWN_FOLDER : "", settings[i].text);
	if (!text)
		return enc_fail (err, ENC_ENOMEM, "journal: no memory");
	(void)snprintf (path, sizeof path, "%s/" DROP_IN, settings[i].folder);
	*ret_changed = true;
	return enc_file_write (path, text, strlen (text), &attr, err);
}

static int remove_setting (size_t i, bool *ret_changed, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf old = ENC_BUF_INIT (SETTING_MAX);
	char path[128];
	int rc = read_setting (i, &old, err);

	if (rc < 0)
		return rc == -ENC_ENOTFOUND ? 0 : rc;
	(void)snprintf (path, sizeof path, "%s/" DROP_IN, settings[i].folder);
	*ret_changed = true;
	if (unlink (path) < 0)
		return enc_fail_sys (err, "%s", path);
	if (owns_folder (&old) && rmdir (settings[i].folder) < 0 && errno != ENOTEMPTY)
		return enc_fail_sys (err, "%s", settings[i].folder);
	return 0;
}

/* ---- marks ---- */

static char *mark_path (const struct enc_privd_conf *conf, bool held)
{
	return held ? enc_strf ("%s/journal-held", conf->state_dir) : enc_strf ("%s/journal-wiped", conf->run_dir);
}

static int mark (const struct enc_privd_conf *conf, bool held, struct enc_error *err)
{
	enc_auto_free char *path = mark_path (conf, held);
	struct enc_file_attr attr = ENC_FILE_ATTR (0600);

	return path ? enc_file_write (path, "", 0, &attr, err) : enc_fail (err, ENC_ENOMEM, "journal: no memory");
}

static int unmark (const struct enc_privd_conf *conf, bool held, struct enc_error *err)
{
	enc_auto_free char *path = mark_path (conf, held);

	if (!path)
		return enc_fail (err, ENC_ENOMEM, "journal: no memory");
	return unlink (path) < 0 && errno != ENOENT ? enc_fail_sys (err, "%s", path) : 0;
}

/* Wall clock in ns; 0: there is no such mark. */
static int64_t marked (const struct enc_privd_conf *conf, bool held)
{
	enc_auto_free char *path = mark_path (conf, held);
	struct stat st;

	return path && stat (path, &st) == 0 ? st.st_mtim.tv_sec * ENC_NS_S + st.st_mtim.tv_nsec : 0;
}

/* ---- journald ---- */

static int find_journald (const struct enc_proc *p, void *arg)
{
	if (enc_ends (p->cgroup, "/" UNIT))
		*(pid_t *)arg = p->pid;
	return 0;
}

/* Does the journal have a file open on disk? A journal that does not run writes nowhere. */
static bool is_persistent (void)
{
	pid_t pid = 0;

	return enc_procs_each (find_journald, &pid, NULL) < 0 || (pid && enc_proc_holds (pid, PERSISTENT));
}

static int restart (struct enc_error *err)
{
	enc_bus_forgive (UNIT);
	return enc_bus_unit (ENC_UNIT_RESTART, UNIT, RESTART_MS, err);
}

static int connect_journald (struct enc_error *err)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX, .sun_path = SOCKET };
	struct timeval wait = { .tv_sec = CALL_MS / 1000 };
	enc_auto_close int fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt (fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) < 0 || setsockopt (fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) < 0 ||
		connect (fd, (struct sockaddr *)&to, sizeof to) < 0)
		return enc_fail_sys (err, "journal: " SOCKET);
	return ENC_TAKE_FD (fd);
}

/* One call without parameters, by varlink: JSON objects that end with a NUL. The answer comes when it is done. */
static int ask (const char *method, struct enc_error *err)
{
	enc_auto_free char *text = enc_strf ("{\"method\":\"io.systemd.Journal.%s\",\"parameters\":{}}", method), *reply = malloc (REPLY_MAX);
	enc_auto (enc_json) struct enc_json *answer = NULL;
	enc_auto_close int fd = connect_journald (err);
	size_t len = 0;
	ssize_t n = 1;

	if (fd < 0)
		return fd;
	if (!text || !reply)
		return enc_fail (err, ENC_ENOMEM, "journal: no memory");
	if (send (fd, text, strlen (text) + 1, MSG_NOSIGNAL) < 0)
		return enc_fail_sys (err, "journal: %s", method);
	while (n > 0 && (len == 0 || reply[len - 1] != '\0') && len < REPLY_MAX) {
		if ((n = recv (fd, reply + len, REPLY_MAX - len, 0)) < 0)
			return enc_fail_sys (err, "journal: %s", method);
		len += (size_t)n;
	}
	if (len > 0 && reply[len - 1] == '\0')
		answer = enc_json_parse (reply, len - 1, REPLY_MAX, NULL);
	if (!answer || enc_json_get (answer, "error"))
		return enc_fail (err, ENC_EFAILED, "journal: %s was not done", method);
	return 0;
}

/* ---- hold and release ---- */

int enc_journal_hold (const struct enc_privd_conf *conf, struct enc_error *err)
{
	bool changed = false;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ENC_ARRAY_LEN (settings); i++)
		rc = put_setting (i, &changed, err);
	if (rc == 0 && (changed || is_persistent ()))
		rc = restart (err);
	if (rc < 0)
		return enc_wrap (err, rc, "keep the journal in memory");
	if (is_persistent ())
		return enc_error_next (err, enc_fail (err, ENC_ECONFLICT, "the journal still writes to " PERSISTENT),
			"systemd-analyze cat-config systemd/journald.conf");
	return marked (conf, true) ? 0 : mark (conf, true, err);
}

int enc_journal_release (const struct enc_privd_conf *conf, struct enc_error *err)
{
	bool changed = false;
	int rc;

	if (!marked (conf, true))
		return 0;
	/* With the setting gone, a journal that starts again carries over to disk what it finds in memory. */
	if ((rc = enc_journal_wipe (conf, err)) < 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < ENC_ARRAY_LEN (settings); i++)
		rc = remove_setting (i, &changed, err);
	/* The flush of this boot was for a journal in memory, if it was held then, so the one that is due now is asked for. */
	if (rc < 0 || (rc = restart (err)) < 0 || (rc = ask ("FlushToVar", err)) < 0)
		return enc_wrap (err, rc, "give the journal back");
	if ((rc = unmark (conf, false, err)) < 0)
		return rc;
	return unmark (conf, true, err);
}

int enc_journal_begin (const struct enc_privd_conf *conf, struct enc_error *err)
{
	return unmark (conf, false, err);
}

/* ---- wipe ---- */

static int each_file (const char *folder, int (*fn) (int dir, const char *name, void *arg, struct enc_error *err), void *arg, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs machines = { 0 };
	enc_auto_close int top = open (folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (top < 0)
		return errno == ENOENT ? 0 : enc_fail_sys (err, "%s", folder);
	rc = enc_dir_list (top, ENTRIES_MAX, &machines, err);
	for (size_t i = 0; rc == 0 && i < machines.n; i++) {
		enc_auto_done (enc_strs_done) struct enc_strs names = { 0 };
		enc_auto_close int dir = openat (top, machines.v[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (dir < 0)
			continue;
		rc = enc_dir_list (dir, ENTRIES_MAX, &names, err);
		for (size_t k = 0; rc == 0 && k < names.n; k++)
			rc = fn (dir, names.v[k], arg, err);
	}
	return rc;
}

/* All but the file that has just been begun. */
static int remove_old (int dir, const char *name, void *arg, struct enc_error *err)
{
	(void)arg;
	if (strcmp (name, "system.journal") == 0)
		return 0;
	return unlinkat (dir, name, 0) < 0 && errno != ENOENT ? enc_fail_sys (err, RUNTIME "/%s", name) : 0;
}

int enc_journal_wipe (const struct enc_privd_conf *conf, struct enc_error *err)
{
	int rc;

	if (is_persistent ())
		return enc_fail (err, ENC_ECONFLICT, "the journal is not held in memory");
	/* What waits in its sockets is written first, so that none of it comes after. */
	if ((rc = ask ("Synchronize", err)) < 0 || (rc = mark (conf, false, err)) < 0 || (rc = ask ("Rotate", err)) < 0)
		return rc;
	return each_file (RUNTIME, remove_old, NULL, err);
}

/* ---- what is left ---- */

ENC_DEFINE_AUTO (journal, sd_journal, sd_journal_close);

static bool is_of_person (const struct enc_privd_conf *conf, sd_journal *j)
{
	static const char *const names[] = { "_UID", "_AUDIT_LOGINUID", "_SYSTEMD_OWNER_UID" };
	const void *data;
	uint64_t uid;
	char text[16];
	size_t len;

	for (size_t i = 0; i < ENC_ARRAY_LEN (names); i++) {
		size_t skip = strlen (names[i]) + 1;
		if (sd_journal_get_data (j, names[i], &data, &len) < 0 || len <= skip || len - skip >= sizeof text)
			continue;
		memcpy (text, (const char *)data + skip, len - skip);
		text[len - skip] = '\0';
		if (enc_parse_u64 (text, 0, UINT32_MAX, &uid, NULL) == 0 && enc_uid_is_person (conf->uid_min, uid))
			return true;
	}
	return false;
}

int enc_journal_entries (const struct enc_privd_conf *conf, size_t *ret_n, struct enc_error *err)
{
	uint64_t wiped = (uint64_t)(marked (conf, false) / 1000), when;
	enc_auto (journal) sd_journal *j = NULL;
	int rc;

	*ret_n = 0;
	if (access (RUNTIME, F_OK) < 0)
		return 0;
	if ((rc = sd_journal_open (&j, SD_JOURNAL_RUNTIME_ONLY)) < 0) {
		errno = -rc;
		return enc_fail_sys (err, "journal: " RUNTIME);
	}
	while ((rc = sd_journal_next (j)) > 0)
		if (!wiped || sd_journal_get_realtime_usec (j, &when) < 0 || when < wiped || is_of_person (conf, j))
			(*ret_n)++;
	if (rc < 0) {
		errno = -rc;
		return enc_fail_sys (err, "journal: " RUNTIME);
	}
	return 0;
}

struct late {
	int64_t since;
	size_t n;
};

static int count_late (int dir, const char *name, void *arg, struct enc_error *err)
{
	struct late *late = arg;
	struct stat st;

	(void)err;
	if (fstatat (dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtim.tv_sec * ENC_NS_S + st.st_mtim.tv_nsec > late->since)
		late->n++;
	return 0;
}

int enc_journal_on_disk (const struct enc_privd_conf *conf, size_t *ret_n, struct enc_error *err)
{
	struct late late = { .since = marked (conf, true) };
	int rc;

	*ret_n = 0;
	if (!late.since)
		return 0;
	rc = each_file (PERSISTENT, count_late, &late, err);
	*ret_n = late.n;
	return rc;
}
