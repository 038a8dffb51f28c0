/* The baseline of a node: a closed table of what is measured, each row one SHA-256. Read from the root file system itself, below
 * whatever is mounted over it, so that a row is the same inside an enclave and outside. */
#pragma once

#include "base/json.h"
#include "node-agent/privd/conf.h"

/* Add [{"name","digest"}] as "rows". A row whose object is absent has the digest of "absent"; a row that cannot be read fails. */
int enc_measure (const struct enc_privd_conf *conf, struct enc_json *evidence, struct enc_error *err) ENC_MUST_USE;
