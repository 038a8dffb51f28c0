/* What the kernel's device mapper says of a crypt device. Read from the kernel after opening and before mounting, because what was
 * asked for is not what counts (linux Documentation/admin-guide/device-mapper/dm-crypt.rst, linux/dm-ioctl.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct enc_dm_crypt {
	char cipher[64];      /* "aes-xts-plain64" */
	unsigned key_bits;    /* 512: two AES-256 keys */
	bool key_in_keyring;  /* the table names a kernel key, and does not hold it */
	uint64_t iv_offset, start, size_bytes;
	unsigned sector_size; /* bytes */
	bool discards;
	bool unknown;         /* an option that we do not know */
};

/* Has this node's kernel dm-crypt (as a module that loads on demand, too)? */
bool enc_dm_has_crypt (void);

/* Parse the parameters of a crypt target; `size_bytes` is left alone. ENC_EINTEGRITY if it is no such line. */
int enc_dm_crypt_parse (const char *params, struct enc_dm_crypt *ret, struct enc_error *err) ENC_MUST_USE;

/* Exactly AES-256-XTS, 512 bits, sectors of 4 KiB, from the first byte on, the whole volume and no more, no discards (they would
 * show outside which blocks are free, and give back room that was set aside). ENC_EINTEGRITY names the first that differs. */
int enc_dm_crypt_check (const struct enc_dm_crypt *t, uint64_t size_bytes, struct enc_error *err) ENC_MUST_USE;

/* Read the live table of device `name`. ENC_ENOTFOUND: no such device, or no device mapper. ENC_EINTEGRITY: not one crypt target. */
int enc_dm_crypt_read (const char *name, struct enc_dm_crypt *ret, struct enc_error *err) ENC_MUST_USE;

/* Is there a device of that name, with a table or without one? */
bool enc_dm_is (const char *name);
