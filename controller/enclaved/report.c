/* What a node says of itself. Bounded before it is parsed (http), decoded by a table, compared with what we know: a node that
 * speaks for another, in another identity, or of a generation that it was never given, is refused. */
#include "controller/enclaved/agents.h"

#include <arpa/inet.h>
#include "base/log.h"
#include "controller/enclaved/node_events.h"
#include "controller/enclaved/record.h"
#include "controller/enclaved/sessions.h"
#include "base/enc.h"

enum { EVENTS_MAX = 200 };

struct report {
	char *node, *boot, *identity, *boot_id, *document, *pool, *overlay_key, *attestation;
	uint64_t version, generation, member_version;
	struct enc_json *areas, *failed, *waiting, *evidence, *events, *facts, *receipts;
};

static const struct enc_field report_fields[] = {
	ENC_FIELD (struct report, node, "node", ENC_T_NODE, .flags = ENC_REQUIRED),
	ENC_FIELD (struct report, version, "version", ENC_T_U64, .flags = ENC_REQUIRED, .max = 1000),
	ENC_FIELD (struct report, boot, "boot", ENC_T_STR, .max = 32),
	ENC_FIELD (struct report, identity, "identity", ENC_T_STR, .max = 64),
	ENC_FIELD (struct report, boot_id, "boot_id", ENC_T_STR, .max = 36),
	ENC_FIELD (struct report, generation, "generation", ENC_T_U64, .max = INT64_MAX),
	ENC_FIELD (struct report, document, "document", ENC_T_STR, .max = 64),
	ENC_FIELD (struct report, pool, "pool", ENC_T_STR, .max = 16),
	ENC_FIELD (struct report, member_version, "member_version", ENC_T_U64),
	ENC_FIELD (struct report, areas, "areas", ENC_T_JSON),
	ENC_FIELD (struct report, failed, "failed", ENC_T_JSON),
	ENC_FIELD (struct report, waiting, "waiting", ENC_T_JSON),
	ENC_FIELD (struct report, overlay_key, "overlay_key", ENC_T_STR, .max = 44),
	ENC_FIELD (struct report, attestation, "attestation", ENC_T_STR, .max = 100000),
	ENC_FIELD (struct report, evidence, "evidence", ENC_T_JSON),
	ENC_FIELD (struct report, events, "events", ENC_T_JSON),
	ENC_FIELD (struct report, facts, "facts", ENC_T_JSON),
	ENC_FIELD (struct report, receipts, "receipts", ENC_T_JSON),
	ENC_FIELD_END
};

static void report_done (struct report *r)
{
	enc_fields_done (report_fields, r);
}

static int judge (struct enc_ctl *c, const char *node, const struct report *r, struct enc_error *err)
{
	enc_auto_done (enc_node_done) struct enc_node n = { 0 };
	enc_auto_done (enc_document_done) struct enc_document d = { 0 };
	int rc;

	if (!enc_streq (r->node, node))
		return enc_error_pointer (err, enc_fail (err, ENC_EDENIED, "%s reports for %s", node, r->node), "/node");
	if ((rc = enc_node_load (c->db, node, &n, err)) < 0 || (rc = enc_document_load (c->db, node, &d, err)) < 0)
		return rc;
	if (r->identity && !enc_streq (r->identity, n.identity))
		return enc_error_pointer (err, enc_fail (err, ENC_EDENIED, "%s has another identity", node), "/identity");
	if (r->generation > (uint64_t) d.generation)
		return enc_error_pointer (err, enc_fail (err, ENC_EDENIED, "%s was never given that generation", node), "/generation");
	return 0;
}

/* ---- addresses ---- */

static void take_addresses (const struct enc_ctl *c, const struct report *r, const char *remote, struct enc_observed *o)
{
	const struct enc_json *list = enc_json_get (r->facts, "addresses");
	struct in_addr a4;
	struct in6_addr a6;

	/* A listener on :: shows IPv4 like this. */
	if (remote && enc_starts (remote, "::ffff:"))
		remote += strlen ("::ffff:");
	/* The address it talks from is one that works; of the other family the first that is not the overlay's or link-local. */
	if (remote && inet_pton (AF_INET, remote, &a4) == 1)
		(void) snprintf (o->address4, sizeof o->address4, "%s", remote);
	else if (remote && inet_pton (AF_INET6, remote, &a6) == 1)
		(void) snprintf (o->address6, sizeof o->address6, "%s", remote);
	for (size_t i = 0; i < enc_json_len (list); i++) {
		const char *text = enc_json_str (enc_json_at (list, i));

		if (!text)
			continue;
		if (inet_pton (AF_INET, text, &a4) == 1 && !o->address4[0] && !enc_starts (text, c->conf->overlay_prefix))
			(void) snprintf (o->address4, sizeof o->address4, "%s", text);
		if (inet_pton (AF_INET6, text, &a6) == 1 && !o->address6[0] && !IN6_IS_ADDR_LINKLOCAL (&a6))
			(void) snprintf (o->address6, sizeof o->address6, "%s", text);
	}
}

static void copy_if (char *to, size_t size, const char *from)
{
	if (from)
		(void) snprintf (to, size, "%s", from);
}

static int store_report (struct enc_ctl *c, const char *node, const char *remote, const struct report *r, const struct enc_json *body,
			 struct enc_error *err)
{
	enc_auto_done (enc_observed_done) struct enc_observed o = { 0 };
	char *text;
	int rc;

	if ((rc = enc_observed_load (c->db, node, &o, err)) < 0)
		return rc;
	o.last_seen = enc_now_s ();
	o.generation = (int64_t) r->generation;
	o.digest[0] = '\0';
	copy_if (o.digest, sizeof o.digest, r->document);
	(void) snprintf (o.version, sizeof o.version, "%llu", (unsigned long long) r->version);
	copy_if (o.boot, sizeof o.boot, r->boot);
	copy_if (o.boot_id, sizeof o.boot_id, r->boot_id);
	copy_if (o.overlay_key, sizeof o.overlay_key, r->overlay_key);
	o.cpus = (uint32_t) enc_json_get_u64 (r->facts, "cpus", o.cpus);
	o.memory_mb = enc_json_get_i64 (r->facts, "memory_mb", o.memory_mb);
	take_addresses (c, r, remote, &o);
	/* It comes once; later reports of the same state do not carry it. */
	if (r->attestation) {
		free (o.attestation);
		o.attestation = enc_strdup (r->attestation);
	}
	text = enc_json_write (body, NULL, err);
	if (!text)
		return -ENC_ENOMEM;
	free (o.report);
	o.report = text;
	return enc_observed_put (c->db, &o, err);
}

/* ---- events into the log ---- */

static void record_gap (struct enc_ctl *c, const char *node, int64_t first, int64_t last)
{
	struct enc_json *record = enc_record ("node", "gap", "failed");

	enc_record_actor (record, NULL);
	enc_record_obj (record, "node", node);
	enc_json_set_i64 (enc_record_data (record), "first", first);
	enc_json_set_i64 (enc_record_data (record), "last", last);
	enc_record_soon (c, record);
}

/* True when the event is off the node's hands: in the log, or refused. A refusal must not hold up all that follow. */
static bool log_event (struct enc_ctl *c, const char *node, const char *boot, const struct enc_json *event)
{
	struct enc_json *record = NULL;
	struct enc_error err = { 0 };
	int64_t index = -1;
	int rc = enc_node_event_record (c->db, node, boot, event, &record, &err);

	if (rc == -ENC_EDENIED) {
		enc_log_err (ENC_LOG_ERROR, &err, "refused an event of %s", node);
		enc_record_soon (c, enc_node_event_refusal (node, event, &err));
		return true;
	}
	if (rc < 0)
		return false;
	rc = enc_record_now (c, record, &index, &err);
	if (rc == -ENC_EUSAGE || rc == -ENC_EINVAL || rc == -ENC_ELIMIT)
		enc_log_err (ENC_LOG_ERROR, &err, "the log refused an event of %s", node);
	else if (rc < 0)
		return false;
	else
		enc_sessions_note (c, node, event, index);
	return true;
}

static int64_t stored_counter (struct enc_ctl *c, const char *node, const char *boot)
{
	return enc_db_int (c->db, 0, "SELECT events_counter FROM observed WHERE node=? AND events_boot=?", "ss", node, boot);
}

static int take_events (struct enc_ctl *c, const char *node, const struct report *r, int64_t *ret_stored, struct enc_error *err)
{
	const char *boot = r->boot ? r->boot : "";
	int64_t stored = stored_counter (c, node, boot), start = stored;

	if (*boot)
		enc_sessions_reboot (c, node, boot);
	for (size_t i = 0; i < enc_json_len (r->events) && i < EVENTS_MAX; i++) {
		const struct enc_json *event = enc_json_at (r->events, i);
		int64_t counter = enc_json_get_i64 (event, "counter", 0);

		if (counter <= stored)
			continue;
		if (counter > stored + 1 && stored > 0)
			record_gap (c, node, stored + 1, counter - 1);
		if (!log_event (c, node, boot, event))
			break;
		stored = counter;
	}
	*ret_stored = stored;
	if (stored == start)
		return 0;
	return enc_db_exec (c->db, err, "UPDATE observed SET events_boot=?, events_counter=? WHERE node=?", "sis", boot, stored, node);
}

int enc_report_take (struct enc_ctl *c, const char *node, const char *remote, const struct enc_json *body, int64_t *ret_stored,
		     struct enc_error *err)
{
	enc_auto_done (report_done) struct report r = { 0 };
	int rc;

	if ((rc = enc_json_decode (report_fields, body, &r, err)) < 0 || (rc = judge (c, node, &r, err)) < 0 ||
	    (rc = store_report (c, node, remote, &r, body, err)) < 0)
		return rc;
	enc_ctl_changed (c);
	return take_events (c, node, &r, ret_stored, err);
}
