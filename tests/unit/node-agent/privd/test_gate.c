#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "node-agent/privd/gate.h"
#include "tests/unit/node-agent/proto/fixture.h"

#include "base/enc.h"

/* A node inside an enclave, everything up, the door shut; a document that says the same, and a grant that fits. */
static struct enc_doc doc;
static struct enc_privd_conf conf;
static struct enc_node_state state_;
static struct enc_grant grant;
static uint8_t boot[16], digest[32];
static char name_scratch[] = "scratch", name_data[] = "cxr-data", node_name[] = "n1", c4[] = "10.0.0.1", c6[] = "fd00::1", any[] = "x";
static char *names[] = { name_scratch, name_data, NULL };

enum { NOW = 2000000000 };

static int setup (void **state)
{
	(void)state;
	fixture_doc (&doc);
	memset (boot, 9, sizeof boot);
	memset (digest, 5, sizeof digest);
	conf = (struct enc_privd_conf){ .node = node_name };
	state_ = (struct enc_node_state){ .pool = ENC_POOL_ENCLAVE, .generation = 6, .fence = ENC_FENCE_ENCLAVE, .units = ENC_UNITS_DOWN, .overlay = true,
		.roles = ENC_ROLE_COMPUTE, .volumes = { names, 2 }, .member_version = 1, .controller4 = c4, .controller6 = c6, .controller_port = 8443 };
	grant = (struct enc_grant){ .generation = 7, .pool = ENC_POOL_ENCLAVE, .not_before = NOW - 10, .not_after = NOW + 100 };
	memcpy (grant.node, "n1", 3);
	memcpy (grant.enclave, FIX_ID, 27);
	memcpy (grant.boot, boot, 16);
	memcpy (grant.document, digest, 32);
	return 0;
}

static int judge (uint8_t verb, const struct enc_grant *g)
{
	struct enc_gate gate = { .conf = &conf, .state = &state_, .boot = boot, .now = NOW };
	struct enc_error err = { 0 };
	bool loosens;

	return enc_gate_check (&gate, verb, &doc, digest, g, &loosens, &err);
}

static void way_home (void)
{
	doc.pool = ENC_POOL_GENERAL;
	doc.enclave_id[0] = doc.enclave_name[0] = '\0';
	doc.units = ENC_UNITS_SITE;
	doc.fence = ENC_FENCE_NONE;
	doc.overlay = doc.roles = doc.door = 0;
	doc.volumes_n = doc.peers_n = 0;
	grant.pool = ENC_POOL_GENERAL;
	grant.enclave[0] = '\0';
	state_.pool = ENC_POOL_AIRLOCK;
	state_.fence = ENC_FENCE_AIRLOCK;
	state_.overlay = false;
	state_.roles = 0;
	state_.volumes.n = 0;
	state_.clean_ok = true;
}

static void whatever_loosens_needs_a_grant (void **state)
{
	static const uint8_t verbs[] = { ENC_VERB_FENCE, ENC_VERB_OVERLAY, ENC_VERB_VOLUME, ENC_VERB_ROLE, ENC_VERB_DOOR };

	(void)state;
	doc.door = 1;
	for (size_t i = 0; i < sizeof verbs; i++) {
		assert_int_equal (judge (verbs[i], NULL), -ENC_EDENIED);
		assert_int_equal (judge (verbs[i], &grant), 0);
	}
	way_home ();
	assert_int_equal (judge (ENC_VERB_FENCE, NULL), -ENC_EDENIED);
	assert_int_equal (judge (ENC_VERB_FENCE, &grant), 0);
	state_.fence = ENC_FENCE_NONE;
	assert_int_equal (judge (ENC_VERB_UNITS, NULL), -ENC_EDENIED);
	assert_int_equal (judge (ENC_VERB_UNITS, &grant), 0);
}

static void whatever_tightens_needs_none (void **state)
{
	static const uint8_t verbs[] = { ENC_VERB_DOOR, ENC_VERB_ROLE, ENC_VERB_VOLUME, ENC_VERB_OVERLAY, ENC_VERB_UNITS, ENC_VERB_FENCE };

	(void)state;
	doc.pool = ENC_POOL_AIRLOCK;
	doc.fence = ENC_FENCE_AIRLOCK;
	doc.overlay = doc.roles = doc.door = 0;
	doc.volumes_n = 0;
	state_.door = true;
	for (size_t i = 0; i < sizeof verbs; i++)
		assert_int_equal (judge (verbs[i], NULL), 0);
}

#define REFUSED(change)                                                             \
	do {                                                                        \
		(void)setup (NULL);                                                 \
		change;                                                             \
		if (judge (ENC_VERB_FENCE, &grant) != -ENC_EDENIED)                 \
			fail_msg ("passed: %s", #change);                           \
	} while (0)

static void a_grant_for_something_else_is_no_grant (void **state)
{
	(void)state;
	REFUSED (memcpy (grant.node, "n2", 3));
	REFUSED (grant.boot[0] ^= 1);
	REFUSED (grant.document[31] ^= 1);
	REFUSED (grant.generation = 6);
	REFUSED (grant.generation = 8);
	REFUSED (grant.pool = ENC_POOL_GENERAL);
	REFUSED (grant.enclave[0] = 'z');
	REFUSED (grant.not_after = NOW - 1);
	REFUSED (grant.not_before = NOW + 3600);
}

static void generations_do_not_fall_and_name_one_document (void **state)
{
	(void)state;
	state_.generation = 8;
	assert_int_equal (judge (ENC_VERB_FENCE, &grant), -ENC_EDENIED);
	state_.generation = 7;
	state_.document = any;
	memset (state_.digest, 6, 32);
	assert_int_equal (judge (ENC_VERB_FENCE, &grant), -ENC_EDENIED);
	memcpy (state_.digest, digest, 32);
	assert_int_equal (judge (ENC_VERB_FENCE, &grant), 0);
}

static void a_document_for_another_node_is_refused (void **state)
{
	(void)state;
	memcpy (doc.node, "n9", 3);
	assert_int_equal (judge (ENC_VERB_MEASURE, &grant), -ENC_EINVAL);
}

static void another_controller_is_a_hole (void **state)
{
	static char other[] = "10.9.9.9";

	(void)state;
	/* In a fence that stands, without a grant. */
	doc.fence = ENC_FENCE_AIRLOCK;
	doc.pool = ENC_POOL_AIRLOCK;
	doc.overlay = doc.roles = 0;
	doc.volumes_n = 0;
	assert_int_equal (judge (ENC_VERB_FENCE, NULL), 0);
	state_.controller4 = other;
	assert_int_equal (judge (ENC_VERB_FENCE, NULL), -ENC_EDENIED);
	/* Against the node's own configuration, with one. */
	(void)setup (NULL);
	conf.controller4 = other;
	assert_int_equal (judge (ENC_VERB_FENCE, &grant), -ENC_EDENIED);
}

static void invariant_02_home_leads_over_a_passed_clean (void **state)
{
	(void)state;
	way_home ();
	state_.clean_ok = false;
	assert_int_equal (judge (ENC_VERB_FENCE, &grant), -ENC_EDENIED);
	assert_int_equal (judge (ENC_VERB_UNITS, &grant) < 0, 1);
	state_.clean_ok = true;
	assert_int_equal (judge (ENC_VERB_FENCE, &grant), 0);
	/* Not while anything of the enclave is up. */
	state_.roles = ENC_ROLE_COMPUTE;
	assert_int_equal (judge (ENC_VERB_FENCE, &grant), -ENC_ECONFLICT);
	state_.roles = 0;
	state_.volumes.n = 1;
	assert_int_equal (judge (ENC_VERB_FENCE, &grant), -ENC_ECONFLICT);
}

static void invariant_02_no_way_leads_from_the_enclave_or_quarantine_straight_home (void **state)
{
	(void)state;
	way_home ();
	state_.pool = ENC_POOL_ENCLAVE;
	assert_int_equal (judge (ENC_VERB_FENCE, &grant), -ENC_ECONFLICT);
	state_.pool = ENC_POOL_QUARANTINE;
	assert_int_equal (judge (ENC_VERB_FENCE, &grant), -ENC_ECONFLICT);
}

static void leaving_quarantine_needs_a_grant (void **state)
{
	(void)state;
	state_.pool = ENC_POOL_QUARANTINE;
	state_.fence = ENC_FENCE_AIRLOCK;
	doc.pool = grant.pool = ENC_POOL_AIRLOCK;
	doc.fence = ENC_FENCE_AIRLOCK;
	doc.overlay = doc.roles = 0;
	doc.volumes_n = 0;
	assert_int_equal (judge (ENC_VERB_FENCE, NULL), -ENC_EDENIED);
	assert_int_equal (judge (ENC_VERB_FENCE, &grant), 0);
}

static void no_way_leads_from_general_straight_into_the_enclave (void **state)
{
	(void)state;
	state_ = (struct enc_node_state){ .pool = ENC_POOL_GENERAL };
	assert_int_equal (judge (ENC_VERB_FENCE, &grant), -ENC_ECONFLICT);
}

static void invariant_04_the_door_opens_last (void **state)
{
	(void)state;
	doc.door = 1;
	assert_int_equal (judge (ENC_VERB_DOOR, &grant), 0);
	state_.overlay = false;
	assert_int_equal (judge (ENC_VERB_DOOR, &grant), -ENC_ECONFLICT);
	state_.overlay = true;
	state_.fence = ENC_FENCE_AIRLOCK;
	assert_int_equal (judge (ENC_VERB_DOOR, &grant), -ENC_ECONFLICT);
	state_.fence = ENC_FENCE_ENCLAVE;
	state_.volumes.n = 1;
	assert_int_equal (judge (ENC_VERB_DOOR, &grant), -ENC_ECONFLICT);
	state_.volumes.n = 2;
	state_.roles = 0;
	assert_int_equal (judge (ENC_VERB_DOOR, &grant), -ENC_ECONFLICT);
	state_.roles = ENC_ROLE_COMPUTE;
	state_.member_version = 0;
	assert_int_equal (judge (ENC_VERB_DOOR, &grant), -ENC_ECONFLICT);
	state_.member_version = 1;
	state_.unsure = 1u << 3;
	assert_int_equal (judge (ENC_VERB_DOOR, &grant), -ENC_ECONFLICT);
}

static void storage_and_roles_come_after_the_fence (void **state)
{
	(void)state;
	state_.fence = ENC_FENCE_AIRLOCK;
	assert_int_equal (judge (ENC_VERB_VOLUME, &grant), -ENC_ECONFLICT);
	assert_int_equal (judge (ENC_VERB_OVERLAY, &grant), -ENC_ECONFLICT);
	assert_int_equal (judge (ENC_VERB_ROLE, &grant), -ENC_ECONFLICT);
	state_.fence = ENC_FENCE_ENCLAVE;
	state_.volumes.n = 0;
	assert_int_equal (judge (ENC_VERB_ROLE, &grant), -ENC_ECONFLICT);
}

static void a_clean_runs_only_where_nothing_is_up (void **state)
{
	(void)state;
	assert_int_equal (judge (ENC_VERB_CLEAN, &grant), -ENC_ECONFLICT);
	state_.roles = 0;
	state_.volumes.n = 0;
	assert_int_equal (judge (ENC_VERB_CLEAN, &grant), 0);
	state_.fence = ENC_FENCE_NONE;
	assert_int_equal (judge (ENC_VERB_CLEAN, &grant), -ENC_ECONFLICT);
}

static void verbs_without_document_are_none_of_the_gates (void **state)
{
	(void)state;
	assert_int_equal (judge (ENC_VERB_STATE, &grant), -ENC_EINVAL);
	assert_int_equal (judge (ENC_VERB_MEMBERS, &grant), -ENC_EINVAL);
	assert_int_equal (judge (0, &grant), -ENC_EINVAL);
	assert_int_equal (judge (200, &grant), -ENC_EINVAL);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup (whatever_loosens_needs_a_grant, setup),
		cmocka_unit_test_setup (whatever_tightens_needs_none, setup),
		cmocka_unit_test_setup (a_grant_for_something_else_is_no_grant, setup),
		cmocka_unit_test_setup (generations_do_not_fall_and_name_one_document, setup),
		cmocka_unit_test_setup (a_document_for_another_node_is_refused, setup),
		cmocka_unit_test_setup (another_controller_is_a_hole, setup),
		cmocka_unit_test_setup (invariant_02_home_leads_over_a_passed_clean, setup),
		cmocka_unit_test_setup (invariant_02_no_way_leads_from_the_enclave_or_quarantine_straight_home, setup),
		cmocka_unit_test_setup (leaving_quarantine_needs_a_grant, setup),
		cmocka_unit_test_setup (no_way_leads_from_general_straight_into_the_enclave, setup),
		cmocka_unit_test_setup (invariant_04_the_door_opens_last, setup),
		cmocka_unit_test_setup (storage_and_roles_come_after_the_fence, setup),
		cmocka_unit_test_setup (a_clean_runs_only_where_nothing_is_up, setup),
		cmocka_unit_test_setup (verbs_without_document_are_none_of_the_gates, setup),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
