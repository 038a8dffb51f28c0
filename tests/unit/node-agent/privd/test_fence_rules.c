#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "node-agent/privd/fence_rules.h"
#include "tests/unit/node-agent/proto/fixture.h"

#include "base/enc.h"

static struct enc_doc doc;

static char *text_of (uint8_t mode, bool door)
{
	struct enc_buf buf = ENC_BUF_INIT (1 << 20);
	struct enc_fence f = { .mode = mode, .doc = &doc, .door = door };
	struct enc_error err = { 0 };
	char *text;

	assert_int_equal (enc_fence_text (&f, &buf, &err), 0);
	text = enc_buf_take_str (&buf);
	assert_non_null (text);
	return text;
}

static int setup (void **state)
{
	(void)state;
	fixture_doc (&doc);
	return 0;
}

static void all_three_hooks_drop_by_default (void **state)
{
	enc_auto_free char *text = text_of (ENC_FENCE_AIRLOCK, false);

	(void)state;
	assert_non_null (strstr (text, "hook input priority -5; policy drop"));
	assert_non_null (strstr (text, "hook forward priority -5; policy drop"));
	assert_non_null (strstr (text, "hook output priority -5; policy drop"));
}

static void the_airlock_knows_the_controller_alone (void **state)
{
	enc_auto_free char *text = text_of (ENC_FENCE_AIRLOCK, true);

	(void)state;
	assert_non_null (strstr (text, "ip daddr 10.0.0.1 tcp dport 8443 accept"));
	assert_non_null (strstr (text, "ip6 daddr fd00::1 tcp dport 8443 accept"));
	assert_null (strstr (text, "10.0.0.11"));
	assert_null (strstr (text, "51820"));
	assert_null (strstr (text, "encov0"));
	assert_null (strstr (text, "dport 22 "));
}

static void nothing_is_accepted_for_being_established_alone (void **state)
{
	enc_auto_free char *text = text_of (ENC_FENCE_ENCLAVE, true);
	char *line, *save = NULL;

	(void)state;
	for (line = strtok_r (text, "\n", &save); line; line = strtok_r (NULL, "\n", &save))
		if (strstr (line, "established"))
			assert_non_null (strstr (line, "sport"));
}

static void peers_are_let_in_by_the_overlay_port_but_not_ourselves (void **state)
{
	enc_auto_free char *text = NULL;

	(void)state;
	memcpy (doc.peers[0].address4, "10.0.0.21", 10);
	memcpy (doc.peers[1].address4, "10.0.0.22", 10);
	memcpy (doc.peers[2].address4, "10.0.0.23", 10); /* n1: this node */
	text = text_of (ENC_FENCE_ENCLAVE, false);
	assert_non_null (strstr (text, "elements = { 10.0.0.21, 10.0.0.22 }"));
	assert_null (strstr (text, "10.0.0.23"));
	assert_non_null (strstr (text, "ip saddr @peers4 udp dport 51820 accept"));
	assert_non_null (strstr (text, "iifname \"encov0\" ip saddr @overlay accept"));
}

static void the_login_port_opens_with_the_door_on_a_login_node_only (void **state)
{
	enc_auto_free char *compute = text_of (ENC_FENCE_ENCLAVE, true), *shut = NULL, *open = NULL;

	(void)state;
	assert_null (strstr (compute, "dport 22 accept"));
	doc.roles = ENC_ROLE_LOGIN;
	shut = text_of (ENC_FENCE_ENCLAVE, false);
	assert_null (strstr (shut, "dport 22 accept"));
	open = text_of (ENC_FENCE_ENCLAVE, true);
	assert_non_null (strstr (open, "tcp dport 22 accept"));
}

static void none_only_removes (void **state)
{
	enc_auto_free char *text = text_of (ENC_FENCE_NONE, false);

	(void)state;
	assert_string_equal (text, "table inet enclave {}\ndelete table inet enclave\ntable netdev enclave {}\ndelete table netdev enclave\n");
}

static int count (const char *addr, void *arg, struct enc_error *err)
{
	(void)addr, (void)err;
	++*(int *)arg;
	return 0;
}

static void routes_lead_to_who_the_rules_let_through (void **state)
{
	struct enc_fence f = { .mode = ENC_FENCE_AIRLOCK, .doc = &doc };
	int n = 0;

	(void)state;
	assert_int_equal (enc_fence_each_address (&f, count, &n, NULL), 0);
	assert_int_equal (n, 2);
	n = 0;
	f.mode = ENC_FENCE_ENCLAVE;
	assert_int_equal (enc_fence_each_address (&f, count, &n, NULL), 0);
	assert_int_equal (n, 6);
	n = 0;
	f.mode = ENC_FENCE_NONE;
	assert_int_equal (enc_fence_each_address (&f, count, &n, NULL), 0);
	assert_int_equal (n, 0);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup (all_three_hooks_drop_by_default, setup),
		cmocka_unit_test_setup (the_airlock_knows_the_controller_alone, setup),
		cmocka_unit_test_setup (nothing_is_accepted_for_being_established_alone, setup),
		cmocka_unit_test_setup (peers_are_let_in_by_the_overlay_port_but_not_ourselves, setup),
		cmocka_unit_test_setup (the_login_port_opens_with_the_door_on_a_login_node_only, setup),
		cmocka_unit_test_setup (none_only_removes, setup),
		cmocka_unit_test_setup (routes_lead_to_who_the_rules_let_through, setup),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
