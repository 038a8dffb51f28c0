/* The life of an enclave. Up runs from top to bottom, down from bottom to top, and a failure on the way up walks down from where it
 * stopped. The order is the security argument: nothing is trusted before it is isolated, clean and measured; on the way back, nodes
 * are scrubbed before their network is released, and released before anybody may use them.
 *
 * Deadlines are seconds. What loosens is marked: without the log it does not happen. What is not marked never waits for the log. */
#include "controller/enclaved/steps.h"

#include "base/enc.h"

#define UP ENC_STEP_ACT_LOOSENS
#define DOWN ENC_STEP_UNDO_LOOSENS

const struct enc_step enc_steps[] = {
	{ "authorise", enc_row_authorise_do, enc_row_authorise_undo, enc_row_authorise_check, 30, 30, 10, UP,
	  "policy, agreement, lease and record" },
	/* The order's own deadline bounds the wait for nodes that are on their way back, and for other people's jobs. */
	{ "reserve", enc_row_reserve_do, enc_row_reserve_undo, enc_row_reserve_check, 0, 60, 30, UP | DOWN,
	  "hold the chosen nodes in the general scheduler" },
	{ "drain", enc_row_drain_do, enc_row_drain_undo, enc_row_drain_check, 0, 60, 30, DOWN,
	  "let their jobs end, requeue or cancel them as asked" },
	{ "detach", enc_row_detach_do, enc_row_detach_undo, enc_row_detach_check, 60, 90, 120, DOWN,
	  "stop the site's services on them and leave the general scheduler" },
	{ "isolate", enc_row_isolate_do, enc_row_isolate_undo, enc_row_isolate_check, 60, 90, 10, DOWN,
	  "fence them: nothing in, nothing out but the controller" },
	{ "clean", enc_row_clean_do, enc_row_clean_undo, enc_row_clean_check, 600, 600, 10, 0,
	  "remove all residue and measure against the baseline" },
	{ "services", enc_row_services_do, enc_row_services_undo, enc_row_services_check, 600, 900, 10, UP | DOWN,
	  "fence and clean the service nodes, bring the overlay up on all" },
	{ "keys", enc_row_keys_do, enc_row_keys_undo, enc_row_keys_check, 60, 60, 10, UP,
	  "make or unlock the enclave's keys" },
	{ "storage", enc_row_storage_do, enc_row_storage_undo, enc_row_storage_check, 120, 120, 10, UP,
	  "open scratch and project volumes, encrypted" },
	{ "scheduler", enc_row_scheduler_do, enc_row_scheduler_undo, enc_row_scheduler_check, 60, 60, 10, UP,
	  "start the enclave's own scheduler" },
	{ "join", enc_row_join_do, enc_row_join_undo, enc_row_join_check, 60, 60, 60, UP,
	  "register the nodes there" },
	{ "login", enc_row_login_do, enc_row_login_undo, enc_row_login_check, 60, 60, 10, UP,
	  "bring the login node up, door shut" },
	{ "prove", enc_row_prove_do, NULL, enc_row_prove_check, 120, 0, 10, 0,
	  "probe from inside and outside, store the evidence" },
	{ "open", enc_row_open_do, enc_row_open_undo, enc_row_open_check, 30, 30, 10, UP,
	  "open the door; shutting it is the first act of every way down" },
	{ 0 },
};

int enc_run_nodes_all (struct enc_run *run, uint8_t roles, struct enc_nodes *ret, struct enc_error *err)
{
	return enc_nodes_of (run->ctl->db, run->enclave_id, roles, ret, err);
}

int enc_run_nodes (struct enc_run *run, uint8_t roles, struct enc_nodes *ret, struct enc_error *err)
{
	size_t kept = 0;
	int rc = enc_run_nodes_all (run, roles, ret, err);

	if (rc < 0 || !run->scope)
		return rc;
	for (size_t i = 0; i < ret->n; i++) {
		struct enc_node moved = ret->v[i];

		if (!enc_strs_has (run->scope, moved.name))
			continue;
		ret->v[i] = ret->v[kept];
		ret->v[kept++] = moved;
	}
	for (size_t i = kept; i < ret->n; i++)
		enc_node_done (&ret->v[i]);
	ret->n = kept;
	return 0;
}

int enc_run_change (struct enc_run *run, uint8_t roles, const struct enc_change *change, struct enc_error *err)
{
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	int rc;

	if ((rc = enc_run_nodes (run, roles, &nodes, err)) < 0)
		return rc;
	return enc_nodes_change (run, &nodes, change, err);
}

/* What a row leaves behind: asked of each node's document, for a node that stands as ordered proves nothing if the order is an old one. */
typedef bool (*was_ordered_fn) (const struct enc_doc *doc, const struct enc_node *node);

static int all_ordered (struct enc_run *run, const struct enc_nodes *nodes, was_ordered_fn ordered, struct enc_error *err)
{
	for (size_t i = 0; i < nodes->n; i++) {
		enc_auto_free struct enc_doc *doc = NULL;
		int rc = enc_doc_of (run->ctl, &nodes->v[i], &doc, err);

		if (rc < 0)
			return rc;
		if (!ordered (doc, &nodes->v[i]))
			return enc_fail (err, ENC_EFAILED, "%s was not ordered to it yet", nodes->v[i].name);
	}
	return 0;
}

static int stand (struct enc_run *run, uint8_t roles, was_ordered_fn ordered, struct enc_error *err)
{
	enc_auto_done (enc_nodes_done) struct enc_nodes nodes = { 0 };
	int rc;

	if ((rc = enc_run_nodes (run, roles, &nodes, err)) < 0 || (rc = all_ordered (run, &nodes, ordered, err)) < 0)
		return rc;
	return enc_nodes_hold (run, &nodes, err);
}

static bool is_detached (const struct enc_doc *doc, ENC_UNUSED const struct enc_node *node)
{
	return doc->units == ENC_UNITS_DOWN;
}

static bool is_isolated (const struct enc_doc *doc, ENC_UNUSED const struct enc_node *node)
{
	return doc->fence != ENC_FENCE_NONE && doc->pool != ENC_POOL_GENERAL;
}

static bool is_clean (const struct enc_doc *doc, const struct enc_node *node)
{
	return doc->clean_id[0] && doc->challenge[0] && enc_streq (node->attested, doc->challenge);
}

static bool is_inside (const struct enc_doc *doc, ENC_UNUSED const struct enc_node *node)
{
	return doc->pool == ENC_POOL_ENCLAVE && doc->overlay;
}

static bool has_volumes (const struct enc_doc *doc, ENC_UNUSED const struct enc_node *node)
{
	return doc->volumes_n > 0;
}

static bool has_role (const struct enc_doc *doc, const struct enc_node *node)
{
	return doc->roles & node->role;
}

static bool has_door (const struct enc_doc *doc, ENC_UNUSED const struct enc_node *node)
{
	return doc->door;
}

#define CHECK(name, roles, ordered)                                                                                    \
	int enc_row_##name (void *ctx, struct enc_error *err)                                                          \
	{                                                                                                              \
		return stand (ctx, roles, ordered, err);                                                               \
	}
CHECK (detached, ENC_ROLE_COMPUTE, is_detached)
CHECK (isolate_check, ENC_ROLE_COMPUTE, is_isolated)
CHECK (clean_check, ENC_ROLE_COMPUTE, is_clean)
CHECK (services_check, ENC_ROLES_ALL, is_inside)
CHECK (storage_check, ENC_ROLES_ALL, has_volumes)
CHECK (scheduler_check, ENC_ROLE_SCHEDULER, has_role)
CHECK (joined, ENC_ROLE_COMPUTE, has_role)
CHECK (login_check, ENC_ROLE_LOGIN, has_role)
CHECK (open_check, ENC_ROLE_LOGIN, has_door)
