#include "controller/enclaved/repair.h"

#include "base/log.h"
#include "controller/enclaved/life.h"
#include "controller/enclaved/nodes.h"
#include "controller/enclaved/run_hooks.h"
#include "controller/enclaved/steps.h"
#include "controller/enclaved/view.h"
#include "base/enc.h"

/* A fence that was flushed is put back by the node itself, and a service that was away may be back by then. */
enum { PATIENCE_S = 10 };

/* Rows of steps.c that one node passes to be back in an enclave that stands. */
static const char *const first_row = "isolate", *const not_again = "keys";

enum kind { FINE, AGAIN, SILENT, OTHERWISE, HALFWAY };

/* ---- what is wrong ---- */

/* What an open enclave has on each of its nodes. */
static bool all_ordered (const struct enc_doc *doc, const struct enc_node *n)
{
	return doc->pool == ENC_POOL_ENCLAVE && doc->overlay && doc->volumes_n && (doc->roles & n->role) && (n->role != ENC_ROLE_LOGIN || doc->door);
}

/* Only what ends the stay counts: leading a node through its rows ends the jobs on it. A report of an earlier generation says nothing. */
static bool has_lost (const struct enc_document *d, const struct enc_observed *seen)
{
	enc_auto (enc_json) struct enc_json *report = NULL;
	const struct enc_json *areas;

	if (seen->generation != d->generation || !seen->report)
		return false;
	report = enc_json_parse (seen->report, strlen (seen->report), ENC_JSON_MAX_DEFAULT, NULL);
	areas = enc_json_get (report, "areas");
	return enc_json_type (areas) == ENC_JSON_OBJECT &&
	       (!enc_streq (enc_json_get_str (areas, "fence", ""), "enclave") || !enc_streq (enc_json_get_str (areas, "overlay", ""), "up") ||
		!enc_json_len (enc_json_get (areas, "roles")) || !enc_json_len (enc_json_get (areas, "volumes")));
}

static int judge (struct enc_ctl *c, const struct enc_node *n, enum kind *ret, char **ret_text, struct enc_error *err)
{
	enc_auto_done (enc_document_done) struct enc_document d = { 0 };
	enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
	enc_auto_free struct enc_doc *doc = NULL;
	int rc;

	if ((rc = enc_doc_of (c, n, &doc, err)) < 0 || (rc = enc_document_load (c->db, n->name, &d, err)) < 0 ||
	    (rc = enc_observed_load (c->db, n->name, &seen, err)) < 0)
		return rc;
	*ret = FINE;
	if (!enc_agent_connected (&seen)) {
		*ret = SILENT;
		*ret_text = enc_strf ("%s is silent", n->name);
	} else if (d.boot[0] && !enc_streq (d.boot, seen.boot)) {
		*ret = AGAIN;
		*ret_text = enc_strf ("%s has started again and has no keys", n->name);
	} else if (!all_ordered (doc, n)) {
		*ret = HALFWAY;
		*ret_text = n->trouble ? enc_strdup (n->trouble) : enc_strf ("%s is not all the way back", n->name);
	} else if (has_lost (&d, &seen)) {
		*ret = OTHERWISE;
		*ret_text = enc_strf ("%s has lost fence, keys or services of the enclave", n->name);
	}
	return *ret != FINE && !*ret_text ? enc_fail (err, ENC_ENOMEM, "out of memory") : 0;
}

static void record_trouble (struct enc_ctl *c, const struct enc_enclave *e, const char *node, enum kind kind, const char *text)
{
	struct enc_log_fields fields = { .node = node, .enclave = e->id };
	struct enc_json *record = enc_record ("node", kind == AGAIN ? "reboot" : "lost", "failed");

	enc_log_with (ENC_LOG_WARN, &fields, "%s", text);
	enc_record_actor (record, NULL);
	enc_record_obj (record, "node", node);
	enc_record_enclave (record, e);
	if (kind == AGAIN)
		enc_record_reason (record, "another boot");
	enc_record_soon (c, record);
}

static void note (struct enc_ctl *c, const char *node, const char *text, int64_t at)
{
	if (enc_db_exec (c->db, NULL, "UPDATE nodes SET trouble=?, trouble_at=? WHERE name=?", "sis", text, at, node) < 0)
		enc_log_warn ("the trouble of %s could not be noted", node);
}

static void set_apart (struct enc_ctl *c, const char *node, const char *step, const char *why)
{
	struct enc_error err = { 0 };

	if (enc_node_quarantine (c, node, step, why, &err) < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "%s could not be put in quarantine", node);
	note (c, node, NULL, 0);
}

/* True: it is to be led through the rows now. */
static bool look_at (struct enc_ctl *c, const struct enc_enclave *e, const struct enc_node *n, int64_t now)
{
	enc_auto_free char *text = NULL;
	struct enc_error err = { 0 };
	enum kind kind;

	if (judge (c, n, &kind, &text, &err) < 0) {
		enc_log_err (ENC_LOG_WARN, &err, "%s could not be judged", n->name);
		return false;
	}
	if (kind == FINE) {
		if (n->trouble_at)
			note (c, n->name, NULL, 0);
		return false;
	}
	if (!n->trouble_at && (kind == AGAIN || kind == SILENT))
		record_trouble (c, e, n->name, kind, text);
	if (!enc_streq (n->trouble, text))
		note (c, n->name, text, n->trouble_at ? n->trouble_at : now);
	if (n->trouble_at && now - n->trouble_at > (int64_t) c->conf->node_lost_s) {
		set_apart (c, n->name, "none", text);
		return false;
	}
	if (kind == SILENT)
		return false;
	/* Also after a service was away: each try writes records. */
	return (kind == AGAIN && !n->trouble_at) || (n->trouble_at && now - n->trouble_at >= PATIENCE_S);
}

/* ---- back through the rows ---- */

/* The rows from isolate on; what the enclave has once (its keys) is left as it is. */
static void choose_rows (struct enc_step *ret, size_t max)
{
	const struct enc_step *s = enc_steps;
	size_t n = 0;

	while (s->name && !enc_streq (s->name, first_row))
		s++;
	for (; s->name && n + 1 < max; s++)
		if (!enc_streq (s->name, not_again))
			ret[n++] = *s;
	ret[n] = (struct enc_step){ 0 };
}

/* Nobody is to blame for a service that is away: the node's time begins anew. */
static void settle (struct enc_run *run, const struct enc_strs *scope, int rc, const struct enc_error *why)
{
	struct enc_ctl *c = run->ctl;

	for (size_t i = 0; i < scope->n; i++) {
		enc_auto_done (enc_node_done) struct enc_node n = { 0 };

		if (enc_node_load (c->db, scope->v[i], &n, NULL) < 0)
			continue;
		if (rc == 0)
			note (c, n.name, NULL, 0);
		else if (rc == -ENC_EUNAVAIL)
			note (c, n.name, n.trouble, enc_now_s ());
		else if (n.pool != ENC_POOL_QUARANTINE)
			set_apart (c, n.name, run->step ? run->step->name : "none", why->text);
	}
}

static int repair_work (struct enc_run *run, void *arg, struct enc_json **ret, struct enc_error *err)
{
	enc_auto_free struct enc_strs *scope = arg;
	struct enc_step rows[32];
	struct enc_runner runner = { .steps = rows, .ctx = run, .state = enc_hook_state, .intent = enc_hook_intent, .outcome = enc_hook_outcome,
				     .bound = enc_hook_bound, .quarantine = enc_hook_quarantine, .wait = enc_hook_wait };
	int rc;

	choose_rows (rows, ENC_ARRAY_LEN (rows));
	run->dir = ENC_UP;
	run->scope = scope;
	rc = enc_engine_up (&runner, err);
	/* A destroy takes over: it takes the node as it stands. */
	if (rc != -ENC_ECANCELED)
		settle (run, scope, rc, err);
	run->scope = NULL;
	run->step = NULL; /* of this function's rows */
	enc_strs_done (scope);
	if (rc == 0)
		*ret = enc_view_enclave_id (run->ctl, run->enclave_id);
	return rc;
}

static void start (struct enc_ctl *c, const struct enc_enclave *e, struct enc_strs *names)
{
	struct enc_strs *scope = calloc (1, sizeof *scope);
	char op[ENC_ID_SIZE] = "";
	struct enc_error err = { 0 };

	if (!scope)
		return;
	*scope = *names;
	*names = (struct enc_strs){ 0 };
	if (enc_operation_new (c, "repair", "enclaved", e, op, &err) == 0 && enc_life_run (c, e->id, op, repair_work, scope, &err) == 0)
		return;
	enc_log_err (ENC_LOG_WARN, &err, "nodes of an enclave could not be led back");
	enc_operation_end (c, op, -ENC_EFAILED, NULL, &err);
	enc_strs_done (scope);
	free (scope);
}

void enc_repair_look (struct enc_ctl *c, const struct enc_enclave *e)
{
	enc_auto_done (enc_nodes_done) struct enc_nodes all = { 0 };
	enc_auto_done (enc_strs_done) struct enc_strs due = { 0 };
	int64_t now = enc_now_s ();

	if (enc_nodes_of (c->db, e->id, ENC_ROLES_ALL, &all, NULL) < 0)
		return;
	for (size_t i = 0; i < all.n; i++)
		if (look_at (c, e, &all.v[i], now) && enc_strs_add (&due, all.v[i].name, NULL) < 0)
			return;
	if (due.n)
		start (c, e, &due);
}

void enc_repair_forget (struct enc_ctl *c)
{
	if (enc_db_exec (c->db, NULL, "UPDATE nodes SET trouble=NULL, trouble_at=0 WHERE trouble_at>0 AND enclave_id NOT IN (SELECT id FROM enclaves"
				      " WHERE state='open')", "") < 0)
		enc_log_warn ("old trouble of nodes could not be forgotten");
}

/* ---- what people see ---- */

struct enc_json *enc_repair_waiting (struct enc_ctl *c, const struct enc_enclave *e)
{
	enc_auto (enc_rows) struct enc_rows *r = NULL;
	enc_auto_free char *text = NULL, *next = NULL;
	struct enc_json *o;
	int64_t until;

	if (enc_db_query (c->db, &r, NULL, "SELECT name, pool=4, coalesce(trouble,why,'set apart'), trouble_at FROM nodes WHERE enclave_id=? AND"
					   " (pool=4 OR trouble_at>0) ORDER BY pool=4, trouble_at, name", "s", e->id) < 0 ||
	    enc_rows_next (r, NULL) <= 0)
		return NULL;
	text = enc_rows_int (r, 1) ? enc_strf ("a person: %s is in quarantine: %s", enc_rows_text (r, 0), enc_rows_text (r, 2)) : enc_strdup (enc_rows_text (r, 2));
	next = enc_strf (enc_rows_int (r, 1) ? "enclavectl node release %s" : "enclavectl node show %s", enc_rows_text (r, 0));
	until = enc_rows_int (r, 1) ? 0 : enc_rows_int (r, 3) + (int64_t) c->conf->node_lost_s;
	o = enc_json_object ();
	enc_json_set_str (o, "for", text);
	enc_json_set_time (o, "until", until * ENC_NS_S);
	enc_json_set_str (o, "next", next);
	return o;
}
