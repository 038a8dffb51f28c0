#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "controller/schedd/snapshot.h"
#include "base/enc.h"

enum { NOW = 1000000 };

/* n1 idle, n2 with jobs 7 and 8, n3 down, n4 drained by us; not in order, as Slurm may give them. */
static void fill (struct enc_sched_snapshot *s)
{
	static const char *const names[] = { "n3", "n1", "n4", "n2" };

	*s = (struct enc_sched_snapshot){ .at = NOW, .nodes_n = 4, .jobs_n = 4, .resvs_n = 2 };
	s->nodes = calloc (4, sizeof *s->nodes);
	s->jobs = calloc (4, sizeof *s->jobs);
	s->resvs = calloc (2, sizeof *s->resvs);
	assert_true (s->nodes && s->jobs && s->resvs);
	for (size_t i = 0; i < 4; i++) {
		s->nodes[i].name = enc_strdup (names[i]);
		s->nodes[i].state = enc_strdup ("idle");
		s->nodes[i].answering = s->nodes[i].powered = true;
		s->jobs[i] = (struct enc_sched_job){ .id = (uint32_t) (7 + i), .user = "res1", .state = enc_strdup ("running"), .holds = true, .end = NOW + 60 };
	}
	s->nodes[0].down = true;
	s->nodes[2].drained = true;
	s->nodes[2].reason = enc_strdup ("reserved k3");
	s->nodes[3].allocated = true;
	assert_int_equal (enc_strs_add (&s->jobs[0].nodes, "n2", NULL), 0);
	assert_int_equal (enc_strs_add (&s->jobs[1].nodes, "n2", NULL), 0);
	s->jobs[1].end = NOW + 600;
	s->jobs[2].holds = false;
	s->jobs[2].pending = true;
	s->jobs[2].end = 0;
	s->jobs[3].holds = false;
	s->jobs[3].status = 3 << 8;
	assert_int_equal (enc_strs_add (&s->jobs[3].nodes, "n2", NULL), 0);
	s->resvs[0] = (struct enc_sched_resv){ .name = enc_strdup ("reserved_a"), .start = NOW - 5, .end = NOW + 50 };
	assert_int_equal (enc_strs_add (&s->resvs[0].nodes, "n4", NULL), 0);
	s->resvs[1] = (struct enc_sched_resv){ .name = enc_strdup ("maint"), .start = NOW + 5, .end = NOW + 50 };
	assert_int_equal (enc_strs_add (&s->resvs[1].nodes, "n1", NULL), 0);
}

static void link_lists (struct enc_sched_snapshot *s)
{
	assert_int_equal (enc_sched_snapshot_link (s, NULL), 0);
}

static void a_node_is_free_when_its_last_job_ends (void **state ENC_UNUSED)
{
	enc_auto_done (enc_sched_snapshot_done) struct enc_sched_snapshot s;

	fill (&s);
	link_lists (&s);
	assert_int_equal (enc_sched_free_at (&s, enc_sched_node_find (&s, "n1")), NOW);
	assert_int_equal (enc_sched_free_at (&s, enc_sched_node_find (&s, "n2")), NOW + 600);
	assert_int_equal (enc_sched_free_at (&s, enc_sched_node_find (&s, "n3")), 0);
	assert_null (enc_sched_node_find (&s, "n9"));
}

static void a_job_without_a_limit_leaves_the_time_unknown (void **state ENC_UNUSED)
{
	enc_auto_done (enc_sched_snapshot_done) struct enc_sched_snapshot s;

	fill (&s);
	s.jobs[0].end = 0;
	link_lists (&s);
	assert_int_equal (enc_sched_free_at (&s, enc_sched_node_find (&s, "n2")), 0);
}

static void a_job_past_its_end_counts_as_ending_now (void **state ENC_UNUSED)
{
	enc_auto_done (enc_sched_snapshot_done) struct enc_sched_snapshot s;

	fill (&s);
	s.jobs[0].end = s.jobs[1].end = NOW - 100;
	link_lists (&s);
	assert_int_equal (enc_sched_free_at (&s, enc_sched_node_find (&s, "n2")), NOW);
}

static void only_nodes_that_take_new_jobs_are_schedulable (void **state ENC_UNUSED)
{
	enc_auto_done (enc_sched_snapshot_done) struct enc_sched_snapshot s;

	fill (&s);
	link_lists (&s);
	assert_true (enc_sched_schedulable (enc_sched_node_find (&s, "n1"))); /* the site's reservation begins later */
	assert_true (enc_sched_schedulable (enc_sched_node_find (&s, "n2")));
	assert_false (enc_sched_schedulable (enc_sched_node_find (&s, "n3")));
	assert_false (enc_sched_schedulable (enc_sched_node_find (&s, "n4")));
}

static void a_reservation_counts_from_its_start_to_its_end (void **state ENC_UNUSED)
{
	enc_auto_done (enc_sched_snapshot_done) struct enc_sched_snapshot s;

	fill (&s);
	link_lists (&s);
	assert_null (enc_sched_node_find (&s, "n1")->reservation);
	assert_string_equal (enc_sched_node_find (&s, "n4")->reservation, "reserved_a");
	s.nodes[3].reservation = NULL; /* n4 after sorting */
	s.nodes[3].held = false;
	s.at = NOW + 50;
	link_lists (&s);
	assert_false (enc_sched_node_find (&s, "n4")->held);
	assert_null (enc_sched_node_find (&s, "n1")->reservation);
}

static void ours_is_told_apart_by_its_prefix (void **state ENC_UNUSED)
{
	enc_auto_done (enc_sched_snapshot_done) struct enc_sched_snapshot s;

	fill (&s);
	s.at = NOW + 10;
	link_lists (&s);
	assert_true (enc_sched_node_find (&s, "n4")->held);
	assert_false (enc_sched_node_find (&s, "n1")->held);
	assert_string_equal (enc_sched_node_find (&s, "n1")->reservation, "maint");
}

static void away_means_silent_and_without_jobs (void **state ENC_UNUSED)
{
	enc_auto_done (enc_sched_snapshot_done) struct enc_sched_snapshot s;

	fill (&s);
	link_lists (&s);
	assert_true (enc_sched_away (enc_sched_node_find (&s, "n3")));
	assert_false (enc_sched_away (enc_sched_node_find (&s, "n1")));
	s.nodes[1].answering = false;
	assert_false (enc_sched_away (enc_sched_node_find (&s, "n2"))); /* a silent node with jobs is not gone */
	s.nodes[1].allocated = false;
	assert_false (enc_sched_away (enc_sched_node_find (&s, "n2"))); /* whichever list says so */
}

static void a_reason_is_ours_only_as_a_whole_word (void **state ENC_UNUSED)
{
	assert_true (enc_sched_reason_ours ("reserved"));
	assert_true (enc_sched_reason_ours ("reserved k3"));
	assert_false (enc_sched_reason_ours ("reserved-for-maintenance"));
	assert_false (enc_sched_reason_ours ("Not responding"));
	assert_false (enc_sched_reason_ours (NULL));
}

static void jobs_are_given_as_facts_alone (void **state ENC_UNUSED)
{
	enc_auto_done (enc_sched_snapshot_done) struct enc_sched_snapshot s;
	enc_auto_done (enc_strs_done) struct enc_strs n2 = { 0 };
	enc_auto (enc_json) struct enc_json *held = NULL;
	enc_auto (enc_json) struct enc_json *all = NULL;
	enc_auto (enc_json) struct enc_json *counts = NULL;

	fill (&s);
	link_lists (&s);
	assert_int_equal (enc_strs_add (&n2, "n2", NULL), 0);
	held = enc_sched_jobs_json (&s, &n2);
	all = enc_sched_jobs_json (&s, NULL);
	counts = enc_sched_counts_json (&s);
	assert_int_equal (enc_json_len (held), 2); /* not the one that has ended */
	assert_int_equal (enc_json_len (all), 4);
	assert_int_equal (enc_json_i64 (enc_json_find (all, "/3/exit"), -1), 3);
	assert_int_equal (enc_json_type (enc_json_find (all, "/0/exit")), ENC_JSON_NULL);
	assert_int_equal (enc_json_i64 (enc_json_find (counts, "/running"), -1), 2);
	assert_int_equal (enc_json_i64 (enc_json_find (counts, "/pending"), -1), 1);
	assert_int_equal (enc_json_i64 (enc_json_find (counts, "/users/res1/pending"), -1), 1);
}

static void many_nodes_come_in_pages_that_fit_a_frame (void **state ENC_UNUSED)
{
	enc_auto_done (enc_sched_snapshot_done) struct enc_sched_snapshot s = { .at = NOW, .nodes_n = 5000 };
	size_t from = 0, next = 0, pages = 0, seen = 0;

	s.nodes = calloc (s.nodes_n, sizeof *s.nodes);
	assert_non_null (s.nodes);
	for (size_t i = 0; i < s.nodes_n; i++) {
		s.nodes[i].name = enc_strf ("n%05zu", i);
		s.nodes[i].state = enc_strdup ("idle");
		s.nodes[i].partitions = enc_strdup ("general,long,gpu");
	}
	link_lists (&s);
	for (; from < s.nodes_n; from = next, pages++) {
		enc_auto (enc_json) struct enc_json *page = enc_sched_nodes_json (&s, from, &next);
		enc_auto_free char *text = NULL;
		size_t len;

		text = enc_json_write (page, &len, NULL);
		assert_non_null (text);
		assert_true (len < 1000 * 1000);
		assert_true (next > from);
		seen += enc_json_len (page);
	}
	assert_int_equal (seen, 5000);
	assert_true (pages < 10);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (a_node_is_free_when_its_last_job_ends),
		cmocka_unit_test (a_job_without_a_limit_leaves_the_time_unknown),
		cmocka_unit_test (a_job_past_its_end_counts_as_ending_now),
		cmocka_unit_test (only_nodes_that_take_new_jobs_are_schedulable),
		cmocka_unit_test (a_reservation_counts_from_its_start_to_its_end),
		cmocka_unit_test (ours_is_told_apart_by_its_prefix),
		cmocka_unit_test (away_means_silent_and_without_jobs),
		cmocka_unit_test (a_reason_is_ours_only_as_a_whole_word),
		cmocka_unit_test (jobs_are_given_as_facts_alone),
		cmocka_unit_test (many_nodes_come_in_pages_that_fit_a_frame),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
