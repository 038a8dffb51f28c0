/* Enclaves in motion: orders become fibers that walk the table, survive restarts, and end in an open enclave or a clean pool. */
#ifndef ENC_ENCLAVED_LIFE_H
#define ENC_ENCLAVED_LIFE_H

#include "controller/enclaved/run.h"

/* Walk up (and down again if it fails) for an enclave whose row and operation are stored. */
ENC_MUST_USE int enc_life_create (struct enc_ctl *c, const char *enclave_id, const char *op, struct enc_error *err);
/* Walk down, from whatever state; a walk up in progress is given up first. */
ENC_MUST_USE int enc_life_destroy (struct enc_ctl *c, const char *enclave_id, const char *op, struct enc_error *err);
/* Any other work on one enclave, alone with it: `fn` runs once nothing else moves the enclave. It frees `arg` itself; its result (or
 * failure) ends the operation. A destroy gives it up. */
typedef int (*enc_run_fn) (struct enc_run *run, void *arg, struct enc_json **ret_result, struct enc_error *err);
ENC_MUST_USE int enc_life_run (struct enc_ctl *c, const char *enclave_id, const char *op, enc_run_fn fn, void *arg, struct enc_error *err);
/* After a start: go on with whatever was in motion. Then a fiber that ends leases in time and tries again what is stuck. */
ENC_MUST_USE int enc_life_start (struct enc_ctl *c, struct enc_error *err);

/* NULL when the enclave is not in motion. */
struct enc_run *enc_life_find (const struct enc_ctl *c, const char *enclave_id);
/* A new operation, stored as running. `ret` gets its id. */
ENC_MUST_USE int enc_operation_new (struct enc_ctl *c, const char *kind, const char *user, const struct enc_enclave *e,
				    char ret[static ENC_ID_SIZE], struct enc_error *err);
/* End it: `rc` 0 with `result`, or a failure with `err`. Takes `result` over. */
void enc_operation_end (struct enc_ctl *c, const char *op, int rc, struct enc_json *result, const struct enc_error *why);

#endif
