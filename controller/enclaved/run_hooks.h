/* What the runner (engine.h) calls on a struct enc_run. */
#ifndef ENC_ENCLAVED_RUN_HOOKS_H
#define ENC_ENCLAVED_RUN_HOOKS_H

#include "controller/enclaved/run.h"

enum enc_row_state enc_hook_state (void *ctx, const char *row);
ENC_MUST_USE int enc_hook_intent (void *ctx, const struct enc_step *step, enum enc_dir dir, bool must, struct enc_error *err);
ENC_MUST_USE int enc_hook_outcome (void *ctx, const struct enc_step *step, enum enc_dir dir, int rc, const struct enc_error *why, int64_t ms,
				   bool must, struct enc_error *err);
void enc_hook_bound (void *ctx, unsigned seconds);
ENC_MUST_USE int enc_hook_quarantine (void *ctx, const struct enc_step *step, const struct enc_error *why, struct enc_error *err);
bool enc_hook_wait (void *ctx, const struct enc_step *step, const struct enc_error *why);

#endif
