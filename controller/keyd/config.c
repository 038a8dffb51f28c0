#include "controller/keyd/config.h"

#include "crypto/kdf.h"
#include "base/enc.h"

static const struct enc_field caller_fields[] = {
	ENC_FIELD (struct enc_keyd_caller, user, "user", ENC_T_USER, .help = "name of a user of this host"),
	ENC_FIELD (struct enc_keyd_caller, uid, "uid", ENC_T_U64, .max = UINT32_MAX - 1, .dflt = "0", .help = "or its number"),
	ENC_FIELD (struct enc_keyd_caller, ops, "ops", ENC_T_STRS, .flags = ENC_REQUIRED | ENC_NONEMPTY, .max = 32,
		.help = "what it may ask for; init, unseal and seal are root's alone"),
	ENC_FIELD_END,
};

const struct enc_field enc_keyd_fields[] = {
	ENC_FIELD (struct enc_keyd_conf, state, "state", ENC_T_PATH, .dflt = "\"/var/lib/enclave-key\"", .help = "folder of the keys"),
	ENC_FIELD (struct enc_keyd_conf, socket, "socket", ENC_T_PATH, .dflt = "\"/run/enclave/keyd.sock\"", .help = "Unix socket"),
	ENC_FIELD (struct enc_keyd_conf, log_vkey, "log_vkey", ENC_T_PATH, .dflt = "\"/etc/enclave/log.vkey\"",
		.help = "verifier key of the audit log"),
	ENC_FIELD (struct enc_keyd_conf, site, "site", ENC_T_NODE, .dflt = "\"enclave\"", .help = "name in certificates and verifier key"),
	ENC_FIELD (struct enc_keyd_conf, callers, "callers", ENC_T_OBJS, .sub = caller_fields, .sub_size = sizeof (struct enc_keyd_caller),
		.max = 16, .dflt = "[]", .help = "who may call what"),
	ENC_FIELD (struct enc_keyd_conf, attest_max_age_s, "attest_max_age_s", ENC_T_DURATION, .min = 1, .max = 7 * 86400, .dflt = "3600",
		.help = "how old an attestation may be when keys are released"),
	ENC_FIELD (struct enc_keyd_conf, grant_max_s, "grant_max_s", ENC_T_DURATION, .min = 60, .max = 366 * 86400, .dflt = "\"31d\"",
		.help = "longest grant outside an enclave"),
	ENC_FIELD (struct enc_keyd_conf, lease_max_s, "lease_max_s", ENC_T_DURATION, .min = 60, .max = 3660L * 86400, .dflt = "\"366d\"",
		.help = "longest lease"),
	ENC_FIELD (struct enc_keyd_conf, certificate_days, "certificate_days", ENC_T_U64, .min = 1, .max = 3650, .dflt = "397",
		.help = "how long node certificates hold"),
	ENC_FIELD (struct enc_keyd_conf, argon2_mib, "argon2_mib", ENC_T_U64, .min = ENC_KDF_MIB_MIN, .max = ENC_KDF_MIB_MAX, .dflt = "256",
		.help = "memory that one guess of the passphrase costs"),
	ENC_FIELD_END,
};
