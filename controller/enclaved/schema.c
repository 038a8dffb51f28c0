/* The schema, step by step. A step that has been released is never edited: add another one. */
#include "controller/enclaved/store.h"
#include "base/enc.h"

const char *const enc_store_migrations[] = {
	"CREATE TABLE enclaves (id TEXT PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, step TEXT, owner TEXT, creator TEXT,"
	" agreement TEXT, policy TEXT, policy_version TEXT, entry TEXT, on_busy TEXT, service TEXT, purpose TEXT, created_at INTEGER,"
	" opened_at INTEGER, closed_at INTEGER, expires_at INTEGER, slot INTEGER, deadline_s INTEGER, members_version INTEGER,"
	" cluster TEXT, munge_key TEXT, members_doc TEXT, wait_for TEXT, wait_next TEXT, wait_until INTEGER, error TEXT, erase TEXT,"
	" record_first INTEGER, record_last INTEGER, evidence_at INTEGER, probes INTEGER, as_expected INTEGER);"
	"CREATE UNIQUE INDEX enclaves_name ON enclaves (name) WHERE state != 'closed';"
	"CREATE UNIQUE INDEX enclaves_slot ON enclaves (slot) WHERE state != 'closed';"
	"CREATE TABLE nodes (name TEXT PRIMARY KEY, declared TEXT NOT NULL, pool INTEGER NOT NULL, enclave_id TEXT, role INTEGER,"
	" overlay TEXT, identity TEXT, fingerprint TEXT, why TEXT, next TEXT, enrolled_at INTEGER, held_since INTEGER,"
	" baseline_at INTEGER, taken_over_at INTEGER DEFAULT 0);"
	"CREATE INDEX nodes_enclave ON nodes (enclave_id);"
	"CREATE TABLE documents (node TEXT PRIMARY KEY, generation INTEGER NOT NULL, digest TEXT, doc TEXT, grant_ TEXT, sealed TEXT,"
	" members TEXT, challenge TEXT);"
	"CREATE TABLE observed (node TEXT PRIMARY KEY, generation INTEGER, last_seen INTEGER, digest TEXT, version TEXT, boot TEXT,"
	" boot_id TEXT, overlay_key TEXT, address4 TEXT, address6 TEXT, cpus INTEGER, memory_mb INTEGER, report TEXT, attestation TEXT,"
	" events_boot TEXT, events_counter INTEGER);"
	"CREATE TABLE members (enclave_id TEXT NOT NULL, user TEXT NOT NULL, role TEXT, id TEXT, uid INTEGER, gid INTEGER, keys TEXT,"
	" since INTEGER, PRIMARY KEY (enclave_id, user));"
	"CREATE TABLE volumes (id TEXT PRIMARY KEY, name TEXT NOT NULL, owner TEXT, driver TEXT, key TEXT, state TEXT, enclave_id TEXT,"
	" kind INTEGER, size_bytes INTEGER, key_made INTEGER);"
	"CREATE TABLE leases (enclave_id TEXT PRIMARY KEY, not_after INTEGER NOT NULL, state TEXT NOT NULL);"
	"CREATE TABLE agreements (id TEXT PRIMARY KEY, until INTEGER NOT NULL, ended INTEGER NOT NULL, added_by TEXT);"
	"CREATE TABLE journal (id INTEGER PRIMARY KEY, enclave_id TEXT NOT NULL, row TEXT NOT NULL, dir INTEGER NOT NULL,"
	" phase TEXT NOT NULL, rc INTEGER, at INTEGER NOT NULL, ms INTEGER, text TEXT);"
	"CREATE INDEX journal_row ON journal (enclave_id, row, id);"
	"CREATE TABLE operations (id TEXT PRIMARY KEY, enclave_id TEXT, name TEXT, kind TEXT, user TEXT, state TEXT, created_at INTEGER,"
	" finished_at INTEGER, code INTEGER, result TEXT, error TEXT);"
	"CREATE INDEX operations_enclave ON operations (enclave_id, state);"
	"CREATE TABLE events (op TEXT NOT NULL, n INTEGER NOT NULL, json TEXT NOT NULL, PRIMARY KEY (op, n)) WITHOUT ROWID;"
	"CREATE TABLE tokens (hash TEXT PRIMARY KEY, node TEXT NOT NULL, pool TEXT NOT NULL, expires_at INTEGER NOT NULL, used_at INTEGER);"
	"CREATE TABLE certificates (node TEXT NOT NULL, enclave_id TEXT NOT NULL, json TEXT, proof TEXT, record_body TEXT, record INTEGER,"
	" at INTEGER, PRIMARY KEY (node, enclave_id));"
	"CREATE TABLE training (user TEXT PRIMARY KEY, until INTEGER NOT NULL);"
	"CREATE TABLE spool (id INTEGER PRIMARY KEY, record TEXT NOT NULL);",
	"ALTER TABLE nodes ADD COLUMN attested TEXT;"
	"ALTER TABLE enclaves ADD COLUMN munge_made INTEGER DEFAULT 0;",
	"ALTER TABLE nodes ADD COLUMN attested_at INTEGER DEFAULT 0;",
	"ALTER TABLE nodes ADD COLUMN trouble TEXT;"
	"ALTER TABLE nodes ADD COLUMN trouble_at INTEGER DEFAULT 0;"
	"ALTER TABLE documents ADD COLUMN boot TEXT;",
	"CREATE TABLE sessions (id TEXT PRIMARY KEY, enclave_id TEXT NOT NULL, user TEXT NOT NULL, node TEXT NOT NULL, ip TEXT, factor TEXT,"
	" started_at INTEGER NOT NULL, ended_at INTEGER NOT NULL DEFAULT 0, record INTEGER NOT NULL, ending INTEGER NOT NULL DEFAULT 0);"
	"CREATE INDEX sessions_enclave ON sessions (enclave_id, user);"
	"CREATE INDEX sessions_open ON sessions (node) WHERE ended_at=0;",
	NULL,
};

#define E(member, type) ENC_COL (struct enc_enclave, member, type)
const struct enc_col enc_enclave_cols[] = {
	E (id, ENC_COL_TEXT), E (name, ENC_COL_TEXT), E (state, ENC_COL_TEXT), E (step, ENC_COL_TEXT),
	E (owner, ENC_COL_TEXT), E (creator, ENC_COL_TEXT), E (agreement, ENC_COL_TEXT), E (policy, ENC_COL_TEXT),
	E (policy_version, ENC_COL_TEXT), E (entry, ENC_COL_TEXT), E (on_busy, ENC_COL_TEXT), E (service, ENC_COL_TEXT),
	E (purpose, ENC_COL_HEAP), E (created_at, ENC_COL_I64), E (opened_at, ENC_COL_I64), E (closed_at, ENC_COL_I64),
	E (expires_at, ENC_COL_I64), E (slot, ENC_COL_U32), E (deadline_s, ENC_COL_U32), E (members_version, ENC_COL_U32),
	E (cluster, ENC_COL_TEXT), E (munge_key, ENC_COL_TEXT), E (members_doc, ENC_COL_HEAP), E (wait_for, ENC_COL_HEAP),
	E (wait_next, ENC_COL_HEAP), E (wait_until, ENC_COL_I64), E (error, ENC_COL_HEAP), E (erase, ENC_COL_HEAP),
	E (record_first, ENC_COL_I64), E (record_last, ENC_COL_I64), E (evidence_at, ENC_COL_I64), E (probes, ENC_COL_I64),
	E (as_expected, ENC_COL_I64), E (munge_made, ENC_COL_U8), ENC_COL_END_
};

#define N(member, type) ENC_COL (struct enc_node, member, type)
const struct enc_col enc_node_cols[] = {
	N (name, ENC_COL_TEXT), N (declared, ENC_COL_TEXT), N (pool, ENC_COL_U8), N (enclave_id, ENC_COL_TEXT), N (role, ENC_COL_U8),
	N (overlay, ENC_COL_TEXT), N (identity, ENC_COL_TEXT), N (fingerprint, ENC_COL_TEXT), N (why, ENC_COL_HEAP),
	N (next, ENC_COL_HEAP), N (enrolled_at, ENC_COL_I64), N (held_since, ENC_COL_I64), N (baseline_at, ENC_COL_I64), N (attested, ENC_COL_TEXT), N (attested_at, ENC_COL_I64), N (taken_over_at, ENC_COL_I64),
	N (trouble, ENC_COL_HEAP), N (trouble_at, ENC_COL_I64), ENC_COL_END_
};

#define D(member, type) ENC_COL (struct enc_document, member, type)
const struct enc_col enc_document_cols[] = {
	D (node, ENC_COL_TEXT), D (generation, ENC_COL_I64), D (digest, ENC_COL_TEXT), D (doc, ENC_COL_HEAP), D (grant_, ENC_COL_HEAP),
	D (sealed, ENC_COL_HEAP), D (members, ENC_COL_HEAP), D (challenge, ENC_COL_TEXT), D (boot, ENC_COL_TEXT), ENC_COL_END_
};

#define O(member, type) ENC_COL (struct enc_observed, member, type)
const struct enc_col enc_observed_cols[] = {
	O (node, ENC_COL_TEXT), O (generation, ENC_COL_I64), O (last_seen, ENC_COL_I64), O (digest, ENC_COL_TEXT),
	O (version, ENC_COL_TEXT), O (boot, ENC_COL_TEXT), O (boot_id, ENC_COL_TEXT), O (overlay_key, ENC_COL_TEXT),
	O (address4, ENC_COL_TEXT), O (address6, ENC_COL_TEXT), O (cpus, ENC_COL_U32), O (memory_mb, ENC_COL_I64),
	O (report, ENC_COL_HEAP), O (attestation, ENC_COL_HEAP), O (events_boot, ENC_COL_TEXT), O (events_counter, ENC_COL_I64),
	ENC_COL_END_
};

#define M(member, type) ENC_COL (struct enc_member_row, member, type)
const struct enc_col enc_member_cols[] = {
	M (enclave_id, ENC_COL_TEXT), M (user, ENC_COL_TEXT), M (role, ENC_COL_TEXT), M (id, ENC_COL_TEXT), M (uid, ENC_COL_U32),
	M (gid, ENC_COL_U32), M (keys, ENC_COL_HEAP), M (since, ENC_COL_I64), ENC_COL_END_
};

#define V(member, type) ENC_COL (struct enc_volume, member, type)
const struct enc_col enc_volume_cols[] = {
	V (id, ENC_COL_TEXT), V (name, ENC_COL_TEXT), V (owner, ENC_COL_TEXT), V (driver, ENC_COL_TEXT), V (key, ENC_COL_TEXT),
	V (state, ENC_COL_TEXT), V (enclave_id, ENC_COL_TEXT), V (kind, ENC_COL_U8), V (size_bytes, ENC_COL_I64),
	V (key_made, ENC_COL_U8), ENC_COL_END_
};

#define A(member, type) ENC_COL (struct enc_agreement, member, type)
const struct enc_col enc_agreement_cols[] = {
	A (id, ENC_COL_TEXT), A (until, ENC_COL_I64), A (ended, ENC_COL_U8), A (added_by, ENC_COL_TEXT), ENC_COL_END_
};

#define P(member, type) ENC_COL (struct enc_operation, member, type)
const struct enc_col enc_operation_cols[] = {
	P (id, ENC_COL_TEXT), P (enclave_id, ENC_COL_TEXT), P (name, ENC_COL_TEXT), P (kind, ENC_COL_TEXT), P (user, ENC_COL_TEXT),
	P (state, ENC_COL_TEXT), P (created_at, ENC_COL_I64), P (finished_at, ENC_COL_I64), P (code, ENC_COL_U32),
	P (result, ENC_COL_HEAP), P (error, ENC_COL_HEAP), ENC_COL_END_
};

#define C(member, type) ENC_COL (struct enc_certificate, member, type)
const struct enc_col enc_certificate_cols[] = {
	C (node, ENC_COL_TEXT), C (enclave_id, ENC_COL_TEXT), C (json, ENC_COL_HEAP), C (proof, ENC_COL_HEAP),
	C (record_body, ENC_COL_HEAP), C (record, ENC_COL_I64), C (at, ENC_COL_I64), ENC_COL_END_
};
