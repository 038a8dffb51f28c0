/* prove and open: the isolation is shown before anybody is let in. */
#include "controller/enclaved/steps.h"

#include "base/enc.h"

enum { PROBE_TRIES = 4, PROBE_PAUSE_MS = 1500 };

struct probe {
	char id[ENC_ID_SIZE];
	const struct enc_doc *inside; /* a node's document, for what observers must not reach */
};

static void edit_probe (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, void *arg)
{
	const struct probe *p = arg;

	memcpy (doc->probe_id, p->id, sizeof doc->probe_id);
}

/* An observer outside learns addresses to knock at, and nothing else: no name, no id, no keys. */
static void edit_observer (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, void *arg)
{
	const struct probe *p = arg;

	memcpy (doc->probe_id, p->id, sizeof doc->probe_id);
	doc->peers_n = p->inside->peers_n;
	memcpy (doc->peers, p->inside->peers, sizeof doc->peers);
	for (size_t i = 0; i < doc->peers_n; i++) {
		memset (doc->peers[i].overlay_key, 0, sizeof doc->peers[i].overlay_key);
		doc->peers[i].overlay[0] = '\0';
	}
	doc->overlay_port = p->inside->overlay_port;
	doc->login_port = p->inside->login_port;
	doc->slurmctld_port = p->inside->slurmctld_port;
	doc->slurmd_port = p->inside->slurmd_port;
}

struct tally {
	int64_t probes, as_expected;
	int64_t leaks;          /* what should be silent and answered: never a matter of patience */
	char first_bad[160];
};

static void note_bad (struct tally *t, const char *node, const struct enc_json *row)
{
	const char *expected = enc_json_get_str (row, "expected", "");
	const char *seen = enc_json_get_str (row, "seen", "");

	if (enc_streq (expected, seen))
		return;
	if (!enc_streq (expected, "reachable"))
		t->leaks++;
	if (t->first_bad[0] && t->leaks != 1)
		return;
	(void) snprintf (t->first_bad, sizeof t->first_bad, "%.40s: %.60s is %.20s", node, enc_json_get_str (row, "what", "a probe"), seen);
}

static void add_evidence (struct enc_ctl *c, const struct enc_nodes *nodes, struct tally *t)
{
	for (size_t i = 0; i < nodes->n; i++) {
		enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
		enc_auto (enc_json) struct enc_json *report = NULL;
		const struct enc_json *probe, *rows;

		if (enc_observed_load (c->db, nodes->v[i].name, &seen, NULL) < 0 || !seen.report)
			continue;
		report = enc_json_parse (seen.report, strlen (seen.report), ENC_JSON_MAX_DEFAULT, NULL);
		probe = enc_json_find (report, "/evidence/probe");
		t->probes += enc_json_get_i64 (probe, "probes", 0);
		t->as_expected += enc_json_get_i64 (probe, "as_expected", 0);
		rows = enc_json_get (probe, "rows");
		for (size_t k = 0; k < enc_json_len (rows); k++)
			note_bad (t, nodes->v[i].name, enc_json_at (rows, k));
	}
}

static int store_evidence (struct enc_run *run, const struct tally *t, struct enc_error *err)
{
	struct enc_json *record = enc_record ("enclave", "evidence", t->probes == t->as_expected ? "ok" : "failed");

	enc_record_actor (record, NULL);
	enc_record_obj (record, "enclave_id", run->enclave_id);
	enc_json_set_i64 (enc_record_data (record), "probes", t->probes);
	enc_json_set_i64 (enc_record_data (record), "as_expected", t->as_expected);
	enc_record_soon (run->ctl, record);
	return enc_db_exec (run->ctl->db, err, "UPDATE enclaves SET evidence_at=?, probes=?, as_expected=? WHERE id=?", "iiis", enc_now_s (),
			    t->probes, t->as_expected, run->enclave_id);
}

static int probe_once (struct enc_run *run, struct tally *t, struct enc_error *err)
{
	enc_auto_done (enc_nodes_done) struct enc_nodes all = { 0 }, observers = { 0 };
	enc_auto_free struct enc_doc *inside = NULL;
	struct probe p = { 0 };
	struct enc_change within = { .edit = edit_probe, .arg = &p, .grant = ENC_GRANT_MUST, .what = "probe" };
	struct enc_change without = { .edit = edit_observer, .arg = &p, .what = "probe from outside" };
	int rc;

	*t = (struct tally){ 0 };
	if ((rc = enc_id_new (p.id, err)) < 0 || (rc = enc_run_nodes_all (run, ENC_ROLES_ALL, &all, err)) < 0 ||
	    (rc = enc_nodes_declared (run->ctl->db, "observer", &observers, err)) < 0)
		return rc;
	if (all.n == 0)
		return enc_fail (err, ENC_EFAILED, "the enclave has no nodes");
	if ((rc = enc_doc_of (run->ctl, &all.v[0], &inside, err)) < 0)
		return rc;
	p.inside = inside;
	if ((rc = enc_nodes_issue (run, &observers, &without, err)) < 0 || (rc = enc_nodes_change (run, &all, &within, err)) < 0 ||
	    (rc = enc_nodes_await (run, &observers, "probe from outside", err)) < 0)
		return rc;
	add_evidence (run->ctl, &all, t);
	add_evidence (run->ctl, &observers, t);
	return 0;
}

int enc_row_prove_do (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	struct tally t;
	int rc;

	/* A positive control may be early: two nodes that greet each other for the first time at the same moment need a few seconds.
	 * A leak is one at the first sight. */
	for (int tries = 0;; tries++) {
		if ((rc = probe_once (run, &t, err)) < 0)
			return rc;
		if (t.as_expected == t.probes || t.leaks || tries == PROBE_TRIES)
			break;
		if ((rc = enc_fiber_sleep (run->ctl->fibers, PROBE_PAUSE_MS, err)) < 0)
			return rc;
	}
	if ((rc = store_evidence (run, &t, err)) < 0)
		return rc;
	if (t.as_expected != t.probes)
		return enc_fail (err, ENC_EINTEGRITY, "isolation is not proven: %lld of %lld probes as expected (%s)", (long long) t.as_expected,
				 (long long) t.probes, t.first_bad);
	return 0;
}

int enc_row_prove_check (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc = enc_run_enclave (run, &e, err);

	if (rc < 0)
		return rc;
	if (e.probes == 0 || e.probes != e.as_expected)
		return enc_fail (err, ENC_EFAILED, "there is no evidence of isolation");
	if (enc_now_s () - e.evidence_at > 600)
		return enc_fail (err, ENC_EFAILED, "the evidence of isolation is too old");
	return 0;
}

static void edit_door_open (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, ENC_UNUSED void *arg)
{
	doc->door = 1;
}

static void edit_door_shut (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, ENC_UNUSED void *arg)
{
	doc->door = 0;
}

static void record_door (struct enc_run *run, const char *action)
{
	struct enc_json *record = enc_record ("door", action, "ok");

	enc_record_actor (record, NULL);
	enc_record_obj (record, "enclave_id", run->enclave_id);
	enc_record_soon (run->ctl, record);
}

int enc_row_open_do (void *ctx, struct enc_error *err)
{
	static const struct enc_change change = { .edit = edit_door_open, .grant = ENC_GRANT_MUST, .what = "open the door" };
	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes login = { 0 };
	int rc = enc_run_nodes (run, ENC_ROLE_LOGIN, &login, err);

	if (rc == 0)
		rc = enc_nodes_change (run, &login, &change, err);
	if (rc == 0 && login.n)
		record_door (ctx, "open");
	return rc;
}

int enc_row_open_undo (void *ctx, struct enc_error *err)
{
	static const struct enc_change change = { .edit = edit_door_shut, .grant = ENC_GRANT_IF_CAN, .what = "shut the door" };
	int rc = enc_run_change (ctx, ENC_ROLE_LOGIN, &change, err);

	if (rc == 0)
		record_door (ctx, "shut");
	return rc;
}
