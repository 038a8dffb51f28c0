#include "node-agent/privd/site.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/child.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "node-agent/privd/bus.h"
#include "node-agent/privd/mounts.h"
#include "node-agent/privd/procs.h"

#include "base/enc.h"

#define DROP_IN "50-enclave.conf"
#define UNMOUNTED "unmounted"

enum { STOP_MS = 20000, START_MS = 30000, KILL_MS = 5000, SITE_MAX = 65536 };

static const struct enc_field fields[] = {
	ENC_FIELD (struct enc_site, units, "units", ENC_T_STRS, .max = 64, .dflt = "[]"),
	ENC_FIELD (struct enc_site, leftovers, "leftovers", ENC_T_STRS, .max = 64, .dflt = "[]"),
	ENC_FIELD (struct enc_site, unmount, "unmount", ENC_T_PATHS, .max = 64, .dflt = "[]"),
	ENC_FIELD (struct enc_site, hide, "hide", ENC_T_PATHS, .max = 64, .dflt = "[]"),
	ENC_FIELD_END,
};

void enc_site_done (struct enc_site *site)
{
	enc_fields_done (fields, site);
}

static bool unit_name_ok (const char *s)
{
	return s[0] && strspn (s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.@\\") == strlen (s) && strlen (s) < 200;
}

int enc_site_load (const struct enc_privd_conf *conf, struct enc_site *ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (SITE_MAX);
	struct enc_site site = { 0 };
	int rc;

	memset (ret, 0, sizeof *ret);
	if (access (conf->units, F_OK) < 0 && errno == ENOENT)
		return 0;
	if ((rc = enc_file_read_trusted (conf->units, SITE_MAX, &text, err)) < 0)
		return rc;
	if ((rc = enc_json_decode_text (fields, (const char *)text.data, text.len, SITE_MAX, &site, err)) < 0)
		return enc_wrap (err, rc, "%s", conf->units);
	for (size_t i = 0; i < site.units.n; i++) {
		if (unit_name_ok (site.units.v[i]))
			continue;
		enc_site_done (&site);
		return enc_fail (err, ENC_EINVAL, "%s: /units/%zu is no unit", conf->units, i);
	}
	*ret = site;
	return 0;
}

static int marker_path (const struct enc_privd_conf *conf, char *ret, size_t size, struct enc_error *err)
{
	return snprintf (ret, size, "%s/units-down", conf->run_dir) < (int)size ? 0 : enc_fail (err, ENC_ELIMIT, "run_dir is too long");
}

/* One drop-in; `ret_new` becomes true if it was not there. */
static int drop_in (const char *unit, const char *marker, bool *ret_new, struct enc_error *err)
{
	enc_auto_free char *folder = enc_strf ("/run/systemd/system/%s.d", unit);
	enc_auto_free char *path = enc_strf ("/run/systemd/system/%s.d/" DROP_IN, unit);
	enc_auto_free char *text = enc_strf ("# While this node is held by an enclave.\n[Unit]\nConditionPathExists=!%s\n", marker);
	struct enc_file_attr attr = ENC_FILE_ATTR (0644);

	if (!folder || !path || !text)
		return enc_fail (err, ENC_ENOMEM, "units: no memory");
	if (access (path, F_OK) == 0)
		return 0;
	if ((mkdir ("/run/systemd/system", 0755) < 0 && errno != EEXIST) || (mkdir (folder, 0755) < 0 && errno != EEXIST))
		return enc_fail_sys (err, "%s", folder);
	*ret_new = true;
	return enc_file_write (path, text, strlen (text), &attr, err);
}

static int hold (const struct enc_privd_conf *conf, const struct enc_site *site, struct enc_error *err)
{
	struct enc_file_attr attr = ENC_FILE_ATTR (0644);
	bool changed = false;
	char marker[256];
	int rc = marker_path (conf, marker, sizeof marker, err);

	if (rc < 0 || (rc = enc_file_write (marker, "", 0, &attr, err)) < 0)
		return rc;
	for (size_t i = 0; i < site->units.n; i++)
		if ((rc = drop_in (site->units.v[i], marker, &changed, err)) < 0)
			return rc;
	return changed ? enc_bus_reload (err) : 0;
}

int enc_site_hold (const struct enc_privd_conf *conf, struct enc_error *err)
{
	struct enc_site site;
	int rc = enc_site_load (conf, &site, err);

	if (rc < 0)
		return rc;
	rc = hold (conf, &site, err);
	/* What this boot started before us, for it has no condition of its own, ends now. */
	for (size_t i = 0; rc == 0 && i < site.units.n; i++)
		rc = enc_bus_unit (ENC_UNIT_STOP, site.units.v[i], STOP_MS, err);
	enc_site_done (&site);
	return rc;
}

static bool is_leftover (const struct enc_proc *p, const void *arg)
{
	const struct enc_site *site = arg;

	return enc_strs_has (&site->leftovers, p->comm);
}

static int hide_file (const char *path, struct enc_error *err)
{
	struct stat st;

	if (enc_mount_is (path) || (stat (path, &st) < 0 && errno == ENOENT))
		return 0;
	if (mount ("/dev/null", path, NULL, MS_BIND, NULL) < 0)
		return enc_fail_sys (err, "hide %s", path);
	return 0;
}

/* Notes what it unmounts, before it does: not every node has every mount of a list that the whole site shares, and the way back mounts
 * what was there. */
static int unmount_all (const struct enc_privd_conf *conf, const struct enc_site *site, struct enc_error *err)
{
	enc_auto_free char *notes = enc_strf ("%s/" UNMOUNTED, conf->run_dir);
	enc_auto_close int fd = notes ? open (notes, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644) : -1;
	int rc = 0;

	if (fd < 0)
		return notes ? enc_fail_sys (err, "%s", notes) : enc_fail (err, ENC_ENOMEM, "unmount: no memory");
	for (size_t i = 0; rc == 0 && i < site->unmount.n; i++) {
		const char *target = site->unmount.v[i];
		enc_auto_free char *line = enc_strf ("%s\n", target);

		if (!enc_mount_is (target))
			continue;
		rc = line ? enc_write_all (fd, line, strlen (line), err) : enc_fail (err, ENC_ENOMEM, "unmount: no memory");
		if (rc == 0)
			rc = enc_mount_drop (target, err);
	}
	return rc;
}

static int down (const struct enc_privd_conf *conf, const struct enc_site *site, struct enc_error *err)
{
	int rc = hold (conf, site, err);

	for (size_t i = 0; rc == 0 && i < site->units.n; i++)
		rc = enc_bus_unit (ENC_UNIT_STOP, site->units.v[i], STOP_MS, err);
	if (rc == 0 && site->leftovers.n > 0)
		rc = enc_procs_kill (is_leftover, site, KILL_MS, NULL, err);
	for (size_t i = 0; rc == 0 && i < site->hide.n; i++)
		rc = hide_file (site->hide.v[i], err);
	return rc == 0 ? unmount_all (conf, site, err) : rc;
}

int enc_site_down (const struct enc_privd_conf *conf, struct enc_error *err)
{
	struct enc_site site;
	int rc = enc_site_load (conf, &site, err);

	if (rc < 0)
		return rc;
	rc = down (conf, &site, err);
	enc_site_done (&site);
	return enc_wrap (err, rc, "take the site's units down");
}

static bool in_fstab (const char *target)
{
	FILE *table = setmntent ("/etc/fstab", "re");
	const struct mntent *entry;
	bool found = false;

	while (table && !found && (entry = getmntent (table)))
		found = strcmp (entry->mnt_dir, target) == 0;
	if (table)
		endmntent (table);
	return found;
}

static int mount_again (const char *target, struct enc_error *err)
{
	enc_auto (enc_cmd) struct enc_cmd *cmd = NULL;

	if (enc_mount_is (target))
		return 0;
	/* mount(8) reads fstab, which is where the site says what belongs there. */
	cmd = enc_cmd_new ("/usr/bin/mount");
	enc_cmd_arg (cmd, target);
	return enc_error_next (err, enc_cmd_run (cmd, NULL, err), "mount it, or take it out of /unmount of units.json");
}

static int noted (const char *notes, struct enc_strs *ret, struct enc_error *err)
{
	enc_auto_fclose FILE *file = fopen (notes, "re");
	enc_auto_free char *line = NULL;
	size_t room = 0;
	int rc = file || errno == ENOENT ? 0 : enc_fail_sys (err, "%s", notes);

	while (rc == 0 && file && getline (&line, &room, file) > 0) {
		line[strcspn (line, "\n")] = '\0';
		rc = enc_strs_add (ret, line, err);
	}
	return rc;
}

/* What was there before; and what fstab says, for a boot in between may have found the file system's server away. */
static int mount_all_again (const struct enc_privd_conf *conf, const struct enc_site *site, struct enc_error *err)
{
	enc_auto_free char *notes = enc_strf ("%s/" UNMOUNTED, conf->run_dir);
	enc_auto_done (enc_strs_done) struct enc_strs was = { 0 };
	int rc = notes ? noted (notes, &was, err) : enc_fail (err, ENC_ENOMEM, "mount: no memory");

	for (size_t i = 0; rc == 0 && i < site->unmount.n; i++)
		if (enc_strs_has (&was, site->unmount.v[i]) || in_fstab (site->unmount.v[i]))
			rc = mount_again (site->unmount.v[i], err);
	if (rc == 0 && unlink (notes) < 0 && errno != ENOENT)
		rc = enc_fail_sys (err, "%s", notes);
	return rc;
}

/* A start that a condition skips counts as done with the service manager, but not here. */
static int start_again (const char *unit, struct enc_error *err)
{
	char state[32];
	int rc;

	enc_bus_forgive (unit);
	rc = enc_bus_unit (ENC_UNIT_START, unit, START_MS, err);
	if (rc < 0 || (rc = enc_bus_unit_state (unit, state, sizeof state, err)) < 0)
		return rc;
	if (strcmp (state, "active") != 0)
		return enc_error_next (err, enc_fail (err, ENC_EFAILED, "%s is %s after its start", unit, state), "systemctl status %s", unit);
	return 0;
}

/* The markers go before the starts: the site's units refuse to start while one is there. A node that reboots in between comes up in its
 * pool, where its grant says it belongs. */
static int unhold (const struct enc_privd_conf *conf, struct enc_error *err)
{
	enc_auto_free char *held = enc_strf ("%s/held", conf->state_dir);
	char marker[256];
	int rc = held ? marker_path (conf, marker, sizeof marker, err) : enc_fail (err, ENC_ENOMEM, "units: no memory");

	if (rc < 0)
		return rc;
	if ((unlink (marker) < 0 && errno != ENOENT) || (unlink (held) < 0 && errno != ENOENT))
		return enc_fail_sys (err, "forget that this node is held");
	return 0;
}

static int up (const struct enc_privd_conf *conf, const struct enc_site *site, struct enc_error *err)
{
	int rc = mount_all_again (conf, site, err);

	for (size_t i = 0; rc == 0 && i < site->hide.n; i++)
		rc = enc_mount_drop (site->hide.v[i], err);
	if (rc == 0)
		rc = unhold (conf, err);
	for (size_t i = site->units.n; rc == 0 && i-- > 0;)
		rc = start_again (site->units.v[i], err);
	return rc;
}

int enc_site_up (const struct enc_privd_conf *conf, struct enc_error *err)
{
	struct enc_site site;
	int rc = enc_site_load (conf, &site, err);

	if (rc < 0)
		return rc;
	rc = up (conf, &site, err);
	enc_site_done (&site);
	return enc_wrap (err, rc, "bring the site's units back");
}
