/* Login sessions inside enclaves, as the log has them: a row is made when the log holds the session's record, and ended likewise. */
#ifndef ENC_ENCLAVED_SESSIONS_H
#define ENC_ENCLAVED_SESSIONS_H

#include "controller/enclaved/ctl.h"

/* A node's event of class session that is now in the log at `index`. */
void enc_sessions_note (struct enc_ctl *c, const char *node, const struct enc_json *event, int64_t index);
/* A node that reports from another boot has none of its earlier sessions any more: that is put on record. */
void enc_sessions_reboot (struct enc_ctl *c, const char *node, const char *boot);

/* Receipts for the sessions of this node that its door waits for: [{"session","record","proof"}]; those that the log does not have yet are left out. */
struct enc_json *enc_sessions_receipts (struct enc_ctl *c, const char *node, const struct enc_json *wanted);
/* Ids that shall end on this node, NULL when there is none. `fresh`: only those that it was not told of yet; they count as told then. */
struct enc_json *enc_sessions_ending (struct enc_ctl *c, const char *node, bool fresh);

/* [{"id","user","since","from","factor","node"}] of those that are open. */
struct enc_json *enc_sessions_view (struct enc_ctl *c, const char *enclave_id);
/* When a member last came in, wall seconds; 0 never. */
int64_t enc_sessions_last (struct enc_ctl *c, const char *enclave_id, const char *user);

#endif
