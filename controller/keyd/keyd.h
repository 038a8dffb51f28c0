/* keyd's context, and the ops of docs/protocol.md section 3 as one table. All ops are synchronous: nothing here waits. */
#ifndef ENC_KEYD_KEYD_H
#define ENC_KEYD_KEYD_H

#include <sys/types.h>
#include "base/ipc.h"
#include "controller/keyd/config.h"
#include "controller/keyd/nonces.h"
#include "controller/keyd/store.h"
#include "controller/keyd/vault.h"

struct enc_keyd {
	const struct enc_keyd_conf *conf;
	struct enc_keystore *store;
	struct enc_vault *vault;
	struct enc_nonces *nonces;
	struct enc_vkey log;         /* auditd's key */
	size_t callers_n;
	struct enc_keyd_allowed {
		uid_t uid;
		const struct enc_strs *ops; /* of conf */
	} *callers;
	int64_t (*wall_s) (void);    /* enc_now_s; tests bring their own */
	int64_t (*mono) (void);      /* enc_mono */
	/* Called after the root key became known or was forgotten (NULL), for the descriptor store. May be NULL. */
	void (*root_changed) (const struct enc_secret *root);
};

/* Open the state named by `conf`, resolve the callers, read the log's verifier key. `conf` must outlive it. */
ENC_MUST_USE int enc_keyd_open (struct enc_keyd *k, const struct enc_keyd_conf *conf, struct enc_error *err);
void enc_keyd_done (struct enc_keyd *k);

/* May this user connect at all? root, or one of the callers. */
bool enc_keyd_admits (const struct enc_keyd *k, uid_t uid);

/* One request. 0 and an answer in `ret` (without "ok"), or a negative code. Descriptors in `fds` stay the caller's; NULL is none. */
struct enc_keyd_request {
	uid_t uid;
	const struct enc_json *body;
	const struct enc_fds *fds;
};
ENC_MUST_USE int enc_keyd_handle (struct enc_keyd *k, const struct enc_keyd_request *req, struct enc_json **ret, struct enc_error *err);

/* The names of all ops, NULL past the end; each once. */
const char *enc_keyd_op_name (size_t i);

#endif
