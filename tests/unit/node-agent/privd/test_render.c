#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "node-agent/privd/render.h"
#include "tests/unit/node-agent/proto/fixture.h"

#include "base/enc.h"

static struct enc_doc doc;
static const struct enc_render_host host = { "cgroup/v2", "/sys/fs/cgroup", "/usr/lib/spank_enclave.so" };

static int render (const char *template, char **ret)
{
	struct enc_buf buf = ENC_BUF_INIT (1 << 20);
	struct enc_error err = { 0 };
	int rc;

	fixture_doc (&doc);
	rc = enc_render (template, &doc, &host, &buf, &err);
	*ret = rc < 0 ? NULL : enc_buf_take_str (&buf);
	enc_buf_done (&buf);
	return rc;
}

static void names_are_replaced_and_comments_left_out (void **state)
{
	enc_auto_free char *text = NULL;

	(void)state;
	assert_int_equal (render ("# @ANYTHING@ goes here\nClusterName=@CLUSTER@\nH=@SCHEDULER@(@SCHEDULER_ADDRESS@)\nP=@SRUN_FIRST@-@SRUN_LAST@\n", &text), 0);
	assert_string_equal (text, "ClusterName=e7f\nH=s1(10.77.4.1)\nP=60001-60100\n");
}

static void compute_nodes_get_a_line_each (void **state)
{
	enc_auto_free char *text = NULL;

	(void)state;
	assert_int_equal (render ("@NODES@\nNodes=@NODE_NAMES@\n", &text), 0);
	assert_string_equal (text, "NodeName=n1 NodeAddr=10.77.4.3 CPUs=8 RealMemory=16000 State=UNKNOWN\nNodes=n1\n");
}

static void unknown_names_are_refused (void **state)
{
	enc_auto_free char *text = NULL;

	(void)state;
	assert_int_equal (render ("x=@SECRET@\n", &text), -ENC_EINVAL);
	assert_int_equal (render ("mail=a@b and @ alone and @@\n", &text), 0);
	assert_string_equal (text, "mail=a@b and @ alone and @@\n");
}

static void what_the_document_lacks_is_refused (void **state)
{
	struct enc_buf buf = ENC_BUF_INIT (4096);
	struct enc_error err = { 0 };

	(void)state;
	fixture_doc (&doc);
	doc.peers_n = 0;
	assert_int_equal (enc_render ("@NODES@\n", &doc, &host, &buf, &err), -ENC_EINVAL);
	assert_int_equal (enc_render ("@SCHEDULER@\n", &doc, &host, &buf, &err), -ENC_EINVAL);
	doc.login_port = 0;
	assert_int_equal (enc_render ("@LOGIN_PORT@\n", &doc, &host, &buf, &err), -ENC_EINVAL);
	enc_buf_done (&buf);
}

static void the_templates_we_ship_render_whole (void **state)
{
	static const char *const names[] = { "slurm.conf", "cgroup.conf", "plugstack.conf", "sshd_config" };

	(void)state;
	for (size_t i = 0; i < ENC_ARRAY_LEN (names); i++) {
		enc_auto_done (enc_buf_done) struct enc_buf file = ENC_BUF_INIT (65536);
		enc_auto_free char *text = NULL;
		char path[512];

		(void)snprintf (path, sizeof path, "%s/ops/site/enclave-%s.in", ENC_SOURCE_DIR, names[i]);
		assert_int_equal (enc_file_read (path, 65000, &file, NULL), 0);
		enc_buf_put_u8 (&file, 0);
		assert_int_equal (render ((const char *)file.data, &text), 0);
		assert_true (strlen (text) > 20);
		assert_null (strchr (text, '@'));
	}
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (names_are_replaced_and_comments_left_out),
		cmocka_unit_test (compute_nodes_get_a_line_each),
		cmocka_unit_test (unknown_names_are_refused),
		cmocka_unit_test (what_the_document_lacks_is_refused),
		cmocka_unit_test (the_templates_we_ship_render_whole),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
