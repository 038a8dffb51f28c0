/* Family clean: the residue table, and the measurement. */
#include <errno.h>
#include <linux/capability.h>
#include <string.h>

#include "base/harden.h"
#include "base/log.h"
#include "node-agent/privd/family.h"
#include "node-agent/privd/measure.h"
#include "node-agent/privd/residue.h"

#include "base/enc.h"

static bool cleaner_is_off (const struct enc_privd_conf *conf, const char *name)
{
#ifdef ENC_POINTS
	return enc_strs_has (&conf->no_clean, name);
#else
	(void)conf, (void)name;
	return false;
#endif
}

/* Found before, cleaned, found after. A row that fails leaves at least one. */
static size_t one_row (const struct enc_privd_conf *conf, const struct enc_residue *row, struct enc_json *item, struct enc_error *first)
{
	struct enc_error err = { 0 };
	size_t found = 0, left = 0;
	int rc = row->find (conf, row, &found, &err);

	if (rc == 0 && !cleaner_is_off (conf, row->name))
		rc = row->clean (conf, row, &err);
	if (rc == 0)
		rc = row->find (conf, row, &left, &err);
	if (rc < 0) {
		left = left ? left : 1;
		enc_json_set_str (item, "text", err.text);
	}
	enc_json_set_str (item, "residue", row->name);
	enc_json_set_u64 (item, "found", found);
	enc_json_set_u64 (item, "left", left);
	if (left && !first->code)
		(void)enc_fail (first, ENC_EFAILED, "clean: %s: %zu left%s%.150s", row->name, left, rc < 0 ? ": " : "", rc < 0 ? err.text : "");
	return left;
}

static int task_clean (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	struct enc_json *items = enc_json_set_array (evidence, "items");
	struct enc_error first = { 0 };
	size_t left = 0;

	if (task->doc->clean == ENC_CLEAN_NONE)
		return enc_fail (err, ENC_EINVAL, "clean: the document asks for none");
	enc_json_set_str (evidence, "clean", task->doc->clean_id);
	for (const struct enc_residue *row = enc_residues; row->name; row++)
		left += one_row (conf, row, enc_json_add_object (items), &first);
	enc_json_set_bool (evidence, "passed", left == 0);
	if (left == 0)
		return 0;
	if (err)
		*err = first;
	return -ENC_EFAILED;
}

static int task_measure (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	(void)task;
	return enc_measure (conf, evidence, err);
}

static const int caps[] = { CAP_SYS_ADMIN, CAP_KILL, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_SYS_PTRACE, CAP_NET_ADMIN, CAP_IPC_OWNER, -1 };

static const char *const syscalls[] = { "kill", "umount2", "unlinkat", "unlink", "readlinkat", "getdents64", "openat2", "open_tree", "fsopen", "fsconfig",
	"fsmount", "shmctl", "semctl", "msgctl", "swapoff", "sync", "statfs", "fstatfs", "uname", "faccessat", "faccessat2", "access", "newfstatat", NULL };

const struct enc_family enc_family_clean = {
	.name = "clean",
	.caps = caps,
	.seccomp = ENC_SC_NETWORK,
	.syscalls = syscalls,
	.tasks = { [ENC_JOB_CLEAN] = task_clean, [ENC_JOB_MEASURE] = task_measure },
};
