/* Every command of enclavectl. `create` and its kin have code in cmd_enclave.c; most others are their route and their columns. */
#include "controller/cli/command.h"

#include <stddef.h>
#include "base/enc.h"

#define END_ARGS { .kind = ENC_ARG_END }
#define END_COLUMNS { .kind = ENC_COLUMN_END }
#define WORD(name_, key_, kind_) { .name = name_, .key = key_, .kind = kind_, .flags = ENC_ARG_WORD | ENC_ARG_REQUIRED }
#define WORD_OPT(name_, key_, kind_) { .name = name_, .key = key_, .kind = kind_, .flags = ENC_ARG_WORD }

/* ---- arguments ---- */

static const struct enc_arg no_args[] = { END_ARGS };
static const struct enc_arg name_args[] = { WORD ("NAME", "name", ENC_ARG_NAME), END_ARGS };
static const struct enc_arg node_args[] = { WORD ("NODE", "node", ENC_ARG_NODE), END_ARGS };
static const struct enc_arg enrol_args[] = {
	WORD ("NODE", "node", ENC_ARG_NODE),
	{ "pool", NULL, ENC_ARG_CHOICE, 0, "general|service|observer", "POOL" },
	END_ARGS,
};
static const struct enc_arg create_args[] = {
	WORD ("NAME", "name", ENC_ARG_NAME),
	{ "nodes", NULL, ENC_ARG_NODES, ENC_ARG_REQUIRED, NULL, "N|HOSTLIST" },
	{ "agreement", NULL, ENC_ARG_TEXT, ENC_ARG_REQUIRED, NULL, "ID" },
	{ "purpose", NULL, ENC_ARG_TEXT, ENC_ARG_REQUIRED, NULL, "TEXT" },
	{ "owner", NULL, ENC_ARG_USER, ENC_ARG_REQUIRED, NULL, "USER" },
	{ "ttl", "ttl_s", ENC_ARG_DURATION, 0, NULL, "14d" },
	{ "policy", NULL, ENC_ARG_NAME, 0, NULL, "NAME" },
	{ "member", "members", ENC_ARG_MEMBER, ENC_ARG_LIST, NULL, "USER[:ROLE]" },
	{ "volume", "volumes", ENC_ARG_VOLUME, ENC_ARG_LIST, NULL, "NAME:SIZE[:scratch|project]" },
	{ "dataset", "datasets", ENC_ARG_NAME, ENC_ARG_LIST, NULL, "NAME" },
	{ "feature", NULL, ENC_ARG_TEXT, 0, NULL, "F" },
	{ "gres", NULL, ENC_ARG_TEXT, 0, NULL, "gpu:h200:4" },
	{ "deadline", "deadline_s", ENC_ARG_DURATION, 0, NULL, "2h" },
	{ "on-busy", "on_busy", ENC_ARG_CHOICE, 0, "wait|requeue|cancel|fail", NULL },
	{ "entry", NULL, ENC_ARG_CHOICE, 0, "live|reboot", NULL },
	{ "service", NULL, ENC_ARG_CHOICE, 0, "host|libvirt", NULL },
	{ "dry-run", "dry_run", ENC_ARG_FLAG, 0, NULL, NULL },
	{ "no-wait", "no_wait", ENC_ARG_FLAG, 0, NULL, NULL },
	END_ARGS,
};
static const struct enc_arg destroy_args[] = {
	WORD ("NAME", "name", ENC_ARG_NAME),
	{ "now", NULL, ENC_ARG_FLAG, 0, NULL, NULL },
	{ "erase", NULL, ENC_ARG_NAME, ENC_ARG_LIST, NULL, "VOLUME|all" },
	{ "no-wait", "no_wait", ENC_ARG_FLAG, 0, NULL, NULL },
	END_ARGS,
};
static const struct enc_arg extend_args[] = {
	WORD ("NAME", "name", ENC_ARG_NAME),
	{ "ttl", "ttl_s", ENC_ARG_DURATION, ENC_ARG_REQUIRED, NULL, "14d" },
	END_ARGS,
};
static const struct enc_arg resize_args[] = {
	WORD ("NAME", "name", ENC_ARG_NAME),
	{ "nodes", NULL, ENC_ARG_NODES, ENC_ARG_REQUIRED, NULL, "N|HOSTLIST" },
	END_ARGS,
};
static const struct enc_arg member_args[] = {
	WORD ("NAME", "name", ENC_ARG_NAME),
	WORD ("USER[:ROLE]", "member", ENC_ARG_MEMBER),
	END_ARGS,
};
static const struct enc_arg member_user_args[] = {
	WORD ("NAME", "name", ENC_ARG_NAME),
	WORD ("USER", "user", ENC_ARG_USER),
	END_ARGS,
};
static const struct enc_arg name_id_args[] = {
	WORD ("NAME", "name", ENC_ARG_NAME),
	WORD_OPT ("ID", "id", ENC_ARG_TEXT),
	END_ARGS,
};
static const struct enc_arg user_args[] = { WORD ("USER", "user", ENC_ARG_USER), END_ARGS };
static const struct enc_arg agreement_args[] = {
	WORD ("ID", "id", ENC_ARG_TEXT),
	{ "until", NULL, ENC_ARG_TEXT, 0, NULL, "DATE" },
	END_ARGS,
};
static const struct enc_arg training_args[] = {
	WORD ("USER", "user", ENC_ARG_USER),
	{ "until", NULL, ENC_ARG_TEXT, ENC_ARG_REQUIRED, NULL, "DATE" },
	END_ARGS,
};
static const struct enc_arg scrub_args[] = {
	WORD ("NODE", "node", ENC_ARG_NODE),
	{ "level", NULL, ENC_ARG_CHOICE, 0, "live|reboot", NULL },
	{ "drill", NULL, ENC_ARG_FLAG, 0, NULL, NULL },
	END_ARGS,
};
static const struct enc_arg node_show_args[] = {
	WORD ("NODE", "node", ENC_ARG_NODE),
	{ "attest", NULL, ENC_ARG_FLAG, 0, NULL, NULL },
	END_ARGS,
};
#define SEARCH_ARGS \
	{ "user", NULL, ENC_ARG_USER, 0, NULL, "USER" }, \
	{ "enclave", NULL, ENC_ARG_NAME, 0, NULL, "NAME" }, \
	{ "dataset", NULL, ENC_ARG_NAME, 0, NULL, "NAME" }, \
	{ "node", NULL, ENC_ARG_NODE, 0, NULL, "NODE" }, \
	{ "action", NULL, ENC_ARG_TEXT, 0, NULL, "ACTION" }, \
	{ "outcome", NULL, ENC_ARG_CHOICE, 0, "ok|failed|denied|intent", NULL }, \
	{ "since", NULL, ENC_ARG_TEXT, 0, NULL, "TIME" }, \
	{ "until", NULL, ENC_ARG_TEXT, 0, NULL, "TIME" }, \
	{ "from", NULL, ENC_ARG_NUMBER, 0, NULL, "INDEX" }, \
	{ "limit", NULL, ENC_ARG_NUMBER, 0, NULL, "N" }
static const struct enc_arg search_args[] = { SEARCH_ARGS, END_ARGS };
static const struct enc_arg export_args[] = { SEARCH_ARGS, { "format", NULL, ENC_ARG_CHOICE, 0, "jsonl|csv", NULL }, END_ARGS };
static const struct enc_arg prove_args[] = { WORD ("INDEX", "index", ENC_ARG_NUMBER), END_ARGS };
static const struct enc_arg proof_file_args[] = {
	WORD ("PROOF", "proof", ENC_ARG_PATH),
	{ "record", NULL, ENC_ARG_PATH, ENC_ARG_REQUIRED, NULL, "FILE" },
	{ "vkey", NULL, ENC_ARG_PATH, 0, NULL, "FILE" },
	END_ARGS,
};
static const struct enc_arg verify_args[] = {
	{ "vkey", NULL, ENC_ARG_PATH, 0, NULL, "FILE" },
	{ "policy", NULL, ENC_ARG_PATH, 0, NULL, "FILE" },
	{ "witness-age", "witness_age", ENC_ARG_DURATION, 0, NULL, "1h" },
	END_ARGS,
};
static const struct enc_arg consistency_args[] = {
	WORD ("OLD", "from", ENC_ARG_PATH),
	WORD_OPT ("NEW", "to", ENC_ARG_PATH),
	{ "vkey", NULL, ENC_ARG_PATH, 0, NULL, "FILE" },
	END_ARGS,
};
static const struct enc_arg policy_check_args[] = { WORD ("FILE", "file", ENC_ARG_PATH), END_ARGS };
static const struct enc_arg recipe_args[] = { WORD ("NAME", "name", ENC_ARG_NAME), END_ARGS };
static const struct enc_arg recipe_run_args[] = {
	WORD ("NAME", "name", ENC_ARG_NAME),
	{ "WORD", "words", ENC_ARG_TEXT, ENC_ARG_WORD | ENC_ARG_LIST, NULL, NULL },
	END_ARGS,
};
static const struct enc_arg estimate_args[] = {
	WORD ("RECIPE", "name", ENC_ARG_NAME),
	{ "KEY=VALUE", "words", ENC_ARG_TEXT, ENC_ARG_WORD | ENC_ARG_LIST, NULL, NULL },
	END_ARGS,
};
static const struct enc_arg any_args[] = { { "WORD", "words", ENC_ARG_TEXT, ENC_ARG_WORD | ENC_ARG_LIST, NULL, NULL }, END_ARGS };

/* ---- columns ---- */

static const struct enc_column list_columns[] = {
	{ "ENCLAVE", "/name", ENC_COLUMN_TEXT },     { "STATE", "/state", ENC_COLUMN_TEXT },     { "STEP", "/step", ENC_COLUMN_TEXT },
	{ "NODES", "/nodes", ENC_COLUMN_NODES },     { "MEMBERS", "/members", ENC_COLUMN_TEXT }, { "OPEN SINCE", "/opened_at", ENC_COLUMN_TEXT },
	{ "EXPIRES", "/expires_at", ENC_COLUMN_UNTIL }, { "EVIDENCE", "/evidence/state", ENC_COLUMN_TEXT },
	{ "WAITS FOR", "/waiting/for", ENC_COLUMN_TEXT }, END_COLUMNS,
};
static const struct enc_column member_columns[] = {
	{ "USER", "/user", ENC_COLUMN_TEXT }, { "ROLE", "/role", ENC_COLUMN_TEXT }, { "SINCE", "/since", ENC_COLUMN_TEXT },
	{ "LAST LOGIN", "/last_login", ENC_COLUMN_TEXT }, END_COLUMNS,
};
static const struct enc_column node_columns[] = {
	{ "NODE", "/name", ENC_COLUMN_TEXT },        { "POOL", "/pool", ENC_COLUMN_TEXT },   { "ENCLAVE", "/enclave", ENC_COLUMN_TEXT },
	{ "SLURM", "/slurm_state", ENC_COLUMN_TEXT }, { "AGENT", "/agent/connected", ENC_COLUMN_YES }, { "FENCE", "/fence", ENC_COLUMN_TEXT },
	{ "GENERATION", "/generation", ENC_COLUMN_TEXT }, { "WHY", "/why", ENC_COLUMN_TEXT }, { "NEXT", "/next", ENC_COLUMN_TEXT }, END_COLUMNS,
};
static const struct enc_column enrol_columns[] = {
	{ "Node", "/node", ENC_COLUMN_TEXT }, { "Token", "/token", ENC_COLUMN_TEXT }, { "Expires", "/expires_at", ENC_COLUMN_UNTIL },
	{ "CA", "/ca_sha256", ENC_COLUMN_TEXT }, END_COLUMNS,
};
static const struct enc_column certificate_columns[] = {
	{ "Node", "/node", ENC_COLUMN_TEXT }, { "Enclave", "/enclave_id", ENC_COLUMN_TEXT }, { "From", "/from", ENC_COLUMN_TEXT },
	{ "To", "/to", ENC_COLUMN_TEXT },     { "Level", "/level", ENC_COLUMN_TEXT },        { "Entry", "/entry", ENC_COLUMN_TEXT },
	{ "Record", "/record", ENC_COLUMN_TEXT }, END_COLUMNS,
};
static const struct enc_column agreement_columns[] = {
	{ "AGREEMENT", "/id", ENC_COLUMN_TEXT }, { "UNTIL", "/until", ENC_COLUMN_TEXT }, { "STATE", "/state", ENC_COLUMN_TEXT }, END_COLUMNS,
};
static const struct enc_column user_columns[] = {
	{ "USER", "/user", ENC_COLUMN_TEXT }, { "ROLE", "/role", ENC_COLUMN_TEXT }, { "TRAINED UNTIL", "/trained_until", ENC_COLUMN_TEXT },
	{ "ENCLAVES", "/enclaves", ENC_COLUMN_LIST }, END_COLUMNS,
};
static const struct enc_column session_columns[] = {
	{ "SESSION", "/id", ENC_COLUMN_TEXT }, { "USER", "/user", ENC_COLUMN_TEXT }, { "SINCE", "/since", ENC_COLUMN_TEXT },
	{ "FROM", "/from", ENC_COLUMN_TEXT }, { "FACTOR", "/factor", ENC_COLUMN_TEXT }, END_COLUMNS,
};
static const struct enc_column job_columns[] = {
	{ "JOB", "/id", ENC_COLUMN_TEXT },       { "USER", "/user", ENC_COLUMN_TEXT },   { "STATE", "/state", ENC_COLUMN_TEXT },
	{ "NODES", "/nodes", ENC_COLUMN_NODES }, { "START", "/start", ENC_COLUMN_TEXT }, { "END", "/end", ENC_COLUMN_TEXT }, END_COLUMNS,
};
static const struct enc_column volume_columns[] = {
	{ "VOLUME", "/name", ENC_COLUMN_TEXT },  { "KIND", "/kind", ENC_COLUMN_TEXT },     { "STATE", "/state", ENC_COLUMN_TEXT },
	{ "SIZE", "/size_bytes", ENC_COLUMN_SIZE }, { "CIPHER", "/cipher", ENC_COLUMN_TEXT }, { "MOUNT", "/mount", ENC_COLUMN_TEXT }, END_COLUMNS,
};
static const struct enc_column policy_columns[] = {
	{ "POLICY", "/name", ENC_COLUMN_TEXT }, { "VERSION", "/version", ENC_COLUMN_TEXT }, END_COLUMNS,
};
static const struct enc_column explain_columns[] = {
	{ "Allowed", "/allowed", ENC_COLUMN_YES }, { "Rule", "/rule", ENC_COLUMN_TEXT }, { "Policy", "/policy", ENC_COLUMN_TEXT },
	{ "Version", "/version", ENC_COLUMN_TEXT }, END_COLUMNS,
};

/* ---- commands ---- */

#define GET "GET"
#define POST "POST"
#define DELETE "DELETE"

const struct enc_command enc_commands[] = {
	{ "create", NULL, create_args, POST, "/v1/enclaves", enc_cmd_create, NULL, NULL, enc_view_created, "make an enclave and open its door" },
	{ "plan", NULL, create_args, POST, "/v1/enclaves/plan", enc_cmd_plan, NULL, NULL, enc_view_plan, "say what create would do; change nothing" },
	{ "list", NULL, no_args, GET, "/v1/enclaves", NULL, "/enclaves", list_columns, NULL, "enclaves that you may see" },
	{ "show", NULL, name_args, GET, "/v1/enclaves/{name}", NULL, NULL, NULL, enc_view_show, "one enclave" },
	{ "watch", NULL, name_args, GET, "/v1/enclaves/{name}", enc_cmd_watch, NULL, NULL, NULL, "follow what an enclave is doing" },
	{ "extend", NULL, extend_args, POST, "/v1/enclaves/{name}/extend", NULL, NULL, NULL, enc_view_show, "a longer lease" },
	{ "grow", NULL, resize_args, POST, "/v1/enclaves/{name}/grow", enc_cmd_change, NULL, NULL, enc_view_show, "more nodes" },
	{ "shrink", NULL, resize_args, POST, "/v1/enclaves/{name}/shrink", enc_cmd_change, NULL, NULL, enc_view_show, "fewer nodes" },
	{ "destroy", NULL, destroy_args, DELETE, "/v1/enclaves/{name}", enc_cmd_destroy, NULL, NULL, enc_view_destroyed, "close it and give its nodes back" },
	{ "member", "list", name_args, GET, "/v1/enclaves/{name}/members", NULL, "/members", member_columns, NULL, "who may enter" },
	{ "member", "add", member_args, POST, "/v1/enclaves/{name}/members", enc_cmd_member_add, "/members", member_columns, NULL, "let a user in" },
	{ "member", "remove", member_user_args, DELETE, "/v1/enclaves/{name}/members/{user}", NULL, "/members", member_columns, NULL, "end a user's access" },
	{ "session", "list", name_args, GET, "/v1/enclaves/{name}/sessions", NULL, "/sessions", session_columns, NULL, "who is in" },
	{ "session", "end", name_id_args, DELETE, "/v1/enclaves/{name}/sessions/{id}", enc_cmd_session_end, "/sessions", session_columns, NULL, "end a session, or all" },
	{ "job", "list", name_args, GET, "/v1/enclaves/{name}/jobs", NULL, "/jobs", job_columns, NULL, "jobs, without their names" },
	{ "job", "watch", name_id_args, GET, "/v1/enclaves/{name}/jobs", enc_cmd_later, NULL, NULL, NULL, "progress of a job" },
	{ "user", "list", no_args, GET, "/v1/users", NULL, "/users", user_columns, NULL, "users that the policies know" },
	{ "user", "terminate", user_args, NULL, NULL, enc_cmd_later, NULL, NULL, NULL, "end all access of a user" },
	{ "user", "enroll", user_args, NULL, NULL, enc_cmd_later, NULL, NULL, NULL, "second factor and VPN of a user" },
	{ "agreement", "list", no_args, GET, "/v1/agreements", NULL, "/agreements", agreement_columns, NULL, "agreements and until when" },
	{ "agreement", "add", agreement_args, POST, "/v1/agreements/{id}", NULL, "/agreements", agreement_columns, NULL, "note an agreement" },
	{ "agreement", "end", agreement_args, DELETE, "/v1/agreements/{id}", NULL, "/agreements", agreement_columns, NULL, "end an agreement" },
	{ "training", "set", training_args, POST, "/v1/users/{user}/training", NULL, NULL, NULL, NULL, "note a user's training" },
	{ "request", NULL, any_args, NULL, NULL, enc_cmd_later, NULL, NULL, NULL, "what needs two persons" },
	{ "volume", "list", no_args, GET, "/v1/volumes", NULL, "/volumes", volume_columns, NULL, "volumes and their state" },
	{ "volume", NULL, any_args, NULL, NULL, enc_cmd_later, NULL, NULL, NULL, "volumes" },
	{ "key", "status", no_args, GET, "/v1/key", enc_cmd_key, NULL, NULL, enc_view_text, "state of the key service" },
	{ "key", "init", no_args, NULL, NULL, enc_cmd_key, NULL, NULL, enc_view_text, "make the root key (root on the vault; passphrase on stdin)" },
	{ "key", "unseal", no_args, NULL, NULL, enc_cmd_key, NULL, NULL, NULL, "open the key service (root on the vault; passphrase on stdin)" },
	{ "key", "seal", no_args, NULL, NULL, enc_cmd_key, NULL, NULL, NULL, "shut the key service (root on the vault)" },
	{ "key", NULL, any_args, NULL, NULL, enc_cmd_later, NULL, NULL, NULL, "rotation and escrow" },
	{ "node", "list", no_args, GET, "/v1/nodes", NULL, "/nodes", node_columns, NULL, "nodes, pools and agents" },
	{ "node", "show", node_show_args, GET, "/v1/nodes/{node}", NULL, "/nodes", node_columns, NULL, "one node" },
	{ "node", "enroll", enrol_args, POST, "/v1/nodes/{node}/enroll", NULL, NULL, enrol_columns, NULL, "a one-time token for a node" },
	{ "node", "baseline", node_args, POST, "/v1/nodes/{node}/baseline", NULL, NULL, NULL, NULL, "take a node's measurement as its baseline" },
	{ "node", "quarantine", node_args, POST, "/v1/nodes/{node}/quarantine", NULL, "/nodes", node_columns, NULL, "fence a node off" },
	{ "node", "release", node_args, POST, "/v1/nodes/{node}/release", NULL, "/nodes", node_columns, NULL, "clean a quarantined node and give it back" },
	{ "node", "scrub", scrub_args, NULL, NULL, enc_cmd_later, NULL, NULL, NULL, "clean a node; --drill plants and searches" },
	{ "node", "certificate", node_args, GET, "/v1/nodes/{node}/certificate", NULL, NULL, certificate_columns, NULL, "the proof of a clean return" },
	{ "audit", "search", search_args, GET, "/v1/audit/search", NULL, NULL, NULL, enc_view_search, "who did what" },
	{ "audit", "tail", search_args, GET, "/v1/audit/search", enc_cmd_audit_tail, NULL, NULL, NULL, "records as they come" },
	{ "audit", "verify", verify_args, GET, "/v1/audit/files", enc_cmd_audit_verify, NULL, NULL, enc_view_verify, "is the log complete and unaltered" },
	{ "audit", "prove", prove_args, GET, "/v1/audit/receipt", NULL, NULL, NULL, enc_view_text, "a record with its proof" },
	{ "audit", "check-proof", proof_file_args, NULL, NULL, enc_cmd_audit_proof, NULL, NULL, enc_view_text, "check a proof without any service" },
	{ "audit", "export", export_args, GET, "/v1/audit/search", enc_cmd_audit_export, NULL, NULL, NULL, "records as JSON lines or CSV" },
	{ "audit", "consistency", consistency_args, GET, "/v1/audit/consistency", enc_cmd_audit_consistency, NULL, NULL, enc_view_text, "does the log continue a head that you kept" },
	{ "audit", "witness", no_args, GET, "/v1/audit/witness", NULL, NULL, NULL, enc_view_witness, "who cosigned the log, and when" },
	{ "audit", NULL, any_args, NULL, NULL, enc_cmd_later, NULL, NULL, NULL, "reports and reviews" },
	{ "policy", "list", no_args, GET, "/v1/policies", NULL, "/policies", policy_columns, NULL, "policies in force" },
	{ "policy", "check", policy_check_args, NULL, NULL, enc_cmd_policy_check, NULL, NULL, enc_view_text, "check a policy file" },
	{ "policy", "explain", create_args, POST, "/v1/policies/explain", enc_cmd_policy_explain, NULL, explain_columns, NULL, "which rule would decide a create" },
	{ "evidence", NULL, name_args, GET, "/v1/enclaves/{name}/evidence", enc_cmd_later, NULL, NULL, NULL, "controls and their evidence" },
	{ "break-glass", NULL, any_args, NULL, NULL, enc_cmd_later, NULL, NULL, NULL, "emergency access" },
	{ "recipe", "list", no_args, NULL, NULL, enc_cmd_recipe_list, NULL, NULL, enc_view_text, "training recipes on this machine" },
	{ "recipe", "show", recipe_args, NULL, NULL, enc_cmd_recipe_show, NULL, NULL, enc_view_text, "one recipe" },
	{ "recipe", "run", recipe_run_args, NULL, NULL, enc_cmd_recipe_run, NULL, NULL, enc_view_text, "submit a recipe's job, inside an enclave" },
	{ "estimate", NULL, estimate_args, NULL, NULL, enc_cmd_estimate, NULL, NULL, enc_view_text, "does a training job fit" },
	{ "backup", NULL, any_args, NULL, NULL, enc_cmd_later, NULL, NULL, NULL, "store and wrapped keys into an archive" },
	{ "restore", NULL, any_args, NULL, NULL, enc_cmd_later, NULL, NULL, NULL, "the reverse" },
	{ "doctor", NULL, no_args, GET, "/v1/doctor", enc_cmd_doctor, NULL, NULL, enc_view_doctor, "what is wrong here, and what to do" },
	{ .verb = NULL },
};
