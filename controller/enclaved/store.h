/* What enclaved knows and must not forget: one SQLite file. Rows are plain structs; load, change and put them without a wait in
 * between (fiber.h), or another fiber's change is lost.
 *
 * What comes from outside, what is wanted and what was observed are three tables for a node (nodes, documents, observed), so that
 * an agent's report never overwrites a decision. Keys are not here: sealed blobs are opaque and useless outside their node's boot. */
#ifndef ENC_ENCLAVED_STORE_H
#define ENC_ENCLAVED_STORE_H

#include <stdbool.h>
#include "base/json.h"
#include "base/str.h"
#include "controller/enclaved/db.h"

#define ENC_STATE_CREATING "creating"
#define ENC_STATE_OPEN "open"
#define ENC_STATE_CLOSING "closing"
#define ENC_STATE_CLOSED "closed"
#define ENC_STATE_STUCK "stuck"

/* All times are Unix seconds; 0 is "not yet". */
struct enc_enclave {
	char id[27], name[32], state[12], step[16];
	char owner[33], creator[33], agreement[65], policy[33], policy_version[24];
	char entry[8], on_busy[8], service[12];
	char *purpose;
	int64_t created_at, opened_at, closed_at, expires_at;
	uint32_t slot, deadline_s, members_version;
	char cluster[33], munge_key[27];
	char *members_doc;                 /* base64 envelope, as keyd signed it */
	char *wait_for, *wait_next;
	int64_t wait_until;
	char *error;                       /* JSON of the failure that turned it round */
	char *erase;                       /* "all", or names with commas: project volumes to destroy at the end */
	int64_t record_first, record_last; /* log indexes, -1 none */
	int64_t evidence_at, probes, as_expected;
	uint8_t munge_made;                /* keyd has made the munge key */
};

struct enc_node {
	char name[65], declared[12];       /* declared: general, service, observer */
	uint8_t pool;                      /* enum enc_pool */
	char enclave_id[27];               /* "" when not held */
	uint8_t role;                      /* enum enc_role within it */
	char overlay[16];
	char identity[65], fingerprint[65];/* hex: privd's Ed25519 key, SHA-256 of the certificate */
	char *why, *next;
	int64_t enrolled_at, held_since;
	int64_t baseline_at;               /* when keyd took its baseline; 0: not to be lent yet */
	char attested[33];                 /* the challenge whose answer keyd last found equal */
	int64_t attested_at;
	int64_t taken_over_at;             /* when a second connection last took over from the first */
	char *trouble;                     /* what an open enclave lacks in this node; NULL: nothing */
	int64_t trouble_at;                /* since when */
};

struct enc_document {
	char node[65];
	int64_t generation;
	char digest[65];
	char *doc, *grant_, *sealed, *members; /* base64, base64, JSON list, base64 */
	char challenge[33];
	char boot[33];                         /* the boot that the grant is for; "" without one */
};

struct enc_observed {
	char node[65];
	int64_t generation, last_seen;
	char digest[65], version[24], boot[33], boot_id[37], overlay_key[45];
	char address4[16], address6[46];
	uint32_t cpus;
	int64_t memory_mb;
	char *report, *attestation;
	char events_boot[33];
	int64_t events_counter;
};

struct enc_member_row {
	char enclave_id[27], user[33], role[17], id[27];
	uint32_t uid, gid;
	char *keys;                        /* JSON list of ssh public key lines */
	int64_t since;
};

struct enc_volume {
	char id[27], name[32], owner[33], driver[16], key[27], state[8], enclave_id[27];
	uint8_t kind;                      /* enum enc_volume_kind */
	int64_t size_bytes;
	uint8_t key_made;
};

struct enc_agreement {
	char id[65];
	int64_t until;
	uint8_t ended;
	char added_by[33];
};

struct enc_operation {
	char id[27], enclave_id[27], name[32], kind[16], user[33], state[12];
	int64_t created_at, finished_at;
	uint32_t code;
	char *result, *error;
};

struct enc_certificate {
	char node[65], enclave_id[27];
	char *json, *proof, *record_body;
	int64_t record, at;
};

extern const struct enc_col enc_enclave_cols[], enc_node_cols[], enc_document_cols[], enc_observed_cols[], enc_member_cols[],
	enc_volume_cols[], enc_agreement_cols[], enc_operation_cols[], enc_certificate_cols[];
extern const char *const enc_store_migrations[];

/* Contents freed, struct zeroed enough to be used again. For enc_auto_done. */
void enc_enclave_done (struct enc_enclave *e);
void enc_node_done (struct enc_node *n);
void enc_document_done (struct enc_document *d);
void enc_observed_done (struct enc_observed *o);
void enc_operation_done (struct enc_operation *o);

/* Lists that free themselves. */
struct enc_nodes {
	struct enc_node *v;
	size_t n;
};
struct enc_member_rows {
	struct enc_member_row *v;
	size_t n;
};
struct enc_volumes {
	struct enc_volume *v;
	size_t n;
};
struct enc_enclaves {
	struct enc_enclave *v;
	size_t n;
};
void enc_nodes_done (struct enc_nodes *l);
void enc_member_rows_done (struct enc_member_rows *l);
void enc_volumes_done (struct enc_volumes *l);
void enc_enclaves_done (struct enc_enclaves *l);

ENC_MUST_USE int enc_enclave_load (struct enc_db *db, const char *id, struct enc_enclave *ret, struct enc_error *err);
/* The one of that name that is not closed; ENC_ENOTFOUND. */
ENC_MUST_USE int enc_enclave_named (struct enc_db *db, const char *name, struct enc_enclave *ret, struct enc_error *err);
/* The latest of that name, closed or not. */
ENC_MUST_USE int enc_enclave_latest (struct enc_db *db, const char *name, struct enc_enclave *ret, struct enc_error *err);
ENC_MUST_USE int enc_enclave_put (struct enc_db *db, const struct enc_enclave *e, struct enc_error *err);
/* Only state and step, or only the waiting line; NULL `what` clears it. */
ENC_MUST_USE int enc_enclave_state (struct enc_db *db, const char *id, const char *state, const char *step, struct enc_error *err);
void enc_enclave_waiting (struct enc_db *db, const char *id, const char *what, int64_t until, const char *next);
ENC_MUST_USE int enc_enclave_list (struct enc_db *db, struct enc_enclaves *ret, struct enc_error *err, const char *where);
/* A number 1..250 that no enclave alive uses: subnet and ports hang on it. ENC_EBUSY when all are taken. */
ENC_MUST_USE int enc_slot_take (struct enc_db *db, uint32_t *ret, struct enc_error *err);

ENC_MUST_USE int enc_node_load (struct enc_db *db, const char *name, struct enc_node *ret, struct enc_error *err);
ENC_MUST_USE int enc_node_put (struct enc_db *db, const struct enc_node *n, struct enc_error *err);
/* Nodes of an enclave with any of `roles`; quarantined ones are not among them. */
ENC_MUST_USE int enc_nodes_of (struct enc_db *db, const char *enclave_id, uint8_t roles, struct enc_nodes *ret, struct enc_error *err);
ENC_MUST_USE int enc_nodes_declared (struct enc_db *db, const char *declared, struct enc_nodes *ret, struct enc_error *err);
ENC_MUST_USE int enc_nodes_all (struct enc_db *db, struct enc_nodes *ret, struct enc_error *err);

/* Absent rows give a zeroed struct with the node's name: generation 0. */
ENC_MUST_USE int enc_document_load (struct enc_db *db, const char *node, struct enc_document *ret, struct enc_error *err);
ENC_MUST_USE int enc_document_put (struct enc_db *db, const struct enc_document *d, struct enc_error *err);
ENC_MUST_USE int enc_observed_load (struct enc_db *db, const char *node, struct enc_observed *ret, struct enc_error *err);
ENC_MUST_USE int enc_observed_put (struct enc_db *db, const struct enc_observed *o, struct enc_error *err);

ENC_MUST_USE int enc_members_of (struct enc_db *db, const char *enclave_id, struct enc_member_rows *ret, struct enc_error *err);
ENC_MUST_USE int enc_member_put (struct enc_db *db, const struct enc_member_row *m, struct enc_error *err);
ENC_MUST_USE int enc_volumes_of (struct enc_db *db, const char *enclave_id, struct enc_volumes *ret, struct enc_error *err);
ENC_MUST_USE int enc_volume_put (struct enc_db *db, const struct enc_volume *v, struct enc_error *err);
/* A locked project volume; ENC_ENOTFOUND. */
ENC_MUST_USE int enc_volume_locked (struct enc_db *db, const char *name, const char *owner, struct enc_volume *ret, struct enc_error *err);

/* ---- the journal of steps ---- */

enum enc_dir { ENC_UP = 0, ENC_DOWN = 1 };
/* How far a row is, from its last journal entry. */
enum enc_row_state { ENC_ROW_NONE, ENC_ROW_DOING, ENC_ROW_DONE, ENC_ROW_UNDOING, ENC_ROW_UNDONE, ENC_ROW_FAILED, ENC_ROW_UNDO_FAILED };
ENC_MUST_USE int enc_journal_intent (struct enc_db *db, const char *enclave_id, const char *row, enum enc_dir dir, struct enc_error *err);
ENC_MUST_USE int enc_journal_outcome (struct enc_db *db, const char *enclave_id, const char *row, enum enc_dir dir, int rc, int64_t ms,
				      const char *text, struct enc_error *err);
enum enc_row_state enc_journal_state (struct enc_db *db, const char *enclave_id, const char *row);
/* [{"step","node","outcome","seconds","text"}] as contracts want it. */
struct enc_json *enc_journal_json (struct enc_db *db, const char *enclave_id);

/* ---- operations and their events ---- */

ENC_MUST_USE int enc_operation_load (struct enc_db *db, const char *id, struct enc_operation *ret, struct enc_error *err);
ENC_MUST_USE int enc_operation_put (struct enc_db *db, const struct enc_operation *o, struct enc_error *err);
/* The one of this enclave that is not finished; ENC_ENOTFOUND. */
ENC_MUST_USE int enc_operation_running (struct enc_db *db, const char *enclave_id, struct enc_operation *ret, struct enc_error *err);
ENC_MUST_USE int enc_event_add (struct enc_db *db, const char *op, const struct enc_json *event, struct enc_error *err);
/* Events with n > after, as a new array; never NULL unless memory is short. */
struct enc_json *enc_events_after (struct enc_db *db, const char *op, int64_t after, int64_t *ret_last);

/* ---- one-time tokens; only their SHA-256 is stored ---- */

ENC_MUST_USE int enc_token_put (struct enc_db *db, const char *hash, const char *node, const char *pool, int64_t expires_at, struct enc_error *err);
/* Use it up. ENC_EDENIED when unknown, used, expired or for another node: one text for all. `pool` is of 12 bytes. */
ENC_MUST_USE int enc_token_use (struct enc_db *db, const char *hash, const char *node, int64_t now, char *ret_pool, struct enc_error *err);

#endif
