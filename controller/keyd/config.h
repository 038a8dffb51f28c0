/* /etc/enclave/keyd.json. */
#ifndef ENC_KEYD_CONFIG_H
#define ENC_KEYD_CONFIG_H

#include "base/fields.h"

/* Who may call what: a local user by name or number. */
struct enc_keyd_caller {
	char *user;          /* NULL: `uid` counts */
	uint64_t uid;
	struct enc_strs ops;
};

struct enc_keyd_conf {
	char *state;              /* folder: keys.db, keyd.vkey, ca.pem */
	char *socket;
	char *log_vkey;           /* auditd's verifier key */
	char *site;               /* name in the CA certificate and the verifier key */
	struct enc_list callers;  /* struct enc_keyd_caller */
	uint64_t attest_max_age_s;
	uint64_t grant_max_s;     /* longest grant for the pools general and service */
	uint64_t lease_max_s;
	uint64_t certificate_days;
	uint64_t argon2_mib;
};

extern const struct enc_field enc_keyd_fields[];

#endif
