#include "controller/enclaved/plan.h"

#include "controller/enclaved/view.h"
#include "node-agent/proto/document.h"
#include "base/enc.h"

enum { FIRST_COMPUTE = 10, SCHEDULER_AT = 2, LOGIN_AT = 3 };
/* What the rows from leaving an enclave to taking jobs need (docs/performance.md), and for how long after its certificate a node counts as on its way. */
enum { RETURN_S = 8, RETURN_MAX_S = 30 };

struct candidate {
	const struct enc_node *node;
	const struct enc_json *slurm;
	bool busy, coming;
	int64_t free_at;
};

/* Its enclave is being closed, or it has just been certified and its slurmd is not up yet. */
static bool is_coming (struct enc_ctl *c, const struct enc_node *n)
{
	if (n->pool == ENC_POOL_QUARANTINE || !n->baseline_at)
		return false;
	if (n->enclave_id[0])
		return enc_db_int (c->db, 0, "SELECT state IN ('closing','closed') FROM enclaves WHERE id=?", "s", n->enclave_id) == 1;
	return enc_db_int (c->db, 0, "SELECT coalesce(max(at),0) FROM certificates WHERE node=?", "s", n->name) > enc_now_s () - RETURN_MAX_S;
}

void enc_plan_done (struct enc_plan *p)
{
	enc_strs_done (&p->compute);
	enc_json_free (p->nodes);
	p->nodes = NULL;
}

static const struct enc_json *slurm_of (const struct enc_json *slurm, const char *name)
{
	const struct enc_json *list = enc_json_get (slurm, "nodes");

	for (size_t i = 0; i < enc_json_len (list); i++)
		if (enc_streq (enc_json_get_str (enc_json_at (list, i), "name", NULL), name))
			return enc_json_at (list, i);
	return NULL;
}

static bool has_feature (const struct enc_json *slurm, const char *feature)
{
	const struct enc_json *list = enc_json_get (slurm, "features");

	for (size_t i = 0; i < enc_json_len (list); i++)
		if (enc_streq (enc_json_str (enc_json_at (list, i)), feature))
			return true;
	return false;
}

/* Down, drained by a person, in maintenance, switched off: not ours to take. */
static bool state_usable (const char *state)
{
	static const char *const usable[] = { "idle", "mixed", "allocated", "alloc", "completing" };

	for (size_t i = 0; i < ENC_ARRAY_LEN (usable); i++)
		if (enc_streq (state, usable[i]))
			return true;
	return false;
}

/* NULL: it may be lent. Else why not. */
static const char *objection (struct enc_ctl *c, const struct enc_node *n, const struct enc_json *slurm)
{
	enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };

	if (n->pool != ENC_POOL_GENERAL)
		return "is not in the general pool";
	if (n->enclave_id[0])
		return "is held by an enclave";
	if (!n->baseline_at)
		return "has no baseline yet";
	if (enc_observed_load (c->db, n->name, &seen, NULL) < 0 || !enc_agent_connected (&seen))
		return "has no agent connected";
	if (!slurm)
		return "is not known to the general scheduler";
	if (!enc_json_get_bool (slurm, "schedulable", state_usable (enc_json_get_str (slurm, "state", ""))))
		return "is not up in the general scheduler";
	if (*enc_json_get_str (slurm, "reservation", ""))
		return "is reserved";
	return NULL;
}

static void show (struct enc_plan *p, const struct candidate *c, const char *why)
{
	struct enc_json *o = enc_json_add_object (p->nodes);

	enc_json_set_str (o, "name", c->node->name);
	enc_json_set_str (o, "state", enc_json_get_str (c->slurm, "state", NULL));
	enc_json_set_time (o, "free_at", c->free_at * ENC_NS_S);
	enc_json_set_str (o, "why", why);
}

static struct candidate candidate_of (const struct enc_node *n, const struct enc_json *slurm, bool coming)
{
	struct candidate c = { .node = n, .slurm = slurm, .coming = coming };

	c.busy = enc_json_len (enc_json_get (slurm, "jobs")) > 0;
	if (coming)
		c.free_at = enc_now_s () + RETURN_S;
	else
		c.free_at = c.busy ? enc_json_get_i64 (slurm, "free_at", 0) : enc_now_s ();
	return c;
}

static int take (struct enc_plan *p, const struct candidate *c, struct enc_error *err)
{
	if (c->free_at > p->ready_wait)
		p->ready_wait = c->free_at;
	p->coming = p->coming || c->coming;
	show (p, c, c->coming ? "on its way back" : c->busy ? "its jobs end first" : "idle");
	return enc_strs_add (&p->compute, c->node->name, err);
}

static int choose_named (struct enc_ctl *c, const struct enc_json *slurm, const struct enc_plan_wish *w, struct enc_plan *p, struct enc_error *err)
{
	const struct enc_strs *names = w->names;

	for (size_t i = 0; i < names->n; i++) {
		enc_auto_done (enc_node_done) struct enc_node n = { 0 };
		struct candidate cand;
		const char *why;
		bool coming;
		int rc;

		if ((rc = enc_node_load (c->db, names->v[i], &n, err)) < 0)
			return rc;
		if (!enc_streq (n.declared, "general"))
			return enc_error_object (err, enc_fail (err, ENC_ENOTFOUND, "there is no node %s to lend", n.name), "%s", n.name);
		why = objection (c, &n, slurm_of (slurm, n.name));
		coming = why && w->soon && is_coming (c, &n);
		cand = candidate_of (&n, slurm_of (slurm, n.name), coming);
		if (why && !coming) {
			rc = enc_error_object (err, enc_fail (err, ENC_EBUSY, "%s %s", n.name, why), "%s", n.name);
			return enc_error_next (err, rc, "enclavectl node show %s", n.name);
		}
		if ((rc = take (p, &cand, err)) < 0)
			return rc;
	}
	return 0;
}

static int sooner (const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	/* A job without an end comes last. */
	int64_t fx = x->free_at ? x->free_at : INT64_MAX, fy = y->free_at ? y->free_at : INT64_MAX;

	if (x->coming != y->coming && !x->busy && !y->busy)
		return x->coming ? 1 : -1;
	if (x->busy != y->busy)
		return x->busy ? 1 : -1;
	if (x->busy && fx != fy)
		return fx < fy ? -1 : 1;
	return strcmp (x->node->name, y->node->name);
}

static int choose_count (struct enc_ctl *c, const struct enc_json *slurm, const struct enc_plan_wish *w, struct enc_plan *p, struct enc_error *err)
{
	enc_auto_done (enc_nodes_done) struct enc_nodes all = { 0 };
	enc_auto_free struct candidate *v = NULL;
	size_t n = 0;
	int rc;

	if ((rc = enc_nodes_declared (c->db, "general", &all, err)) < 0)
		return rc;
	v = calloc (all.n + 1, sizeof *v);
	if (!v)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	for (size_t i = 0; i < all.n; i++) {
		const struct enc_json *slurm_node = slurm_of (slurm, all.v[i].name);
		bool coming = objection (c, &all.v[i], slurm_node) != NULL;

		if ((coming && !(w->soon && is_coming (c, &all.v[i]))) || (w->feature && !has_feature (slurm_node, w->feature)) ||
		    (w->gres && !enc_starts (enc_json_get_str (slurm_node, "gres", ""), w->gres)))
			continue;
		v[n++] = candidate_of (&all.v[i], slurm_node, coming);
	}
	if (n < w->count) {
		rc = enc_fail (err, ENC_EBUSY, "%u nodes were asked for, %zu can be lent now", w->count, n);
		return enc_error_next (err, rc, "enclavectl node list");
	}
	qsort (v, n, sizeof *v, sooner);
	for (size_t i = 0; i < w->count; i++)
		if ((rc = take (p, &v[i], err)) < 0)
			return rc;
	return 0;
}

static int choose_services (struct enc_ctl *c, const struct enc_plan_wish *w, struct enc_plan *p, struct enc_error *err)
{
	enc_auto_done (enc_nodes_done) struct enc_nodes all = { 0 };
	char *to[] = { p->scheduler, p->login };
	size_t found = 0, coming = 0;
	int rc;

	if ((rc = enc_nodes_declared (c->db, "service", &all, err)) < 0)
		return rc;
	for (size_t i = 0; i < all.n && found < 2; i++) {
		enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
		const struct enc_node *n = &all.v[i];

		if (n->pool != ENC_POOL_SERVICE || n->enclave_id[0] || !n->baseline_at ||
		    enc_observed_load (c->db, n->name, &seen, NULL) < 0 || !enc_agent_connected (&seen)) {
			coming += w->soon && n->enclave_id[0] && is_coming (c, n);
			continue;
		}
		(void) snprintf (to[found++], sizeof p->login, "%s", n->name);
	}
	if (found < 2 && found + coming >= 2) {
		p->coming = true;
		return 0;
	}
	if (found < 2)
		return enc_error_next (err, enc_fail (err, ENC_EBUSY, "two service nodes are needed, %zu are free", found), "enclavectl node list");
	return 0;
}

int enc_plan_choose (struct enc_ctl *c, const struct enc_json *slurm, const struct enc_plan_wish *wish, struct enc_plan *ret, struct enc_error *err)
{
	int rc;

	ret->nodes = enc_json_array ();
	ret->ready_wait = enc_now_s ();
	rc = wish->names ? choose_named (c, slurm, wish, ret, err) : choose_count (c, slurm, wish, ret, err);
	return rc < 0 ? rc : choose_services (c, wish, ret, err);
}

static int claim_one (struct enc_ctl *c, const char *node, const struct enc_enclave *e, uint8_t role, unsigned at, struct enc_error *err)
{
	char overlay[32];
	int rc;

	(void) snprintf (overlay, sizeof overlay, "%s.%u.%u", c->conf->overlay_prefix, e->slot, at);
	rc = enc_db_exec (c->db, err, "UPDATE nodes SET enclave_id=?, role=?, overlay=?, held_since=? WHERE name=? AND enclave_id='' AND pool<2",
			  "sisis", e->id, (int64_t) role, overlay, enc_now_s (), node);
	if (rc < 0)
		return rc;
	if (enc_db_changes (c->db) != 1)
		return enc_error_object (err, enc_fail (err, ENC_EBUSY, "%s was taken meanwhile", node), "%s", node);
	return 0;
}

int enc_plan_claim (struct enc_ctl *c, const struct enc_plan *p, const struct enc_enclave *e, struct enc_error *err)
{
	int rc;

	for (size_t i = 0; i < p->compute.n; i++)
		if ((rc = claim_one (c, p->compute.v[i], e, ENC_ROLE_COMPUTE, FIRST_COMPUTE + (unsigned) i, err)) < 0)
			return rc;
	if ((rc = claim_one (c, p->scheduler, e, ENC_ROLE_SCHEDULER, SCHEDULER_AT, err)) < 0)
		return rc;
	return claim_one (c, p->login, e, ENC_ROLE_LOGIN, LOGIN_AT, err);
}
