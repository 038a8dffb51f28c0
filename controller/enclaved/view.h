/* What people and tools see: the JSON shapes of the command line and the API, built from the store. */
#ifndef ENC_ENCLAVED_VIEW_H
#define ENC_ENCLAVED_VIEW_H

#include "controller/enclaved/ctl.h"

/* Each gives a new value, null when the thing is not there or memory is short. */
struct enc_json *enc_view_enclave (struct enc_ctl *c, const struct enc_enclave *e);
struct enc_json *enc_view_enclave_id (struct enc_ctl *c, const char *id);
struct enc_json *enc_view_enclave_line (struct enc_ctl *c, const struct enc_enclave *e); /* one of "list" */
struct enc_json *enc_view_destroyed (struct enc_ctl *c, const char *id);
struct enc_json *enc_view_members (struct enc_ctl *c, const struct enc_enclave *e);
/* `slurm` (may be NULL) is schedd's list of nodes. */
struct enc_json *enc_view_node (struct enc_ctl *c, const struct enc_node *n, const struct enc_json *slurm);
struct enc_json *enc_view_volume (const struct enc_volume *v);
struct enc_json *enc_view_operation (const struct enc_operation *o);
/* A copy of a member; null when it is absent. */
struct enc_json *enc_view_member (const struct enc_json *of, const char *key);
/* The node's last report as "observed": its areas, null before the first. */
struct enc_json *enc_view_observed (const struct enc_observed *seen);
/* True when the node's agent has been heard of within the last half minute. */
bool enc_agent_connected (const struct enc_observed *seen);

#endif
