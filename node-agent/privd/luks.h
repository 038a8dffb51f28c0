/* One LUKS2 device: aes-xts-plain64, 512 bit, sectors of 4 KiB, detached header.
 *
 * The header holds no keyslot: the volume key comes from keyd (or, for scratch, from this process), so there is nothing in a header
 * that could be guessed, and a keyslot in one, with whatever cipher, is somebody else's work and refused. To destroy a volume is to
 * destroy its key. A header lies on no disk of the node: it comes and goes sealed (crypto/volume_header.h) and is in memory while
 * libcryptsetup reads it. The key is handed to the kernel through its keyring, so that no table shows it. */
#pragma once

#include "base/buf.h"
#include "crypto/volume_header.h"

struct enc_luks {
	const char *id;      /* of the volume; its device is /dev/mapper/enclave-ID */
	const char *image;   /* absolute path of the backing file or block device, exactly `size_bytes` long */
	uint64_t size_bytes; /* a multiple of 4096; the file system sees as much and no more */
	uint32_t version;    /* of the header */
};

enum { ENC_LUKS_NAME = 40 };
void enc_luks_name (const char *id, char ret[static ENC_LUKS_NAME]);

/* Make a header for that key, and append it sealed to `ret`. Writes nothing to the backing file.
 * ENC_EINVAL for a size that is no multiple of 4096. */
int enc_luks_format (const struct enc_luks *v, const struct enc_volume_key *key, struct enc_buf *ret, struct enc_error *err) ENC_MUST_USE;

/* Look at a header without opening: ENC_EINTEGRITY with the reason for one that is not whole, not ours, not of that volume and version,
 * or that would do anything else than the above; also for a wrong key. */
int enc_luks_check (const struct enc_luks *v, const struct enc_volume_key *key, const void *sealed, size_t len, struct enc_error *err) ENC_MUST_USE;

/* Check, open, and read back from the kernel what was opened; on any failure nothing stays open. ENC_EBUSY: it is open already.
 * ENC_EINTEGRITY also for a backing file of another size. */
int enc_luks_open (const struct enc_luks *v, const struct enc_volume_key *key, const void *sealed, size_t len, struct enc_error *err) ENC_MUST_USE;

/* ENC_ENOTFOUND when it is not open; ENC_EINTEGRITY when what is open is anything else than asked for. */
int enc_luks_verify (const struct enc_luks *v, struct enc_error *err) ENC_MUST_USE;

/* Close; not open is success. Tried again for three seconds while it is in use, then ENC_EBUSY. The device is gone afterwards. */
int enc_luks_close (const char *id, struct enc_error *err) ENC_MUST_USE;
