/* Bring the node to what its document says: areas in a fixed order, one order to privd at a time (docs/protocol.md section 5).
 * Idempotent: a document that came before costs one STATE. An area that fails stops the run until the next generation. */
#ifndef ENC_AGENTD_CONVERGE_H
#define ENC_AGENTD_CONVERGE_H

#include "node-agent/agentd/privd_link.h"
#include "node-agent/agentd/work.h"

struct enc_converge;

/* Something worth a report has changed: a run ended, or privd's state differs from the last one seen. */
typedef void enc_converge_fn (void *arg);

struct enc_converge *enc_converge_new (struct enc_privd_link *link, enc_converge_fn *changed, void *arg, struct enc_error *err) ENC_MUST_USE;
void enc_converge_free (struct enc_converge *c);

/* Converge to `work` (taken over). While a run is under way the newest work waits, older waiting ones are dropped. */
void enc_converge_start (struct enc_converge *c, struct enc_work *work);
/* Ask privd for its state; also the heartbeat that keeps `agent alive`. `stored`: highest event counter that the controller holds. */
void enc_converge_refresh (struct enc_converge *c, uint64_t stored);

/* What is known, for the report; borrowed. State is NULL before the first answer. */
const struct enc_json *enc_converge_state (const struct enc_converge *c);
const struct enc_json *enc_converge_evidence (const struct enc_converge *c);
/* The generation that the last run ended for, 0 none; its document's digest; what failed in it (NULL if nothing did). */
uint64_t enc_converge_generation (const struct enc_converge *c);
const char *enc_converge_digest (const struct enc_converge *c);
const struct enc_error *enc_converge_failed (const struct enc_converge *c);
bool enc_converge_busy (const struct enc_converge *c);

#endif
