/* Certificates: what the CA puts in, and what a verifier refuses. */
#include "ca_test.h"

#define PEM(b) ((const char *) (b).data)

static struct ca ours, theirs;

static int up (void **state)
{
	int rc = arena_up (state);

	ca_up (&ours, "enclave CA");
	ca_up (&theirs, "enclave CA"); /* the same name is not the same CA */
	return rc;
}

static int down (void **state)
{
	ca_down (&ours);
	ca_down (&theirs);
	return arena_down (state);
}

static void a_node_certificate_carries_the_ordered_name_and_nothing_of_the_request (void **state)
{
	enc_auto (enc_cert_key) struct enc_cert_key *key = NULL;
	struct enc_cert_info info, again;

	(void) state;
	assert_int_equal (enc_cert_key_new (&key, NULL), 0);
	struct enc_cert_made a = issue (&ours, key, &(struct enc_cert_order){ "n1", ENC_CERT_NODE, 365 });
	struct enc_cert_made b = issue (&ours, key, &(struct enc_cert_order){ "n1", ENC_CERT_NODE, 365 });
	assert_int_equal (enc_cert_verify (PEM (a.pem), PEM (ours.pem), ENC_CERT_NODE, &info, NULL), 0);
	assert_string_equal (info.name, "n1");
	assert_string_equal (info.serial, a.serial);
	assert_int_equal (strlen (a.serial), 32);
	assert_memory_equal (info.fingerprint, a.fingerprint, ENC_CERT_FINGERPRINT);
	assert_int_equal (enc_cert_verify (PEM (b.pem), PEM (ours.pem), ENC_CERT_NODE, &again, NULL), 0);
	assert_string_not_equal (a.serial, b.serial);
	enc_buf_done (&a.pem);
	enc_buf_done (&b.pem);
}

static void a_certificate_holds_for_its_use_and_ca_alone (void **state)
{
	enc_auto (enc_cert_key) struct enc_cert_key *key = NULL;
	struct enc_cert_info info;

	(void) state;
	assert_int_equal (enc_cert_key_new (&key, NULL), 0);
	struct enc_cert_made node = issue (&ours, key, &(struct enc_cert_order){ "n1", ENC_CERT_NODE, 365 });
	struct enc_cert_made server = issue (&ours, key, &(struct enc_cert_order){ ENC_CERT_SERVICE, ENC_CERT_SERVER, 365 });
	assert_int_equal (enc_cert_verify (PEM (node.pem), PEM (ours.pem), ENC_CERT_SERVER, &info, NULL), -ENC_EINTEGRITY);
	assert_int_equal (enc_cert_verify (PEM (server.pem), PEM (ours.pem), ENC_CERT_NODE, &info, NULL), -ENC_EINTEGRITY);
	assert_int_equal (enc_cert_verify (PEM (server.pem), PEM (ours.pem), ENC_CERT_SERVER, &info, NULL), 0);
	assert_int_equal (enc_cert_verify (PEM (node.pem), PEM (theirs.pem), ENC_CERT_NODE, &info, NULL), -ENC_EINTEGRITY);
	assert_int_equal (enc_cert_verify ("nonsense", PEM (ours.pem), ENC_CERT_NODE, &info, NULL), -ENC_EINVAL);
	enc_buf_done (&node.pem);
	enc_buf_done (&server.pem);
}

static void a_node_certificate_cannot_issue_another (void **state)
{
	enc_auto (enc_cert_key) struct enc_cert_key *key = NULL;
	enc_auto (enc_cert_key) struct enc_cert_key *other = NULL;
	struct enc_cert_info info;

	(void) state;
	assert_int_equal (enc_cert_key_new (&key, NULL), 0);
	assert_int_equal (enc_cert_key_new (&other, NULL), 0);
	struct enc_cert_made node = issue (&ours, key, &(struct enc_cert_order){ "n1", ENC_CERT_NODE, 365 });
	const struct ca posing = { key, node.pem };
	struct enc_cert_made forged = issue (&posing, other, &(struct enc_cert_order){ "n2", ENC_CERT_NODE, 365 });
	assert_int_equal (enc_cert_verify (PEM (forged.pem), PEM (ours.pem), ENC_CERT_NODE, &info, NULL), -ENC_EINTEGRITY);
	assert_int_equal (enc_cert_verify (PEM (forged.pem), PEM (node.pem), ENC_CERT_NODE, &info, NULL), -ENC_EINTEGRITY);
	enc_buf_done (&node.pem);
	enc_buf_done (&forged.pem);
}

static void an_ended_certificate_is_refused (void **state)
{
	enc_auto (enc_cert_key) struct enc_cert_key *key = NULL;
	struct enc_cert_info info;
	struct enc_error err = { 0 };

	(void) state;
	assert_int_equal (enc_cert_key_new (&key, NULL), 0);
	struct enc_cert_made made = issue (&ours, key, &(struct enc_cert_order){ "n1", ENC_CERT_NODE, 0 });
	assert_int_equal (enc_cert_verify (PEM (made.pem), PEM (ours.pem), ENC_CERT_NODE, &info, &err), -ENC_EINTEGRITY);
	assert_non_null (strstr (err.text, "expired"));
	enc_buf_done (&made.pem);
}

static void a_request_must_be_one_and_a_name_must_be_a_nodes (void **state)
{
	const struct enc_cert_issuer issuer = { ours.key, PEM (ours.pem) };
	enc_auto (enc_cert_key) struct enc_cert_key *key = NULL;
	struct enc_cert_made made;
	struct enc_buf csr;

	(void) state;
	assert_int_equal (enc_cert_key_new (&key, NULL), 0);
	request (key, "n1", &csr);
	static const char *const names[] = { "", "n1,DNS:" ENC_CERT_SERVICE, "n 1", "../n1", "n1\n" };
	for (size_t i = 0; i < ENC_ARRAY_LEN (names); i++)
		assert_int_equal (enc_cert_sign (&issuer, PEM (csr), &(struct enc_cert_order){ names[i], ENC_CERT_NODE, 1 }, &made, NULL),
			-ENC_EINVAL);
	assert_int_equal (enc_cert_sign (&issuer, "", &(struct enc_cert_order){ "n1", ENC_CERT_NODE, 1 }, &made, NULL), -ENC_EINVAL);
	/* one byte of the request's signature altered */
	char *at = (char *) csr.data + csr.len - 60;
	*at = *at == 'A' ? 'B' : 'A';
	assert_int_equal (enc_cert_sign (&issuer, PEM (csr), &(struct enc_cert_order){ "n1", ENC_CERT_NODE, 1 }, &made, NULL), -ENC_EINVAL);
	enc_buf_done (&csr);
}

static void private_keys_survive_being_stored (void **state)
{
	enc_auto (enc_cert_key) struct enc_cert_key *key = NULL;
	enc_auto (enc_cert_key) struct enc_cert_key *of_pem = NULL;
	enc_auto (enc_cert_key) struct enc_cert_key *of_der = NULL;
	enc_auto (enc_cert_key) struct enc_cert_key *bad = NULL;
	enc_auto_done (enc_buf_done) struct enc_buf pem = ENC_BUF_SECRET (4096);
	enc_auto_done (enc_secret_done) struct enc_secret der = { 0 }, again = { 0 };

	(void) state;
	assert_int_equal (enc_cert_key_new (&key, NULL), 0);
	assert_int_equal (enc_cert_key_pem (key, &pem, NULL), 0);
	assert_int_equal (enc_cert_key_der (key, &der, NULL), 0);
	assert_int_equal (enc_cert_key_of_pem (pem.data, pem.len, &of_pem, NULL), 0);
	assert_int_equal (enc_cert_key_of_der (der.data, der.len, &of_der, NULL), 0);
	assert_int_equal (enc_cert_key_der (of_pem, &again, NULL), 0);
	assert_memory_equal (der.data, again.data, der.len);
	assert_int_equal (enc_cert_key_of_der (der.data, der.len - 1, &bad, NULL), -ENC_EINVAL);
	assert_int_equal (enc_cert_key_of_pem ("x", 1, &bad, NULL), -ENC_EINVAL);
	assert_null (bad);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (a_node_certificate_carries_the_ordered_name_and_nothing_of_the_request),
		cmocka_unit_test (a_certificate_holds_for_its_use_and_ca_alone),
		cmocka_unit_test (a_node_certificate_cannot_issue_another),
		cmocka_unit_test (an_ended_certificate_is_refused),
		cmocka_unit_test (a_request_must_be_one_and_a_name_must_be_a_nodes),
		cmocka_unit_test (private_keys_survive_being_stored),
	};

	return cmocka_run_group_tests_name ("cert", tests, up, down);
}
