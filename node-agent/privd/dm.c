#include "node-agent/privd/dm.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <linux/dm-ioctl.h>

#include "base/cleanup.h"

#include "base/enc.h"

enum { ANSWER = 16384, SECTOR = 512, OPTIONS_MAX = 32 };

union request {
	struct dm_ioctl head;
	char bytes[ANSWER];
};

static int control (unsigned long command, const char *name, unsigned flags, union request *r)
{
	enc_auto_close int fd = open ("/dev/mapper/control", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -1;
	r->head.version[0] = DM_VERSION_MAJOR;
	r->head.data_size = sizeof *r;
	r->head.data_start = sizeof r->head;
	r->head.flags = flags;
	(void)snprintf (r->head.name, sizeof r->head.name, "%s", name);
	return ioctl (fd, command, r);
}

bool enc_dm_has_crypt (void)
{
	union request r = { .bytes = { 0 } };

	return control (DM_GET_TARGET_VERSION, "crypt", 0, &r) == 0;
}

bool enc_dm_is (const char *name)
{
	union request r = { .bytes = { 0 } };

	return control (DM_DEV_STATUS, name, 0, &r) == 0;
}

/* The key's place: ":BYTES:TYPE:NAME" of a kernel key, or the key itself in hex. */
static bool parse_key (const char *text, struct enc_dm_crypt *t)
{
	unsigned bytes = 0;

	t->key_in_keyring = text[0] == ':';
	if (t->key_in_keyring) {
		if (sscanf (text, ":%4u:", &bytes) != 1)
			return false;
		t->key_bits = bytes * 8;
		return true;
	}
	t->key_bits = strspn (text, "0123456789abcdefABCDEF") == strlen (text) ? (unsigned)strlen (text) * 4 : 0;
	return t->key_bits > 0 || strcmp (text, "-") == 0;
}

static void parse_option (const char *text, struct enc_dm_crypt *t)
{
	static const char *const harmless[] = { "same_cpu_crypt", "submit_from_crypt_cpus", "no_read_workqueue", "no_write_workqueue" };

	if (sscanf (text, "sector_size:%5u", &t->sector_size) == 1)
		return;
	if (strcmp (text, "allow_discards") == 0) {
		t->discards = true;
		return;
	}
	for (size_t i = 0; i < ENC_ARRAY_LEN (harmless); i++)
		if (strcmp (text, harmless[i]) == 0)
			return;
	t->unknown = true;
}

static int no_line (struct enc_error *err)
{
	return enc_fail (err, ENC_EINTEGRITY, "the device mapper's table is not one of dm-crypt");
}

int enc_dm_crypt_parse (const char *params, struct enc_dm_crypt *ret, struct enc_error *err)
{
	struct enc_dm_crypt t = { .sector_size = SECTOR };
	char key[512], device[64], option[64];
	unsigned options = 0, found = 0;
	unsigned long long iv, start;
	int at = 0, more = 0, n = sscanf (params, "%63s %511s %llu %63s %llu%n", t.cipher, key, &iv, device, &start, &at);
	bool good = n == 5 && parse_key (key, &t);

	explicit_bzero (key, sizeof key);
	if (!good)
		return no_line (err);
	t.iv_offset = iv;
	t.start = start;
	if (sscanf (params + at, "%u%n", &options, &more) == 1)
		at += more;
	while (found < OPTIONS_MAX && sscanf (params + at, "%63s%n", option, &more) == 1) {
		parse_option (option, &t);
		at += more;
		found++;
	}
	if (found != options)
		return no_line (err);
	t.size_bytes = ret->size_bytes;
	*ret = t;
	return 0;
}

int enc_dm_crypt_check (const struct enc_dm_crypt *t, uint64_t size_bytes, struct enc_error *err)
{
	if (strcmp (t->cipher, "aes-xts-plain64") != 0)
		return enc_fail (err, ENC_EINTEGRITY, "the kernel encrypts with %s, not aes-xts-plain64", t->cipher);
	if (t->key_bits != 512)
		return enc_fail (err, ENC_EINTEGRITY, "the kernel's key has %u bits, not 512", t->key_bits);
	if (t->sector_size != 4096)
		return enc_fail (err, ENC_EINTEGRITY, "the kernel encrypts sectors of %u bytes, not 4096", t->sector_size);
	if (t->iv_offset != 0 || t->start != 0 || t->size_bytes != size_bytes)
		return enc_fail (err, ENC_EINTEGRITY, "the kernel's device is not the whole volume and no more");
	if (t->discards || t->unknown)
		return enc_fail (err, ENC_EINTEGRITY, "the kernel's device has options that were not asked for");
	return 0;
}

int enc_dm_crypt_read (const char *name, struct enc_dm_crypt *ret, struct enc_error *err)
{
	union request r = { .bytes = { 0 } };
	int rc;

	/* A table without a kernel key would carry the key here: the answer is wiped by the kernel on its side, and by us. */
	if (control (DM_TABLE_STATUS, name, DM_STATUS_TABLE_FLAG | DM_SECURE_DATA_FLAG, &r) < 0)
		return errno == ENXIO || errno == ENOENT || errno == ENODEV ? enc_fail (err, ENC_ENOTFOUND, "no device %s", name)
									     : enc_fail_sys (err, "read the table of %s", name);
	const struct dm_target_spec *spec = (const struct dm_target_spec *)(const void *)(r.bytes + r.head.data_start);
	if (r.head.target_count != 1 || r.head.flags & DM_BUFFER_FULL_FLAG || strcmp (spec->target_type, "crypt") != 0 || spec->sector_start != 0)
		rc = no_line (err);
	else {
		r.bytes[sizeof r.bytes - 1] = '\0';
		rc = enc_dm_crypt_parse ((const char *)(spec + 1), ret, err);
		ret->size_bytes = spec->length * SECTOR;
	}
	explicit_bzero (&r, sizeof r);
	return rc;
}
