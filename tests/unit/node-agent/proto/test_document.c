#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "fixture.h"

#include "base/enc.h"

static struct enc_doc doc, back;

static int setup (void **state)
{
	(void)state;
	fixture_doc (&doc);
	memset (&back, 0, sizeof back);
	return 0;
}

static void a_document_comes_back_as_it_was (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);
	struct enc_error err = { 0 };

	(void)state;
	assert_int_equal (enc_doc_encode (&doc, &buf, &err), 0);
	assert_int_equal (enc_doc_decode (buf.data, buf.len, &back, &err), 0);
	assert_memory_equal (&doc, &back, sizeof doc);
}

static void every_shorter_document_is_refused_and_changes_nothing (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);
	struct enc_doc zero;
	struct enc_error err = { 0 };

	(void)state;
	memset (&zero, 0, sizeof zero);
	assert_int_equal (enc_doc_encode (&doc, &buf, &err), 0);
	for (size_t len = 0; len < buf.len; len++)
		assert_true (enc_doc_decode (buf.data, len, &back, &err) < 0);
	assert_memory_equal (&back, &zero, sizeof zero);
}

static void a_byte_left_over_is_refused (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);
	struct enc_error err = { 0 };

	(void)state;
	assert_int_equal (enc_doc_encode (&doc, &buf, &err), 0);
	enc_buf_put_u8 (&buf, 0);
	assert_int_equal (enc_doc_decode (buf.data, buf.len, &back, &err), -ENC_EINVAL);
}

static void another_version_is_refused (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);
	struct enc_error err = { 0 };

	(void)state;
	assert_int_equal (enc_doc_encode (&doc, &buf, &err), 0);
	buf.data[0] = 2;
	assert_int_equal (enc_doc_decode (buf.data, buf.len, &back, &err), -ENC_EINVAL);
}

static void too_long_is_refused_before_it_is_read (void **state)
{
	static uint8_t big[ENC_DOC_SIZE_MAX + 1];
	struct enc_error err = { 0 };

	(void)state;
	big[0] = 1;
	assert_int_equal (enc_doc_decode (big, sizeof big, &back, &err), -ENC_ELIMIT);
}

#define BAD_TEXT(member, text)                                                                                         \
	{                                                                                                              \
#member, offsetof(struct enc_doc, member), text                                                        \
	}

static void bad_texts_are_refused_by_name (void **state)
{
	static const struct {
		const char *name;
		size_t offset;
		const char *text;
	} rows[] = {
		BAD_TEXT (node, ""),
		BAD_TEXT (node, "n1;reboot"),
		BAD_TEXT (node, "../n1"),
		BAD_TEXT (enclave_id, "short"),
		BAD_TEXT (enclave_name, "Upper"),
		BAD_TEXT (controller4, "10.0.0.256"),
		BAD_TEXT (controller4, "010.0.0.1"),
		BAD_TEXT (controller6, "fd00:0::1"),
		BAD_TEXT (overlay_net, "10.77.4.1/24"),
		BAD_TEXT (overlay_net, "10.77.4.0/8"),
		BAD_TEXT (overlay_net, "10.77.4.0"),
		BAD_TEXT (clean_id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
		BAD_TEXT (challenge, "00"),
		BAD_TEXT (slurm_cluster, "a/b"),
		BAD_TEXT (slurm_cluster, "x\nPrologFlags=none"),
		BAD_TEXT (volumes[0].driver, "exec"),
		BAD_TEXT (volumes[1].name, "../../etc"),
		BAD_TEXT (peers[0].overlay, "10.77.5.1"),
		BAD_TEXT (peers[2].node, "s1"),
		BAD_TEXT (peers[2].overlay, "10.77.4.1"),
		BAD_TEXT (outsiders[0], "head"),
	};
	(void)state;
	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++) {
		enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);
		struct enc_error err = { 0 };

		fixture_doc (&doc);
		memcpy ((char *)&doc + rows[i].offset, rows[i].text, strlen (rows[i].text) + 1);
		if (enc_doc_encode (&doc, &buf, &err) != -ENC_EINVAL)
			fail_msg ("%s = \"%s\" passed", rows[i].name, rows[i].text);
		assert_true (err.text[0]);
	}
}

static void contradictions_are_refused (void **state)
{
	(void)state;
#define CONTRADICTION(change)                                                                                          \
	do {                                                                                                           \
		enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);                     \
		struct enc_error err = { 0 };                                                                          \
		fixture_doc (&doc);                                                                                    \
		change;                                                                                                \
		if (enc_doc_encode (&doc, &buf, &err) >= 0)                                                            \
			fail_msg ("passed: %s", #change);                                                              \
	} while (0)
	CONTRADICTION (doc.generation = 0);
	CONTRADICTION (doc.pool = 5);
	CONTRADICTION (doc.enclave_id[0] = '\0');
	CONTRADICTION (doc.not_after = 0);
	CONTRADICTION (doc.controller_port = 0);
	CONTRADICTION (doc.pool = ENC_POOL_GENERAL);
	CONTRADICTION (doc.pool = ENC_POOL_AIRLOCK; doc.door = 1);
	CONTRADICTION (doc.overlay_port = 0);
	CONTRADICTION (doc.overlay_port = 65536);
	CONTRADICTION (doc.fence = ENC_FENCE_AIRLOCK);
	CONTRADICTION (doc.fence = 3);
	CONTRADICTION (doc.srun_port_first = 60200);
	CONTRADICTION (doc.clean_id[0] = '\0');
	CONTRADICTION (doc.peers[0].role = 3);
	CONTRADICTION (doc.roles = 8);
	CONTRADICTION (doc.volumes[0].kind = ENC_VOLUME_PROJECT);
	CONTRADICTION (doc.volumes[1].kind = ENC_VOLUME_SCRATCH);
	CONTRADICTION (doc.peers_n = ENC_DOC_NODES_MAX + 1);
	CONTRADICTION (doc.volumes_n = ENC_DOC_VOLUMES_MAX + 1);
	CONTRADICTION (doc.outsiders_n = 9);
}

static void the_largest_document_fits (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (1 << 20);
	struct enc_error err = { 0 };
	char node[65], overlay[16];

	(void)state;
	doc.peers_n = ENC_DOC_NODES_MAX;
	(void)snprintf (doc.overlay_net, sizeof doc.overlay_net, "10.77.0.0/16");
	for (size_t i = 0; i < doc.peers_n; i++) {
		(void)snprintf (node, sizeof node, "node-%025zu.site.example.org", i);
		(void)snprintf (
			overlay, sizeof overlay, "10.77.%u.%u", 100 + (unsigned)i / 100 % 100, 100 + (unsigned)i % 100);
		fixture_peer (&doc, i, node, ENC_ROLE_COMPUTE, overlay);
		(void)snprintf (
			doc.peers[i].address6, sizeof doc.peers[i].address6, "2001:db8:1111:2222:3333:4444:5555:6666");
	}
	assert_int_equal (enc_doc_encode (&doc, &buf, &err), 0);
	assert_true (buf.len <= ENC_DOC_SIZE_MAX);
}

static void the_digest_is_sha256_of_the_bytes (void **state)
{
	static const uint8_t empty[32] = { 0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99,
		0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52,
		0xb8, 0x55 };
	uint8_t digest[32];

	(void)state;
	enc_doc_digest ("", 0, digest);
	assert_memory_equal (digest, empty, 32);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup (a_document_comes_back_as_it_was, setup),
		cmocka_unit_test_setup (every_shorter_document_is_refused_and_changes_nothing, setup),
		cmocka_unit_test_setup (a_byte_left_over_is_refused, setup),
		cmocka_unit_test_setup (another_version_is_refused, setup),
		cmocka_unit_test_setup (too_long_is_refused_before_it_is_read, setup),
		cmocka_unit_test_setup (bad_texts_are_refused_by_name, setup),
		cmocka_unit_test_setup (contradictions_are_refused, setup),
		cmocka_unit_test_setup (the_largest_document_fits, setup),
		cmocka_unit_test (the_digest_is_sha256_of_the_bytes),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
