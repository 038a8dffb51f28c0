/* Probes from the outside: an observer on the general head and login nodes tries to reach what an enclave must not show.
 * Unprivileged: TCP connects and UDP datagrams, all at once, with one deadline. */
#ifndef ENC_AGENTD_OBSERVER_H
#define ENC_AGENTD_OBSERVER_H

#include "base/json.h"
#include "node-agent/proto/document.h"

struct event_base;
struct enc_observer;

/* `evidence` (taken over by the callee): {"probe","probes","as_expected","rows":[{"what","peer","expected","seen"}]}. */
typedef void enc_observer_fn (struct enc_json *evidence, void *arg);

struct enc_observer *enc_observer_new (struct event_base *base, enc_observer_fn *done, void *arg, struct enc_error *err) ENC_MUST_USE;
void enc_observer_free (struct enc_observer *o);

/* Run the probes of `doc`: each peer's address on the enclave's ports must be unreachable; the controller must be reachable (the positive
 * control). Nothing happens if that probe id is under way or was the last one. */
int enc_observer_run (struct enc_observer *o, const struct enc_doc *doc, struct enc_error *err) ENC_MUST_USE;

#endif
