/* Family unit: the site's units, the enclave's roles, its members' accounts, and the door. */
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/harden.h"
#include "node-agent/privd/accounts.h"
#include "node-agent/privd/family.h"
#include "node-agent/privd/journal.h"
#include "node-agent/privd/roles.h"
#include "node-agent/privd/site.h"

#include "base/enc.h"

static int units_down (const struct enc_privd_conf *conf, const struct enc_doc *doc, struct enc_error *err)
{
	struct enc_error of_journal = { 0 };
	int journal = enc_journal_hold (conf, &of_journal);
	int rc = doc ? enc_site_down (conf, err) : enc_site_hold (conf, err);

	/* At the start of a boot the fence waits behind this, and roles ask again. */
	if (rc < 0 || journal == 0 || !doc)
		return rc;
	if (err)
		*err = of_journal;
	return journal;
}

static int task_units (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	bool site = task->doc && task->doc->units == ENC_UNITS_SITE && !(task->flags & ENC_TASK_CLOSE);
	int rc = site ? enc_journal_release (conf, err) : units_down (conf, task->doc, err);

	if (rc == 0 && site)
		rc = enc_site_up (conf, err);
	if (rc == 0)
		enc_json_set_str (evidence, "units", site ? "site" : "down");
	return rc;
}

static int task_accounts (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	enc_auto_done (enc_members_done) struct enc_members members = { 0 };
	size_t ended = 0;
	int rc = enc_members_get (task->extra, &members, err);

	if (rc < 0)
		return rc;
	if ((rc = enc_accounts_apply (conf, task->doc, &members, &ended, err)) == 0)
		enc_json_set_u64 (evidence, "members_ended", ended);
	return rc;
}

static int task_roles (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	uint8_t want = task->flags & ENC_TASK_CLOSE ? 0 : task->doc->roles;
	int rc;

	if (want != 0 && task->extra.left > 0 && (rc = task_accounts (conf, task, evidence, err)) < 0)
		return rc;
	if ((rc = enc_roles_apply (conf, task, want, err)) < 0)
		return rc;
	if (want == 0 && (rc = enc_accounts_remove (conf, err)) < 0)
		return rc;
	enc_json_set_u64 (evidence, "roles", want);
	return 0;
}

/* The door is what privd tells plugins. This file is for people; the ending of sessions is what it does. */
static int task_door (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	struct enc_file_attr attr = ENC_FILE_ATTR (0644);
	bool open = task->flags & ENC_TASK_DOOR;
	int rc;

	(void)conf;
	if (open) {
		if ((rc = enc_file_write ("/run/enclave/door", "open\n", 5, &attr, err)) < 0)
			return rc;
	} else {
		if (unlink ("/run/enclave/door") < 0 && errno != ENOENT)
			return enc_fail_sys (err, "/run/enclave/door");
		if ((rc = enc_accounts_end_sessions (err)) < 0)
			return rc;
	}
	enc_json_set_str (evidence, "door", open ? "open" : "shut");
	return 0;
}

static int task_session (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	struct enc_view view = task->extra;
	uint32_t logins[ENC_RESTS_MAX];
	size_t n = 0;

	(void)conf, (void)evidence;
	if (task->flags & ENC_TASK_REST) {
		while (n < ENC_RESTS_MAX && view.left > 0)
			logins[n++] = enc_view_u32 (&view);
		return enc_view_end (&view, err) < 0 ? -ENC_EINVAL : enc_accounts_end_rest (logins, n, err);
	}
	uint32_t pid = enc_view_u32 (&view);
	uint64_t start = enc_view_u64 (&view);
	int rc = enc_view_end (&view, err);

	return rc < 0 ? rc : enc_accounts_end_session ((pid_t)pid, start, err);
}

static const int caps[] = { CAP_SYS_ADMIN, CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_KILL, CAP_SYS_PTRACE, -1 };

static const char *const syscalls[] = { "mount", "umount2", "mkdir", "mkdirat", "chown", "fchown", "fchownat", "fchmod", "fchmodat",
	"unlinkat", "unlink", "renameat", "renameat2", "rename", "readlinkat", "readlink", "getdents64", "kill", "access", "faccessat", "faccessat2", NULL };

const struct enc_family enc_family_unit = {
	.name = "unit",
	.caps = caps,
	.seccomp = ENC_SC_CHILDREN,
	.syscalls = syscalls,
	.secmem = 262144,
	.tasks = {
		[ENC_JOB_UNITS] = task_units,
		[ENC_JOB_ROLES] = task_roles,
		[ENC_JOB_ACCOUNTS] = task_accounts,
		[ENC_JOB_DOOR] = task_door,
		[ENC_JOB_SESSION] = task_session,
	},
};
