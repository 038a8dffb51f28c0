/* Which nodes an enclave gets: read from the queue as schedd last saw it and from the store, decided without a wait. */
#ifndef ENC_ENCLAVED_PLAN_H
#define ENC_ENCLAVED_PLAN_H

#include "controller/enclaved/ctl.h"

struct enc_plan_wish {
	uint32_t count;                /* nodes asked for by number */
	const struct enc_strs *names;  /* or by name; then count is their number */
	const char *feature, *gres;    /* NULL: any */
	bool soon;                     /* nodes that are on their way back from another enclave will do */
};

struct enc_plan {
	struct enc_strs compute;       /* chosen, in order */
	char scheduler[65], login[65]; /* chosen service nodes */
	struct enc_json *nodes;        /* [{"name","state","free_at","why"}] of the chosen ones */
	bool coming;                   /* some of them are still on their way back: not to be claimed yet */
	int64_t ready_wait;            /* Unix seconds when the last of them is free; 0 unknown */
};
void enc_plan_done (struct enc_plan *p);

/* `slurm` is schedd's answer to "nodes". ENC_ENOTFOUND for an unknown node, ENC_EBUSY for a held one or too few; `ret` then may
 * hold what was found, and is freed by the caller in any case. */
ENC_MUST_USE int enc_plan_choose (struct enc_ctl *c, const struct enc_json *slurm, const struct enc_plan_wish *wish, struct enc_plan *ret,
				  struct enc_error *err);
/* Mark the nodes as this enclave's, with their role and overlay address. ENC_EBUSY if one was taken meanwhile; inside a transaction. */
ENC_MUST_USE int enc_plan_claim (struct enc_ctl *c, const struct enc_plan *p, const struct enc_enclave *e, struct enc_error *err);

#endif
