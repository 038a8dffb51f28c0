/* The decision engine: facts in, decision out. Pure: no clock, no file, no socket; whoever calls brings the facts.
 *
 * A policy set is all files of /etc/enclave/policy: each is one policy (its limits), and each may name people, agreements and training;
 * those count for the whole set, so that a site keeps its people in a file of their own beside the shipped profiles. Rights
 * of roles are not data: the table stands in decide.c. */
#ifndef ENC_POLICIES_POLICY_H
#define ENC_POLICIES_POLICY_H

#include <stdbool.h>
#include <stdint.h>
#include "base/cleanup.h"
#include "base/fields.h"

enum enc_site_role {
	ENC_ROLE_NONE = 0, ENC_ROLE_ADMIN, ENC_ROLE_OFFICER, ENC_ROLE_STEWARD, ENC_ROLE_AUDITOR, ENC_ROLE_CUSTODIAN, ENC_ROLE_RESEARCHER,
	ENC_ROLE_COUNT
};
/* "admin" "security-officer" "data-steward" "auditor" "key-custodian" "researcher"; "none". */
const char *enc_site_role_name (enum enc_site_role role);

enum enc_action {
	ENC_ACT_CREATE, ENC_ACT_DESTROY, ENC_ACT_EXTEND, ENC_ACT_LIST, ENC_ACT_SHOW, ENC_ACT_MEMBER_ADD, ENC_ACT_MEMBER_REMOVE, ENC_ACT_MEMBER_LIST,
	ENC_ACT_SESSION_LIST, ENC_ACT_SESSION_END, ENC_ACT_JOB_LIST, ENC_ACT_JOB_LIST_ALL, ENC_ACT_NODE_LIST, ENC_ACT_NODE_CHANGE, ENC_ACT_NODE_CERTIFICATE, ENC_ACT_AGREEMENT_LIST,
	ENC_ACT_AGREEMENT_CHANGE, ENC_ACT_AUDIT, ENC_ACT_KEY_STATUS, ENC_ACT_POLICY, ENC_ACT_ERASE,
	ENC_ACT_COUNT
};

enum enc_entry { ENC_ENTRY_LIVE, ENC_ENTRY_REBOOT };
enum enc_on_busy { ENC_BUSY_WAIT, ENC_BUSY_REQUEUE, ENC_BUSY_CANCEL, ENC_BUSY_FAIL };
extern const char *const enc_entry_names[];
extern const char *const enc_on_busy_names[];
extern const char *const enc_volume_driver_names[];

struct enc_policy_person {
	char *user;
	int role;                  /* enum enc_site_role */
};
struct enc_policy_until {
	char *id;                  /* agreement or user */
	int64_t until;             /* wall ns */
};

/* One file. Limits have defaults, the stricter ones. */
struct enc_policy {
	char *name, *version, *text;
	struct enc_list roles, agreements, training;
	bool require_training, second_factor;
	uint64_t ttl_default_s, ttl_max_s, attest_max_age_s, grace_s, deadline_default_s, evidence_max_age_s;
	uint32_t nodes_max;
	struct enc_strs entries;
	int entry_default, on_busy_default;
	bool cancel_by_admin;      /* may an admin end other people's jobs? */
	uint64_t scratch_bytes, project_bytes;
	int scratch_driver;        /* index into enc_volume_driver_names */
	struct enc_strs two_person;/* break-glass, policy-change, export, erase, baseline */
};
extern const struct enc_field enc_policy_fields[];

struct enc_policies {
	struct enc_policy *v;
	size_t n;
};

/* Add one file's text. ENC_EINVAL with line and pointer; also for a name that is there already, and a user with two roles. */
ENC_MUST_USE int enc_policies_add (struct enc_policies *ps, const char *text, size_t len, struct enc_error *err);
void enc_policies_done (struct enc_policies *ps);
const struct enc_policy *enc_policies_find (const struct enc_policies *ps, const char *name);
enum enc_site_role enc_policies_role (const struct enc_policies *ps, const char *user);
/* The day up to which; 0 when unknown. */
int64_t enc_policies_agreement (const struct enc_policies *ps, const char *id);
int64_t enc_policies_training (const struct enc_policies *ps, const char *user);

/* What is known about a request. Members that an action does not use stay zero. */
struct enc_facts {
	enum enc_action action;
	const char *user;          /* the caller */
	int64_t now;               /* wall ns */
	bool is_owner, is_member;  /* of the enclave in question */
	const char *agreement;     /* with `agreement_until` from the store; 0: not there (the policy set may still know it) */
	int64_t agreement_until;
	bool agreement_ended;      /* ended by hand: a later date does not help */
	const char *owner;         /* for training */
	int64_t training_until;    /* what the store knows of it; 0: nothing (the policy set may still) */
	uint64_t ttl_s;            /* 0: the policy's default */
	uint32_t nodes;
	int entry, on_busy;        /* -1: the policy's default */
	uint64_t deadline_s;       /* 0: default */
};

struct enc_decision {
	bool allowed;
	bool hidden;               /* answer "not found": the caller may not know that it is there */
	enum enc_code code;        /* when not allowed */
	const char *rule;          /* the rule that decided */
	char text[200], next[160], object[64];
	uint64_t ttl_s, deadline_s;/* effective values, when allowed */
	int entry, on_busy;
};

/* Decide. `policy` may be NULL for actions that are not about one enclave. Rules are tried in their order; the first that says no
 * decides, and the removal of access is never refused for a lapsed agreement, training or limit. */
void enc_policy_decide (const struct enc_policies *ps, const struct enc_policy *policy, const struct enc_facts *facts, struct enc_decision *ret);
/* A negative decision as an error; 0 when allowed. */
ENC_MUST_USE int enc_decision_error (const struct enc_decision *d, struct enc_error *err);

#endif
