/* What the runner of steps asks of an enclave in motion: journal, log, quarantine, waiting. */
#include "controller/enclaved/run.h"

#include "base/log.h"
#include "controller/enclaved/nodes.h"
#include "controller/enclaved/run_hooks.h"
#include "base/enc.h"

enum { WAIT_MS = 1000, WAITS_MAX = 5 };

int enc_run_enclave (struct enc_run *run, struct enc_enclave *ret, struct enc_error *err)
{
	return enc_enclave_load (run->ctl->db, run->enclave_id, ret, err);
}

void enc_run_failed (struct enc_run *run, const char *node)
{
	if (!enc_strs_has (&run->failed, node) && enc_strs_add (&run->failed, node, NULL) < 0)
		enc_log_warn ("out of memory while noting that %s failed", node);
}

int enc_run_wait (struct enc_run *run, const char *what, const char *next, struct enc_error *err)
{
	int rc;

	enc_enclave_waiting (run->ctl->db, run->enclave_id, what, 0, next);
	rc = enc_cond_wait (run->ctl->fibers, &run->ctl->changed, ENC_FOREVER, err);
	enc_enclave_waiting (run->ctl->db, run->enclave_id, NULL, 0, NULL);
	return rc;
}

void enc_run_event (struct enc_run *run, const char *step, const char *node, const char *outcome, int64_t ms, const char *text)
{
	enc_auto (enc_json) struct enc_json *event = enc_json_object ();

	if (!run->op[0])
		return;
	enc_json_set_time (event, "time", enc_now ());
	enc_json_set_str (event, "step", step);
	enc_json_set_str (event, "node", node);
	enc_json_set_str (event, "outcome", outcome);
	enc_json_set_double (event, "seconds", (double) ms / 1000.0);
	enc_json_set_str (event, "text", text);
	if (enc_event_add (run->ctl->db, run->op, event, NULL) < 0)
		enc_log_warn ("an event of operation %s could not be stored", run->op);
	enc_ctl_changed (run->ctl);
}

static const char *journal_of (const struct enc_run *run)
{
	return run->scope ? run->op : run->enclave_id;
}

enum enc_row_state enc_hook_state (void *ctx, const char *row)
{
	struct enc_run *run = ctx;

	return enc_journal_state (run->ctl->db, journal_of (run), row);
}

static struct enc_json *step_record (struct enc_run *run, const struct enc_step *step, enum enc_dir dir, const char *outcome)
{
	struct enc_json *record = enc_record ("step", dir == ENC_UP ? "do" : "undo", outcome);

	enc_record_actor (record, NULL);
	enc_record_obj (record, "enclave_id", run->enclave_id);
	enc_json_set_str (enc_record_data (record), "step", step->name);
	return record;
}

static int put_record (struct enc_run *run, struct enc_json *record, bool must, struct enc_error *err)
{
	if (must)
		return enc_record_now (run->ctl, record, NULL, err);
	enc_record_soon (run->ctl, record);
	return 0;
}

int enc_hook_intent (void *ctx, const struct enc_step *step, enum enc_dir dir, bool must, struct enc_error *err)
{
	struct enc_run *run = ctx;
	int rc;

	run->step = step;
	run->dir = dir;
	enc_strs_done (&run->failed);
	/* The log first: a journal entry without its record would be settled as if it had been allowed. */
	if ((rc = put_record (run, step_record (run, step, dir, "intent"), must, err)) < 0 ||
	    (rc = enc_journal_intent (run->ctl->db, journal_of (run), step->name, dir, err)) < 0)
		return rc;
	if (!run->scope && enc_db_exec (run->ctl->db, err, "UPDATE enclaves SET step=? WHERE id=?", "ss", step->name, run->enclave_id) < 0)
		return -ENC_EFAILED;
	enc_run_event (run, step->name, NULL, dir == ENC_UP ? "started" : "undoing", 0, step->help);
	return 0;
}

int enc_hook_outcome (void *ctx, const struct enc_step *step, enum enc_dir dir, int rc, const struct enc_error *why, int64_t ms, bool must,
		      struct enc_error *err)
{
	struct enc_run *run = ctx;
	struct enc_json *record = step_record (run, step, dir, rc == 0 ? "ok" : "failed");
	const char *text = rc < 0 && why ? why->text : "";
	const char *good = dir == ENC_UP ? "ok" : "undone";
	struct enc_log_fields fields = { .enclave = run->enclave_id, .step = step->name };
	int journalled;

	enc_json_set_i64 (enc_record_data (record), "ms", ms);
	if (rc == 0)
		run->waits = 0;
	if (rc < 0) {
		enc_record_reason (record, enc_code_name (rc));
		enc_json_set_str (record, "text", text);
	}
	/* A failure loosened nothing, its record need not hold anything up. */
	if ((journalled = put_record (run, record, must && rc == 0, err)) < 0) {
		rc = journalled;
		text = "done, but not on record";
	}
	enc_log_with (rc < 0 ? ENC_LOG_WARN : ENC_LOG_INFO, &fields, "%s %s: %s%s%s in %lld ms", dir == ENC_UP ? "up" : "down", step->name, rc < 0 ? "failed" : good, *text ? ": " : "", text,
		      (long long) ms);
	enc_run_event (run, step->name, why && rc < 0 && why->object[0] ? why->object : NULL, rc < 0 ? "failed" : good, ms, text);
	if (enc_journal_outcome (run->ctl->db, journal_of (run), step->name, dir, rc, ms, text, journalled < 0 ? NULL : err) < 0)
		return -ENC_EFAILED;
	return journalled;
}

void enc_hook_bound (void *ctx, unsigned seconds)
{
	struct enc_run *run = ctx;

	(void) enc_fiber_bound (run->ctl->fibers, seconds ? enc_deadline_ms ((int64_t) seconds * 1000) : ENC_FOREVER);
}

int enc_hook_quarantine (void *ctx, const struct enc_step *step, const struct enc_error *why, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes all = { 0 };
	unsigned taken = 0;
	int rc;

	if ((rc = enc_nodes_of (run->ctl->db, run->enclave_id, 7, &all, err)) < 0)
		return rc;
	for (size_t i = 0; i < all.n; i++) {
		if (run->failed.n && !enc_strs_has (&run->failed, all.v[i].name))
			continue;
		if ((rc = enc_node_quarantine (run->ctl, all.v[i].name, step->name, why ? why->text : "", err)) < 0)
			return rc;
		enc_run_event (run, step->name, all.v[i].name, "quarantine", 0, why ? why->text : "");
		taken++;
	}
	/* A measurement that differed has set its node apart by itself; that counts. */
	if (taken == 0 && run->failed.n == 0 && !(why && why->code == ENC_EINTEGRITY))
		return enc_fail (err, ENC_EFAILED, "no node is left to set apart");
	enc_strs_done (&run->failed);
	return 0;
}

bool enc_hook_wait (void *ctx, const struct enc_step *step, const struct enc_error *why)
{
	struct enc_run *run = ctx;
	enc_auto_free char *text = enc_strf ("%s: %s", step->name, why ? why->text : "not reachable");

	enc_enclave_waiting (run->ctl->db, run->enclave_id, text, 0, why && why->next[0] ? why->next : "enclavectl doctor");
	/* Each try works on the nodes and writes records before it meets the closed door again: longer pauses, up to half a minute. */
	if (enc_fiber_sleep (run->ctl->fibers, WAIT_MS << (run->waits < WAITS_MAX ? run->waits++ : WAITS_MAX), NULL) < 0)
		return false;
	enc_enclave_waiting (run->ctl->db, run->enclave_id, NULL, 0, NULL);
	return true;
}
