/* The arena is one mapping: guard page, then pages that are either free (no access), held, or the guard behind a held run.
 * All are locked while they are still accessible; taking access away later does not unlock them. Positions are kept outside the
 * arena in ordinary memory, which holds no secret.
 *
 * The one file-scope object of crypto/: secrets must be findable in one place, and OpenSSL's heap is global anyway. */
#include "crypto/secmem.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <sys/mman.h>

#include "base/str.h"
#include "base/enc.h"

enum { EDGE = 16, EDGE_BYTE = 0xdb };

struct run {
	uint32_t pages; /* 0: free, or inside a run */
	uint32_t len;
};

static struct arena {
	uint8_t *map;
	struct run *runs; /* one per page */
	size_t page;
	size_t pages;
	size_t used;
	pid_t owner;
} arena;

static size_t map_size (void)
{
	return (arena.pages + 1) * arena.page;
}

static uint8_t *page_at (size_t i)
{
	return arena.map + (i + 1) * arena.page;
}

void enc_secmem_done (void)
{
	if (arena.map && arena.owner == getpid ()) {
		for (size_t i = 0; i < arena.pages; i++)
			if (arena.runs[i].pages)
				enc_wipe (page_at (i), arena.runs[i].pages * arena.page);
	}
	if (arena.map)
		(void) munmap (arena.map, map_size ());
	free (arena.runs);
	arena = (struct arena){ 0 };
}

static int lock_arena (size_t bytes, struct enc_error *err)
{
	arena.page = (size_t) sysconf (_SC_PAGESIZE);
	arena.pages = (bytes + arena.page - 1) / arena.page;
	arena.owner = getpid ();
	void *map = mmap (NULL, map_size (), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return enc_fail_sys (err, "cannot map %zu bytes for secrets", bytes);
	arena.map = map;
	arena.runs = calloc (arena.pages, sizeof *arena.runs);
	if (!arena.runs)
		return enc_fail (err, ENC_ENOMEM, "no memory for the table of secrets");
	if (mlock (page_at (0), arena.pages * arena.page) < 0) {
		(void) enc_fail_sys (err, "cannot lock %zu bytes of memory for secrets", bytes);
		return enc_error_next (err, -ENC_ESYS, "raise LimitMEMLOCK= of this service above %zu bytes",
			bytes + ENC_SECMEM_OPENSSL);
	}
	if (madvise (arena.map, map_size (), MADV_DONTDUMP) < 0 || madvise (arena.map, map_size (), MADV_WIPEONFORK) < 0)
		return enc_fail_sys (err, "cannot keep secrets out of dumps and children");
	if (mprotect (arena.map, map_size (), PROT_NONE) < 0)
		return enc_fail_sys (err, "cannot close the memory for secrets");
	return 0;
}

static int lock_openssl (struct enc_error *err)
{
	if (CRYPTO_secure_malloc_initialized ())
		return 0;
	/* 2 means "works, but is not locked or guarded": not good enough. */
	if (CRYPTO_secure_malloc_init (ENC_SECMEM_OPENSSL, 32) != 1)
		return enc_error_next (err, enc_fail (err, ENC_ESYS, "cannot lock %zu bytes for private keys", ENC_SECMEM_OPENSSL),
			"raise LimitMEMLOCK= of this service");
	return 0;
}

int enc_secmem_init (size_t bytes, struct enc_error *err)
{
	if (arena.map && arena.owner == getpid ())
		return 0;
	enc_secmem_done ();
	if (bytes == 0)
		return enc_fail (err, ENC_EINVAL, "an arena of no bytes");
	int rc = lock_arena (bytes, err);
	if (rc == 0)
		rc = lock_openssl (err);
	if (rc < 0)
		enc_secmem_done ();
	return rc;
}

bool enc_secmem_ready (void)
{
	return arena.map && arena.owner == getpid ();
}

size_t enc_secmem_used (void)
{
	return arena.used;
}

/* First fit for `want` free pages in a row, -1 if there are none. */
static ssize_t find_pages (size_t want)
{
	size_t free_run = 0;

	for (size_t i = 0; i < arena.pages;) {
		if (arena.runs[i].pages) {
			i += arena.runs[i].pages + 1;
			free_run = 0;
			continue;
		}
		i++;
		if (++free_run == want)
			return (ssize_t) (i - want);
	}
	return -1;
}

/* Where the `len` bytes of a run start: as near to the guard behind it as alignment allows. */
static uint8_t *data_of (size_t first, size_t pages, size_t len)
{
	return page_at (first) + pages * arena.page - (len + EDGE - 1) / EDGE * EDGE;
}

uint8_t *enc_secmem_alloc (size_t len)
{
	if (!enc_secmem_ready () || len == 0 || len > arena.pages * arena.page)
		return NULL;
	size_t pages = ((len + EDGE - 1) / EDGE * EDGE + EDGE + arena.page - 1) / arena.page;
	ssize_t at = find_pages (pages + 1);
	if (at < 0)
		return NULL;
	size_t first = (size_t) at;
	if (mprotect (page_at (first), pages * arena.page, PROT_READ | PROT_WRITE) < 0)
		return NULL;
	uint8_t *data = data_of (first, pages, len);
	memset (page_at (first), EDGE_BYTE, pages * arena.page);
	memset (data, 0, len);
	arena.runs[first] = (struct run){ .pages = (uint32_t) pages, .len = (uint32_t) len };
	arena.used += len;
	return data;
}

static bool edge_intact (const uint8_t *from, const uint8_t *to)
{
	uint8_t diff = 0;

	for (; from < to; from++)
		diff |= *from ^ EDGE_BYTE;
	return diff == 0;
}

void enc_secmem_free (uint8_t *p)
{
	if (!p || !enc_secmem_ready ())
		return;
	int saved = errno;
	size_t first = (size_t) (p - page_at (0)) / arena.page;
	if (p < page_at (0) || first >= arena.pages)
		abort ();
	while (first > 0 && !arena.runs[first].pages)
		first--; /* the edge may fill the first page of a run, so that the data starts in its second */
	if (!arena.runs[first].pages)
		abort ();
	struct run run = arena.runs[first];
	uint8_t *end = page_at (first) + run.pages * arena.page;
	if (data_of (first, run.pages, run.len) != p || !edge_intact (page_at (first), p) || !edge_intact (p + run.len, end))
		abort ();
	enc_wipe (page_at (first), run.pages * arena.page);
	(void) mprotect (page_at (first), run.pages * arena.page, PROT_NONE);
	arena.used -= run.len;
	arena.runs[first] = (struct run){ 0 };
	errno = saved;
}

int enc_secmem_get (size_t len, uint8_t **ret, struct enc_error *err)
{
	uint8_t *p = enc_secmem_alloc (len);

	if (!p)
		return enc_fail (err, ENC_ENOMEM, "no locked memory left for a secret of %zu bytes", len);
	*ret = p;
	return 0;
}
