/* Rights and rules. The first table says who may ask for what; the second is tried in order for what is left. */
#include "policies/policy.h"

#include <stdarg.h>
#include "base/enc.h"

/* Bits of a right: one for each site role, and two for what the caller is to this enclave. */
enum {
	ADMIN = 1 << ENC_ROLE_ADMIN, OFFICER = 1 << ENC_ROLE_OFFICER, STEWARD = 1 << ENC_ROLE_STEWARD, AUDITOR = 1 << ENC_ROLE_AUDITOR,
	CUSTODIAN = 1 << ENC_ROLE_CUSTODIAN, RESEARCHER = 1 << ENC_ROLE_RESEARCHER, OWNER = 1 << 16, MEMBER = 1 << 17, ANYBODY = 1 << 18,
	ALL_ROLES = ADMIN | OFFICER | STEWARD | AUDITOR | CUSTODIAN | RESEARCHER,
	SEERS = ADMIN | OFFICER | STEWARD | AUDITOR | OWNER | MEMBER, /* who may know that an enclave is there */
};

struct right {
	unsigned who;
	bool of_enclave; /* about one enclave: who may not see it is told "not found" */
	const char *what;
};

/* Adding people to an enclave is not an admin's right alone: the steward answers for the data, the owner for the work. */
static const struct right rights[ENC_ACT_COUNT] = {
	[ENC_ACT_CREATE] = { ADMIN, false, "create an enclave" },
	[ENC_ACT_DESTROY] = { ADMIN | OFFICER | OWNER, true, "destroy this enclave" },
	[ENC_ACT_EXTEND] = { ADMIN, true, "extend this enclave" },
	[ENC_ACT_LIST] = { ANYBODY, false, "list enclaves" },
	[ENC_ACT_SHOW] = { SEERS, true, "see this enclave" },
	[ENC_ACT_MEMBER_ADD] = { ADMIN | STEWARD | OWNER, true, "add members" },
	[ENC_ACT_MEMBER_REMOVE] = { ADMIN | OFFICER | STEWARD | OWNER, true, "remove members" },
	[ENC_ACT_MEMBER_LIST] = { SEERS, true, "list members" },
	[ENC_ACT_SESSION_LIST] = { ADMIN | OFFICER | AUDITOR | OWNER, true, "list sessions" },
	[ENC_ACT_SESSION_END] = { ADMIN | OFFICER | OWNER, true, "end sessions" },
	[ENC_ACT_JOB_LIST] = { ADMIN | OFFICER | AUDITOR | OWNER | MEMBER, true, "list jobs" },
	[ENC_ACT_JOB_LIST_ALL] = { ADMIN | OFFICER | AUDITOR | OWNER, true, "list other people's jobs" },
	[ENC_ACT_NODE_LIST] = { ADMIN | OFFICER | AUDITOR, false, "list nodes" },
	[ENC_ACT_NODE_CHANGE] = { ADMIN | OFFICER, false, "change nodes" },
	[ENC_ACT_NODE_CERTIFICATE] = { ADMIN | OFFICER | AUDITOR, false, "read certificates" },
	[ENC_ACT_AGREEMENT_LIST] = { ADMIN | OFFICER | STEWARD | AUDITOR, false, "list agreements" },
	[ENC_ACT_AGREEMENT_CHANGE] = { STEWARD | OFFICER, false, "change agreements" },
	[ENC_ACT_AUDIT] = { ADMIN | OFFICER | AUDITOR, false, "read the log" },
	[ENC_ACT_KEY_STATUS] = { ALL_ROLES, false, "see the key service's state" },
	[ENC_ACT_POLICY] = { ALL_ROLES, false, "read policies" },
	[ENC_ACT_ERASE] = { ADMIN | OWNER, true, "erase volumes" },
};

struct state {
	const struct enc_policies *ps;
	const struct enc_policy *policy;
	const struct enc_facts *f;
	struct enc_decision *d;
	enum enc_site_role role;
};

/* A rule: true when it does not object. */
struct rule {
	const char *name;
	unsigned actions; /* bits of enum enc_action; 0: all */
	bool (*holds) (struct state *s);
};

static bool refuse (struct state *s, enum enc_code code, const char *object, const char *fmt, ...) ENC_PRINTF (4, 5);

static bool refuse (struct state *s, enum enc_code code, const char *object, const char *fmt, ...)
{
	va_list ap;

	s->d->code = code;
	(void) snprintf (s->d->object, sizeof s->d->object, "%s", object ? object : "");
	va_start (ap, fmt);
	(void) vsnprintf (s->d->text, sizeof s->d->text, fmt, ap);
	va_end (ap);
	return false;
}

static bool next (struct state *s, const char *text)
{
	(void) snprintf (s->d->next, sizeof s->d->next, "%s", text);
	return false;
}

static unsigned who (const struct state *s)
{
	unsigned bits = ANYBODY;

	if (s->role != ENC_ROLE_NONE)
		bits |= 1u << s->role;
	if (s->f->is_owner)
		bits |= OWNER;
	if (s->f->is_member)
		bits |= MEMBER;
	return bits;
}

static bool may_see (struct state *s)
{
	if (!rights[s->f->action].of_enclave || (who (s) & SEERS))
		return true;
	s->d->hidden = true;
	return refuse (s, ENC_ENOTFOUND, NULL, "there is no such enclave");
}

static bool has_right (struct state *s)
{
	const struct right *r = &rights[s->f->action];

	if (who (s) & r->who)
		return true;
	refuse (s, ENC_EDENIED, s->f->user, "the role %s may not %s", enc_site_role_name (s->role), r->what);
	return next (s, "ask an admin, or see enclavectl policy explain");
}

static bool agreement_holds (struct state *s)
{
	const struct enc_facts *f = s->f;
	int64_t until = f->agreement_until > 0 ? f->agreement_until : enc_policies_agreement (s->ps, f->agreement);

	if (until == 0) {
		refuse (s, ENC_EDENIED, f->agreement, "agreement %s is not known", f->agreement ? f->agreement : "");
		return next (s, "enclavectl agreement list");
	}
	if (f->agreement_ended || until <= f->now) {
		refuse (s, ENC_EDENIED, f->agreement, "agreement %s has lapsed", f->agreement);
		return next (s, "enclavectl agreement list");
	}
	return true;
}

static bool owner_is_trained (struct state *s)
{
	int64_t until;

	if (!s->policy || !s->policy->require_training || !s->f->owner)
		return true;
	until = s->f->training_until > 0 ? s->f->training_until : enc_policies_training (s->ps, s->f->owner);
	if (until > s->f->now)
		return true;
	refuse (s, ENC_EDENIED, s->f->owner, "%s has no valid training", s->f->owner);
	return next (s, "enclavectl training set USER --until DATE");
}

static bool ttl_in_limit (struct state *s)
{
	s->d->ttl_s = s->f->ttl_s ? s->f->ttl_s : s->policy->ttl_default_s;
	if (s->d->ttl_s <= s->policy->ttl_max_s)
		return true;
	return refuse (s, ENC_EDENIED, s->policy->name, "policy %s allows a lease of %llu s at most", s->policy->name,
		       (unsigned long long) s->policy->ttl_max_s);
}

static bool entry_allowed (struct state *s)
{
	s->d->entry = s->f->entry >= 0 ? s->f->entry : s->policy->entry_default;
	if (enc_strs_has (&s->policy->entries, enc_entry_names[s->d->entry]))
		return true;
	return refuse (s, ENC_EDENIED, s->policy->name, "policy %s does not allow entry %s", s->policy->name, enc_entry_names[s->d->entry]);
}

static bool nodes_in_limit (struct state *s)
{
	if (s->f->nodes <= s->policy->nodes_max)
		return true;
	return refuse (s, ENC_EDENIED, s->policy->name, "policy %s allows %u nodes at most", s->policy->name, s->policy->nodes_max);
}

static bool cancel_is_a_right (struct state *s)
{
	s->d->on_busy = s->f->on_busy >= 0 ? s->f->on_busy : s->policy->on_busy_default;
	s->d->deadline_s = s->f->deadline_s ? s->f->deadline_s : s->policy->deadline_default_s;
	if (s->d->on_busy != ENC_BUSY_CANCEL || s->policy->cancel_by_admin)
		return true;
	refuse (s, ENC_EDENIED, s->policy->name, "policy %s does not allow to cancel other people's jobs", s->policy->name);
	return next (s, "use --on-busy wait or requeue");
}

#define A(action) (1u << ENC_ACT_##action)

static const struct rule rules[] = {
	{ "enclave-is-visible", 0, may_see },
	{ "caller-has-role", 0, has_right },
	{ "agreement-holds", A (CREATE) | A (EXTEND) | A (MEMBER_ADD), agreement_holds },
	{ "owner-is-trained", A (CREATE) | A (MEMBER_ADD), owner_is_trained },
	{ "lease-within-maximum", A (CREATE) | A (EXTEND), ttl_in_limit },
	{ "entry-is-allowed", A (CREATE), entry_allowed },
	{ "nodes-within-maximum", A (CREATE), nodes_in_limit },
	{ "cancelling-is-a-right", A (CREATE), cancel_is_a_right },
};

void enc_policy_decide (const struct enc_policies *ps, const struct enc_policy *policy, const struct enc_facts *facts, struct enc_decision *ret)
{
	struct state s = { .ps = ps, .policy = policy, .f = facts, .d = ret, .role = enc_policies_role (ps, facts->user) };

	*ret = (struct enc_decision){ .rule = "default-deny", .code = ENC_EDENIED };
	for (size_t i = 0; i < ENC_ARRAY_LEN (rules); i++) {
		if (rules[i].actions && !(rules[i].actions & (1u << facts->action)))
			continue;
		ret->rule = rules[i].name;
		if (rules[i].actions && !policy) {
			(void) refuse (&s, ENC_EDENIED, NULL, "there is no such policy");
			return;
		}
		if (!rules[i].holds (&s))
			return;
	}
	ret->rule = "every-rule-holds";
	ret->allowed = true;
	ret->code = ENC_OK;
}

int enc_decision_error (const struct enc_decision *d, struct enc_error *err)
{
	int rc;

	if (d->allowed)
		return 0;
	rc = enc_fail (err, d->code, "%s", d->text);
	if (d->next[0])
		rc = enc_error_next (err, rc, "%s", d->next);
	if (d->object[0])
		rc = enc_error_object (err, rc, "%s", d->object);
	return rc;
}
