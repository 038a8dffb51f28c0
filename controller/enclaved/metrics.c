#include "controller/enclaved/metrics.h"

#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/file.h"
#include "base/log.h"
#include "base/enc.h"

enum { TEXT_MAX = 8 << 20, LABELS_MAX = 3, SAMPLES_MAX = 2 };

/* ---- figures that the store knows ---- */

#define STATES "(VALUES ('creating'),('open'),('closing'),('stuck')) s"
#define POOLS "(VALUES (0,'general'),(1,'service'),(2,'airlock'),(3,'enclave'),(4,'quarantine')) p"
#define OUTCOMES "FROM journal WHERE phase='outcome' GROUP BY 1, 2"
#define DIRECTION "CASE dir WHEN 0 THEN 'up' ELSE 'down' END"
#define MOVED "(SELECT max (at) FROM journal j WHERE j.enclave_id=e.id) / 1000000000"
#define SEEN "coalesce (o.last_seen, 0)"

/* Each query gives the values of the labels and then a whole number for each sample. A sample's suffix is OpenMetrics' own for the
 * type; `per` is how many of the number make one unit. */
struct sample {
	const char *suffix;
	int per;
};
#define ONE { { "", 1 } }
#define TOTAL { { "_total", 1 } }
#define SUMMARY { { "_count", 1 }, { "_sum", 1000 } }

static const struct family {
	const char *name, *type, *unit, *help;
	const char *labels[LABELS_MAX];
	struct sample samples[SAMPLES_MAX];
	const char *sql;
} families[] = {
	{ "enclave_enclaves", "gauge", NULL, "Enclaves by state.", { "state" }, ONE,
	  "SELECT s.column1, (SELECT count(*) FROM enclaves WHERE state=s.column1) FROM " STATES },
	{ "enclave_state_age_seconds", "gauge", "seconds", "How long the enclave that has been longest in this state made no step.", { "state" }, ONE,
	  "SELECT s.column1, coalesce ((SELECT max (unixepoch() - coalesce (" MOVED ", e.created_at)) FROM enclaves e WHERE e.state=s.column1), 0) FROM "
	  STATES },
	{ "enclave_waiting", "gauge", NULL, "Enclaves that wait for something.", { 0 }, ONE,
	  "SELECT count(*) FROM enclaves WHERE state!='closed' AND coalesce (wait_for, '')!=''" },
	{ "enclave_lease_left_seconds", "gauge", "seconds", "Time until the first open enclave expires.", { 0 }, ONE,
	  "SELECT min (expires_at) - unixepoch() FROM enclaves WHERE state='open' HAVING count(*) > 0" },
	{ "enclave_evidence_age_seconds", "gauge", "seconds", "Age of the oldest evidence of isolation of an open enclave.", { 0 }, ONE,
	  "SELECT unixepoch() - min (evidence_at) FROM enclaves WHERE state='open' HAVING count(*) > 0" },
	{ "enclave_probes_unexpected", "gauge", NULL, "Probes of open enclaves that did not end as they should.", { 0 }, ONE,
	  "SELECT coalesce (sum (probes - as_expected), 0) FROM enclaves WHERE state='open'" },
	{ "enclave_nodes", "gauge", NULL, "Nodes by pool; hosts that only observe are not counted.", { "pool" }, ONE,
	  "SELECT p.column2, (SELECT count(*) FROM nodes WHERE pool=p.column1 AND declared!='observer') FROM " POOLS },
	{ "enclave_node", "gauge", NULL, "1 for each node. Join on held to keep a site's own alarms quiet about nodes that are lent.",
	  { "node", "pool", "held" }, ONE,
	  "SELECT n.name, p.column2, CASE n.enclave_id WHEN '' THEN 'no' ELSE 'yes' END, 1 FROM nodes n JOIN " POOLS
	  " ON p.column1=n.pool WHERE n.declared!='observer' ORDER BY 1" },
	{ "enclave_agents", "gauge", NULL, "Agents, heard of within the last 40 s or not.", { "connected" }, ONE,
	  "SELECT 'yes', count(*) FROM nodes n JOIN observed o ON o.node=n.name WHERE " SEEN " >= unixepoch() - 40 UNION ALL "
	  "SELECT 'no', count(*) FROM nodes n LEFT JOIN observed o ON o.node=n.name WHERE " SEEN " < unixepoch() - 40" },
	{ "enclave_step_seconds", "summary", "seconds", "Time that steps took, by step and direction.", { "step", "direction" }, SUMMARY,
	  "SELECT row, " DIRECTION ", count(*), sum (ms) " OUTCOMES },
	{ "enclave_step_failures", "counter", NULL, "Steps that failed.", { "step", "direction" }, TOTAL,
	  "SELECT row, " DIRECTION ", sum (rc != 0) " OUTCOMES },
	{ "enclave_operations", "counter", NULL, "Operations that have ended.", { "kind", "outcome" }, TOTAL,
	  "SELECT kind, state, count(*) FROM operations WHERE state!='running' GROUP BY 1, 2" },
	{ "enclave_certificates", "counter", NULL, "Certificates of a clean return.", { 0 }, TOTAL, "SELECT count(*) FROM certificates" },
	{ "enclave_spool_records", "gauge", NULL, "Records that wait for the log.", { 0 }, ONE, "SELECT count(*) FROM spool" },
};

static void put_head (struct enc_buf *b, const char *name, const char *type, const char *unit, const char *help)
{
	enc_buf_putf (b, "# TYPE %s %s\n", name, type);
	if (unit)
		enc_buf_putf (b, "# UNIT %s %s\n", name, unit);
	enc_buf_putf (b, "# HELP %s %s\n", name, help);
}

/* Values of labels are names of ours or of hosts: none has a character that would need an escape. */
static void put_sample (struct enc_buf *b, const struct family *f, int sample, struct enc_rows *r)
{
	int n = 0;

	enc_buf_putf (b, "%s%s", f->name, f->samples[sample].suffix);
	for (; n < LABELS_MAX && f->labels[n]; n++)
		enc_buf_putf (b, "%c%s=\"%s\"", n ? ',' : '{', f->labels[n], enc_rows_text (r, n));
	enc_buf_putf (b, "%s %.15g\n", n ? "}" : "", (double) enc_rows_int (r, n + sample) / f->samples[sample].per);
}

static int put_stored (struct enc_ctl *c, struct enc_buf *b, struct enc_error *err)
{
	for (const struct family *f = families; f < families + ENC_ARRAY_LEN (families); f++) {
		enc_auto (enc_rows) struct enc_rows *r = NULL;
		int rc = enc_db_query (c->db, &r, err, f->sql, "");

		if (rc < 0)
			return rc;
		put_head (b, f->name, f->type, f->unit, f->help);
		while ((rc = enc_rows_next (r, err)) > 0)
			for (int i = 0; i < SAMPLES_MAX && f->samples[i].suffix; i++)
				put_sample (b, f, i, r);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- figures that the other services know ---- */

/* Where in an answer a figure lies; a text counts as 1 when it is `is`. Left out when the service does not answer. */
static const struct fact {
	int service;
	const char *name, *unit, *help, *member, *is;
} facts[] = {
	{ 0, "enclave_log_records", NULL, "Records in the log.", "records", NULL },
	{ 0, "enclave_log_checkpoint_age_seconds", "seconds", "Age of the log's last signed checkpoint.", "age_s", NULL },
	{ 0, "enclave_log_witness_age_seconds", "seconds", "Time since a quorum of witnesses vouched for the log; absent without witnesses.", "witness_age_s", NULL },
	{ 0, "enclave_log_witness_alarm", NULL, "1 when a witness says that the log is not what it cosigned before.", "witness_alarm", NULL },
	{ 0, "enclave_log_full", NULL, "1 when the log can take no more records.", "full", NULL },
	{ 1, "enclave_keys_unsealed", NULL, "1 when the key service can give keys.", "state", "unsealed" },
	{ 2, "enclave_scheduler_snapshot_age_seconds", "seconds", "Age of what is known of the general cluster.", "age_s", NULL },
};

static const char *const service_names[] = { "log", "keys", "scheduler" };
static const char *const service_ops[] = { "head", "status", "nodes" };

static double number_of (const struct enc_json *v, const char *is)
{
	if (is)
		return enc_streq (enc_json_str (v), is);
	if (enc_json_type (v) == ENC_JSON_BOOL)
		return enc_json_bool (v);
	return enc_json_double (v, 0);
}

static void put_services (struct enc_ctl *c, struct enc_buf *b)
{
	struct enc_ipc_client *clients[] = { c->auditd, c->keyd, c->schedd };
	struct enc_json *answers[ENC_ARRAY_LEN (clients)] = { 0 };

	put_head (b, "enclave_service_up", "gauge", NULL, "1 when the service answers.");
	for (size_t i = 0; i < ENC_ARRAY_LEN (clients); i++) {
		bool up = enc_ctl_call (c, clients[i], enc_request (service_ops[i]), &answers[i], NULL) == 0;

		enc_buf_putf (b, "enclave_service_up{service=\"%s\"} %d\n", service_names[i], up);
	}
	for (const struct fact *f = facts; f < facts + ENC_ARRAY_LEN (facts); f++) {
		const struct enc_json *v = enc_json_get (answers[f->service], f->member);

		put_head (b, f->name, "gauge", f->unit, f->help);
		if (v && enc_json_type (v) != ENC_JSON_NULL)
			enc_buf_putf (b, "%s %.15g\n", f->name, number_of (v, f->is));
	}
	for (size_t i = 0; i < ENC_ARRAY_LEN (answers); i++)
		enc_json_free (answers[i]);
}

/* ---- refusals ---- */

/* The last stands for all others. */
static const struct {
	int status;
	const char *label;
} refusals[ENC_REFUSED_KINDS] = { { 400, "400" }, { 403, "403" }, { 404, "404" }, { 409, "409" }, { 422, "422" }, { 503, "503" }, { 0, "other" } };

void enc_metrics_refused (struct enc_ctl *c, int status)
{
	size_t i = 0;

	while (refusals[i].status && refusals[i].status != status)
		i++;
	c->refused[i]++;
}

static void put_refusals (const struct enc_ctl *c, struct enc_buf *b)
{
	put_head (b, "enclave_refusals", "counter", NULL, "Requests to the API that were refused since its start, by HTTP status.");
	for (size_t i = 0; i < ENC_REFUSED_KINDS; i++)
		enc_buf_putf (b, "enclave_refusals_total{status=\"%s\"} %llu\n", refusals[i].label, (unsigned long long) c->refused[i]);
}

/* ---- the text ---- */

int enc_metrics_text (struct enc_ctl *c, char **ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (TEXT_MAX);
	int rc = put_stored (c, &b, err);

	if (rc < 0)
		return rc;
	put_services (c, &b);
	put_refusals (c, &b);
	enc_buf_putf (&b, "# EOF\n");
	*ret = enc_buf_take_str (&b);
	return *ret ? 0 : enc_fail (err, ENC_ENOMEM, "out of memory");
}

/* The group may read, and is the folder's when that has the set-group-id bit: that is how a site lets its exporter in. */
static int write_file (struct enc_ctl *c, struct enc_error *err)
{
	enc_auto_free char *text = NULL;
	int rc = enc_metrics_text (c, &text, err);

	return rc < 0 ? rc : enc_file_write (c->conf->metrics_file, text, strlen (text), &ENC_FILE_ATTR (0640), err);
}

static void writer (void *arg)
{
	struct enc_ctl *c = arg;
	bool told = false;

	do {
		struct enc_error err = { 0 };
		bool bad = write_file (c, &err) < 0;

		if (bad && !told)
			enc_log_err (ENC_LOG_WARN, &err, "the file of figures cannot be written; it will be tried on");
		told = bad;
	} while (!c->stopping && enc_fiber_sleep (c->fibers, (int64_t) c->conf->metrics_every_s * 1000, NULL) == 0);
}

int enc_metrics_start (struct enc_ctl *c, struct enc_error *err)
{
	return c->conf->metrics_file ? enc_fiber_start (c->fibers, writer, c, NULL, err) : 0;
}
