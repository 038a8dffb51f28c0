#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "base/file.h"
#include "base/enctime.h"
#include "policies/policy.h"

static const int64_t NOW = INT64_C (1796100000) * ENC_NS_S; /* December 2026 */

static int setup (void **state)
{
	static struct enc_policies ps;
	static const char *const files[] = { ENC_SOURCE_DIR "/policies/profiles/hipaa.json", ENC_SOURCE_DIR "/policies/profiles/lab.json" };
	struct enc_error err = { 0 };

	for (size_t i = 0; i < 2; i++) {
		struct enc_buf b = ENC_BUF_INIT (65536);

		if (enc_file_read (files[i], 65536, &b, &err) < 0 || enc_policies_add (&ps, (const char *) b.data, b.len, &err) < 0) {
			print_error ("%s: %s\n", files[i], err.text);
			return -1;
		}
		enc_buf_done (&b);
	}
	*state = &ps;
	return 0;
}

static int teardown (void **state)
{
	enc_policies_done (*state);
	return 0;
}

static struct enc_facts create_by (const char *user)
{
	return (struct enc_facts){ .action = ENC_ACT_CREATE, .user = user, .now = NOW, .agreement = "BAA-17", .owner = "res1", .nodes = 2,
				   .entry = -1, .on_busy = -1 };
}

struct row {
	const char *what;
	void (*twist) (struct enc_facts *f);
	enum enc_code code;
	const char *rule;
};

static void as_it_is (struct enc_facts *f) { (void) f; }
static void lapsed (struct enc_facts *f) { f->agreement = "BAA-3"; }
static void unknown (struct enc_facts *f) { f->agreement = "BAA-99"; }
static void ended (struct enc_facts *f) { f->agreement_until = NOW + 1; f->agreement_ended = true; }
static void researcher (struct enc_facts *f) { f->user = "res1"; }
static void outsider (struct enc_facts *f) { f->user = "outsider1"; }
static void root (struct enc_facts *f) { f->user = "root"; }
static void untrained (struct enc_facts *f) { f->owner = "steward1"; }
static void too_long (struct enc_facts *f) { f->ttl_s = 31 * 86400; }
static void too_many (struct enc_facts *f) { f->nodes = 17; }
static void cancelling (struct enc_facts *f) { f->on_busy = ENC_BUSY_CANCEL; }

static const struct row rows[] = {
	{ "fine", as_it_is, ENC_OK, NULL },
	{ "lapsed agreement", lapsed, ENC_EDENIED, "agreement-holds" },
	{ "unknown agreement", unknown, ENC_EDENIED, "agreement-holds" },
	{ "agreement ended by hand", ended, ENC_EDENIED, "agreement-holds" },
	{ "caller without the role", researcher, ENC_EDENIED, "caller-has-role" },
	{ "caller without any role", outsider, ENC_EDENIED, "caller-has-role" },
	{ "root has no role", root, ENC_EDENIED, "caller-has-role" },
	{ "owner without training", untrained, ENC_EDENIED, "owner-is-trained" },
	{ "longer than the maximum", too_long, ENC_EDENIED, "lease-within-maximum" },
	{ "more nodes than allowed", too_many, ENC_EDENIED, "nodes-within-maximum" },
	{ "cancelling, which lab allows", cancelling, ENC_OK, NULL },
};

static void create_is_decided_by_the_first_rule_that_objects (void **state)
{
	struct enc_policies *ps = *state;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct enc_facts f = create_by ("admin1");
		struct enc_decision d;

		rows[i].twist (&f);
		enc_policy_decide (ps, enc_policies_find (ps, "lab"), &f, &d);
		if (d.code != rows[i].code || (rows[i].rule && strcmp (d.rule, rows[i].rule) != 0))
			fail_msg ("%s: code %d by rule %s", rows[i].what, d.code, d.rule);
		assert_int_equal (d.allowed, rows[i].code == ENC_OK);
	}
}

static void limits_of_the_chosen_policy_count (void **state)
{
	struct enc_facts f = create_by ("admin1");
	struct enc_decision d;

	f.on_busy = ENC_BUSY_CANCEL;
	enc_policy_decide (*state, enc_policies_find (*state, "hipaa"), &f, &d);
	assert_string_equal (d.rule, "cancelling-is-a-right");
	f.on_busy = -1;
	enc_policy_decide (*state, enc_policies_find (*state, "hipaa"), &f, &d);
	assert_true (d.allowed);
	assert_string_equal (d.rule, "every-rule-holds");
	assert_int_equal (d.ttl_s, 14 * 86400);
	assert_int_equal (d.on_busy, ENC_BUSY_WAIT);
	enc_policy_decide (*state, NULL, &f, &d);
	assert_false (d.allowed);
}

static void removal_is_never_refused_for_a_lapsed_agreement_or_training (void **state)
{
	static const enum enc_action acts[] = { ENC_ACT_DESTROY, ENC_ACT_MEMBER_REMOVE };
	struct enc_decision d;

	for (size_t i = 0; i < 2; i++) {
		struct enc_facts f = create_by ("admin1");

		f.action = acts[i];
		f.agreement = "BAA-3";
		f.owner = "nobody";
		enc_policy_decide (*state, enc_policies_find (*state, "lab"), &f, &d);
		assert_true (d.allowed);
	}
}

static void invariant_11_who_may_not_see_it_is_told_that_it_is_not_there (void **state)
{
	static const enum enc_action acts[] = { ENC_ACT_SHOW, ENC_ACT_DESTROY, ENC_ACT_MEMBER_ADD, ENC_ACT_MEMBER_LIST, ENC_ACT_JOB_LIST };

	for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
		struct enc_facts f = create_by ("outsider1");
		struct enc_decision d;

		f.action = acts[i];
		enc_policy_decide (*state, enc_policies_find (*state, "lab"), &f, &d);
		assert_true (d.hidden);
		assert_int_equal (d.code, ENC_ENOTFOUND);
		f.user = "res2";
		enc_policy_decide (*state, enc_policies_find (*state, "lab"), &f, &d);
		assert_true (d.hidden);
		f.is_member = true;
		enc_policy_decide (*state, enc_policies_find (*state, "lab"), &f, &d);
		assert_false (d.hidden);
	}
}

static const struct {
	const char *json, *pointer;
} bad[] = {
	{ "{\"name\":\"a\"}", "/version" },
	{ "{\"name\":\"a\",\"version\":\"1\",\"typo\":1}", "/typo" },
	{ "{\"name\":\"A b\",\"version\":\"1\"}", "/name" },
	{ "{\"name\":\"a\",\"version\":\"1\",\"ttl_default\":\"60d\"}", "/ttl_default" },
	{ "{\"name\":\"a\",\"version\":\"1\",\"ttl_max\":\"soon\"}", "/ttl_max" },
	{ "{\"name\":\"a\",\"version\":\"1\",\"entries\":[\"magic\"]}", "/entries/0" },
	{ "{\"name\":\"a\",\"version\":\"1\",\"entries\":[\"live\"],\"entry_default\":\"reboot\"}", "/entry_default" },
	{ "{\"name\":\"a\",\"version\":\"1\",\"roles\":[{\"user\":\"root\",\"role\":\"admin\"}]}", "/roles/0/user" },
	{ "{\"name\":\"a\",\"version\":\"1\",\"roles\":[{\"user\":\"x\",\"role\":\"king\"}]}", "/roles/0/role" },
	{ "{\"name\":\"a\",\"version\":\"1\",\"roles\":[{\"user\":\"res1\",\"role\":\"admin\"}]}", "/roles/0/user" },
	{ "{\"name\":\"lab\",\"version\":\"1\"}", "/name" },
	{ "{\"name\":\"a\",\"version\":\"1\",\"two_person\":[\"lunch\"]}", "/two_person/0" },
};

static void a_bad_file_is_refused_with_the_place_and_changes_nothing (void **state)
{
	struct enc_policies *ps = *state;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct enc_error err = { 0 };

		if (enc_policies_add (ps, bad[i].json, strlen (bad[i].json), &err) == 0)
			fail_msg ("%s was taken", bad[i].json);
		if (strcmp (err.pointer, bad[i].pointer) != 0)
			fail_msg ("%s: pointer %s, text %s", bad[i].json, err.pointer, err.text);
		assert_int_equal (ps->n, 2);
	}
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (create_is_decided_by_the_first_rule_that_objects),
		cmocka_unit_test (limits_of_the_chosen_policy_count),
		cmocka_unit_test (removal_is_never_refused_for_a_lapsed_agreement_or_training),
		cmocka_unit_test (invariant_11_who_may_not_see_it_is_told_that_it_is_not_there),
		cmocka_unit_test (a_bad_file_is_refused_with_the_place_and_changes_nothing),
	};

	return cmocka_run_group_tests (tests, setup, teardown);
}
