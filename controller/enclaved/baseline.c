/* A node's first measurement, right after it was enrolled: what every later one is compared with. */
#include "controller/enclaved/agents.h"

#include "base/log.h"
#include "controller/enclaved/nodes.h"
#include "controller/enclaved/record.h"
#include "base/enc.h"

enum { MEASURE_S = 90, AGAIN_S = 15 };

struct baseline {
	struct enc_ctl *c;
	char node[65];
	char nonce[33];
};

static void edit_challenge (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, void *arg)
{
	memcpy (doc->challenge, arg, sizeof doc->challenge);
}

static int ask (struct baseline *b, const struct enc_node *n, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *answer = NULL;
	const char *text;
	int rc;

	if ((rc = enc_ctl_call (b->c, b->c->keyd, enc_request ("nonce"), &answer, err)) < 0 ||
	    (rc = enc_json_need_str (answer, "nonce", &text, err)) < 0 || (rc = enc_str_copy (b->nonce, sizeof b->nonce, text, err)) < 0)
		return rc;
	return enc_node_tighten (b->c, n, edit_challenge, b->nonce, err);
}

static int wait_answer (struct baseline *b, struct enc_observed *seen, struct enc_error *err)
{
	int64_t until = enc_deadline_ms (MEASURE_S * 1000);
	int rc;

	for (;;) {
		enc_auto (enc_json) struct enc_json *report = NULL;

		enc_observed_done (seen);
		if ((rc = enc_observed_load (b->c->db, b->node, seen, err)) < 0)
			return rc;
		report = seen->report ? enc_json_parse (seen->report, strlen (seen->report), ENC_JSON_MAX_DEFAULT, NULL) : NULL;
		if (enc_streq (enc_json_str (enc_json_find (report, "/areas/measure")), b->nonce) && seen->attestation)
			return 0;
		if ((rc = enc_cond_wait (b->c->fibers, &b->c->changed, until, err)) < 0)
			return enc_wrap (err, rc, "%s was not measured", b->node);
	}
}

static int order (struct baseline *b, const struct enc_observed *seen, struct enc_error *err)
{
	struct enc_order o = { .head = enc_head ("node.baseline"), .record = enc_record ("node", "baseline", "intent"),
			       .request = enc_request ("baseline") };
	enc_auto_done (enc_buf_done) struct enc_buf raw = ENC_BUF_INIT (100000);
	enc_auto_free char *hex = NULL;
	uint8_t digest[32];
	int rc = enc_get_base64 (seen->attestation, strlen (seen->attestation), &raw, err);

	if (rc < 0) {
		enc_order_done (&o);
		return rc;
	}
	enc_doc_digest (raw.data, raw.len, digest);
	hex = enc_hex (digest, sizeof digest);
	enc_json_set_str (o.head, "node", b->node);
	enc_json_set_str (o.head, "boot", seen->boot);
	enc_json_set_str (o.head, "document", hex);
	enc_record_actor (o.record, NULL);
	enc_record_obj (o.record, "node", b->node);
	enc_json_set_str (o.request, "node", b->node);
	enc_json_set_str (o.request, "attestation", seen->attestation);
	return enc_order (b->c, &o, NULL, NULL, err);
}

static int take (struct baseline *b, struct enc_error *err)
{
	enc_auto_done (enc_node_done) struct enc_node n = { 0 };
	enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
	int rc;

	if ((rc = enc_node_load (b->c->db, b->node, &n, err)) < 0 || (rc = ask (b, &n, err)) < 0 || (rc = wait_answer (b, &seen, err)) < 0)
		return rc;
	rc = order (b, &seen, err);
	/* keyd has one of this identity already: our store is younger than its. */
	if (rc < 0 && rc != -ENC_EDENIED)
		return rc;
	if (rc == -ENC_EDENIED)
		enc_log_err (ENC_LOG_WARN, err, "%s keeps the baseline that the key service has", b->node);
	return enc_db_exec (b->c->db, err, "UPDATE nodes SET baseline_at=? WHERE name=?", "is", enc_now_s (), b->node);
}

static void baseline_fiber (void *arg)
{
	struct baseline *b = arg;
	struct enc_error err = { 0 };

	if (take (b, &err) < 0) {
		enc_log_err (ENC_LOG_WARN, &err, "no baseline of %s yet", b->node);
		(void) enc_fiber_bound (b->c->fibers, ENC_FOREVER);
		if (enc_fiber_sleep (b->c->fibers, AGAIN_S * 1000, NULL) < 0)
			enc_log_debug ("baseline of %s given up", b->node);
	} else {
		enc_log_notice ("the baseline of %s is taken", b->node);
	}
	(void) enc_strs_remove (&b->c->baselining, b->node);
	free (b);
}

void enc_baseline_want (struct enc_ctl *c, const char *node)
{
	enc_auto_done (enc_node_done) struct enc_node n = { 0 };
	struct baseline *b;

	if (enc_strs_has (&c->baselining, node) || enc_node_load (c->db, node, &n, NULL) < 0 || n.baseline_at ||
	    enc_streq (n.declared, "observer") || n.enclave_id[0] || enc_strs_add (&c->baselining, node, NULL) < 0)
		return;
	b = calloc (1, sizeof *b);
	if (b) {
		b->c = c;
		(void) snprintf (b->node, sizeof b->node, "%s", node);
		if (enc_fiber_start (c->fibers, baseline_fiber, b, NULL, NULL) == 0)
			return;
	}
	free (b);
	(void) enc_strs_remove (&c->baselining, node);
}
