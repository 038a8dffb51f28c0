/* The rows' functions, one file for each part of the table. All take a struct enc_run as context, all are idempotent, and none
 * relies on what another one remembers: what they need is in the store. */
#ifndef ENC_ENCLAVED_STEPS_H
#define ENC_ENCLAVED_STEPS_H

#include "controller/enclaved/nodes.h"

#define ENC_ROW(name) int enc_row_##name (void *ctx, struct enc_error *err) ENC_MUST_USE

/* rows_lease.c: decision and lease */
ENC_ROW (authorise_do);
ENC_ROW (authorise_undo);
ENC_ROW (authorise_check);
/* rows_pool.c: the general cluster's side */
ENC_ROW (reserve_do);
ENC_ROW (reserve_undo);
ENC_ROW (reserve_check);
ENC_ROW (drain_do);
ENC_ROW (drain_undo);
ENC_ROW (drain_check);
ENC_ROW (detach_do);
ENC_ROW (detach_undo);
ENC_ROW (detach_check);
/* rows_node.c: airlock, cleaning, service nodes */
ENC_ROW (isolate_do);
ENC_ROW (isolate_undo);
ENC_ROW (clean_do);
ENC_ROW (clean_undo);
ENC_ROW (services_do);
ENC_ROW (services_undo);
/* steps.c: what each row leaves behind */
ENC_ROW (detached);
ENC_ROW (isolate_check);
ENC_ROW (clean_check);
ENC_ROW (services_check);
ENC_ROW (storage_check);
ENC_ROW (scheduler_check);
ENC_ROW (joined);
ENC_ROW (login_check);
ENC_ROW (open_check);
/* rows_inside.c: keys, storage, scheduler, login */
ENC_ROW (keys_do);
ENC_ROW (keys_undo);
ENC_ROW (keys_check);
ENC_ROW (storage_do);
ENC_ROW (storage_undo);
ENC_ROW (scheduler_do);
ENC_ROW (scheduler_undo);
ENC_ROW (join_do);
ENC_ROW (join_undo);
ENC_ROW (join_check);
ENC_ROW (login_do);
ENC_ROW (login_undo);
/* rows_door.c: proof and door */
ENC_ROW (prove_do);
ENC_ROW (prove_check);
ENC_ROW (open_do);
ENC_ROW (open_undo);

/* Lists of the enclave's nodes, of those in the run's scope if it has one; free with enc_nodes_done(). */
ENC_MUST_USE int enc_run_nodes (struct enc_run *run, uint8_t roles, struct enc_nodes *ret, struct enc_error *err);
/* The same whatever the scope. */
ENC_MUST_USE int enc_run_nodes_all (struct enc_run *run, uint8_t roles, struct enc_nodes *ret, struct enc_error *err);
enum { ENC_ROLES_ALL = ENC_ROLE_COMPUTE | ENC_ROLE_SCHEDULER | ENC_ROLE_LOGIN, ENC_ROLES_SERVICE = ENC_ROLE_SCHEDULER | ENC_ROLE_LOGIN };
/* Change all nodes with `roles`. */
ENC_MUST_USE int enc_run_change (struct enc_run *run, uint8_t roles, const struct enc_change *change, struct enc_error *err);

/* The member document in a new version, signed by keyd and stored; nodes get it with their next document. */
ENC_MUST_USE int enc_members_sign (struct enc_run *run, struct enc_error *err);
/* Both, as the work of an operation (life.h) that a restart has interrupted. */
ENC_MUST_USE int enc_members_again (struct enc_run *run, void *arg, struct enc_json **ret, struct enc_error *err);
/* Bring the present member document to all nodes and wait. */
ENC_MUST_USE int enc_members_push (struct enc_run *run, struct enc_error *err);

/* Nodes in the airlock, cleaned: write each one's certificate and give it back to its declared pool (fence down, under a grant). */
ENC_MUST_USE int enc_nodes_return (struct enc_run *run, const struct enc_nodes *nodes, struct enc_error *err);
/* Order the nodes with `roles` into the airlock and wait. */
ENC_MUST_USE int enc_run_airlock (struct enc_run *run, uint8_t roles, struct enc_error *err);
/* A longer lease: from keyd, then in the store. */
ENC_MUST_USE int enc_lease_until (struct enc_run *run, int64_t until, struct enc_error *err);
/* Those of `nodes` that their documents put into `pool`; borrowed rows moved, the rest freed. */
ENC_MUST_USE int enc_nodes_in (struct enc_ctl *c, struct enc_nodes *nodes, uint8_t pool, struct enc_error *err);

#endif
