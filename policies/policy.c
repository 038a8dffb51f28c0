#include "policies/policy.h"

#include "base/enc.h"

static const char *const role_names[] = { "none", "admin", "security-officer", "data-steward", "auditor", "key-custodian", "researcher", NULL };
const char *const enc_entry_names[] = { "live", "reboot", NULL };
const char *const enc_on_busy_names[] = { "wait", "requeue", "cancel", "fail", NULL };
const char *const enc_volume_driver_names[] = { "fscrypt", "luks", NULL };

const char *enc_site_role_name (enum enc_site_role role)
{
	return role < ENC_ROLE_COUNT ? role_names[role] : "none";
}

static const struct enc_field person_fields[] = {
	ENC_FIELD (struct enc_policy_person, user, "user", ENC_T_USER, .flags = ENC_REQUIRED),
	ENC_FIELD (struct enc_policy_person, role, "role", ENC_T_ENUM, .flags = ENC_REQUIRED, .names = role_names),
	ENC_FIELD_END
};

static const struct enc_field agreement_fields[] = {
	ENC_FIELD (struct enc_policy_until, id, "id", ENC_T_TEXT, .flags = ENC_REQUIRED, .min = 1, .max = 64),
	ENC_FIELD (struct enc_policy_until, until, "until", ENC_T_TIME, .flags = ENC_REQUIRED),
	ENC_FIELD_END
};

static const struct enc_field training_fields[] = {
	ENC_FIELD (struct enc_policy_until, id, "user", ENC_T_USER, .flags = ENC_REQUIRED),
	ENC_FIELD (struct enc_policy_until, until, "until", ENC_T_TIME, .flags = ENC_REQUIRED),
	ENC_FIELD_END
};

#define P(member, key, type, ...) ENC_FIELD (struct enc_policy, member, key, type, ##__VA_ARGS__)

const struct enc_field enc_policy_fields[] = {
	P (name, "name", ENC_T_NAME, .flags = ENC_REQUIRED, .help = "name of the policy, as --policy takes it"),
	P (version, "version", ENC_T_TEXT, .flags = ENC_REQUIRED, .min = 1, .max = 23, .help = "recorded with every decision"),
	P (text, "text", ENC_T_TEXT, .help = "what it is for"),
	P (roles, "roles", ENC_T_OBJS, .sub = person_fields, .sub_size = sizeof (struct enc_policy_person), .help = "people and their role"),
	P (agreements, "agreements", ENC_T_OBJS, .sub = agreement_fields, .sub_size = sizeof (struct enc_policy_until),
	   .help = "agreements and the day they end"),
	P (training, "training", ENC_T_OBJS, .sub = training_fields, .sub_size = sizeof (struct enc_policy_until),
	   .help = "people and the day their training lapses"),
	P (require_training, "require_training", ENC_T_BOOL, .dflt = "true", .help = "an owner without valid training is refused"),
	P (second_factor, "second_factor", ENC_T_BOOL, .dflt = "true", .help = "members log in with a second factor"),
	P (ttl_default_s, "ttl_default", ENC_T_DURATION, .min = 60, .dflt = "\"14d\"", .help = "lease when none is asked for"),
	P (ttl_max_s, "ttl_max", ENC_T_DURATION, .min = 60, .dflt = "\"30d\"", .help = "longest lease"),
	P (attest_max_age_s, "attest_max_age", ENC_T_DURATION, .min = 10, .dflt = "\"10m\"", .help = "oldest measurement that a key is given for"),
	P (grace_s, "grace", ENC_T_DURATION, .dflt = "\"1h\"", .help = "from the end of a grant to locked volumes"),
	P (deadline_default_s, "deadline_default", ENC_T_DURATION, .min = 1, .dflt = "\"2h\"", .help = "how long to wait for jobs to end"),
	P (evidence_max_age_s, "evidence_max_age", ENC_T_DURATION, .min = 10, .dflt = "\"1d\"", .help = "evidence older than this is stale"),
	P (nodes_max, "nodes_max", ENC_T_U32, .min = 1, .max = 255, .dflt = "64", .help = "most nodes of one enclave"),
	P (entries, "entries", ENC_T_STRS, .max = 2, .dflt = "[\"reboot\"]", .help = "how nodes may enter: live, reboot"),
	P (entry_default, "entry_default", ENC_T_ENUM, .names = enc_entry_names, .dflt = "\"reboot\""),
	P (on_busy_default, "on_busy_default", ENC_T_ENUM, .names = enc_on_busy_names, .dflt = "\"wait\""),
	P (cancel_by_admin, "cancel_by_admin", ENC_T_BOOL, .dflt = "false", .help = "an admin may cancel other people's jobs"),
	P (scratch_bytes, "scratch_size", ENC_T_SIZE, .min = 1, .dflt = "\"16G\"", .help = "scratch of one node"),
	P (scratch_driver, "scratch_driver", ENC_T_ENUM, .names = enc_volume_driver_names, .dflt = "\"fscrypt\"",
	   .help = "fscrypt, or luks where the nodes' kernels have dm-crypt"),
	P (project_bytes, "project_size", ENC_T_SIZE, .min = 1, .dflt = "\"64G\"", .help = "project volume when none is asked for"),
	P (two_person, "two_person", ENC_T_STRS, .max = 8, .dflt = "[\"break-glass\",\"policy-change\",\"export\",\"erase\",\"baseline\"]",
	   .help = "what needs the approval of two people"),
	ENC_FIELD_END
};

static int at_line (const char *text, size_t len, struct enc_error *err, int rc)
{
	unsigned line = err && err->pointer[0] ? enc_json_line (text, len, err->pointer) : 0;

	return line ? enc_wrap (err, rc, "line %u", line) : rc;
}

static int names_known (const struct enc_strs *list, const char *const *known, const char *pointer, struct enc_error *err)
{
	for (size_t i = 0; i < list->n; i++) {
		bool found = false;

		for (int k = 0; known[k]; k++)
			found = found || enc_streq (list->v[i], known[k]);
		if (!found)
			return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "%s/%zu: not a known name", pointer, i), "%s/%zu", pointer, i);
	}
	return 0;
}

/* What the field table cannot say. */
static int limits_agree (const struct enc_policy *p, struct enc_error *err)
{
	static const char *const two_person[] = { "break-glass", "policy-change", "export", "erase", "baseline", NULL };
	int rc;

	if (p->ttl_default_s > p->ttl_max_s)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/ttl_default: longer than ttl_max"), "/ttl_default");
	if ((rc = names_known (&p->entries, enc_entry_names, "/entries", err)) < 0 ||
	    (rc = names_known (&p->two_person, two_person, "/two_person", err)) < 0)
		return rc;
	if (!enc_strs_has (&p->entries, enc_entry_names[p->entry_default]))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/entry_default: not among entries"), "/entry_default");
	return 0;
}

static int people_agree (const struct enc_policies *ps, const struct enc_policy *p, struct enc_error *err)
{
	const struct enc_policy_person *v = p->roles.v;

	if (enc_policies_find (ps, p->name))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/name: there is a policy %s already", p->name), "/name");
	for (size_t i = 0; i < p->roles.n; i++) {
		enum enc_site_role other = enc_policies_role (ps, v[i].user);

		for (size_t k = 0; k < i && other == ENC_ROLE_NONE; k++)
			if (enc_streq (v[k].user, v[i].user))
				other = v[k].role;
		if (enc_streq (v[i].user, "root"))
			return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/roles/%zu: root has no role", i), "/roles/%zu/user", i);
		if (other != ENC_ROLE_NONE && (int) other != v[i].role)
			return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/roles/%zu: %s has two roles", i, v[i].user),
						  "/roles/%zu/user", i);
	}
	return 0;
}

int enc_policies_add (struct enc_policies *ps, const char *text, size_t len, struct enc_error *err)
{
	struct enc_policy p = { 0 };
	struct enc_policy *v;
	int rc;

	if ((rc = enc_json_decode_text (enc_policy_fields, text, len, 256 * 1024, &p, err)) < 0)
		return rc;
	if ((rc = limits_agree (&p, err)) < 0 || (rc = people_agree (ps, &p, err)) < 0) {
		enc_fields_done (enc_policy_fields, &p);
		return at_line (text, len, err, rc);
	}
	v = reallocarray (ps->v, ps->n + 1, sizeof *v);
	if (!v) {
		enc_fields_done (enc_policy_fields, &p);
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	ps->v = v;
	ps->v[ps->n++] = p;
	return 0;
}

void enc_policies_done (struct enc_policies *ps)
{
	for (size_t i = 0; i < ps->n; i++)
		enc_fields_done (enc_policy_fields, &ps->v[i]);
	free (ps->v);
	*ps = (struct enc_policies){ 0 };
}

const struct enc_policy *enc_policies_find (const struct enc_policies *ps, const char *name)
{
	for (size_t i = 0; i < ps->n; i++)
		if (enc_streq (ps->v[i].name, name))
			return &ps->v[i];
	return NULL;
}

enum enc_site_role enc_policies_role (const struct enc_policies *ps, const char *user)
{
	for (size_t i = 0; i < ps->n; i++) {
		const struct enc_policy_person *v = ps->v[i].roles.v;

		for (size_t k = 0; k < ps->v[i].roles.n; k++)
			if (enc_streq (v[k].user, user))
				return v[k].role;
	}
	return ENC_ROLE_NONE;
}

static int64_t until_of (const struct enc_list *l, const char *id)
{
	const struct enc_policy_until *v = l->v;

	for (size_t k = 0; k < l->n; k++)
		if (enc_streq (v[k].id, id))
			return v[k].until;
	return 0;
}

int64_t enc_policies_agreement (const struct enc_policies *ps, const char *id)
{
	int64_t until = 0;

	for (size_t i = 0; i < ps->n && !until; i++)
		until = until_of (&ps->v[i].agreements, id);
	return until;
}

int64_t enc_policies_training (const struct enc_policies *ps, const char *user)
{
	int64_t until = 0;

	for (size_t i = 0; i < ps->n && !until; i++)
		until = until_of (&ps->v[i].training, user);
	return until;
}
