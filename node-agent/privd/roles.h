/* An enclave's services on this node: files under /run/enclave, and units that the service manager runs. */
#pragma once

#include "node-agent/privd/family.h"

/* Bring up and take down until exactly `want` (set of enum enc_role) is up. */
int enc_roles_apply (const struct enc_privd_conf *conf, const struct enc_task *task, uint8_t want, struct enc_error *err) ENC_MUST_USE;
