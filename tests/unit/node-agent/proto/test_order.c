#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "node-agent/proto/order.h"

#include "base/enc.h"

#define ID "abcdefghijklmnopqrstuvwxyz"

static struct enc_order order_of (void)
{
	struct enc_order o = { .verb = ENC_VERB_VOLUME, .request = 0x1122334455667788 };

	o.document = enc_view_of ("document", 8);
	o.grant = enc_view_of ("grant", 5);
	o.extra = enc_view_of ("extra!", 6);
	o.sealed_n = 2;
	for (size_t i = 0; i < 2; i++) {
		memcpy (o.sealed[i].key, ID, sizeof ID);
		o.sealed[i].data = enc_view_of ("sealed data", 11);
	}
	return o;
}

static void an_order_comes_back_as_it_was (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (1 << 20);
	struct enc_order o = order_of (), back;
	struct enc_error err = { 0 };
	size_t len;

	(void)state;
	assert_int_equal (enc_order_encode (&o, &buf, &err), 0);
	assert_int_equal (enc_order_length (buf.data, &len, &err), 0);
	assert_int_equal (len + 4, buf.len);
	assert_int_equal (enc_order_decode (buf.data + 4, len, &back, &err), 0);
	assert_int_equal (back.verb, o.verb);
	assert_true (back.request == o.request);
	assert_int_equal (back.document.left, 8);
	assert_memory_equal (back.document.at, "document", 8);
	assert_memory_equal (back.grant.at, "grant", 5);
	assert_memory_equal (back.extra.at, "extra!", 6);
	assert_int_equal (back.sealed_n, 2);
	assert_string_equal (back.sealed[1].key, ID);
	assert_memory_equal (back.sealed[1].data.at, "sealed data", 11);
	for (size_t cut = 0; cut < len; cut++)
		assert_true (enc_order_decode (buf.data + 4, cut, &back, &err) < 0);
}

static void an_answer_comes_back_as_it_was (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (1 << 20);
	struct enc_answer a = { .verb = ENC_VERB_FENCE, .code = ENC_EDENIED, .request = 9, .text = "no", .next = "do" },
			  back;
	struct enc_error err = { 0 };

	(void)state;
	a.evidence = enc_view_of ("{}", 2);
	assert_int_equal (enc_answer_encode (&a, &buf, &err), 0);
	assert_int_equal (enc_answer_decode (buf.data + 4, buf.len - 4, &back, &err), 0);
	assert_int_equal (back.code, ENC_EDENIED);
	assert_string_equal (back.text, "no");
	assert_string_equal (back.next, "do");
	assert_memory_equal (back.evidence.at, "{}", 2);
	for (size_t cut = 0; cut < buf.len - 4; cut++)
		assert_true (enc_answer_decode (buf.data + 4, cut, &back, &err) < 0);
}

static void lengths_out_of_bounds_are_refused (void **state)
{
	static const uint8_t huge[4] = { 0xff, 0xff, 0xff, 0x7f }, over[4] = { 1, 0, 2, 0 }, most[4] = { 0, 0, 2, 0 },
			     none[4] = { 0 };
	struct enc_error err = { 0 };
	size_t len = 77;

	(void)state;
	assert_int_equal (enc_order_length (huge, &len, &err), -ENC_ELIMIT);
	assert_int_equal (enc_order_length (over, &len, &err), -ENC_ELIMIT);
	assert_int_equal (enc_order_length (none, &len, &err), -ENC_EINVAL);
	assert_int_equal (len, 77);
	assert_int_equal (enc_order_length (most, &len, &err), 0);
}

static void malformed_orders_are_refused (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (1 << 20);
	struct enc_order o = order_of (), back;
	struct enc_error err = { 0 };
	static const struct {
		size_t at;
		uint8_t value;
	} changes[] = { { 4, 2 }, { 5, 0 }, { 5, ENC_VERB_MAX + 1 }, { 6, 1 }, { 7, 1 } };

	(void)state;
	for (size_t i = 0; i < ENC_ARRAY_LEN (changes); i++) {
		enc_buf_clear (&buf);
		assert_int_equal (enc_order_encode (&o, &buf, &err), 0);
		buf.data[changes[i].at] = changes[i].value;
		assert_int_equal (enc_order_decode (buf.data + 4, buf.len - 4, &back, &err), -ENC_EINVAL);
	}
	enc_buf_clear (&buf);
	assert_int_equal (enc_order_encode (&o, &buf, &err), 0);
	enc_buf_put_u8 (&buf, 0);
	assert_int_equal (enc_order_decode (buf.data + 4, buf.len - 4, &back, &err), -ENC_EINVAL);
}

static void orders_that_cannot_be_written_leave_the_buffer_alone (void **state)
{
	static uint8_t big[70000];
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (1 << 20);
	struct enc_order o = order_of ();
	struct enc_error err = { 0 };

	(void)state;
	enc_buf_put_u8 (&buf, 1);
	o.verb = 99;
	assert_true (enc_order_encode (&o, &buf, &err) < 0);
	o = order_of ();
	memcpy (o.sealed[0].key, "../../../../etc/shadow0000", 27);
	assert_true (enc_order_encode (&o, &buf, &err) < 0);
	o = order_of ();
	o.extra = enc_view_of (big, sizeof big);
	assert_true (enc_order_encode (&o, &buf, &err) < 0);
	assert_int_equal (buf.len, 1);
}

static void facts_come_back_as_they_were (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (ENC_FACTS_SIZE_MAX);
	struct enc_facts f = { .pool = 3,
		.door = true,
		.agent_alive = true,
		.generation = 5,
		.not_after = 6,
		.enclave_id = ID,
		.enclave_name = "cxr",
		.member_version = 8,
		.volumes_open = 2 },
			 back = { 0 };
	struct enc_error err = { 0 };

	(void)state;
	memset (f.plugin_hash, 7, 32);
	memset (f.plugstack_hash, 8, 32);
	assert_int_equal (enc_facts_encode (&f, &buf, &err), 0);
	assert_int_equal (enc_facts_decode (buf.data, buf.len, &back, &err), 0);
	assert_int_equal (back.pool, 3);
	assert_true (back.door && back.agent_alive && back.generation == 5 && back.not_after == 6 &&
		     back.member_version == 8);
	assert_string_equal (back.enclave_id, ID);
	assert_string_equal (back.enclave_name, "cxr");
	assert_memory_equal (back.plugin_hash, f.plugin_hash, 32);
	assert_memory_equal (back.plugstack_hash, f.plugstack_hash, 32);
	for (size_t cut = 0; cut < buf.len; cut++)
		assert_true (enc_facts_decode (buf.data, cut, &back, &err) < 0);
	buf.data[2] = 2;
	assert_int_equal (enc_facts_decode (buf.data, buf.len, &back, &err), -ENC_EINVAL);
}

static void a_question_for_facts_is_six_bytes_and_no_other (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (64);
	struct enc_error err = { 0 };
	uint32_t uid = 0;

	(void)state;
	assert_int_equal (enc_facts_ask_encode (1234, &buf, &err), 0);
	assert_int_equal (enc_facts_ask_decode (buf.data, buf.len, &uid, &err), 0);
	assert_int_equal (uid, 1234);
	assert_true (enc_facts_ask_decode (buf.data, buf.len - 1, &uid, &err) < 0);
	buf.data[1] = 2;
	assert_true (enc_facts_ask_decode (buf.data, buf.len, &uid, &err) < 0);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (an_order_comes_back_as_it_was),
		cmocka_unit_test (an_answer_comes_back_as_it_was),
		cmocka_unit_test (lengths_out_of_bounds_are_refused),
		cmocka_unit_test (malformed_orders_are_refused),
		cmocka_unit_test (orders_that_cannot_be_written_leave_the_buffer_alone),
		cmocka_unit_test (facts_come_back_as_they_were),
		cmocka_unit_test (a_question_for_facts_is_six_bytes_and_no_other),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
