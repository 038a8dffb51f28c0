/* The rules, in the order in which they are looked at:
 *
 *   1. the document is for this node and this controller
 *   2. generations never fall, and one generation is one document
 *   3. pools follow each other only as `pools` says
 *   4. each verb has its row: when it loosens, into which pools, and what must hold besides
 *   5. what loosens needs a grant that fits node, boot, generation, document and clock, for that pool and that enclave */
#include "node-agent/privd/gate.h"

#include <string.h>

#include "base/cleanup.h"

#include "base/enc.h"

#define POOL(p) (1u << (p))

enum { HOME = POOL (ENC_POOL_GENERAL) | POOL (ENC_POOL_SERVICE) };

/* Which pools a document may name after which. General and service are both home. */
static const unsigned pools[] = {
	[ENC_POOL_GENERAL] = HOME | POOL (ENC_POOL_AIRLOCK) | POOL (ENC_POOL_QUARANTINE),
	[ENC_POOL_SERVICE] = HOME | POOL (ENC_POOL_AIRLOCK) | POOL (ENC_POOL_QUARANTINE),
	[ENC_POOL_AIRLOCK] = HOME | POOL (ENC_POOL_AIRLOCK) | POOL (ENC_POOL_ENCLAVE) | POOL (ENC_POOL_QUARANTINE),
	[ENC_POOL_ENCLAVE] = POOL (ENC_POOL_AIRLOCK) | POOL (ENC_POOL_ENCLAVE) | POOL (ENC_POOL_QUARANTINE),
	[ENC_POOL_QUARANTINE] = POOL (ENC_POOL_AIRLOCK) | POOL (ENC_POOL_QUARANTINE),
};

static bool is_home (uint32_t pool)
{
	return (POOL (pool) & HOME) != 0;
}

static bool door_loosens (const struct enc_node_state *s, const struct enc_doc *doc)
{
	(void)s;
	return doc->door != 0;
}

static bool role_loosens (const struct enc_node_state *s, const struct enc_doc *doc)
{
	(void)s;
	return doc->roles != 0; /* also when it is up already: its files are written anew */
}

static bool volume_loosens (const struct enc_node_state *s, const struct enc_doc *doc)
{
	(void)s;
	return doc->volumes_n != 0;
}

static bool units_loosens (const struct enc_node_state *s, const struct enc_doc *doc)
{
	return doc->units == ENC_UNITS_SITE && s->units != ENC_UNITS_SITE;
}

static bool same (const char *a, const char *b)
{
	return strcmp (a ? a : "", b ? b : "") == 0;
}

static bool fence_loosens (const struct enc_node_state *s, const struct enc_doc *doc)
{
	if (doc->fence == ENC_FENCE_ENCLAVE)
		return true;
	if (doc->fence == ENC_FENCE_NONE)
		return s->fence != ENC_FENCE_NONE;
	/* Another controller would be a new hole in a fence that stands. */
	return s->fence != ENC_FENCE_NONE && (!same (s->controller4, doc->controller4) || !same (s->controller6, doc->controller6) ||
						     s->controller_port != doc->controller_port);
}

static bool overlay_loosens (const struct enc_node_state *s, const struct enc_doc *doc)
{
	(void)s;
	return doc->overlay != 0;
}

static bool never_loosens (const struct enc_node_state *s, const struct enc_doc *doc)
{
	(void)s, (void)doc;
	return false;
}

/* The door opens last (invariant 4): all that the document names is there. */
static int door_ready (const struct enc_node_state *s, const struct enc_doc *doc, struct enc_error *err)
{
	if (!doc->door)
		return 0;
	if (s->fence != ENC_FENCE_ENCLAVE || !s->overlay)
		return enc_fail (err, ENC_ECONFLICT, "door: fence and overlay are not up");
	if (s->roles != doc->roles || s->volumes.n != doc->volumes_n)
		return enc_fail (err, ENC_ECONFLICT, "door: roles or volumes are not up");
	if (s->unsure)
		return enc_fail (err, ENC_ECONFLICT, "door: something before it failed");
	return s->member_version ? 0 : enc_fail (err, ENC_ECONFLICT, "door: there is no member document");
}

/* Back to a home pool leads only over a clean that passed, with nothing of the enclave left (invariant 2). */
static int home_ready (const struct enc_node_state *s, const struct enc_doc *doc, struct enc_error *err)
{
	if (!is_home (doc->pool) || (is_home (s->pool) && s->fence == ENC_FENCE_NONE && s->units == ENC_UNITS_SITE))
		return 0;
	if (s->door || s->roles || s->volumes.n || s->overlay)
		return enc_fail (err, ENC_ECONFLICT, "back to the %s pool: something of the enclave is still up", enc_pool_name (doc->pool));
	if (!s->clean_ok)
		return enc_error_next (err, enc_fail (err, ENC_EDENIED, "back to the %s pool: the last act was no passed clean", enc_pool_name (doc->pool)),
			"enclavectl node scrub %s", doc->node);
	return 0;
}

static int fence_ready (const struct enc_node_state *s, const struct enc_doc *doc, struct enc_error *err)
{
	if (doc->fence == ENC_FENCE_NONE && !is_home (doc->pool))
		return enc_fail (err, ENC_ECONFLICT, "fence: only a node on its way home has none");
	if (doc->fence == ENC_FENCE_ENCLAVE && doc->pool != ENC_POOL_ENCLAVE)
		return enc_fail (err, ENC_ECONFLICT, "fence: mode enclave outside the enclave pool");
	return home_ready (s, doc, err);
}

static int units_ready (const struct enc_node_state *s, const struct enc_doc *doc, struct enc_error *err)
{
	if (doc->units == ENC_UNITS_SITE && !is_home (doc->pool))
		return enc_fail (err, ENC_ECONFLICT, "units: the site's units run only on a node on its way home");
	if (doc->units == ENC_UNITS_SITE && s->fence != ENC_FENCE_NONE)
		return enc_fail (err, ENC_ECONFLICT, "units: the fence is still up");
	return home_ready (s, doc, err);
}

static int inside (const struct enc_node_state *s, const struct enc_doc *doc, struct enc_error *err)
{
	(void)s;
	if (doc->pool != ENC_POOL_ENCLAVE && (doc->roles || doc->volumes_n || doc->overlay || doc->door))
		return enc_fail (err, ENC_ECONFLICT, "only a node in the enclave pool has roles, volumes, an overlay or a door");
	return 0;
}

/* A role that is up has its storage below it, and the fence around it. */
static int role_ready (const struct enc_node_state *s, const struct enc_doc *doc, struct enc_error *err)
{
	if (doc->roles && (s->fence != ENC_FENCE_ENCLAVE || !s->overlay || s->volumes.n != doc->volumes_n))
		return enc_fail (err, ENC_ECONFLICT, "role: fence, overlay and volumes come first");
	return inside (s, doc, err);
}

static int fenced_first (const struct enc_node_state *s, const struct enc_doc *doc, struct enc_error *err)
{
	if ((doc->volumes_n || doc->overlay) && s->fence != ENC_FENCE_ENCLAVE)
		return enc_fail (err, ENC_ECONFLICT, "the fence comes first");
	return inside (s, doc, err);
}

/* A clean ends what runs and removes what lies about: only where nothing of worth can be. */
static int clean_ready (const struct enc_node_state *s, const struct enc_doc *doc, struct enc_error *err)
{
	(void)doc;
	if (s->fence == ENC_FENCE_NONE || s->units != ENC_UNITS_DOWN)
		return enc_fail (err, ENC_ECONFLICT, "clean: the node is not detached and fenced");
	if (s->door || s->roles || s->volumes.n)
		return enc_fail (err, ENC_ECONFLICT, "clean: roles or volumes are still up");
	return 0;
}

static int always (const struct enc_node_state *s, const struct enc_doc *doc, struct enc_error *err)
{
	(void)s, (void)doc, (void)err;
	return 0;
}

static int door_both (const struct enc_node_state *s, const struct enc_doc *doc, struct enc_error *err)
{
	int rc = inside (s, doc, err);

	return rc < 0 ? rc : door_ready (s, doc, err);
}

static const struct {
	bool (*loosens) (const struct enc_node_state *s, const struct enc_doc *doc);
	int (*ready) (const struct enc_node_state *s, const struct enc_doc *doc, struct enc_error *err);
} verbs[ENC_VERB_MAX + 1] = {
	[ENC_VERB_DOOR] = { door_loosens, door_both },
	[ENC_VERB_ROLE] = { role_loosens, role_ready },
	[ENC_VERB_VOLUME] = { volume_loosens, fenced_first },
	[ENC_VERB_UNITS] = { units_loosens, units_ready },
	[ENC_VERB_FENCE] = { fence_loosens, fence_ready },
	[ENC_VERB_OVERLAY] = { overlay_loosens, fenced_first },
	[ENC_VERB_CLEAN] = { never_loosens, clean_ready },
	[ENC_VERB_MEASURE] = { never_loosens, always },
	[ENC_VERB_PROBE] = { never_loosens, always },
};

static int check_document (const struct enc_gate *g, const struct enc_doc *doc, const uint8_t digest[32], struct enc_error *err)
{
	const struct enc_node_state *s = g->state;
	const struct enc_privd_conf *c = g->conf;

	if (strcmp (doc->node, c->node) != 0)
		return enc_fail (err, ENC_EINVAL, "the document is for node %s", doc->node);
	if (doc->fence != ENC_FENCE_NONE && ((c->controller4 && !same (c->controller4, doc->controller4)) ||
		(c->controller6 && !same (c->controller6, doc->controller6)) || (c->controller_port && c->controller_port != doc->controller_port)))
		return enc_fail (err, ENC_EDENIED, "the document names a controller that is not this node's");
	if (doc->generation < s->generation)
		return enc_fail (err, ENC_EDENIED, "generation %llu is over; the node is at %llu", (unsigned long long)doc->generation,
			(unsigned long long)s->generation);
	if (doc->generation == s->generation && s->document && memcmp (digest, s->digest, 32) != 0)
		return enc_fail (err, ENC_EDENIED, "generation %llu was another document", (unsigned long long)doc->generation);
	if (!(pools[s->pool] & POOL (doc->pool)))
		return enc_fail (err, ENC_ECONFLICT, "no way from pool %s to pool %s", enc_pool_name ((uint8_t)s->pool), enc_pool_name (doc->pool));
	return 0;
}

/* Entering the enclave pool, or leaving quarantine, is a loosening by itself, whatever the verb. */
static bool pool_loosens (const struct enc_node_state *s, const struct enc_doc *doc)
{
	return (doc->pool == ENC_POOL_ENCLAVE && s->pool != ENC_POOL_ENCLAVE) || (s->pool == ENC_POOL_QUARANTINE && doc->pool != ENC_POOL_QUARANTINE);
}

static int check_grant (const struct enc_gate *g, const struct enc_doc *doc, const uint8_t digest[32], const struct enc_grant *grant, struct enc_error *err)
{
	struct enc_grant_facts facts = { .node = g->conf->node, .boot = g->boot, .generation = doc->generation, .last_generation = g->state->generation,
		.document = digest, .now = g->now };
	int rc;

	if (!grant)
		return enc_fail (err, ENC_EDENIED, "this loosens the node and has no grant");
	if ((rc = enc_grant_fits (grant, &facts, err)) < 0)
		return rc;
	if (grant->pool != doc->pool || strcmp (grant->enclave, doc->enclave_id) != 0)
		return enc_fail (err, ENC_EDENIED, "the grant is for another pool or enclave");
	return 0;
}

int enc_gate_check (const struct enc_gate *gate, uint8_t verb, const struct enc_doc *doc, const uint8_t digest[32], const struct enc_grant *grant,
	bool *ret_loosens, struct enc_error *err)
{
	bool loosens;
	int rc;

	if (verb > ENC_VERB_MAX || !verbs[verb].loosens)
		return enc_fail (err, ENC_EINVAL, "verb %u takes no document", verb);
	if ((rc = check_document (gate, doc, digest, err)) < 0)
		return rc;
	loosens = verbs[verb].loosens (gate->state, doc) || pool_loosens (gate->state, doc);
	/* The grant is looked at first, so that without one nothing is learned of the node's state. */
	if (loosens && (rc = check_grant (gate, doc, digest, grant, err)) < 0)
		return rc;
	if ((rc = verbs[verb].ready (gate->state, doc, err)) < 0)
		return rc;
	*ret_loosens = loosens;
	return 0;
}
