/* The batch: records that were taken and wait for one fdatasync together. */
#include "controller/auditd/auditd.h"

#include "base/log.h"
#include "base/point.h"
#include "base/str.h"
#include "crypto/tlog/proof.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "base/enc.h"

static void schedule (struct auditd *a)
{
	const struct timeval now = { 0, 0 };

	/* A timer, not at once: all sockets that are readable now join this batch. */
	if (!event_pending (a->commit_event, EV_TIMEOUT, NULL))
		(void)event_add (a->commit_event, &now);
}

static int add_record (
	struct auditd *a, const struct enc_record *record, struct auditd_pending *p, struct enc_error *err)
{
	uint64_t index = enc_trail_next (a->log);
	int rc;

	if (enc_trail_is_full (a->log) && !(record->event->flags & ENC_EVENT_RESERVE))
		return enc_error_next (err,
			enc_fail (err, ENC_EUNAVAIL, "the disk of the log is full: only urgent records are taken"),
			"free space below %s", a->conf->state);
	if (p->receipt && a->conf->witness_max_age_s > 0 && !(record->event->flags & ENC_EVENT_RESERVE) &&
		enc_cosigned_age (a->cosigned) > a->conf->witness_max_age_s)
		return enc_error_next (err,
			enc_fail (err, ENC_EUNAVAIL, "no quorum of witnesses has cosigned the log for too long: no receipts"),
			"enclavectl audit witness");
	if (p->receipt && !(p->body = strndup ((const char *)record->body.data, record->body.len)))
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if (record->text && (rc = enc_texts_put (a->texts, index, record, err)) < 0)
		return rc;
	if ((rc = enc_trail_add (a->log, record->body.data, record->body.len, err)) < 0)
		return rc;
	p->index = index;
	memcpy (p->time, record->time, sizeof (p->time));
	a->urgent |= (record->event->flags & ENC_EVENT_RESERVE) != 0;
	a->sign |= p->receipt || (record->event->flags & ENC_EVENT_SIGN) != 0;
	return 0;
}

static int take (struct auditd *a, const struct enc_record_source *from, const struct enc_json *given,
	struct auditd_pending *p, struct enc_error *err)
{
	enc_auto_done (enc_record_done) struct enc_record record = { 0 };
	int rc;

	if (a->n_pending == AUDITD_BATCH)
		auditd_commit (a);
	if (!a->log)
		return enc_fail (err, ENC_EUNAVAIL, "the log is closed");
	if ((rc = enc_record_make (from, given, enc_trail_next (a->log), &record, err)) < 0)
		return rc;
	if ((rc = add_record (a, &record, p, err)) < 0) {
		free (ENC_TAKE (p->body));
		return rc;
	}
	a->pending[a->n_pending++] = *p;
	schedule (a);
	return 0;
}

int auditd_take (struct auditd *a, struct auditd_peer *peer, const struct enc_json *record, struct enc_ipc_req *req,
	bool receipt, struct enc_error *err)
{
	struct enc_record_source from = { .boot = a->boot, .producer = peer->name };
	struct auditd_pending p = { .req = req, .receipt = receipt };
	int rc;

	if (!a->log)
		return enc_fail (err, ENC_EUNAVAIL, "the log is closed");
	from.origin = enc_trail_origin (a->log);
	rc = take (a, &from, record, &p, err);
	if (rc < 0)
		peer->refused++;
	return rc;
}

void auditd_own (struct auditd *a, const char *action, const char *outcome, struct enc_json *data)
{
	struct enc_record_source from = { .boot = a->boot, .producer = "auditd", .internal = 1 };
	enc_auto (enc_json) struct enc_json *record = enc_json_object ();
	struct auditd_pending p = { 0 };
	struct enc_error err = { 0 };

	enc_json_set_str (record, "class", "audit");
	enc_json_set_str (record, "action", action);
	enc_json_set_str (record, "outcome", outcome);
	if (data)
		enc_json_set (record, "data", data);
	if (!a->log)
		return;
	from.origin = enc_trail_origin (a->log);
	if (take (a, &from, record, &p, &err) < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "cannot record audit.%s", action);
}

void auditd_note_repair (struct auditd *a)
{
	const struct enc_trail_repair *repair = enc_trail_repaired (a->log);
	struct enc_json *data;
	char hex[ENC_HASH_HEX_SIZE];

	if (repair->bytes == 0)
		return;
	enc_hash_hex (&repair->hash, hex);
	data = enc_json_object ();
	enc_json_set_u64 (data, "count", 1);
	enc_json_set_u64 (data, "offset", repair->offset);
	enc_json_set_u64 (data, "bytes", repair->bytes);
	enc_json_set_str (data, "hash", hex);
	enc_json_set_str (data, "name", repair->name);
	enc_log_warn ("set aside %llu damaged bytes beyond the signed end as quarantine/%s",
		(unsigned long long)repair->bytes, repair->name);
	auditd_own (a, "recovery", "ok", data);
}

/* ---- answers ---- */

static void answer_all (struct auditd *a, const struct enc_error *err)
{
	for (size_t i = 0; i < a->n_pending; i++) {
		struct auditd_pending *p = &a->pending[i];

		if (p->req)
			enc_ipc_reply_error (p->req, err);
		free (p->body);
	}
	a->n_pending = 0;
}

static void answer (struct auditd *a, struct auditd_pending *p, const struct enc_error *sign_error)
{
	struct enc_json *out = enc_json_object ();
	char proof[ENC_PROOF_TEXT_MAX];
	struct enc_error err = { 0 };

	enc_json_set_u64 (out, "index", p->index);
	enc_json_set_str (out, "time", p->time);
	if (p->receipt && (sign_error || enc_trail_prove (a->log, p->index, proof, &err) < 0)) {
		enc_json_free (out);
		enc_ipc_reply_error (p->req, sign_error ? sign_error : &err);
		return;
	}
	if (p->receipt) {
		enc_json_set_str (out, "record", p->body);
		enc_json_set_str (out, "proof", proof);
	}
	enc_ipc_reply (p->req, out);
}

/* After a failure that leaves the disk's state unknown: read it all again, and
 * go on only if every record that was acknowledged is there. */
static void reopen (struct auditd *a)
{
	uint64_t floor = enc_trail_size (a->log);
	struct enc_error err = { 0 };

	auditd_close_stores (a);
	if (auditd_open_stores (a, floor, &err) < 0) {
		enc_log_err (ENC_LOG_ERROR, &err, "the log stays closed");
		enc_daemon_quit (a->daemon, err.code ? -err.code : -ENC_EFAILED);
		return;
	}
	enc_log_warn ("the log was opened again with %llu records", (unsigned long long)enc_trail_size (a->log));
	auditd_note_repair (a);
}

static void give_up (struct auditd *a, int rc, const struct enc_error *err)
{
	enc_log_err (ENC_LOG_ERROR, err, "the log cannot be written");
	if (rc == -ENC_EUNAVAIL)
		return;
	if (rc == -ENC_EINTEGRITY) {
		auditd_close_stores (a);
		enc_daemon_quit (a->daemon, rc);
		return;
	}
	reopen (a);
}

int auditd_sign (struct auditd *a, struct enc_error *err)
{
	int rc = enc_trail_sign (a->log, 1, err);

	return rc;
}

static bool sign_is_due (const struct auditd *a)
{
	return a->sign || enc_trail_size (a->log) - enc_trail_signed (a->log)->head.size >= a->conf->checkpoint_records;
}

static int make_durable (struct auditd *a, struct enc_error *err)
{
	int rc = enc_point ("audit.before_commit", err);

	if (rc == 0)
		rc = enc_texts_commit (a->texts, err);
	if (rc == 0)
		rc = enc_trail_commit (a->log, a->urgent, err);
	return rc;
}

void auditd_commit (struct auditd *a)
{
	struct enc_error err = { 0 };
	struct enc_error sign_error = { 0 };
	int rc, sign_rc = 0;

	if (a->n_pending == 0 || !a->log)
		return;
	rc = make_durable (a, &err);
	if (rc < 0) {
		err.code = err.code == ENC_ESYS ? ENC_EUNAVAIL : err.code;
		answer_all (a, &err);
		enc_texts_drop (a->texts, enc_trail_size (a->log));
		a->urgent = a->sign = false;
		give_up (a, rc, &err);
		return;
	}
	a->commits++;
	auditd_index_soon (a);
	if (sign_is_due (a))
		sign_rc = auditd_sign (a, &sign_error);
	if (enc_point ("audit.before_ack", NULL) < 0)
		enc_log_warn ("fault point before the answers");
	for (size_t i = 0; i < a->n_pending; i++) {
		if (a->pending[i].req)
			answer (a, &a->pending[i], sign_rc < 0 ? &sign_error : NULL);
		free (a->pending[i].body);
	}
	a->n_pending = 0;
	a->urgent = a->sign = false;
	if (sign_rc < 0)
		give_up (a, sign_rc, &sign_error);
}

/* ---- once a second ---- */

static void note_space (struct auditd *a)
{
	/* It may have been full and have room again since the last look. */
	bool met = enc_trail_is_full (a->log) != 0;
	bool full = enc_trail_check_space (a->log) != 0;
	struct enc_json *data;

	if ((full || met) && !a->was_full) {
		data = enc_json_object ();
		enc_json_set_u64 (data, "bytes", enc_trail_free_bytes (a->log));
		auditd_own (a, "full", "failed", data);
	}
	a->was_full = full;
}

static void note_refused (struct auditd *a)
{
	struct auditd_peer *peers = a->conf->peers.v;

	for (size_t i = 0; i < a->conf->peers.n; i++) {
		struct enc_json *data;

		if (peers[i].refused == 0)
			continue;
		data = enc_json_object ();
		enc_json_set_u64 (data, "count", peers[i].refused);
		enc_json_set_str (data, "name", peers[i].name);
		peers[i].refused = 0;
		auditd_own (a, "dropped", "failed", data);
	}
}

void auditd_flush (struct auditd *a)
{
	struct enc_error err = { 0 };

	if (a->log && enc_cosigned_flush (a->cosigned, 1, &err) < 0)
		enc_log_err (ENC_LOG_WARN, &err, "cosigned checkpoints cannot be kept");
}

void auditd_tick (struct auditd *a)
{
	struct enc_error err = { 0 };
	int rc;

	if (!a->log)
		return;
	if (enc_cosigned_flush (a->cosigned, 0, &err) < 0)
		enc_log_err (ENC_LOG_WARN, &err, "cosigned checkpoints cannot be kept");
	enc_error_clear (&err);
	note_space (a);
	auditd_index_soon (a); /* it stood still while the disk was full */
	note_refused (a);
	auditd_commit (a);
	if (a->log && (rc = auditd_sign (a, &err)) < 0)
		give_up (a, rc, &err);
}
