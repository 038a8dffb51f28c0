#include "node-agent/privd/fscrypt.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <linux/fscrypt.h>

#include "crypto/secmem.h"

#include "base/enctime.h"
#include "base/enc.h"

enum { BUSY_MS = 3000, BUSY_PAUSE_MS = 20 };

int enc_fscrypt_add (int fd, const uint8_t *key, size_t len, uint8_t ret_id[ENC_FSCRYPT_ID], struct enc_error *err)
{
	enc_auto (enc_secmem) uint8_t *bytes = NULL;
	struct fscrypt_add_key_arg *arg;
	int rc;

	if (len < ENC_FSCRYPT_KEY_MIN || len > ENC_FSCRYPT_KEY_MAX)
		return enc_fail (err, ENC_EINVAL, "a volume key of %zu bytes", len);
	if ((rc = enc_secmem_get (sizeof *arg + len, &bytes, err)) < 0)
		return rc;
	arg = (struct fscrypt_add_key_arg *)(void *)bytes;
	arg->key_spec.type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER;
	arg->raw_size = (uint32_t)len;
	memcpy (arg->raw, key, len);
	if (ioctl (fd, FS_IOC_ADD_ENCRYPTION_KEY, arg) < 0)
		return enc_fail_sys (err, "give a key to the file system");
	memcpy (ret_id, arg->key_spec.u.identifier, ENC_FSCRYPT_ID);
	return 0;
}

/* Files stay busy for a moment after their last mount and descriptor went (a killed process, a deferred unmount): asked again until then. */
int enc_fscrypt_remove (int fd, const uint8_t id[ENC_FSCRYPT_ID], struct enc_error *err)
{
	struct fscrypt_remove_key_arg arg = { .key_spec.type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER };
	const struct timespec pause = { .tv_nsec = BUSY_PAUSE_MS * ENC_NS_MS };
	int64_t deadline = enc_deadline_ms (BUSY_MS);

	memcpy (arg.key_spec.u.identifier, id, ENC_FSCRYPT_ID);
	for (;;) {
		arg.removal_status_flags = 0;
		if (ioctl (fd, FS_IOC_REMOVE_ENCRYPTION_KEY_ALL_USERS, &arg) < 0)
			return errno == ENOKEY ? 0 : enc_fail_sys (err, "take a key from the file system");
		if (!(arg.removal_status_flags & FSCRYPT_KEY_REMOVAL_STATUS_FLAG_FILES_BUSY))
			return 0;
		if (enc_passed (deadline))
			return enc_fail (err, ENC_EBUSY, "files of a locked volume are still open");
		(void) nanosleep (&pause, NULL);
	}
}

int enc_fscrypt_status (int fd, const uint8_t id[ENC_FSCRYPT_ID], enum enc_fscrypt_key *ret, struct enc_error *err)
{
	struct fscrypt_get_key_status_arg arg = { .key_spec.type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER };

	memcpy (arg.key_spec.u.identifier, id, ENC_FSCRYPT_ID);
	if (ioctl (fd, FS_IOC_GET_ENCRYPTION_KEY_STATUS, &arg) < 0)
		return enc_fail_sys (err, "ask for a key of the file system");
	*ret = arg.status == FSCRYPT_KEY_STATUS_PRESENT			     ? ENC_FSCRYPT_PRESENT
	       : arg.status == FSCRYPT_KEY_STATUS_INCOMPLETELY_REMOVED ? ENC_FSCRYPT_INCOMPLETE
								     : ENC_FSCRYPT_ABSENT;
	return 0;
}

int enc_fscrypt_protect (int fd, const uint8_t id[ENC_FSCRYPT_ID], struct enc_error *err)
{
	struct fscrypt_policy_v2 policy = { .version = FSCRYPT_POLICY_V2,
		.contents_encryption_mode = FSCRYPT_MODE_AES_256_XTS,
		.filenames_encryption_mode = FSCRYPT_MODE_AES_256_CTS,
		.flags = FSCRYPT_POLICY_FLAGS_PAD_32 };

	memcpy (policy.master_key_identifier, id, ENC_FSCRYPT_ID);
	if (ioctl (fd, FS_IOC_SET_ENCRYPTION_POLICY, &policy) < 0)
		return enc_fail_sys (err, "encrypt a directory");
	return 0;
}

int enc_fscrypt_policy (int fd, uint8_t ret_id[ENC_FSCRYPT_ID], struct enc_error *err)
{
	struct fscrypt_get_policy_ex_arg arg = { .policy_size = sizeof arg.policy };
	const struct fscrypt_policy_v2 *p = &arg.policy.v2;

	if (ioctl (fd, FS_IOC_GET_ENCRYPTION_POLICY_EX, &arg) < 0)
		return errno == ENODATA ? enc_fail (err, ENC_ENOTFOUND, "the directory is not encrypted") : enc_fail_sys (err, "read an encryption policy");
	if (arg.policy.version != FSCRYPT_POLICY_V2 || p->contents_encryption_mode != FSCRYPT_MODE_AES_256_XTS ||
		p->filenames_encryption_mode != FSCRYPT_MODE_AES_256_CTS)
		return enc_fail (err, ENC_EINTEGRITY, "a directory is not encrypted by AES-256-XTS/CTS");
	memcpy (ret_id, p->master_key_identifier, ENC_FSCRYPT_ID);
	return 0;
}
