#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "node-agent/privd/accounts.h"

#include "base/enc.h"

static char root[] = "/enclave";
static struct enc_privd_conf conf = { .root = root, .uid_min = 1000 };
static struct enc_member people[] = { { .user = "res1", .uid = 10008, .gid = 10008 }, { .user = "res2", .uid = 10009, .gid = 10009 } };
static struct enc_members members = { .enclave_name = "cxr", .members_n = 2, .members = people };

static void members_live_on_the_project_volume (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (4096);

	(void)state;
	assert_int_equal (enc_accounts_passwd (&conf, &members, &out, NULL), 0);
	enc_buf_put_u8 (&out, 0);
	assert_string_equal ((char *)out.data, "res1:x:10008:10008::/enclave/home/res1:/bin/bash\nres2:x:10009:10009::/enclave/home/res2:/bin/bash\n");
}

static void all_members_are_in_the_volumes_group (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (4096);

	(void)state;
	assert_int_equal (enc_accounts_group (&members, 10008, &out, NULL), 0);
	enc_buf_put_u8 (&out, 0);
	assert_string_equal ((char *)out.data, "res2:x:10009:\ncxr:x:10008:res1,res2\n");
}

static void no_member_has_a_password (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (4096);

	(void)state;
	assert_int_equal (enc_accounts_shadow (&members, &out, NULL), 0);
	enc_buf_put_u8 (&out, 0);
	assert_non_null (strstr ((char *)out.data, "res1:*:"));
}

static void invariant_10_site_users_are_left_out_and_system_users_stay (void **state)
{
	static const char text[] = "root:x:0:0:root:/root:/bin/bash\nmunge:x:103:104::/x:/y\nslurm:x:64030:64030::/x:/y\nnobody:x:65534:65534::/x:/y\n"
				   "res1:x:10008:10008::/home/res1:/bin/bash\n+::::::\nbroken\noutsider1:x:10010:10010::/h:/s";
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (4096);

	(void)state;
	assert_int_equal (enc_accounts_system_lines (text, 1000, &out, NULL), 0);
	enc_buf_put_u8 (&out, 0);
	assert_string_equal ((char *)out.data, "root:x:0:0:root:/root:/bin/bash\nmunge:x:103:104::/x:/y\nslurm:x:64030:64030::/x:/y\nnobody:x:65534:65534::/x:/y\n");
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (members_live_on_the_project_volume),
		cmocka_unit_test (all_members_are_in_the_volumes_group),
		cmocka_unit_test (no_member_has_a_password),
		cmocka_unit_test (invariant_10_site_users_are_left_out_and_system_users_stay),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
