/* The vocabulary: the tables fit together, and whatever is not in them is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "crypto/event.h"
#include "crypto/event_table.h"

static int check (const char *text, struct enc_error *err, struct enc_json **ret)
{
	struct enc_json *record = enc_json_parse (text, strlen (text), 1 << 20, err);
	const struct enc_event *event = NULL;
	int rc;

	if (!record)
		fail_msg ("bad test: %s", text);
	rc = enc_event_check (record, &event, err);
	if (ret)
		*ret = record;
	else
		enc_json_free (record);
	return rc;
}

/* Every word of `list` is a field, below `prefix`. */
static void all_known (const char *list, const char *prefix)
{
	char word[64];

	for (const char *p = list; *p;) {
		size_t len = strcspn (p, " ");
		int found = 0;

		(void)snprintf (word, sizeof (word), "%s%.*s", prefix, (int)len, p);
		for (const struct enc_event_field *f = enc_event_fields; f->path; f++)
			found |= strcmp (f->path, word) == 0;
		if (!found)
			fail_msg ("no field %s", word);
		p += len;
		p += *p == ' ';
	}
}

static void the_tables_fit_together (void **state)
{
	(void)state;
	for (const struct enc_event *e = enc_event_rows; e->cls; e++) {
		all_known (e->needs, "");
		all_known (e->data, "data.");
		assert_non_null (e->text);
		assert_ptr_equal (enc_event_find (e->cls, e->action), e);
		for (const char *p = e->needs; (p = strstr (p, "data.")); p += 5) {
			char word[64];

			(void)snprintf (word, sizeof (word), "%.*s", (int)strcspn (p + 5, " "), p + 5);
			if (!strstr (e->data, word))
				fail_msg ("%s.%s needs data.%s, which it does not have", e->cls, e->action, word);
		}
	}
	for (const struct enc_event_field *f = enc_event_fields; f->path; f++)
		for (const struct enc_event_field *g = enc_event_fields; g < f; g++)
			assert_string_not_equal (f->path, g->path);
}

static void good_records_are_taken (void **state)
{
	static const char *const good[] = {
		"{\"class\":\"system\",\"action\":\"start\",\"outcome\":\"ok\"}",
		"{\"class\":\"enclave\",\"action\":\"create\",\"outcome\":\"intent\",\"severity\":\"alert\",\"actor\":{"
		"\"user\":\"admin1\",\"uid\":1000,\"mfa\":true},"
		"\"obj\":{\"enclave\":\"cxr\",\"enclave_id\":\"abcdefghijklmnopqrstuvwxyz\"},\"agreement\":\"BAA-17\","
		"\"text\":\"chest x-ray\\nreports\",\"data\":{\"nodes\":2}}",
		"{\"class\":\"node\",\"action\":\"return\",\"outcome\":\"ok\",\"obj\":{\"node\":\"n1\",\"enclave_id\":"
		"\"x\"},\"data\":{\"items\":[{\"residue\":\"tmp\",\"found\":3,\"left\":0}],"
		"\"until\":\"2026-12-01T04:50:00Z\"}}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof (good) / sizeof (good[0]); i++) {
		struct enc_error err = { 0 };

		if (check (good[i], &err, NULL) < 0)
			fail_msg ("refused: %s: %s", err.text, good[i]);
	}
}

static void what_is_not_in_the_tables_is_refused_with_its_place (void **state)
{
#define HEAD "{\"class\":\"node\",\"action\":\"lost\",\"outcome\":\"ok\",\"obj\":{\"node\":\"n1\"}"
	static const struct {
		const char *record;
		const char *pointer;
	} bad[] = {
		{ "{}", "/class" },
		{ "[]", "/class" },
		{ "{\"class\":\"node\",\"action\":\"dance\",\"outcome\":\"ok\"}", "/action" },
		{ "{\"class\":\"dance\",\"action\":\"lost\",\"outcome\":\"ok\"}", "/action" },
		{ "{\"class\":\"node\",\"action\":\"lost\",\"obj\":{\"node\":\"n1\"}}", "/outcome" },
		{ "{\"class\":\"node\",\"action\":\"lost\",\"outcome\":\"fine\",\"obj\":{\"node\":\"n1\"}}",
			"/outcome" },
		{ "{\"class\":\"node\",\"action\":\"lost\",\"outcome\":\"ok\"}", "/obj/node" },
		{ "{\"class\":\"node\",\"action\":\"lost\",\"outcome\":\"ok\",\"obj\":{}}", "/obj/node" },
		{ "{\"class\":\"node\",\"action\":\"lost\",\"outcome\":\"ok\",\"obj\":\"n1\"}", "/obj" },
		{ "{\"class\":\"node\",\"action\":\"lost\",\"outcome\":\"ok\",\"obj\":{\"node\":1}}", "/obj/node" },
		{ "{\"class\":\"node\",\"action\":\"lost\",\"outcome\":\"ok\",\"obj\":{\"node\":\"n 1\"}}",
			"/obj/node" },
		{ "{\"class\":\"node\",\"action\":\"lost\",\"outcome\":\"ok\",\"obj\":{\"node\":\"n1\\n\"}}",
			"/obj/node" },
		{ "{\"class\":\"node\",\"action\":\"lost\",\"outcome\":\"ok\",\"obj\":{\"node\":\"n1\",\"colour\":"
		  "\"red\"}}",
			"/obj/colour" },
		{ HEAD ",\"idx\":5}", "/idx" },
		{ HEAD ",\"origin\":\"x\"}", "/origin" },
		{ HEAD ",\"cleaned\":true}", "/cleaned" },
		{ HEAD ",\"text_hash\":\"x\"}", "/text_hash" },
		{ HEAD ",\"src\":{\"name\":\"auditd\"}}", "/src/name" },
		{ HEAD ",\"severity\":\"loud\"}", "/severity" },
		{ HEAD ",\"note\":\"x\"}", "/note" },
		{ HEAD ",\"data\":{\"seconds\":1.5}}", "/data/seconds" },
		{ HEAD ",\"data\":{\"seconds\":9007199254740992}}", "/data/seconds" },
		{ HEAD ",\"data\":{\"seconds\":null}}", "/data/seconds" },
		{ HEAD ",\"data\":{\"exit\":1}}", "/data/exit" },
		{ HEAD ",\"before\":\"abc\"}", "/before" },
		{ HEAD ",\"src\":{\"time\":\"yesterday\"}}", "/src/time" },
		{ HEAD ",\"peer\":{\"ip\":{}}}", "/peer/ip" },
		{ "{\"class\":\"node\",\"action\":\"clean\",\"outcome\":\"ok\",\"obj\":{\"node\":\"n1\"},\"data\":{"
		  "\"items\":[{\"a\":{}}]}}",
			"/data/items" },
		{ "{\"class\":\"node\",\"action\":\"clean\",\"outcome\":\"ok\",\"obj\":{\"node\":\"n1\"},\"data\":{"
		  "\"items\":[{\"a\":\"\\u202e\"}]}}",
			"/data/items" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++) {
		struct enc_error err = { 0 };

		if (check (bad[i].record, &err, NULL) != -ENC_EINVAL)
			fail_msg ("taken: %s", bad[i].record);
		if (strcmp (err.pointer, bad[i].pointer) != 0)
			fail_msg ("%s blames %s (%s)", bad[i].record, err.pointer, err.text);
	}
}

/* A stranger at the login prompt must not get his attempt unrecorded by a name
 * that we refuse, nor into an auditor's terminal. */
static void what_strangers_claim_is_cleaned_cut_and_marked (void **state)
{
	static const char *const names[] = { "ro\\u001b[31mot", "a\\u202eb", "x\\r\\n2026 login ok", "\\u200b" };
	char text[80000];
	struct enc_json *record = NULL;
	struct enc_error err = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof (names) / sizeof (names[0]); i++) {
		(void)snprintf (text, sizeof (text),
			"{\"class\":\"auth\",\"action\":\"failed\",\"outcome\":\"denied\",\"actor\":{\"user\":\"%s\","
			"\"uid\":1}}",
			names[i]);
		assert_int_equal (check (text, &err, &record), 0);
		assert_true (enc_text_ok (enc_json_str (enc_json_find (record, "/actor/user"))));
		assert_true (enc_json_get_bool (record, "cleaned", false));
		enc_json_free (record);
	}
	(void)snprintf (text, sizeof (text),
		"{\"class\":\"auth\",\"action\":\"failed\",\"outcome\":\"denied\",\"actor\":{\"user\":\"%065000d\"}}",
		7);
	assert_int_equal (check (text, &err, &record), 0);
	assert_int_equal (strlen (enc_json_str (enc_json_find (record, "/actor/user"))), 64);
	enc_json_free (record);
	assert_int_equal (check ("{\"class\":\"auth\",\"action\":\"failed\",\"outcome\":\"denied\",\"actor\":{\"user\":"
				 "\"res1\"}}",
				  &err, &record),
		0);
	assert_null (enc_json_get (record, "cleaned"));
	enc_json_free (record);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (the_tables_fit_together),
		cmocka_unit_test (good_records_are_taken),
		cmocka_unit_test (what_is_not_in_the_tables_is_refused_with_its_place),
		cmocka_unit_test (what_strangers_claim_is_cleaned_cut_and_marked),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
