/* The agent against a privd of this test's own on a socketpair: which orders come, in which order, and what a failure leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include <event2/event.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "node-agent/agentd/converge.h"

#define CLEAN_ID "abcdefghijklmnopqrstuvwxyz"

struct fake {
	struct event_base *base;
	struct event *ev;
	int fd;
	char seen[512];        /* verbs in order, STATE left out */
	uint8_t fail_verb;
	bool hang, lie;
	char areas[512], reached[512]; /* before the first order, and after one */
	struct enc_privd_link *link;
	struct enc_converge *converge;
	unsigned changed;
	bool gone;
};

static void answer_send (struct fake *f, const struct enc_order *order)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (65536);
	enc_auto_free char *state = enc_strf ("{\"pool\":\"general\",\"boot\":\"00\",\"areas\":%s,\"events\":[]}",
						   f->seen[0] && f->reached[0] ? f->reached : f->areas);
	struct enc_answer a = { .verb = order->verb, .request = f->lie ? order->request + 1 : order->request };
	if (order->verb == ENC_VERB_STATE)
		a.evidence = enc_view_of (state, strlen (state));
	if (order->verb == f->fail_verb) {
		a.code = ENC_EINTEGRITY;
		(void) snprintf (a.text, sizeof a.text, "differs");
	}
	assert_int_equal (enc_answer_encode (&a, &b, NULL), 0);
	assert_int_equal (write (f->fd, b.data, b.len), (ssize_t) b.len);
}

static void fake_read (evutil_socket_t fd, short what, void *arg)
{
	static uint8_t body[ENC_ORDER_SIZE_MAX];
	struct fake *f = arg;
	struct enc_order order;
	uint8_t head[4];
	size_t len;
	(void) what;
	if (recv (fd, head, 4, MSG_WAITALL) != 4) {
		event_del (f->ev);
		return;
	}
	assert_int_equal (enc_order_length (head, &len, NULL), 0);
	assert_int_equal (recv (fd, body, len, MSG_WAITALL), (ssize_t) len);
	assert_int_equal (enc_order_decode (body, len, &order, NULL), 0);
	if (order.verb != ENC_VERB_STATE)
		(void) snprintf (f->seen + strlen (f->seen), sizeof f->seen - strlen (f->seen), "%s ", enc_verb_name (order.verb));
	if (!f->hang)
		answer_send (f, &order);
}

static void on_changed (void *arg)
{
	struct fake *f = arg;
	f->changed++;
	event_base_loopbreak (f->base);
}

static void on_gone (void *arg)
{
	struct fake *f = arg;
	f->gone = true;
	event_base_loopbreak (f->base);
}

static int setup (void **state)
{
	struct fake *f = calloc (1, sizeof *f);
	int pair[2];
	assert_int_equal (socketpair (AF_UNIX, SOCK_STREAM, 0, pair), 0);
	f->base = event_base_new ();
	f->fd = pair[0];
	f->ev = event_new (f->base, pair[0], EV_READ | EV_PERSIST, fake_read, f);
	event_add (f->ev, NULL);
	(void) snprintf (f->areas, sizeof f->areas, "{\"door\":\"shut\",\"roles\":[],\"volumes\":[],\"units\":\"site\",\"fence\":\"none\",\"overlay\":\"down\"}");
	f->link = enc_privd_link_new (f->base, pair[1], on_gone, f, NULL);
	f->converge = enc_converge_new (f->link, on_changed, f, NULL);
	*state = f;
	return 0;
}

static int teardown (void **state)
{
	struct fake *f = *state;
	enc_converge_free (f->converge);
	enc_privd_link_free (f->link);
	event_free (f->ev);
	close (f->fd);
	event_base_free (f->base);
	free (f);
	return 0;
}

/* What the node says once `doc` has been obeyed. */
static void reach (struct fake *f, const struct enc_doc *d)
{
	(void) snprintf (f->reached, sizeof f->reached,
			 "{\"door\":\"shut\",\"roles\":[],\"volumes\":[],\"units\":\"%s\",\"fence\":\"%s\",\"overlay\":\"down\",\"clean\":\"%s\"}",
			 d->units == ENC_UNITS_DOWN ? "down" : "site", enc_fence_mode_name (d->fence), d->clean_id);
}

static struct enc_doc doc_of (uint64_t generation)
{
	struct enc_doc d = { .generation = generation, .pool = ENC_POOL_AIRLOCK, .units = ENC_UNITS_DOWN, .fence = ENC_FENCE_AIRLOCK, .controller_port = 7443 };
	(void) snprintf (d.node, sizeof d.node, "n1");
	(void) snprintf (d.controller4, sizeof d.controller4, "10.0.0.1");
	return d;
}

static struct enc_json *message (const struct enc_doc *d)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);
	struct enc_error err = { 0 };
	if (enc_doc_encode (d, &b, &err) < 0)
		fail_msg ("%s", err.text);
	enc_auto_free char *text = enc_base64 (b.data, b.len);
	struct enc_json *j = enc_json_object ();
	enc_json_set_u64 (j, "generation", d->generation);
	enc_json_set_str (j, "document", text);
	return j;
}

static void converge (struct fake *f, const struct enc_doc *d)
{
	enc_auto (enc_json) struct enc_json *j = message (d);
	struct enc_error err = { 0 };
	struct enc_work *w = enc_work_parse (j, "n1", &err);
	if (!w)
		fail_msg ("%s", err.text);
	reach (f, d);
	enc_converge_start (f->converge, w);
	event_base_dispatch (f->base);
}

static void units_go_down_before_the_fence_and_clean_comes_after_it (void **state)
{
	struct fake *f = *state;
	struct enc_doc d = doc_of (4);
	d.clean = ENC_CLEAN_LIVE;
	(void) snprintf (d.clean_id, sizeof d.clean_id, CLEAN_ID);
	converge (f, &d);
	assert_string_equal (f->seen, "units fence clean ");
	assert_int_equal (enc_converge_generation (f->converge), 4);
	assert_null (enc_converge_failed (f->converge));
}

static void invariant_04_the_door_shuts_before_anything_else_moves (void **state)
{
	struct fake *f = *state;
	struct enc_doc d = doc_of (9);
	(void) snprintf (f->areas, sizeof f->areas, "{\"door\":\"open\",\"roles\":[\"login\"],\"volumes\":[\"scratch\"],\"units\":\"down\",\"fence\":\"enclave\",\"overlay\":\"up\"}");
	converge (f, &d);
	assert_string_equal (f->seen, "door role volume overlay fence ");
}

static void the_way_to_a_pool_opens_the_fence_last_but_for_the_units (void **state)
{
	struct fake *f = *state;
	struct enc_doc d = doc_of (12);
	(void) snprintf (f->areas, sizeof f->areas, "{\"door\":\"shut\",\"roles\":[],\"volumes\":[],\"units\":\"down\",\"fence\":\"airlock\",\"overlay\":\"down\"}");
	d.pool = ENC_POOL_GENERAL;
	d.units = ENC_UNITS_SITE;
	d.fence = ENC_FENCE_NONE;
	converge (f, &d);
	assert_string_equal (f->seen, "fence units ");
}

static void a_failed_area_stops_the_run_and_is_named (void **state)
{
	struct fake *f = *state;
	struct enc_doc d = doc_of (5);
	d.clean = ENC_CLEAN_LIVE;
	(void) snprintf (d.clean_id, sizeof d.clean_id, CLEAN_ID);
	f->fail_verb = ENC_VERB_FENCE;
	converge (f, &d);
	assert_string_equal (f->seen, "units fence ");
	assert_non_null (enc_converge_failed (f->converge));
	assert_string_equal (enc_converge_failed (f->converge)->step, "fence");
	assert_int_equal (enc_converge_failed (f->converge)->code, ENC_EINTEGRITY);
}

static void a_document_that_is_reached_already_costs_only_the_fence (void **state)
{
	struct fake *f = *state;
	struct enc_doc d = doc_of (6);
	(void) snprintf (f->areas, sizeof f->areas, "{\"door\":\"shut\",\"roles\":[],\"volumes\":[],\"units\":\"down\",\"fence\":\"airlock\",\"overlay\":\"down\"}");
	converge (f, &d);
	assert_string_equal (f->seen, "fence ");
}

static void an_answer_that_fits_no_order_ends_the_link (void **state)
{
	struct fake *f = *state;
	struct enc_doc d = doc_of (7);
	f->lie = true;
	converge (f, &d);
	assert_true (f->gone || f->changed);
	assert_non_null (enc_converge_failed (f->converge));
}

static void documents_for_others_and_wrong_generations_are_refused (void **state)
{
	struct enc_doc d = doc_of (3);
	struct enc_error err = { 0 };
	enc_auto (enc_json) struct enc_json *j = message (&d);
	(void) state;
	assert_null (enc_work_parse (j, "n2", &err));
	assert_int_equal (err.code, ENC_EINTEGRITY);
	enc_json_set_u64 (j, "generation", 4);
	assert_null (enc_work_parse (j, "n1", &err));
	assert_int_equal (err.code, ENC_EINTEGRITY);
}

static void hostile_messages_of_the_controller_are_refused (void **state)
{
	static const char *const texts[] = { "{}", "{\"generation\":1}", "{\"generation\":1,\"document\":\"!\"}", "{\"generation\":1,\"document\":7}",
					     "{\"generation\":1,\"document\":\"AAAA\"}", "{\"generation\":-1,\"document\":\"\"}" };
	(void) state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		enc_auto (enc_json) struct enc_json *j = enc_json_parse (texts[i], strlen (texts[i]), 65536, NULL);
		assert_non_null (j);
		assert_null (enc_work_parse (j, "n1", NULL));
	}
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown (units_go_down_before_the_fence_and_clean_comes_after_it, setup, teardown),
		cmocka_unit_test_setup_teardown (invariant_04_the_door_shuts_before_anything_else_moves, setup, teardown),
		cmocka_unit_test_setup_teardown (the_way_to_a_pool_opens_the_fence_last_but_for_the_units, setup, teardown),
		cmocka_unit_test_setup_teardown (a_failed_area_stops_the_run_and_is_named, setup, teardown),
		cmocka_unit_test_setup_teardown (a_document_that_is_reached_already_costs_only_the_fence, setup, teardown),
		cmocka_unit_test_setup_teardown (an_answer_that_fits_no_order_ends_the_link, setup, teardown),
		cmocka_unit_test (documents_for_others_and_wrong_generations_are_refused),
		cmocka_unit_test (hostile_messages_of_the_controller_are_refused),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
