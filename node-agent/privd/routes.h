/* The fence's second layer: while it is up, the main routing tables hold nothing but host routes to the hosts it lets through, so
 * that a flushed rule set alone opens nothing. What was there is kept in a file and put back. */
#pragma once

#include "node-agent/privd/fence_rules.h"

/* Leave only routes to the allowed hosts. May be repeated with another document. `save` names the file that keeps the site's
 * routes; an existing one is not replaced. A host that cannot be reached before gets no route. */
int enc_routes_close (const struct enc_fence *fence, const char *save, struct enc_error *err) ENC_MUST_USE;

/* Put the site's routes back, remove ours and the file. Nothing saved: nothing to do. */
int enc_routes_open (const char *save, struct enc_error *err) ENC_MUST_USE;

/* Routes in the main tables that are neither ours, nor the overlay's, nor link-local; 0 is what a closed fence shows. */
int enc_routes_foreign (size_t *ret, struct enc_error *err) ENC_MUST_USE;

/* How many there are of ours and how many foreign ones. */
int enc_routes_count (size_t *ret_ours, size_t *ret_foreign, struct enc_error *err) ENC_MUST_USE;
