/* An enclave in motion: one fiber that walks the table up or down for it. At most one per enclave. */
#ifndef ENC_ENCLAVED_RUN_H
#define ENC_ENCLAVED_RUN_H

#include "controller/enclaved/ctl.h"
#include "controller/enclaved/engine.h"
#include "controller/enclaved/record.h"

struct enc_run {
	struct enc_run *next;
	struct enc_ctl *ctl;
	char enclave_id[27], op[27];
	struct enc_fiber *fiber;
	const struct enc_step *step;   /* row that is being walked */
	enum enc_dir dir;
	struct enc_strs failed;        /* nodes on which the present row failed */
	unsigned waits;                /* for a service that is away, one after another */
	const struct enc_strs *scope;  /* the rows work on these nodes alone, and are journalled under `op`; NULL: all of the enclave, under its id */
	struct enc_cond ended;
};

/* The enclave as it stands now; free with enc_enclave_done(). */
ENC_MUST_USE int enc_run_enclave (struct enc_run *run, struct enc_enclave *ret, struct enc_error *err);
/* Remember that the present row failed on this node. */
void enc_run_failed (struct enc_run *run, const char *node);
/* Wait until something moved or the row's deadline passed; `what` is shown to people meanwhile. */
ENC_MUST_USE int enc_run_wait (struct enc_run *run, const char *what, const char *next, struct enc_error *err);
/* An event for the operation's stream. */
void enc_run_event (struct enc_run *run, const char *step, const char *node, const char *outcome, int64_t ms, const char *text);

extern const struct enc_step enc_steps[];

#endif
