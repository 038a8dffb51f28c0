#include "node-agent/privd/luks.h"

#include <errno.h>
#include <fcntl.h>
#include <libcryptsetup.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <linux/fs.h>

#include "base/enctime.h"
#include "base/file.h"
#include "base/point.h"
#include "node-agent/privd/dm.h"

#include "base/enc.h"

enum { SECTOR = 4096, METADATA = 16384, SLOTS_AREA = 4096, BUSY_MS = 3000, ITERATIONS = 1000,
	HEADER = 16 * 1024 * 1024, /* room for what a foreign header may speak of, so that it is refused for that; never written */
};

ENC_DEFINE_AUTO (crypt_free, struct crypt_device, crypt_free);

void enc_luks_name (const char *id, char ret[static ENC_LUKS_NAME])
{
	(void)snprintf (ret, ENC_LUKS_NAME, "enclave-%.26s", id);
}

/* The library's own words may hold paths of ours and are in another style: rc says enough. */
static void be_silent (int level ENC_UNUSED, const char *text ENC_UNUSED, void *arg ENC_UNUSED)
{
}

/* A header in memory that the library opens like a file. */
static int memory_file (const struct enc_buf *meta, char path[static 32], struct enc_error *err)
{
	enc_auto_close int fd = memfd_create ("volume-header", MFD_CLOEXEC);
	int rc;

	if (fd < 0 || ftruncate (fd, HEADER) < 0)
		return enc_fail_sys (err, "memory for a volume header");
	if (meta && (rc = enc_write_all (fd, meta->data, meta->len, err)) < 0)
		return rc;
	(void)snprintf (path, 32, "/proc/self/fd/%d", fd);
	return ENC_TAKE_FD (fd);
}

static int begin (const char *header, const struct enc_luks *v, struct crypt_device **ret, struct enc_error *err)
{
	crypt_set_log_callback (NULL, be_silent, NULL);
	int rc = crypt_init_data_device (ret, header, v->image);

	if (rc < 0) {
		errno = -rc;
		return enc_fail_sys (err, "prepare an encrypted device");
	}
	/* Nobody else sees the memory that the header is in. */
	(void)crypt_metadata_locking (*ret, 0);
	return 0;
}

/* Backing files that are too short would give errors in the middle of a job; longer ones hold something that is not the volume's. */
static int check_image (const struct enc_luks *v, struct enc_error *err)
{
	enc_auto_close int fd = open (v->image, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	uint64_t size = 0;
	struct stat st;

	if (v->size_bytes == 0 || v->size_bytes % SECTOR)
		return enc_fail (err, ENC_EINVAL, "a volume of %llu bytes: not a multiple of %d", (unsigned long long)v->size_bytes, SECTOR);
	if (fd < 0 || fstat (fd, &st) < 0)
		return enc_fail_sys (err, "backing file of a volume");
	if (S_ISREG (st.st_mode))
		size = (uint64_t)st.st_size;
	else if (!S_ISBLK (st.st_mode) || ioctl (fd, BLKGETSIZE64, &size) < 0)
		return enc_fail (err, ENC_EINTEGRITY, "the volume's backing is neither a file nor a device");
	if (size != v->size_bytes)
		return enc_fail (err, ENC_EINTEGRITY, "the volume's backing has %llu bytes, not %llu", (unsigned long long)size,
				 (unsigned long long)v->size_bytes);
	return 0;
}

static struct enc_volume_header_id header_id (const struct enc_luks *v)
{
	return (struct enc_volume_header_id){ v->id, v->size_bytes, v->version };
}

static int check_key (const struct enc_volume_key *key, struct enc_error *err)
{
	return key->len == 64 ? 0 : enc_fail (err, ENC_EINVAL, "a volume key of %zu bytes, not 64", key->len);
}

int enc_luks_format (const struct enc_luks *v, const struct enc_volume_key *key, struct enc_buf *ret, struct enc_error *err)
{
	/* The digest only tells a wrong key from the right one; the key is random, so that a costly one buys nothing. */
	const struct crypt_pbkdf_type cheap = { .type = CRYPT_KDF_PBKDF2, .hash = "sha256", .iterations = ITERATIONS,
		.flags = CRYPT_PBKDF_NO_BENCHMARK };
	struct crypt_params_luks2 params = { .pbkdf = &cheap, .sector_size = SECTOR, .data_device = v->image };
	const struct enc_volume_header_id id = header_id (v);
	enc_auto_free uint8_t *meta = malloc (2 * METADATA);
	enc_auto (crypt_free) struct crypt_device *cd = NULL;
	enc_auto_close int fd = -1;
	char path[32];
	int rc;

	if (!meta)
		return enc_fail (err, ENC_ENOMEM, "volume: no memory");
	if ((rc = check_key (key, err)) < 0 || (rc = check_image (v, err)) < 0)
		return rc;
	if ((fd = memory_file (NULL, path, err)) < 0)
		return fd;
	if ((rc = begin (path, v, &cd, err)) < 0)
		return rc;
	if ((rc = crypt_set_metadata_size (cd, METADATA, SLOTS_AREA)) < 0 ||
		(rc = crypt_format (cd, CRYPT_LUKS2, "aes", "xts-plain64", NULL, (const char *)key->data, key->len, &params)) < 0) {
		errno = -rc;
		return enc_fail_sys (err, "make a volume header");
	}
	if (pread (fd, meta, 2 * METADATA, 0) != 2 * METADATA)
		return enc_fail_sys (err, "read a volume header");
	return enc_volume_header_seal (&id, key, meta, 2 * METADATA, ret, err);
}

static int wrong (const char *what, struct enc_error *err)
{
	return enc_fail (err, ENC_EINTEGRITY, "the volume header %s", what);
}

static int check_params (struct crypt_device *cd, struct enc_error *err)
{
	struct crypt_params_integrity integrity = { 0 };
	struct crypt_params_reencrypt again = { 0 };
	const char *type = crypt_get_type (cd), *cipher = crypt_get_cipher (cd), *mode = crypt_get_cipher_mode (cd);

	if (!type || strcmp (type, CRYPT_LUKS2) != 0)
		return wrong ("is not LUKS2", err);
	if (crypt_reencrypt_status (cd, &again) != CRYPT_REENCRYPT_NONE)
		return wrong ("asks for a reencryption", err);
	if (!cipher || !mode || strcmp (cipher, "aes") != 0 || strcmp (mode, "xts-plain64") != 0)
		return enc_fail (err, ENC_EINTEGRITY, "the volume header says cipher %.20s-%.20s, not aes-xts-plain64", cipher ? cipher : "none",
				 mode ? mode : "none");
	if (crypt_get_sector_size (cd) != SECTOR)
		return wrong ("has other sectors than 4096 bytes", err);
	if (crypt_get_data_offset (cd) != 0 || crypt_get_iv_offset (cd) != 0)
		return wrong ("does not begin at the first byte", err);
	if (crypt_get_integrity_info (cd, &integrity) == 0 && integrity.integrity)
		return wrong ("asks for another device on top", err);
	for (int i = 0; i < crypt_keyslot_max (CRYPT_LUKS2); i++)
		if (crypt_keyslot_status (cd, i) > CRYPT_SLOT_INACTIVE)
			return wrong ("has a keyslot", err);
	return 0;
}

/* From a sealed header to a context that may be opened. `ret_fd` is the memory that the context reads from. */
static int load (const struct enc_luks *v, const struct enc_volume_key *key, struct enc_view sealed, struct crypt_device **ret, int *ret_fd,
	struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf meta = ENC_BUF_INIT (ENC_VOLUME_HEADER_META);
	const struct enc_volume_header_id id = header_id (v);
	char path[32];
	int rc;

	if ((rc = check_key (key, err)) < 0 || (rc = enc_volume_header_open (&id, key, sealed.at, sealed.left, &meta, err)) < 0)
		return rc;
	if (meta.len != 2 * METADATA)
		return wrong ("has another length", err);
	if ((rc = check_image (v, err)) < 0)
		return rc;
	if ((*ret_fd = memory_file (&meta, path, err)) < 0)
		return *ret_fd;
	if ((rc = begin (path, v, ret, err)) < 0)
		return rc;
	if (crypt_load (*ret, CRYPT_LUKS2, NULL) < 0)
		return wrong ("is not LUKS2, or damaged", err);
	if ((rc = check_params (*ret, err)) < 0)
		return rc;
	/* Without a name this only compares the key with the header's digest. It stands for the key's size, too: only a keyslot has one. */
	if (crypt_activate_by_volume_key (*ret, NULL, (const char *)key->data, key->len, 0) < 0)
		return wrong ("was not made with this key", err);
	return 0;
}

int enc_luks_check (const struct enc_luks *v, const struct enc_volume_key *key, const void *sealed, size_t len, struct enc_error *err)
{
	enc_auto_close int fd = -1;
	enc_auto (crypt_free) struct crypt_device *cd = NULL;

	return load (v, key, enc_view_of (sealed, len), &cd, &fd, err);
}

int enc_luks_verify (const struct enc_luks *v, struct enc_error *err)
{
	struct enc_dm_crypt table = { 0 };
	char name[ENC_LUKS_NAME];
	int rc;

	enc_luks_name (v->id, name);
	rc = enc_dm_crypt_read (name, &table, err);
	return rc < 0 ? rc : enc_dm_crypt_check (&table, v->size_bytes, err);
}

int enc_luks_open (const struct enc_luks *v, const struct enc_volume_key *key, const void *sealed, size_t len, struct enc_error *err)
{
	enc_auto_close int fd = -1;
	enc_auto (crypt_free) struct crypt_device *cd = NULL;
	char name[ENC_LUKS_NAME];
	int rc;

	enc_luks_name (v->id, name);
	if (enc_dm_is (name))
		return enc_fail (err, ENC_EBUSY, "device %s is open already", name);
	if ((rc = load (v, key, enc_view_of (sealed, len), &cd, &fd, err)) < 0 || (rc = enc_point ("privd.luks.loaded", err)) < 0)
		return rc;
	if ((rc = crypt_activate_by_volume_key (cd, name, (const char *)key->data, key->len, 0)) < 0) {
		errno = -rc;
		return rc == -EBUSY || rc == -EEXIST ? enc_fail (err, ENC_EBUSY, "the volume's backing or device %s is in use", name)
						      : enc_fail_sys (err, "open device %s", name);
	}
	if ((rc = enc_point ("privd.luks.active", err)) == 0)
		rc = enc_luks_verify (v, err);
	if (rc < 0)
		(void)!enc_luks_close (v->id, NULL);
	return rc;
}

int enc_luks_close (const char *id, struct enc_error *err)
{
	int64_t deadline = enc_deadline_ms (BUSY_MS);
	char name[ENC_LUKS_NAME];

	enc_luks_name (id, name);
	crypt_set_log_callback (NULL, be_silent, NULL);
	while (enc_dm_is (name)) {
		int rc = crypt_deactivate (NULL, name);
		if (rc == 0)
			continue;
		if (enc_passed (deadline)) {
			errno = -rc;
			return rc == -EBUSY ? enc_fail (err, ENC_EBUSY, "device %s is in use", name) : enc_fail_sys (err, "close device %s", name);
		}
		(void)poll (NULL, 0, 20);
	}
	return 0;
}
