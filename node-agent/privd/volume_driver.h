/* Drivers of volumes: how one is encrypted, and where its directories then are. */
#pragma once

#include "node-agent/privd/family.h"

struct enc_volume_driver {
	const char *name;    /* as documents, records and `show` have it */
	const char *cipher;
	unsigned key_bits;
	/* Can this node open volumes of that kind with it? If not, `err` says why. */
	bool (*can) (uint8_t kind, struct enc_error *err);
	/* Open the volume, making it if it is new, and return its top directory (the caller's to close) or a negative code. What is open
	 * already stays. The cipher has been read back from the kernel before anything is written. */
	int (*open) (const struct enc_privd_conf *conf, const struct enc_task *task, const struct enc_doc_volume *v, struct enc_error *err);
	/* Close it and forget its key; scratch is removed. Nothing is mounted from it any more. Not open is success. */
	int (*close) (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, struct enc_error *err);
};

extern const struct enc_volume_driver enc_volume_fscrypt, enc_volume_luks;

/* Open the volume's directory on the node's disk or the shared file system, making it (root's, 0711) if it is not there. */
int enc_volume_directory (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, struct enc_error *err) ENC_MUST_USE;

/* Remove a scratch volume's directory: one whose key is gone (a reboot, a crash) is worth nothing, and only ciphertext is removed. */
int enc_volume_renew (const struct enc_privd_conf *conf, const struct enc_doc_volume *v, struct enc_error *err) ENC_MUST_USE;

/* Unmount and close what the scratch directory `id` (below conf->disk) still has open through driver luks; nothing is success. */
int enc_volume_luks_drop (const struct enc_privd_conf *conf, const char *id, struct enc_error *err) ENC_MUST_USE;
