/* The main process of privd: what its parts share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "crypto/grant.h"
#include "crypto/seal.h"
#include "crypto/sign.h"
#include "node-agent/privd/hands.h"
#include "node-agent/privd/spool.h"
#include "node-agent/privd/state.h"
#include "node-agent/proto/order.h"

struct event_base;
struct enc_agent_link;
struct enc_facts_server;
struct enc_runner;
struct enc_sessions;

struct enc_privd {
	struct enc_privd_conf conf;
	struct event_base *base;
	struct enc_hands *hands;
	struct enc_node_state state;
	struct enc_spool spool;
	uint8_t boot[16];
	char boot_id[37];
	struct enc_boot_key *boot_key;
	struct enc_sign_key *identity;
	bool has_keyd;
	struct enc_sign_pub keyd;        /* whose signatures count */
	struct enc_runner *runner;
	struct enc_agent_link *agent;
	struct enc_facts_server *facts;
	struct enc_sessions *sessions;   /* told.c */
	void (*quit) (struct enc_privd *p, int rc);
	void *daemon;
};

/* ---- identity.c ---- */

/* Boot nonce (<run_dir>/boot), boot id, identity key (<state_dir>/identity, made at the first start) and boot key. */
int enc_privd_identity (struct enc_privd *p, struct enc_error *err) ENC_MUST_USE;
/* Verifier key of keyd; one that is not there yet is looked for again at each use. */
int enc_privd_keyd (struct enc_privd *p, struct enc_error *err) ENC_MUST_USE;

/* ---- run.c: one thing at a time ---- */

int enc_runner_new (struct enc_privd *p, struct enc_error *err) ENC_MUST_USE;
void enc_runner_free (struct enc_runner *r);

/* What became of an order: evidence (may be NULL) is borrowed. */
typedef void enc_order_done_fn (const struct enc_order *order, int rc, const struct enc_error *err, const struct enc_json *evidence, void *arg);

/* Judge and carry out one order of the agent. `done` comes exactly once, perhaps from within. The order's bytes are copied. */
void enc_runner_order (struct enc_runner *r, const struct enc_order *order, enc_order_done_fn *done, void *arg);

/* Tighten by ourselves: shut the door, or take everything down into that pool. Waits its turn, before any order that waits. */
void enc_runner_shut (struct enc_runner *r, const char *reason);
void enc_runner_tighten (struct enc_runner *r, uint8_t pool, const char *reason);

/* A login session is over: whatever is left of its processes goes. `login` is their audit session, UINT32_MAX none. */
void enc_runner_end_rest (struct enc_runner *r, uint32_t login);

/* A family says that the packet filter was changed. */
void enc_runner_check_fence (struct enc_runner *r);
bool enc_runner_busy (const struct enc_runner *r);

/* ---- evidence.c ---- */

/* What STATE answers. */
struct enc_json *enc_privd_state_evidence (const struct enc_privd *p) ENC_MUST_USE;
/* Rows of a measurement into a signed attestation; sets "attestation" in `evidence`. */
int enc_privd_attest (const struct enc_privd *p, const struct enc_doc *doc, struct enc_json *evidence, struct enc_error *err) ENC_MUST_USE;

/* ---- members.c ---- */

/* Check a member document's envelope and put it to /run/enclave/members. */
int enc_privd_members_take (struct enc_privd *p, struct enc_view envelope, struct enc_error *err) ENC_MUST_USE;
/* The body of the one that stands there, checked again, appended to `out`; -ENC_ENOTFOUND when there is none. */
int enc_privd_members_body (struct enc_privd *p, struct enc_buf *out, struct enc_error *err) ENC_MUST_USE;

/* ---- agent.c ---- */

int enc_agent_link_new (struct enc_privd *p, struct enc_error *err) ENC_MUST_USE;
void enc_agent_link_free (struct enc_agent_link *a);
bool enc_agent_link_alive (const struct enc_agent_link *a);

/* ---- facts.c ---- */

/* `fd` is the listening socket, taken over. */
int enc_facts_server_new (struct enc_privd *p, int fd, struct enc_error *err) ENC_MUST_USE;
void enc_facts_server_free (struct enc_facts_server *f);
int enc_facts_listen (const char *path, struct enc_error *err) ENC_MUST_USE;
