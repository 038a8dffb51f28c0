/* The API on the Unix socket: one table of routes, each handler straight-line code in a fiber of its own.
 *
 * The caller is who SO_PEERCRED says; his role comes from the policies by user name. A refusal changes nothing and is one record.
 * Handlers return 0 with an answer, or fill the error whose code decides the HTTP status. */
#ifndef ENC_ENCLAVED_API_H
#define ENC_ENCLAVED_API_H

#include "controller/enclaved/life.h"
#include "controller/enclaved/view.h"

struct enc_api {
	struct enc_ctl *c;
	struct enc_http_req *req;
	const struct enc_actor *actor;
	const struct enc_json *body;  /* NULL: none */
	int status;                   /* of a good answer; 200 unless set */
	struct enc_json *answer;      /* given to the caller */
	bool parked;                  /* the request was handed on to a poll, or has its answer */
};

typedef int (*enc_api_fn) (struct enc_api *a, struct enc_error *err);

/* What a route needs beside its path. */
struct enc_api_op {
	enc_api_fn fn;
	const char *help;
};

ENC_MUST_USE int enc_api_start (struct enc_ctl *c, struct enc_error *err);
extern const struct enc_http_route enc_api_routes[];

/* Handlers, by file. api_create.c */
int enc_api_create (struct enc_api *a, struct enc_error *err);
int enc_api_plan (struct enc_api *a, struct enc_error *err);
/* api_enclave.c */
int enc_api_list (struct enc_api *a, struct enc_error *err);
int enc_api_show (struct enc_api *a, struct enc_error *err);
int enc_api_destroy (struct enc_api *a, struct enc_error *err);
int enc_api_jobs (struct enc_api *a, struct enc_error *err);
/* api_extend.c */
int enc_api_extend (struct enc_api *a, struct enc_error *err);
/* api_member.c */
int enc_api_members (struct enc_api *a, struct enc_error *err);
int enc_api_member_add (struct enc_api *a, struct enc_error *err);
int enc_api_member_remove (struct enc_api *a, struct enc_error *err);
/* api_session.c */
int enc_api_sessions (struct enc_api *a, struct enc_error *err);
int enc_api_session_end (struct enc_api *a, struct enc_error *err);
/* api_node.c */
int enc_api_nodes (struct enc_api *a, struct enc_error *err);
int enc_api_node (struct enc_api *a, struct enc_error *err);
int enc_api_node_enroll (struct enc_api *a, struct enc_error *err);
int enc_api_node_quarantine (struct enc_api *a, struct enc_error *err);
int enc_api_node_release (struct enc_api *a, struct enc_error *err);
int enc_api_node_certificate (struct enc_api *a, struct enc_error *err);
/* api_misc.c */
int enc_api_operation (struct enc_api *a, struct enc_error *err);
int enc_api_events (struct enc_api *a, struct enc_error *err);
int enc_api_agreements (struct enc_api *a, struct enc_error *err);
int enc_api_agreement_add (struct enc_api *a, struct enc_error *err);
int enc_api_agreement_end (struct enc_api *a, struct enc_error *err);
int enc_api_audit (struct enc_api *a, struct enc_error *err);
int enc_api_keys (struct enc_api *a, struct enc_error *err);
int enc_api_policies (struct enc_api *a, struct enc_error *err);
int enc_api_policy_check (struct enc_api *a, struct enc_error *err);
int enc_api_policy_explain (struct enc_api *a, struct enc_error *err);
int enc_api_whoami (struct enc_api *a, struct enc_error *err);

/* api_site.c */
int enc_api_users (struct enc_api *a, struct enc_error *err);
int enc_api_training (struct enc_api *a, struct enc_error *err);
int enc_api_volumes (struct enc_api *a, struct enc_error *err);
int enc_api_doctor (struct enc_api *a, struct enc_error *err);
int enc_api_metrics (struct enc_api *a, struct enc_error *err);

/* ---- for handlers ---- */

/* Decide an action that is not about one enclave. */
ENC_MUST_USE int enc_api_may (struct enc_api *a, enum enc_action action, struct enc_error *err);
/* The enclave named in the path, if the caller may know of it and do this to it. Unknown and not his are one answer.
 * `closed` also finds the latest closed one. */
ENC_MUST_USE int enc_api_enclave (struct enc_api *a, enum enc_action action, bool closed, struct enc_enclave *ret, struct enc_error *err);
/* Fill what the store knows about an agreement. */
void enc_facts_agreement (struct enc_ctl *c, const char *id, struct enc_facts *f);
/* Wait until the operation has ended, at most `ms`. Its failure is the request's; still running is not one. */
ENC_MUST_USE int enc_api_wait (struct enc_api *a, const char *op, int64_t ms, struct enc_error *err);
/* What the store knows about a user's training, wall ns; 0 nothing. */
int64_t enc_training_until (struct enc_ctl *c, const char *user);
/* Answer 202 with the operation. */
void enc_api_accepted (struct enc_api *a, const char *op);
/* schedd's list of nodes; NULL when it is not reachable. The caller frees. */
struct enc_json *enc_api_slurm (struct enc_api *a);
/* "until" of a body: a day (its end) or a time, in seconds. */
ENC_MUST_USE int enc_until_of (const struct enc_json *body, int64_t *ret_s, struct enc_error *err);
/* A record by this caller. */
struct enc_json *enc_api_record (struct enc_api *a, const char *cls, const char *action, const char *outcome);

#endif
