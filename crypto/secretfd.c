/* Layout of the memory: u32 length (little-endian) | bytes. memfd_secret has no length of its own that is not a page. */
#include "crypto/secretfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "base/str.h"
#include "crypto/secmem.h"
#include "base/enc.h"

#define SECRETMEM_MAGIC 0x5345434d
enum { SIZE = 4 + ENC_SECRET_FD_MAX, SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

static int open_memory (bool *secret)
{
	int fd = -1;
#ifdef SYS_memfd_secret
	fd = (int) syscall (SYS_memfd_secret, (unsigned) O_CLOEXEC);
#endif
	*secret = fd >= 0;
	return fd >= 0 ? fd : memfd_create ("enclave-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static int fill (int fd, const uint8_t *data, size_t len)
{
	if (ftruncate (fd, SIZE) < 0)
		return -1;
	uint8_t *p = mmap (NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -1;
	for (size_t i = 0; i < 4; i++)
		p[i] = (uint8_t) (len >> (8 * i));
	memcpy (p + 4, data, len);
	return munmap (p, SIZE);
}

int enc_secret_fd (const uint8_t *data, size_t len, struct enc_error *err)
{
	bool secret = false;

	if (len == 0 || len > ENC_SECRET_FD_MAX)
		return enc_fail (err, ENC_ELIMIT, "a secret of %zu bytes; 1 to %d are possible", len, ENC_SECRET_FD_MAX);
	enc_auto_close int fd = open_memory (&secret);
	if (fd < 0 || fill (fd, data, len) < 0 || (!secret && fcntl (fd, F_ADD_SEALS, SEALS) < 0))
		return enc_fail_sys (err, "cannot make memory for a secret");
	return ENC_TAKE_FD (fd);
}

/* Such memory and nothing else, of our size and no longer changeable. */
static bool acceptable (int fd)
{
	struct stat st;
	struct statfs fs;

	if (fstat (fd, &st) < 0 || st.st_size != SIZE || fstatfs (fd, &fs) < 0)
		return false;
	if (fs.f_type == SECRETMEM_MAGIC)
		return true; /* its size can be set once only */
	int seals = fcntl (fd, F_GET_SEALS);
	return seals >= 0 && (seals & SEALS) == SEALS;
}

int enc_secret_of_fd (int fd, struct enc_secret *ret, struct enc_error *err)
{
	enc_auto (enc_secmem) uint8_t *copy = NULL;
	size_t len = 0;
	int rc = 0;

	if (fd < 0 || !acceptable (fd))
		return enc_fail (err, ENC_EINVAL, "a secret must come as sealed anonymous memory");
	const uint8_t *p = mmap (NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return enc_fail_sys (err, "cannot read a secret");
	for (size_t i = 0; i < 4; i++)
		len |= (size_t) p[i] << (8 * i);
	if (len == 0 || len > ENC_SECRET_FD_MAX)
		rc = enc_fail (err, ENC_EINVAL, "a secret of %zu bytes", len);
	else if ((rc = enc_secmem_get (len, &copy, err)) == 0)
		memcpy (copy, p + 4, len);
	(void) munmap ((void *) (uintptr_t) p, SIZE);
	if (rc < 0)
		return rc;
	*ret = (struct enc_secret){ ENC_TAKE (copy), len };
	return 0;
}
