/* extend: a longer lease, from the key service first; then every node and the member document learn of it. */
#include "controller/enclaved/api.h"

#include "controller/enclaved/steps.h"
#include "base/enc.h"

enum { WAIT_MS = 50000, PUSH_MS = 60000 };

struct extend {
	uint64_t ttl_s;
};

static const struct enc_field extend_fields[] = {
	ENC_FIELD (struct extend, ttl_s, "ttl_s", ENC_T_DURATION, .flags = ENC_REQUIRED, .min = 60),
	ENC_FIELD_END
};

static int may_extend (struct enc_api *a, const struct enc_enclave *e, uint64_t ttl_s, struct enc_error *err)
{
	struct enc_facts f = { .action = ENC_ACT_EXTEND, .user = a->actor->user, .now = enc_now (), .ttl_s = ttl_s,
			       .is_owner = enc_streq (e->owner, a->actor->user) };
	struct enc_decision d;

	enc_facts_agreement (a->c, e->agreement, &f);
	enc_policy_decide (&a->c->policies, enc_policies_find (&a->c->policies, e->policy), &f, &d);
	return enc_decision_error (&d, err);
}

static int extend_work (struct enc_run *run, void *arg, struct enc_json **ret, struct enc_error *err)
{
	enc_auto_free int64_t *until = arg;
	int rc;

	run->dir = ENC_UP;
	(void) enc_fiber_bound (run->ctl->fibers, enc_deadline_ms (PUSH_MS));
	if ((rc = enc_lease_until (run, *until, err)) == 0 && (rc = enc_members_sign (run, err)) == 0)
		rc = enc_members_push (run, err);
	(void) enc_fiber_bound (run->ctl->fibers, ENC_FOREVER);
	if (rc == 0)
		*ret = enc_view_enclave_id (run->ctl, run->enclave_id);
	return rc;
}

static int record_extend (struct enc_api *a, const struct enc_enclave *e, int64_t until, uint64_t ttl_s, struct enc_error *err)
{
	struct enc_json *record = enc_api_record (a, "enclave", "extend", "ok");
	char text[ENC_TIME_SIZE];

	enc_record_enclave (record, e);
	enc_json_set_str (enc_record_data (record), "until", enc_time_format (until * ENC_NS_S, false, text));
	enc_json_set_i64 (enc_record_data (record), "ttl_s", (int64_t) ttl_s);
	return enc_record_now (a->c, record, NULL, err);
}

static int order_extend (struct enc_api *a, const struct enc_enclave *e, int64_t until, struct enc_error *err)
{
	int64_t *arg = malloc (sizeof *arg);
	char op[ENC_ID_SIZE] = "";
	int rc;

	if (!arg)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	*arg = until;
	if ((rc = enc_operation_new (a->c, "extend", a->actor->user, e, op, err)) < 0 ||
	    (rc = enc_life_run (a->c, e->id, op, extend_work, arg, err)) < 0) {
		free (arg);
		return rc;
	}
	if ((rc = enc_api_wait (a, op, WAIT_MS, err)) < 0)
		return rc;
	a->answer = enc_view_enclave_id (a->c, e->id);
	enc_json_set_str (a->answer, "operation", op);
	a->status = 202;
	return 0;
}

int enc_api_extend (struct enc_api *a, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	struct extend in = { 0 };
	int64_t until;
	int rc;

	if ((rc = enc_json_decode (extend_fields, a->body, &in, err)) < 0 || (rc = enc_api_enclave (a, ENC_ACT_SHOW, false, &e, err)) < 0 ||
	    (rc = may_extend (a, &e, in.ttl_s, err)) < 0)
		return rc;
	until = enc_now_s () + (int64_t) in.ttl_s;
	if (!enc_streq (e.state, ENC_STATE_OPEN))
		return enc_error_object (err, enc_fail (err, ENC_ECONFLICT, "%s is not open", e.name), "%s", e.name);
	if (until <= e.expires_at)
		return enc_error_next (err, enc_fail (err, ENC_ECONFLICT, "the lease lasts longer than that already"), "enclavectl show %s", e.name);
	if ((rc = record_extend (a, &e, until, in.ttl_s, err)) < 0)
		return rc;
	return order_extend (a, &e, until, err);
}
