/* authorise: the decision, the agreement and the lease on which everything else rests. */
#include "controller/enclaved/steps.h"

#include "base/enc.h"

static int still_allowed (struct enc_run *run, const struct enc_enclave *e, struct enc_error *err)
{
	const struct enc_policies *ps = &run->ctl->policies;
	struct enc_agreement a = { 0 };
	struct enc_decision d;
	struct enc_facts f = {
		.action = ENC_ACT_CREATE, .user = e->creator, .now = enc_now (), .agreement = e->agreement, .owner = e->owner,
		.entry = enc_streq (e->entry, "reboot") ? ENC_ENTRY_REBOOT : ENC_ENTRY_LIVE, .on_busy = -1,
		.ttl_s = (uint64_t) (e->expires_at - e->created_at),
	};

	f.training_until = enc_db_int (run->ctl->db, 0, "SELECT until FROM training WHERE user=?", "s", e->owner) * ENC_NS_S;
	if (enc_db_get (run->ctl->db, "agreements", enc_agreement_cols, &a, NULL, "WHERE id=?", "s", e->agreement) == 0) {
		f.agreement_until = a.until * ENC_NS_S;
		f.agreement_ended = a.ended;
	}
	enc_policy_decide (ps, enc_policies_find (ps, e->policy), &f, &d);
	return enc_decision_error (&d, err);
}

/* Keys of volumes that come from an earlier enclave: the lease hands them over. */
static int add_attached (struct enc_run *run, const struct enc_enclave *e, struct enc_order *o, struct enc_error *err)
{
	enc_auto_done (enc_volumes_done) struct enc_volumes volumes = { 0 };
	enc_auto_done (enc_strs_done) struct enc_strs ids = { 0 };
	enc_auto_free char *joined = NULL, *hex = NULL;
	struct enc_json *list;
	uint8_t digest[32];
	int rc;

	if ((rc = enc_volumes_of (run->ctl->db, e->id, &volumes, err)) < 0)
		return rc;
	for (size_t i = 0; i < volumes.n; i++)
		if (volumes.v[i].key_made && (rc = enc_strs_add (&ids, volumes.v[i].key, err)) < 0)
			return rc;
	if (ids.n == 0)
		return 0;
	joined = enc_strs_join (&ids, ",");
	if (!joined)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	enc_doc_digest (joined, strlen (joined), digest);
	hex = enc_hex (digest, sizeof digest);
	enc_json_set_str (o->head, "document", hex);
	list = enc_json_set_array (o->request, "keys");
	for (size_t i = 0; i < ids.n; i++)
		enc_json_add_str (list, ids.v[i]);
	return 0;
}

static int lease_order (struct enc_run *run, const struct enc_enclave *e, bool begin, struct enc_error *err)
{
	struct enc_order o = { .head = enc_head (begin ? "enclave.lease" : "enclave.end"), .record = enc_record ("enclave", "lease", "intent"),
			       .request = enc_request ("lease") };
	char until[ENC_TIME_SIZE];
	int rc = 0;

	enc_json_set_str (o.head, "enclave", e->id);
	enc_record_actor (o.record, NULL);
	enc_record_enclave (o.record, e);
	enc_json_set_str (enc_record_data (o.record), "until", enc_time_format (e->expires_at * ENC_NS_S, false, until));
	enc_json_set_str (o.request, "enclave", e->id);
	if (begin) {
		enc_json_set_str (o.head, "object", e->name);
		enc_json_set_i64 (o.head, "not_after", e->expires_at);
		enc_json_set_str (o.request, "name", e->name);
		enc_json_set_i64 (o.request, "not_after", e->expires_at);
		rc = add_attached (run, e, &o, err);
	}
	if (rc < 0) {
		enc_order_done (&o);
		return rc;
	}
	return enc_order (run->ctl, &o, NULL, NULL, err);
}

int enc_row_authorise_do (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc;

	if ((rc = enc_run_enclave (run, &e, err)) < 0 || (rc = still_allowed (run, &e, err)) < 0)
		return rc;
	/* Written before it is asked for: an end that finds no lease at keyd is harmless, a lease forgotten here is not. */
	rc = enc_db_exec (run->ctl->db, err, "INSERT OR REPLACE INTO leases (enclave_id, not_after, state) VALUES (?,?,'asked')", "si", e.id,
			  e.expires_at);
	if (rc < 0 || (rc = lease_order (run, &e, true, err)) < 0)
		return rc;
	return enc_db_exec (run->ctl->db, err, "UPDATE leases SET state='live' WHERE enclave_id=?", "s", e.id);
}

int enc_row_authorise_undo (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc;

	if (enc_db_int (run->ctl->db, 0, "SELECT count(*) FROM leases WHERE enclave_id=? AND state!='ended'", "s", run->enclave_id) == 0)
		return 0;
	if ((rc = enc_run_enclave (run, &e, err)) < 0)
		return rc;
	rc = lease_order (run, &e, false, err);
	if (rc < 0 && rc != -ENC_ENOTFOUND)
		return rc;
	return enc_db_exec (run->ctl->db, err, "UPDATE leases SET state='ended' WHERE enclave_id=?", "s", e.id);
}

int enc_row_authorise_check (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc;

	if ((rc = enc_run_enclave (run, &e, err)) < 0 || (rc = still_allowed (run, &e, err)) < 0)
		return rc;
	if (enc_db_int (run->ctl->db, 0, "SELECT count(*) FROM leases WHERE enclave_id=? AND state='live'", "s", e.id) != 1)
		return enc_fail (err, ENC_EFAILED, "there is no live lease");
	return 0;
}

int enc_lease_until (struct enc_run *run, int64_t until, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc;

	if ((rc = enc_run_enclave (run, &e, err)) < 0)
		return rc;
	e.expires_at = until;
	if ((rc = lease_order (run, &e, true, err)) < 0 ||
	    (rc = enc_db_exec (run->ctl->db, err, "UPDATE leases SET not_after=? WHERE enclave_id=?", "is", until, e.id)) < 0)
		return rc;
	return enc_db_exec (run->ctl->db, err, "UPDATE enclaves SET expires_at=? WHERE id=?", "is", until, e.id);
}
