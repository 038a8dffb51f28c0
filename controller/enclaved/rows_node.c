/* isolate, clean, services: the airlock on both ways, and the nodes that carry the enclave's own services. */
#include "controller/enclaved/steps.h"

#include "base/enc.h"

/* ---- documents ---- */

struct stay {
	const struct enc_conf *conf;
	const struct enc_enclave *e;
};

static void copy (char *to, size_t size, const char *from)
{
	(void) snprintf (to, size, "%s", from ? from : "");
}

/* Into the airlock: fenced, and from now on part of a stay. */
static void edit_airlock (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, void *arg)
{
	const struct stay *s = arg;

	doc->pool = ENC_POOL_AIRLOCK;
	doc->fence = ENC_FENCE_AIRLOCK;
	doc->units = ENC_UNITS_DOWN;
	doc->overlay = 0;
	doc->roles = 0;
	doc->door = 0;
	doc->volumes_n = 0;
	/* What an earlier stay was asked is answered; the node has forgotten it. */
	doc->clean = ENC_CLEAN_NONE;
	doc->clean_id[0] = doc->challenge[0] = doc->probe_id[0] = 0;
	copy (doc->enclave_id, sizeof doc->enclave_id, s->e->id);
	copy (doc->enclave_name, sizeof doc->enclave_name, s->e->name);
	doc->not_after = (uint64_t) s->e->expires_at;
	copy (doc->controller4, sizeof doc->controller4, s->conf->address4);
	copy (doc->controller6, sizeof doc->controller6, s->conf->address6);
	doc->controller_port = s->conf->port;
}

int enc_run_airlock (struct enc_run *run, uint8_t roles, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	struct stay stay = { .conf = run->ctl->conf, .e = &e };
	struct enc_change change = { .edit = edit_airlock, .arg = &stay, .what = "fence for the airlock" };
	int rc;

	if ((rc = enc_run_enclave (run, &e, err)) < 0)
		return rc;
	return enc_run_change (run, roles, &change, err);
}

int enc_nodes_in (struct enc_ctl *c, struct enc_nodes *nodes, uint8_t pool, struct enc_error *err)
{
	size_t kept = 0;

	for (size_t i = 0; i < nodes->n; i++) {
		enc_auto_free struct enc_doc *doc = NULL;
		int rc = enc_doc_of (c, &nodes->v[i], &doc, err);

		if (rc < 0)
			return rc;
		if (doc->pool == pool) {
			struct enc_node moved = nodes->v[i];

			nodes->v[i] = nodes->v[kept];
			nodes->v[kept++] = moved;
		}
	}
	for (size_t i = kept; i < nodes->n; i++)
		enc_node_done (&nodes->v[i]);
	nodes->n = kept;
	return 0;
}

static uint8_t level_of (const struct enc_enclave *e)
{
	return enc_streq (e->entry, "reboot") ? ENC_CLEAN_REBOOT : ENC_CLEAN_LIVE;
}

/* The pool column follows what was reached, so that a node is in exactly one pool at any time. */
static int set_pool (struct enc_run *run, const struct enc_nodes *nodes, uint8_t pool, struct enc_error *err)
{
	for (size_t i = 0; i < nodes->n; i++) {
		int rc = enc_db_exec (run->ctl->db, err, "UPDATE nodes SET pool=? WHERE name=? AND pool!=4", "is", (int64_t) pool,
				      nodes->v[i].name);

		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- isolate ---- */

int enc_row_isolate_do (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	int rc;

	if ((rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &nodes, err)) < 0 || (rc = enc_run_airlock (run, ENC_ROLE_COMPUTE, err)) < 0)
		return rc;
	return set_pool (run, &nodes, ENC_POOL_AIRLOCK, err);
}

int enc_row_isolate_undo (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 }, back = { 0 };
	int rc;

	if ((rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &nodes, err)) < 0 ||
	    (rc = enc_nodes_in (run->ctl, &nodes, ENC_POOL_AIRLOCK, err)) < 0)
		return rc;
	/* The clean row was never begun: then this is where the node is cleaned, for nothing goes back unclean. */
	if (nodes.n && enc_journal_state (run->ctl->db, run->enclave_id, "clean") == ENC_ROW_NONE &&
	    (rc = enc_nodes_clean (run, &nodes, ENC_CLEAN_LIVE, err)) < 0)
		return rc;
	if ((rc = enc_nodes_return (run, &nodes, err)) < 0)
		return rc;
	/* Those ordered back before a restart must have arrived too. */
	if ((rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &back, err)) < 0 || (rc = enc_nodes_await (run, &back, "return", err)) < 0)
		return rc;
	return set_pool (run, &back, ENC_POOL_GENERAL, err);
}

/* ---- clean ---- */

int enc_row_clean_do (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	int rc;

	if ((rc = enc_run_enclave (run, &e, err)) < 0 || (rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &nodes, err)) < 0)
		return rc;
	return enc_nodes_clean (run, &nodes, level_of (&e), err);
}

int enc_row_clean_undo (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	int rc;

	if ((rc = enc_run_nodes (run, ENC_ROLE_COMPUTE, &nodes, err)) < 0 ||
	    (rc = enc_nodes_in (run->ctl, &nodes, ENC_POOL_AIRLOCK, err)) < 0)
		return rc;
	return enc_nodes_clean (run, &nodes, ENC_CLEAN_LIVE, err);
}

/* ---- services ---- */

static void fill_peer (struct enc_doc_peer *p, const struct enc_node *n, const struct enc_observed *seen)
{
	copy (p->node, sizeof p->node, n->name);
	p->role = n->role;
	copy (p->address4, sizeof p->address4, seen->address4);
	copy (p->address6, sizeof p->address6, seen->address6);
	copy (p->overlay, sizeof p->overlay, n->overlay);
	p->cpus = seen->cpus;
	p->memory_mb = (uint64_t) seen->memory_mb;
	if (!seen->overlay_key[0] || enc_base64_fixed (seen->overlay_key, p->overlay_key, sizeof p->overlay_key, NULL) < 0)
		memset (p->overlay_key, 0, sizeof p->overlay_key);
}

struct inside {
	const struct enc_conf *conf;
	const struct enc_enclave *e;
	size_t peers_n;
	struct enc_doc_peer *peers;
	size_t outsiders_n;
	char outsiders[8][46];
};

/* One of us: the enclave's fence and overlay, its ports and peers. Roles, volumes and door come later. */
static void edit_inside (struct enc_doc *doc, ENC_UNUSED const struct enc_node *node, void *arg)
{
	const struct inside *in = arg;
	const struct enc_conf *conf = in->conf;

	doc->pool = ENC_POOL_ENCLAVE;
	doc->fence = ENC_FENCE_ENCLAVE;
	doc->overlay = 1;
	doc->overlay_port = conf->overlay_port_base + in->e->slot;
	(void) snprintf (doc->overlay_net, sizeof doc->overlay_net, "%s.%u.0/24", conf->overlay_prefix, in->e->slot);
	copy (doc->slurm_cluster, sizeof doc->slurm_cluster, in->e->cluster);
	doc->slurmctld_port = conf->slurmctld_port;
	doc->slurmd_port = conf->slurmd_port;
	doc->srun_port_first = conf->srun_port_first;
	doc->srun_port_last = conf->srun_port_last;
	doc->login_port = conf->login_port_base + in->e->slot;
	copy (doc->munge_key, sizeof doc->munge_key, in->e->munge_key);
	doc->peers_n = in->peers_n;
	memcpy (doc->peers, in->peers, in->peers_n * sizeof *in->peers);
	doc->outsiders_n = in->outsiders_n;
	memcpy (doc->outsiders, in->outsiders, sizeof doc->outsiders);
}

/* True when every node has told its overlay key. */
static int gather_peers (struct enc_run *run, const struct enc_nodes *nodes, struct enc_doc_peer *peers, bool *ret_all, struct enc_error *err)
{
	*ret_all = true;
	for (size_t i = 0; i < nodes->n; i++) {
		enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };
		int rc = enc_observed_load (run->ctl->db, nodes->v[i].name, &seen, err);

		if (rc < 0)
			return rc;
		fill_peer (&peers[i], &nodes->v[i], &seen);
		*ret_all = *ret_all && seen.overlay_key[0];
	}
	return 0;
}

/* What the probes must find unreachable: the observers' addresses, and those that the site lists. */
static int gather_outsiders (struct enc_run *run, struct inside *in, struct enc_error *err)
{
	enc_auto_done (enc_nodes_done) struct enc_nodes observers = { 0 };
	const struct enc_strs *listed = &run->ctl->conf->outsiders;
	int rc = enc_nodes_declared (run->ctl->db, "observer", &observers, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < listed->n && in->outsiders_n < 8; i++)
		copy (in->outsiders[in->outsiders_n++], 46, listed->v[i]);
	for (size_t i = 0; i < observers.n && in->outsiders_n < 8; i++) {
		enc_auto_done (enc_observed_done) struct enc_observed seen = { 0 };

		if ((rc = enc_observed_load (run->ctl->db, observers.v[i].name, &seen, err)) < 0)
			return rc;
		if (seen.address4[0])
			copy (in->outsiders[in->outsiders_n++], 46, seen.address4);
	}
	return 0;
}

static int overlay_up (struct enc_run *run, const struct enc_enclave *e, struct enc_error *err)
{
	enc_auto_done (enc_nodes_done) struct enc_nodes all = { 0 };
	enc_auto_free struct enc_doc_peer *peers = calloc (ENC_DOC_NODES_MAX, sizeof *peers);
	struct inside in = { .conf = run->ctl->conf, .e = e, .peers = peers };
	struct enc_change change = { .edit = edit_inside, .arg = &in, .grant = ENC_GRANT_MUST, .what = "overlay" };
	bool complete = false;
	int rc;

	if (!peers)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	/* All, also when the rows are walked for a few: each of the others gets the keys of those few. */
	if ((rc = enc_run_nodes_all (run, ENC_ROLES_ALL, &all, err)) < 0 || (rc = gather_outsiders (run, &in, err)) < 0)
		return rc;
	if (all.n > ENC_DOC_NODES_MAX)
		return enc_fail (err, ENC_EFAILED, "more than %d nodes", ENC_DOC_NODES_MAX);
	for (;;) {
		if ((rc = gather_peers (run, &all, peers, &complete, err)) < 0)
			return rc;
		if (complete)
			break;
		if ((rc = enc_run_wait (run, "the nodes' overlay keys", "enclavectl node list", err)) < 0)
			return rc;
	}
	in.peers_n = all.n;
	if ((rc = enc_nodes_change (run, &all, &change, err)) < 0)
		return rc;
	return set_pool (run, &all, ENC_POOL_ENCLAVE, err);
}

int enc_row_services_do (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	enc_auto_done (enc_nodes_done) struct enc_nodes services = { 0 };
	int rc;

	if ((rc = enc_run_enclave (run, &e, err)) < 0 || (rc = enc_run_nodes (run, ENC_ROLES_SERVICE, &services, err)) < 0)
		return rc;
	if (services.n < 2 && !run->scope)
		return enc_fail (err, ENC_EFAILED, "the enclave has %zu of its 2 service nodes", services.n);
	if ((rc = enc_run_airlock (run, ENC_ROLES_SERVICE, err)) < 0 || (rc = set_pool (run, &services, ENC_POOL_AIRLOCK, err)) < 0 ||
	    (rc = enc_nodes_clean (run, &services, ENC_CLEAN_LIVE, err)) < 0)
		return rc;
	return overlay_up (run, &e, err);
}

static int back_to_airlock (struct enc_run *run, struct enc_error *err)
{
	enc_auto_done (enc_enclave_done) struct enc_enclave e = { 0 };
	enc_auto_done (enc_nodes_done) struct enc_nodes inside = { 0 }, all = { 0 };
	struct stay stay = { .conf = run->ctl->conf, .e = &e };
	struct enc_change change = { .edit = edit_airlock, .arg = &stay, .what = "overlay down" };
	int rc;

	if ((rc = enc_run_enclave (run, &e, err)) < 0 || (rc = enc_run_nodes (run, ENC_ROLES_ALL, &inside, err)) < 0 ||
	    (rc = enc_nodes_in (run->ctl, &inside, ENC_POOL_ENCLAVE, err)) < 0 || (rc = enc_nodes_change (run, &inside, &change, err)) < 0)
		return rc;
	/* Some may have fallen there before. */
	if ((rc = enc_run_nodes (run, ENC_ROLES_ALL, &all, err)) < 0 || (rc = enc_nodes_in (run->ctl, &all, ENC_POOL_AIRLOCK, err)) < 0)
		return rc;
	return set_pool (run, &all, ENC_POOL_AIRLOCK, err);
}

int enc_row_services_undo (void *ctx, struct enc_error *err)
{
	struct enc_run *run = ctx;
	enc_auto_done (enc_nodes_done) struct enc_nodes services = { 0 }, back = { 0 };
	int rc;

	if ((rc = back_to_airlock (run, err)) < 0 || (rc = enc_run_nodes (run, ENC_ROLES_SERVICE, &services, err)) < 0 ||
	    (rc = enc_nodes_in (run->ctl, &services, ENC_POOL_AIRLOCK, err)) < 0)
		return rc;
	if ((rc = enc_nodes_clean (run, &services, ENC_CLEAN_LIVE, err)) < 0 || (rc = enc_nodes_return (run, &services, err)) < 0 ||
	    (rc = enc_run_nodes (run, ENC_ROLES_SERVICE, &back, err)) < 0 || (rc = enc_nodes_await (run, &back, "return", err)) < 0 ||
	    (rc = set_pool (run, &back, ENC_POOL_SERVICE, err)) < 0)
		return rc;
	return enc_db_exec (run->ctl->db, err,
			    "UPDATE nodes SET enclave_id='', role=0, overlay='', held_since=0 WHERE enclave_id=? AND (role & 6)!=0 AND pool!=4",
			    "s", run->enclave_id);
}
