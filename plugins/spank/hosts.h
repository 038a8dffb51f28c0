/* Where the nodes of a job find each other: from the enclave's own slurm.conf, which root rendered from the signed document, and
 * never by asking a name service. */
#ifndef ENC_PLUGINS_HOSTS_H
#define ENC_PLUGINS_HOSTS_H

#include <stddef.h>

#include "base/error.h"

/* Host number `n` (from 0) of a Slurm node list ("n[2-4],n9": 3 gives n9). */
ENC_MUST_USE int enc_hosts_nth (const char *list, unsigned n, char *ret, size_t size, struct enc_error *err);
/* NodeAddr of `node` in the text of slurm.conf; ENC_ENOTFOUND. */
ENC_MUST_USE int enc_hosts_address (const char *conf_text, const char *node, char *ret, size_t size, struct enc_error *err);
/* Name of the interface of this host that has this IPv4 address; ENC_ENOTFOUND. */
ENC_MUST_USE int enc_hosts_interface (const char *address, char *ret, size_t size, struct enc_error *err);

#endif
