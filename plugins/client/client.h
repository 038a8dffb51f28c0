/* What a plugin knows of its enclave, and what it decides from it.
 *
 * Two sources, both asked anew at each use: the member document that keyd signed, and the facts that privd (root) tells about this
 * node. A plugin never asks the network. Everything here is bounded in time (enc_client_conf.deadline_ms) and fails closed: what
 * cannot be read, does not verify or does not fit together is a refusal.
 *
 * These calls run inside sshd, slurmctld, srun and slurmstepd: no threads, no globals that change, no setenv, no exit. */
#ifndef ENC_PLUGINS_CLIENT_H
#define ENC_PLUGINS_CLIENT_H

#include <sys/types.h>

#include "crypto/members.h"
#include "node-agent/proto/document.h"
#include "node-agent/proto/order.h"

/* Where things stand. Tests have their own; everybody else takes enc_client_conf. */
struct enc_client_conf {
	const char *members;       /* the member document */
	const char *vkey;          /* keyd's verifier key; file and folders must be root's */
	const char *log_vkey;      /* the log's, likewise */
	const char *facts;         /* privd's socket */
	const char *agent;         /* the agent's: receipts */
	uid_t facts_uid;           /* who must answer there: root */
	int deadline_ms;           /* for the facts, at most 2000 */
	int receipt_ms;            /* until the log must have a session's record */
	const char *plugin;        /* spank_enclave.so */
	const char *plugstacks[2]; /* the first that exists is in force: the same list as privd's */
	const char *nodes;         /* the enclave's slurm.conf: node names and overlay addresses */
	const char *jobs;          /* what prolog and plugin leave for each other, one folder a job */
	const char *scratch;       /* where private folders of jobs are made */
	const char *recipes;
};
extern const struct enc_client_conf enc_client_conf;

struct enc_client_view {
	struct enc_members members;
	struct enc_facts facts;
};

/* Read and verify the member document. ENC_EUNAVAIL when it or its key is not there, ENC_EINTEGRITY when the signature does not
 * hold. Free with enc_members_done(). */
ENC_MUST_USE int enc_client_members (const struct enc_client_conf *conf, struct enc_members *ret, struct enc_error *err);
/* Ask privd. ENC_EUNAVAIL nobody there, ENC_ETIMEOUT, ENC_EINTEGRITY somebody else there, ENC_EPROTO nonsense. */
ENC_MUST_USE int enc_client_facts (const struct enc_client_conf *conf, uid_t about, struct enc_facts *ret, struct enc_error *err);

/* Both, and that they belong together: pool enclave, same enclave, a version not below the one privd has seen, in force now.
 * Free with enc_client_close(). On failure `ret` owns nothing. */
ENC_MUST_USE int enc_client_open (const struct enc_client_conf *conf, struct enc_client_view *ret, struct enc_error *err);
void enc_client_close (struct enc_client_view *view);
/* The part of enc_client_open that reads nothing. `now` in Unix seconds. */
ENC_MUST_USE int enc_client_fits (const struct enc_members *members, const struct enc_facts *facts, uint64_t now, struct enc_error *err);

enum enc_client_act {
	ENC_ACT_ENTER = 1,  /* come in through the door */
	ENC_ACT_SUBMIT = 2, /* hand a job to the scheduler */
	ENC_ACT_RUN = 4,    /* run a task on this node */
};

/* May this user do that here and now? `user` NULL: known by `uid` alone; else both must be the same member's.
 * Whoever is not a member gets ENC_ENOTFOUND with one and the same text, whether he exists or not and whatever else is wrong.
 * `ret` (may be NULL) borrows from the view. Pure. */
ENC_MUST_USE int enc_client_judge (const struct enc_client_view *view, enum enc_client_act act, const char *user, uid_t uid,
	const struct enc_member **ret, struct enc_error *err);
/* The answer to a stranger; returns -ENC_ENOTFOUND. */
int enc_client_stranger (struct enc_error *err);

/* Are spank_enclave.so and the plugstack on this node what privd measured, and does the plugstack list that plugin, alone and as
 * required? ENC_EINTEGRITY says what is not. */
ENC_MUST_USE int enc_client_stack (const struct enc_client_conf *conf, const struct enc_facts *facts, struct enc_error *err);
/* The text of a plugstack: exactly one line that counts, "required PLUGIN". Pure. */
ENC_MUST_USE int enc_client_stack_text (const char *text, const char *plugin, struct enc_error *err);

/* For slurmctld, which asks often: the member document is read again when its file changed, the facts when they are older than
 * ENC_CACHE_FACTS_MS. Zero it before the first use. */
enum { ENC_CACHE_FACTS_MS = 500 };
struct enc_client_cache {
	struct enc_client_view view;
	bool filled;
	int64_t facts_until;
	struct { dev_t dev; ino_t ino; off_t size; int64_t mtime, ctime; } file;
};
ENC_MUST_USE int enc_client_cached (const struct enc_client_conf *conf, struct enc_client_cache *cache, struct enc_error *err);
void enc_client_cache_done (struct enc_client_cache *cache);

#endif
