/* Events of this node, numbered by (node, boot, counter): kept in <run_dir>/events until the controller says that it has them. Never
 * waited for: a tightening act happens first and is told later. Bounded: the oldest go, and the gap in the numbers shows it. */
#pragma once

#include "base/json.h"
#include "node-agent/privd/conf.h"

enum { ENC_SPOOL_MAX = 500 };

struct enc_spool {
	struct enc_json *events; /* array */
	char *path;
	uint64_t counter;        /* of the last event */
};

/* Load what an earlier process of this boot left. */
int enc_spool_open (struct enc_spool *spool, const struct enc_privd_conf *conf, struct enc_error *err) ENC_MUST_USE;
void enc_spool_done (struct enc_spool *spool);

/* Add one. `obj` and `data` are taken over and may be NULL. A failure to write is logged, not returned: nothing waits for it. */
void enc_spool_add (struct enc_spool *spool, const char *class, const char *action, const char *outcome, struct enc_json *obj, struct enc_json *data);

/* The same for an event that is built already (class, action, outcome and what belongs to them): taken over, numbered and dated. Returns its
 * number. */
uint64_t enc_spool_put (struct enc_spool *spool, struct enc_json *event);

/* Forget events up to that counter. */
void enc_spool_forget (struct enc_spool *spool, uint64_t counter);
