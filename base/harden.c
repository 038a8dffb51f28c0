/* Drop, then prove. The proof reads the kernel's view back, because a library call that failed quietly looks like success. */
#include <cap-ng.h>
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "base/harden.h"
#include "base/enc.h"

int enc_harden_process (struct enc_error *err)
{
	struct rlimit none = { 0, 0 };
	if (setrlimit (RLIMIT_CORE, &none) < 0)
		return enc_fail_sys (err, "no core files");
	if (prctl (PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return enc_fail_sys (err, "not dumpable");
	if (prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return enc_fail_sys (err, "no new privileges");
	(void) umask (077);
	return 0;
}

static uint64_t mask_of (const int *caps)
{
	uint64_t mask = 0;
	for (; caps && *caps >= 0; caps++)
		mask |= UINT64_C (1) << *caps;
	return mask;
}

static int read_caps (struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	return (int) syscall (SYS_capget, &head, data);
}

static int check_ids (uid_t uid, gid_t gid, struct enc_error *err)
{
	uid_t r, e, s;
	gid_t rg, eg, sg;
	gid_t groups[1];
	if (getresuid (&r, &e, &s) < 0 || getresgid (&rg, &eg, &sg) < 0)
		return enc_fail_sys (err, "read ids");
	if (r != uid || e != uid || s != uid || rg != gid || eg != gid || sg != gid)
		return enc_fail (err, ENC_EDENIED, "ids are not those asked for");
	int n = getgroups (1, groups);
	if (n > 1 || (n < 0 && errno == EINVAL) || (n == 1 && groups[0] != gid))
		return enc_fail (err, ENC_EDENIED, "supplementary groups are left");
	return 0;
}

static int check_caps (uint64_t want, struct enc_error *err)
{
	struct __user_cap_data_struct data[2];
	if (read_caps (data) < 0)
		return enc_fail_sys (err, "read capabilities");
	uint64_t effective = data[0].effective | (uint64_t) data[1].effective << 32;
	uint64_t permitted = data[0].permitted | (uint64_t) data[1].permitted << 32;
	uint64_t inheritable = data[0].inheritable | (uint64_t) data[1].inheritable << 32;
	if (effective != want || permitted != want || inheritable != 0)
		return enc_fail (err, ENC_EDENIED, "capabilities are not those asked for (effective %llx, permitted %llx, inheritable %llx)",
				 (unsigned long long) effective, (unsigned long long) permitted, (unsigned long long) inheritable);
	for (int cap = 0; cap < 64; cap++) {
		int bounding = prctl (PR_CAPBSET_READ, cap, 0, 0, 0);
		int ambient = prctl (PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0);
		bool wanted = want >> cap & 1;
		if ((bounding == 1 && !wanted) || ambient == 1)
			return enc_fail (err, ENC_EDENIED, "capability %d is still in the %s set", cap, ambient == 1 ? "ambient" : "bounding");
	}
	return 0;
}

int enc_caps_none (struct enc_error *err)
{
	struct __user_cap_data_struct data[2];
	if (read_caps (data) < 0)
		return enc_fail_sys (err, "read capabilities");
	if (data[0].effective || data[1].effective || data[0].permitted || data[1].permitted)
		return enc_fail (err, ENC_EDENIED, "this process holds capabilities that it must not have");
	return 0;
}

int enc_drop_check (uid_t uid, gid_t gid, const int *caps, struct enc_error *err)
{
	int rc = check_ids (uid, gid, err);
	if (rc == 0)
		rc = check_caps (mask_of (caps), err);
	if (rc < 0)
		return rc;
	/* A way back must be refused, not just be unused. */
	if (uid != 0 && (setuid (0) == 0 || setresuid (0, 0, 0) == 0 || seteuid (0) == 0))
		return enc_fail (err, ENC_EDENIED, "root could be taken back");
	return 0;
}

static int drop_groups (uid_t uid, gid_t gid, struct enc_error *err)
{
	if (geteuid () != 0)
		return 0;
	if (setgroups (0, NULL) < 0)
		return enc_fail_sys (err, "drop the supplementary groups");
	if (setresgid (gid, gid, gid) < 0)
		return enc_fail_sys (err, "become gid %u", (unsigned) gid);
	if (uid == 0)
		return 0;
	/* Keep the permitted set over the change of uid; it is cut down right after. */
	if (prctl (PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setresuid (uid, uid, uid) < 0)
		return enc_fail_sys (err, "become uid %u", (unsigned) uid);
	(void) prctl (PR_SET_KEEPCAPS, 0, 0, 0, 0);
	return 0;
}

/* The bounding set needs CAP_SETPCAP, which root still has before the change of uid. */
static int drop_bounding (uint64_t want, struct enc_error *err)
{
	for (int cap = 0; cap < 64; cap++) {
		int there = prctl (PR_CAPBSET_READ, cap, 0, 0, 0);
		if (there != 1 || want >> cap & 1)
			continue;
		if (prctl (PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return enc_fail_sys (err, "drop capability %d", cap);
	}
	(void) prctl (PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return 0;
}

static int keep_caps (const int *caps, struct enc_error *err)
{
	capng_clear (CAPNG_SELECT_CAPS);
	for (; caps && *caps >= 0; caps++)
		if (capng_update (CAPNG_ADD, (capng_type_t) (CAPNG_EFFECTIVE | CAPNG_PERMITTED), (unsigned) *caps) < 0)
			return enc_fail (err, ENC_EFAILED, "capability %d is unknown", *caps);
	return capng_apply (CAPNG_SELECT_CAPS) < 0 ? enc_fail (err, ENC_EDENIED, "the capabilities could not be set") : 0;
}

int enc_drop_to (uid_t uid, gid_t gid, const int *caps, struct enc_error *err)
{
	int rc = geteuid () == 0 ? drop_bounding (mask_of (caps), err) : 0;
	if (rc == 0)
		rc = drop_groups (uid, gid, err);
	if (rc == 0)
		rc = keep_caps (caps, err);
	/* setresuid() made the process dumpable by its settings file's rule: say it again. */
	if (rc == 0 && prctl (PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		rc = enc_fail_sys (err, "not dumpable");
	return rc < 0 ? rc : enc_drop_check (uid, gid, caps, err);
}
