/* A secret that travels by descriptor: memory without a name, which is never swapped where the kernel has memfd_secret(2) (such
 * memory cannot even be read through the descriptor, only mapped). Elsewhere a memfd, sealed against any change. */
#ifndef ENC_CRYPTO_SECRETFD_H
#define ENC_CRYPTO_SECRETFD_H

#include "crypto/wrap.h"

enum { ENC_SECRET_FD_MAX = 4096 };

/* A descriptor (the caller's, CLOEXEC) holding a copy of 1 to ENC_SECRET_FD_MAX bytes. Negative code on failure. */
ENC_MUST_USE int enc_secret_fd (const uint8_t *data, size_t len, struct enc_error *err);

/* Read one into fresh secmem. The descriptor stays the caller's. ENC_EINVAL if it is anything else than the two kinds above: a file
 * or pipe would mean that the secret lay somewhere, and a memfd that can still be cut short could fault the reader. */
ENC_MUST_USE int enc_secret_of_fd (int fd, struct enc_secret *ret, struct enc_error *err);

#endif
