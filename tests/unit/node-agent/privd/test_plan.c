#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "node-agent/privd/plan.h"
#include "tests/unit/node-agent/proto/fixture.h"

#include "base/enc.h"

static struct enc_doc doc;
static struct enc_node_state s;
static struct enc_spool spool;
static struct enc_plan plan;
static char path[] = "/dev/null/events";

static int setup (void **state)
{
	(void)state;
	fixture_doc (&doc);
	enc_node_state_done (&s);
	s = (struct enc_node_state){ .pool = ENC_POOL_AIRLOCK, .fence = ENC_FENCE_AIRLOCK, .units = ENC_UNITS_DOWN };
	enc_json_free (spool.events);
	spool = (struct enc_spool){ .events = enc_json_array (), .path = path };
	return 0;
}

static void accept (uint8_t verb)
{
	uint8_t digest[32] = { 1 };
	struct enc_grant grant = { .not_after = 99, .record = 3 };
	struct enc_error err = { 0 };

	assert_int_equal (enc_plan_accept (&s, verb, &doc, enc_view_of ("bytes", 5), digest, &grant, &err), 0);
}

/* Plan a verb and let all its tasks end with `rc`. */
static void carry_out (uint8_t verb, int rc, const char *evidence)
{
	enc_auto (enc_json) struct enc_json *found = enc_json_parse (evidence, strlen (evidence), 1000, NULL);
	struct enc_error err = { 0 };

	enc_plan_order (&plan, verb, &doc, &s);
	for (plan.at = 0; plan.at < plan.n; plan.at++)
		assert_int_equal (enc_plan_commit (&plan, plan.at, rc, &doc, found, &s, &spool, &err), 0);
}

/* As if privd had died between a task's beginning and its end. */
static void what_is_begun_is_named_before_it_is_done (void **state)
{
	struct enc_error err = { 0 };

	(void)state;
	enc_plan_order (&plan, ENC_VERB_VOLUME, &doc, &s);
	plan.at = 0;
	assert_int_equal (enc_plan_claim (&plan, &doc, &s, &err), 1);
	assert_int_equal (s.volumes.n, doc.volumes_n);
	assert_true (s.unsure & 1u << ENC_JOB_VOLUMES);
	assert_int_equal (enc_json_len (spool.events), 0);
	assert_int_equal (enc_plan_commit (&plan, 0, 0, &doc, NULL, &s, &spool, &err), 0);
	assert_int_equal (s.unsure, 0);
	assert_int_equal (enc_json_len (spool.events), doc.volumes_n);
	enc_plan_order (&plan, ENC_VERB_VOLUME, &doc, &s);
	assert_int_equal (enc_plan_claim (&plan, &doc, &s, &err), 0);
	enc_plan_order (&plan, ENC_VERB_ROLE, &doc, &s);
	assert_int_equal (enc_plan_claim (&plan, &doc, &s, &err), 1);
	assert_int_equal (s.roles, doc.roles);
	assert_true (s.unsure & 1u << ENC_JOB_ROLES);
}

static void entering_forgets_the_clean (void **state)
{
	(void)state;
	s.clean_ok = true;
	accept (ENC_VERB_FENCE);
	assert_int_equal (s.pool, ENC_POOL_ENCLAVE);
	assert_false (s.clean_ok);
	assert_int_equal (s.generation, 7);
	assert_true (s.grant_until == 99 && s.record == 3);
	assert_string_equal (s.enclave_name, "cxr");
}

static void a_failed_opening_counts_as_open_and_keeps_the_door_shut (void **state)
{
	(void)state;
	accept (ENC_VERB_VOLUME);
	carry_out (ENC_VERB_VOLUME, -ENC_EFAILED, "{}");
	assert_int_equal (s.volumes.n, 2);
	assert_true (s.unsure != 0);
	carry_out (ENC_VERB_ROLE, -ENC_EFAILED, "{}");
	assert_int_equal (s.roles, ENC_ROLE_COMPUTE);
	carry_out (ENC_VERB_VOLUME, 0, "{}");
	carry_out (ENC_VERB_ROLE, 0, "{}");
	assert_int_equal (s.unsure, 0);
}

static void a_failed_closing_leaves_it_open (void **state)
{
	(void)state;
	accept (ENC_VERB_VOLUME);
	carry_out (ENC_VERB_VOLUME, 0, "{}");
	doc.volumes_n = 0;
	carry_out (ENC_VERB_VOLUME, -ENC_EBUSY, "{}");
	assert_int_equal (s.volumes.n, 2);
	carry_out (ENC_VERB_VOLUME, 0, "{}");
	assert_int_equal (s.volumes.n, 0);
}

static void only_a_passed_clean_counts (void **state)
{
	(void)state;
	carry_out (ENC_VERB_CLEAN, 0, "{\"passed\":true}");
	assert_true (s.clean_ok);
	assert_string_equal (s.clean, doc.clean_id);
	carry_out (ENC_VERB_CLEAN, -ENC_EFAILED, "{\"passed\":false}");
	assert_false (s.clean_ok);
	assert_null (s.clean);
	carry_out (ENC_VERB_CLEAN, 0, "{}");
	assert_false (s.clean_ok);
}

static void invariant_04_the_door_shuts_first_whatever_is_asked (void **state)
{
	(void)state;
	s.door = true;
	s.fence = ENC_FENCE_ENCLAVE;
	doc.door = 0;
	static const uint8_t verbs[] = { ENC_VERB_ROLE, ENC_VERB_VOLUME, ENC_VERB_OVERLAY, ENC_VERB_FENCE, ENC_VERB_UNITS };
	for (size_t i = 0; i < sizeof verbs; i++) {
		enc_plan_order (&plan, verbs[i], &doc, &s);
		assert_int_equal (plan.step[0].job, ENC_JOB_DOOR);
		assert_int_equal (plan.step[0].flags, 0);
	}
}

static void keys_go_only_where_the_document_names_them (void **state)
{
	(void)state;
	assert_true (enc_plan_wants_key (ENC_VERB_VOLUME, &doc, doc.volumes[1].key));
	assert_false (enc_plan_wants_key (ENC_VERB_VOLUME, &doc, doc.munge_key));
	assert_true (enc_plan_wants_key (ENC_VERB_ROLE, &doc, doc.munge_key));
	assert_false (enc_plan_wants_key (ENC_VERB_ROLE, &doc, doc.volumes[1].key));
	assert_false (enc_plan_wants_key (ENC_VERB_FENCE, &doc, doc.munge_key));
	assert_false (enc_plan_wants_key (ENC_VERB_VOLUME, &doc, ""));
}

static void home_forgets_the_enclave (void **state)
{
	(void)state;
	accept (ENC_VERB_FENCE);
	s.pool = ENC_POOL_AIRLOCK;
	s.member_version = 4;
	doc.pool = ENC_POOL_GENERAL;
	doc.fence = ENC_FENCE_NONE;
	doc.units = ENC_UNITS_SITE;
	doc.enclave_id[0] = doc.enclave_name[0] = '\0';
	accept (ENC_VERB_FENCE);
	assert_int_equal (s.pool, ENC_POOL_AIRLOCK); /* not before the fence is gone */
	carry_out (ENC_VERB_FENCE, 0, "{}");
	assert_int_equal (s.pool, ENC_POOL_GENERAL);
	assert_true (enc_node_state_held (&s)); /* the units are not back yet */
	carry_out (ENC_VERB_UNITS, 0, "{}");
	assert_false (enc_node_state_held (&s));
	assert_null (s.enclave_id);
	assert_true (s.member_version == 0 && s.grant_until == 0);
}

static void tightening_fences_first_and_takes_all (void **state)
{
	(void)state;
	enc_plan_tighten (&plan);
	assert_int_equal (plan.step[0].job, ENC_JOB_FENCE);
	assert_int_equal (plan.n, 6);
	for (size_t i = 0; i < plan.n; i++)
		assert_true (plan.step[i].ms > 0);
}

static void a_fence_that_changes_is_an_event (void **state)
{
	(void)state;
	accept (ENC_VERB_FENCE);
	carry_out (ENC_VERB_FENCE, 0, "{\"overlay_key\":\"abc\"}");
	carry_out (ENC_VERB_FENCE, 0, "{}");
	assert_int_equal (enc_json_len (spool.events), 1);
	assert_string_equal (s.overlay_key, "abc");
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup (entering_forgets_the_clean, setup),
		cmocka_unit_test_setup (what_is_begun_is_named_before_it_is_done, setup),
		cmocka_unit_test_setup (a_failed_opening_counts_as_open_and_keeps_the_door_shut, setup),
		cmocka_unit_test_setup (a_failed_closing_leaves_it_open, setup),
		cmocka_unit_test_setup (only_a_passed_clean_counts, setup),
		cmocka_unit_test_setup (invariant_04_the_door_shuts_first_whatever_is_asked, setup),
		cmocka_unit_test_setup (keys_go_only_where_the_document_names_them, setup),
		cmocka_unit_test_setup (home_forgets_the_enclave, setup),
		cmocka_unit_test_setup (tightening_fences_first_and_takes_all, setup),
		cmocka_unit_test_setup (a_fence_that_changes_is_an_event, setup),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
