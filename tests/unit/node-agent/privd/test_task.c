#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "node-agent/privd/family.h"
#include "node-agent/privd/overlay.h"
#include "tests/unit/node-agent/proto/fixture.h"

#include "base/enc.h"

static struct enc_doc doc, back_doc;

static void a_task_comes_over_as_it_was (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (ENC_TASK_SIZE_MAX);
	struct enc_task task = { .job = ENC_JOB_ROLES, .flags = ENC_TASK_CLOSE, .doc = &doc, .keys_n = 2, .fd = -1 }, back;
	struct enc_error err = { 0 };

	(void)state;
	fixture_doc (&doc);
	task.extra = enc_view_of ("members", 7);
	assert_int_equal (enc_task_encode (&task, &buf, &err), 0);
	assert_int_equal (enc_task_decode (buf.data, buf.len, &back_doc, &back, &err), 0);
	assert_memory_equal (&doc, &back_doc, sizeof doc);
	assert_true (back.job == ENC_JOB_ROLES && back.flags == ENC_TASK_CLOSE && back.keys_n == 2 && back.doc == &back_doc);
	assert_memory_equal (back.extra.at, "members", 7);
	for (size_t cut = 0; cut < buf.len; cut++)
		assert_true (enc_task_decode (buf.data, cut, &back_doc, &back, &err) < 0);
}

static void unknown_jobs_and_too_many_keys_are_refused (void **state)
{
	uint8_t bytes[] = { ENC_JOB_MAX, 0, 0, 0, 0, 0, 0 };
	struct enc_task back;

	(void)state;
	assert_true (enc_task_decode (bytes, sizeof bytes, &back_doc, &back, NULL) < 0);
	bytes[0] = 0;
	assert_true (enc_task_decode (bytes, sizeof bytes, &back_doc, &back, NULL) < 0);
	bytes[0] = ENC_JOB_DOOR;
	assert_int_equal (enc_task_decode (bytes, sizeof bytes, &back_doc, &back, NULL), 0);
	assert_null (back.doc);
	bytes[2] = ENC_TASK_KEYS_MAX + 1;
	assert_true (enc_task_decode (bytes, sizeof bytes, &back_doc, &back, NULL) < 0);
}

static void every_job_belongs_to_one_family (void **state)
{
	(void)state;
	for (unsigned job = 1; job < ENC_JOB_MAX; job++) {
		int n = 0;
		for (size_t i = 0; enc_families[i]; i++)
			n += enc_families[i]->tasks[job] != NULL;
		assert_int_equal (n, 1);
	}
}

static void the_overlay_names_peers_whose_key_is_known_and_not_ourselves (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (65536);
	static const uint8_t key[32] = { 1 };
	const char *text;

	(void)state;
	fixture_doc (&doc);
	memset (doc.peers[1].overlay_key, 0, 32);
	assert_int_equal (enc_overlay_text (&doc, key, &out, NULL), 0);
	enc_buf_put_u8 (&out, 0);
	text = (const char *)out.data;
	assert_non_null (strstr (text, "AllowedIPs = 10.77.4.1/32\n"));
	assert_null (strstr (text, "10.77.4.2"));
	assert_null (strstr (text, "10.77.4.3"));
	assert_non_null (strstr (text, "Endpoint = 10.0.0.11:51820\n"));
	assert_non_null (strstr (text, "ListenPort = 51820\n"));
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (a_task_comes_over_as_it_was),
		cmocka_unit_test (unknown_jobs_and_too_many_keys_are_refused),
		cmocka_unit_test (every_job_belongs_to_one_family),
		cmocka_unit_test (the_overlay_names_peers_whose_key_is_known_and_not_ourselves),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
