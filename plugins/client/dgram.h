/* One question and one answer, each a datagram, on a connection of its own. Within plugins/client. */
#ifndef ENC_PLUGINS_DGRAM_H
#define ENC_PLUGINS_DGRAM_H

#include "base/buf.h"
#include "base/error.h"

/* `who` names the other end in errors; `uid` must answer there, (uid_t)-1: anybody may. Returns the answer's length. ENC_EUNAVAIL nobody there,
 * ENC_ETIMEOUT, ENC_EINTEGRITY somebody else there. `size` 0: no answer is waited for. */
ENC_MUST_USE ssize_t enc_dgram_ask (const char *path, const char *who, uid_t uid, int64_t deadline, const struct enc_buf *ask, void *answer, size_t size,
	struct enc_error *err);

#endif
