/* Memory for secrets: one arena, locked as a whole when the process starts, so that a later shortage of lockable memory cannot
 * leave a key unlocked (invariant 6).
 *
 * Every allocation ends at a page that cannot be touched, is left out of core dumps, reads as zeros in a forked child and is
 * wiped when freed. (Core files as a whole are switched off by base/harden.) OpenSSL's private numbers live in its own secure heap, which enc_secmem_init() sets up beside the arena.
 * Not for use inside foreign processes (sshd, slurmctld): they hold no secrets. Not thread safe; our processes have no threads. */
#ifndef ENC_CRYPTO_SECMEM_H
#define ENC_CRYPTO_SECMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/cleanup.h"
#include "base/error.h"

/* Set up the arena of `bytes` (rounded up to pages; each allocation takes at least two pages, one of them the guard) and
 * OpenSSL's secure heap of ENC_SECMEM_OPENSSL bytes. ENC_ESYS if the memory cannot be locked: the caller must not start.
 * A second call is 0 and changes nothing; in a forked child it makes a new arena (the parent's is not readable there). */
#define ENC_SECMEM_OPENSSL ((size_t) 131072)
ENC_MUST_USE int enc_secmem_init (size_t bytes, struct enc_error *err);

/* Give the arena back (wiped). Allocations still held become invalid. OpenSSL's heap stays. */
void enc_secmem_done (void);

/* `len` zeroed bytes, or NULL when there is no arena or no room. Free with enc_secmem_free(), which wipes and takes NULL.
 * A free that finds the bytes around the allocation overwritten ends the process. */
uint8_t *enc_secmem_alloc (size_t len) ENC_MUST_USE;
void enc_secmem_free (uint8_t *p);

/* The same with ENC_ENOMEM and a text. */
ENC_MUST_USE int enc_secmem_get (size_t len, uint8_t **ret, struct enc_error *err);

/* Fresh key material from the generator that OpenSSL keeps for private values. `ret` is to be freed by the caller. */
ENC_MUST_USE int enc_secmem_random (size_t len, uint8_t **ret, struct enc_error *err);

/* True if this process has an arena; bytes held by allocations at the moment, guards not counted. */
bool enc_secmem_ready (void);
size_t enc_secmem_used (void);

ENC_DEFINE_AUTO (enc_secmem, uint8_t, enc_secmem_free);

#endif
