/* Grants and the keys in them: what each pool needs, and that a released key opens on that node, in that boot, alone. */
#include "world.h"

#include "crypto/members.h"
#include "fixture.h"

static struct enc_doc doc;

/* A document of the fixture for the world's enclave, generation 7. */
static void enclave_doc (void)
{
	fixture_doc (&doc);
	memcpy (doc.enclave_id, CXR, sizeof doc.enclave_id);
	doc.not_after = NOW + 86400;
}

static void bare_doc (uint8_t pool)
{
	enclave_doc ();
	doc.pool = pool;
	doc.enclave_id[0] = doc.enclave_name[0] = doc.munge_key[0] = doc.slurm_cluster[0] = '\0';
	doc.not_after = 0;
	doc.units = ENC_UNITS_SITE;
	doc.fence = ENC_FENCE_NONE;
	doc.overlay = doc.roles = doc.door = 0;
	doc.peers_n = doc.volumes_n = 0;
	doc.overlay_net[0] = '\0';
}

struct ask {
	const char *keys;      /* list as text; NULL: none */
	const char *boot;      /* of the head; NULL: BOOT */
	const char *node;      /* of the head; NULL: the document's */
	const char *enclave;   /* of the head; NULL: the document's */
	uint64_t generation;   /* of the head; 0: the document's */
	int64_t not_after;     /* of the head; 0: in an hour */
	bool other_document;   /* the head's hash is of another one */
};

static int grant (const struct ask *a)
{
	enc_auto_done (enc_buf_done) struct enc_buf bytes = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);
	const char *enclave = a->enclave ? a->enclave : doc.enclave_id;
	char head[1024];

	assert_int_equal (enc_doc_encode (&doc, &bytes, &w.err), 0);
	(void) snprintf (head, sizeof head,
		"{'verb':'node.grant','node':'%s','boot':'%s','generation':%llu,'document':'%s','not_after':%lld,%s%s%s'nonce':'NONCE'}",
		a->node ? a->node : doc.node, a->boot ? a->boot : BOOT,
		(unsigned long long) (a->generation ? a->generation : doc.generation),
		sha_hex (bytes.data, a->other_document ? bytes.len - 1 : bytes.len), (long long) (a->not_after ? a->not_after : NOW + 3600),
		enclave[0] ? "'enclave':'" : "", enclave, enclave[0] ? "'," : "");
	return ordered (json_of ("{'op':'grant','document':'%s','keys':%s}", b64 (&bytes), a->keys ? a->keys : "[]"), head);
}

static struct enc_grant granted (void)
{
	enc_auto_done (enc_buf_done) struct enc_buf env = ENC_BUF_INIT (4096);
	const char *text = enc_json_get_str (w.answer, "grant", "");
	struct enc_vkey vkey;
	struct enc_grant g;

	assert_int_equal (enc_get_base64 (text, strlen (text), &env, NULL), 0);
	assert_int_equal (enc_vkey_parse (enc_vault_vkey (w.k.vault), strlen (enc_vault_vkey (w.k.vault)), &vkey, NULL), 0);
	assert_int_equal (enc_grant_read (enc_view_of (env.data, env.len), &vkey.pub, &g, NULL), 0);
	return g;
}

static void a_grant_for_an_enclave_releases_its_keys_to_this_boot (void **state)
{
	static const char *const ids[] = { MUNGE, VOLUME };
	uint8_t boot[16], digest[32];

	(void) state;
	enclave_doc ();
	assert_int_equal (grant (&(struct ask){ .keys = "['" MUNGE "','" VOLUME "']" }), 0);
	struct enc_grant g = granted ();
	assert_string_equal (g.node, "n1");
	assert_string_equal (g.enclave, CXR);
	assert_int_equal (g.pool, ENC_POOL_ENCLAVE);
	assert_int_equal (g.generation, 7);
	assert_int_equal (g.not_before, NOW);
	assert_int_equal (g.not_after, NOW + 3600);
	assert_int_equal (g.record, 1);
	assert_int_equal (enc_hex_fixed (BOOT, boot, sizeof boot, NULL), 0);
	enc_auto_done (enc_buf_done) struct enc_buf bytes = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);
	assert_int_equal (enc_doc_encode (&doc, &bytes, NULL), 0);
	enc_doc_digest (bytes.data, bytes.len, digest);
	assert_int_equal (enc_grant_fits (&g, &(struct enc_grant_facts){ "n1", boot, 7, 0, digest, NOW }, NULL), 0);
	for (size_t i = 0; i < 2; i++) {
		enc_auto_done (enc_buf_done) struct enc_buf sealed = ENC_BUF_INIT (ENC_SEALED_MAX);
		const struct enc_json *item = enc_json_at (enc_json_get (w.answer, "sealed"), i);
		const char *data = enc_json_get_str (item, "data", "");
		struct enc_seal_id id = { "n1", boot, 7, ids[i], 1 };
		struct enc_secret s = { 0 };

		assert_string_equal (enc_json_get_str (item, "key", ""), ids[i]);
		assert_int_equal (enc_get_base64 (data, strlen (data), &sealed, NULL), 0);
		assert_int_equal (enc_seal_open (w.boot_key, &id, enc_view_of (sealed.data, sealed.len), &s, NULL), 0);
		assert_int_equal (s.len, 64);
		enc_secret_done (&s);
		id.node = "n2";
		assert_int_equal (enc_seal_open (w.boot_key, &id, enc_view_of (sealed.data, sealed.len), &s, NULL), -ENC_EINTEGRITY);
	}
}

static void invariant_03_the_head_must_be_about_this_document (void **state)
{
	(void) state;
	enclave_doc ();
	assert_int_equal (grant (&(struct ask){ .other_document = true }), -ENC_EDENIED);
	assert_string_equal (w.err.pointer, "/head/document");
	assert_int_equal (grant (&(struct ask){ .node = "n2" }), -ENC_EDENIED);
	assert_string_equal (w.err.pointer, "/head/node");
	assert_int_equal (grant (&(struct ask){ .generation = 8 }), -ENC_EDENIED);
	assert_string_equal (w.err.pointer, "/head/generation");
	assert_int_equal (grant (&(struct ask){ .enclave = OTHER }), -ENC_EDENIED);
	assert_string_equal (w.err.pointer, "/head/enclave");
	assert_int_equal (grant (&(struct ask){ 0 }), 0);
}

static void a_node_that_is_not_enrolled_gets_nothing (void **state)
{
	(void) state;
	enclave_doc ();
	memcpy (doc.node, "n9", 3);
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_ENOTFOUND);
}

static void invariant_03_no_grant_without_a_live_lease (void **state)
{
	(void) state;
	enclave_doc ();
	memcpy (doc.enclave_id, OTHER, sizeof doc.enclave_id);
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
	enclave_doc ();
	assert_int_equal (grant (&(struct ask){ .not_after = NOW + 86401 }), -ENC_EDENIED);
	assert_non_null (strstr (w.err.text, "longer than the lease"));
	doc.not_after = NOW + 86401;
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
	enclave_doc ();
	memcpy (doc.enclave_name, "abc", 4);
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
	enclave_doc ();
	assert_int_equal (grant (&(struct ask){ .not_after = NOW }), -ENC_EDENIED);
	wall += 86400;
	assert_int_equal (grant (&(struct ask){ .not_after = NOW + 90000 }), -ENC_EDENIED);
	assert_non_null (strstr (w.err.text, "ended"));
}

static void invariant_03_an_ended_lease_grants_nothing (void **state)
{
	(void) state;
	enclave_doc ();
	assert_int_equal (ordered (json_of ("{'op':'lease','enclave':'" CXR "'}"), "{'verb':'enclave.end','enclave':'" CXR "','nonce':'NONCE'}"), 0);
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
	assert_non_null (strstr (w.err.text, "ended"));
}

static void invariant_03_no_key_to_a_node_that_is_not_attested_in_this_boot (void **state)
{
	(void) state;
	enclave_doc ();
	assert_int_equal (grant (&(struct ask){ .boot = "ff0102030405060708090a0b0c0d0e0f" }), -ENC_EDENIED);
	assert_non_null (strstr (w.err.text, "this boot"));
	wall += 3601;
	assert_int_equal (grant (&(struct ask){ .not_after = NOW + 7200 }), -ENC_EDENIED);
	assert_non_null (strstr (w.err.text, "too old"));
	assert_int_equal (attest (&(struct attest_order){ 0 }), 0);
	assert_int_equal (grant (&(struct ask){ .not_after = NOW + 7200 }), 0);
}

static void invariant_03_a_node_that_differs_gets_nothing_and_the_row_is_named (void **state)
{
	(void) state;
	enclave_doc ();
	assert_int_equal (attest (&(struct attest_order){ .kernel = 9 }), 0);
	assert_false (enc_json_get_bool (w.answer, "equal", true));
	assert_int_equal (grant (&(struct ask){ .keys = "['" VOLUME "']" }), -ENC_EDENIED);
	assert_non_null (strstr (w.err.text, "kernel"));
	assert_null (w.answer);
}

static void generations_of_one_boot_go_forward (void **state)
{
	(void) state;
	enclave_doc ();
	assert_int_equal (grant (&(struct ask){ 0 }), 0);
	assert_int_equal (grant (&(struct ask){ 0 }), 0); /* an answer was lost */
	doc.generation = 6;
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
	doc.generation = 8;
	assert_int_equal (grant (&(struct ask){ 0 }), 0);
	doc.generation = 7;
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
}

static void keys_must_be_named_be_the_enclaves_and_be_live (void **state)
{
	(void) state;
	enclave_doc ();
	assert_int_equal (grant (&(struct ask){ .keys = "['" STRAY "']" }), -ENC_EDENIED);
	assert_int_equal (grant (&(struct ask){ .keys = "['x']" }), -ENC_EINVAL);
	assert_int_equal (grant (&(struct ask){ .keys = "[7]" }), -ENC_EINVAL);
	memcpy (doc.volumes[1].key, STRAY, sizeof doc.volumes[1].key);
	assert_int_equal (grant (&(struct ask){ .keys = "['" STRAY "']" }), -ENC_ENOTFOUND);
	enclave_doc ();
	assert_int_equal (ordered (json_of ("{'op':'lock','enclave':'" CXR "','key':'" VOLUME "'}"),
		"{'verb':'key.lock','enclave':'" CXR "','object':'" VOLUME "','nonce':'NONCE'}"), 0);
	assert_int_equal (grant (&(struct ask){ .keys = "['" VOLUME "']" }), -ENC_EDENIED);
	assert_non_null (strstr (w.err.text, "locked"));
	assert_int_equal (ordered (json_of ("{'op':'destroy','enclave':'" CXR "','key':'" MUNGE "'}"),
		"{'verb':'key.destroy','enclave':'" CXR "','object':'" MUNGE "','nonce':'NONCE'}"), 0);
	assert_int_equal (grant (&(struct ask){ .keys = "['" MUNGE "']" }), -ENC_EDENIED);
	assert_non_null (strstr (w.err.text, "destroyed"));
}

/* The document is the controller's word; whose key it is stands with keyd. */
static void invariant_03_a_key_of_another_enclave_is_not_released (void **state)
{
	(void) state;
	assert_int_equal (ordered (json_of ("{'op':'lease','enclave':'" OTHER "','name':'other','not_after':%lld}", (long long) NOW + 3600),
		"{'verb':'enclave.lease','enclave':'" OTHER "','object':'other','not_after':1800003600,'nonce':'NONCE'}"), 0);
	assert_int_equal (ordered (json_of ("{'op':'key','enclave':'" OTHER "','key':'" STRAY "','purpose':'volume','bytes':64}"),
		"{'verb':'key.create','enclave':'" OTHER "','object':'" STRAY "','nonce':'NONCE'}"), 0);
	enclave_doc ();
	memcpy (doc.volumes[1].key, STRAY, sizeof doc.volumes[1].key);
	assert_int_equal (grant (&(struct ask){ .keys = "['" STRAY "']" }), -ENC_EDENIED);
	assert_non_null (strstr (w.err.text, "another enclave"));
}

static void a_grant_for_general_carries_nothing_of_an_enclave (void **state)
{
	static const uint8_t pools[] = { ENC_POOL_GENERAL, ENC_POOL_SERVICE };

	(void) state;
	for (size_t i = 0; i < ENC_ARRAY_LEN (pools); i++) {
		bare_doc (pools[i]);
		/* needs no attestation and no lease: another boot will do */
		assert_int_equal (grant (&(struct ask){ .boot = "aa0102030405060708090a0b0c0d0e0f" }), 0);
		assert_int_equal (granted ().pool, pools[i]);
		assert_int_equal (enc_json_len (enc_json_get (w.answer, "sealed")), 0);
		assert_int_equal (grant (&(struct ask){ .keys = "['" VOLUME "']" }), -ENC_EDENIED);
		assert_int_equal (grant (&(struct ask){ .not_after = NOW + 32 * 86400 }), -ENC_EDENIED);
		memcpy (doc.munge_key, MUNGE, sizeof doc.munge_key);
		assert_int_equal (grant (&(struct ask){ .keys = "['" MUNGE "']" }), -ENC_EDENIED);
		enclave_doc ();
		size_t volumes = doc.volumes_n;
		bare_doc (pools[i]);
		doc.volumes_n = volumes;
		assert_int_equal (grant (&(struct ask){ .keys = "['" VOLUME "']" }), -ENC_EDENIED);
		bare_doc (pools[i]);
		memcpy (doc.enclave_id, CXR, sizeof doc.enclave_id);
		memcpy (doc.enclave_name, "cxr", 4);
		assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
	}
	bare_doc (ENC_POOL_SERVICE); /* for general the document's own rules refuse these */
	doc.roles = ENC_ROLE_LOGIN;
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
	bare_doc (ENC_POOL_SERVICE);
	doc.door = 1;
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
}

static void a_grant_for_the_airlock_loosens_nothing (void **state)
{
	(void) state;
	bare_doc (ENC_POOL_AIRLOCK);
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
	doc.fence = ENC_FENCE_AIRLOCK;
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
	doc.units = ENC_UNITS_DOWN;
	assert_int_equal (grant (&(struct ask){ 0 }), 0);
	doc.roles = ENC_ROLE_COMPUTE;
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
}

static void quarantine_and_an_unfenced_enclave_get_no_grant (void **state)
{
	(void) state;
	bare_doc (ENC_POOL_QUARANTINE);
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
	enclave_doc ();
	doc.units = ENC_UNITS_SITE;
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
	enclave_doc ();
	doc.fence = ENC_FENCE_NONE;
	doc.overlay = 0;
	assert_int_equal (grant (&(struct ask){ 0 }), -ENC_EDENIED);
}

static void a_document_that_is_none_is_refused (void **state)
{
	struct enc_buf junk = ENC_BUF_INIT (64);
	char head[512];

	(void) state;
	enc_buf_put (&junk, "\x01junk", 5);
	(void) snprintf (head, sizeof head, "{'verb':'node.grant','node':'n1','boot':'" BOOT "','generation':7,'document':'%s','not_after':%lld,'nonce':'NONCE'}",
		sha_hex (junk.data, junk.len), (long long) NOW + 60);
	assert_int_equal (ordered (json_of ("{'op':'grant','document':'%s','keys':[]}", b64 (&junk)), head), -ENC_EINVAL);
	assert_int_equal (ordered (json_of ("{'op':'grant','document':'***','keys':[]}"), head), -ENC_EINVAL);
	assert_string_equal (w.err.pointer, "/document");
	enc_buf_done (&junk);
}

/* ---- member documents ---- */

static int members (uint64_t version, int64_t not_after, const char *user)
{
	enc_auto_done (enc_buf_done) struct enc_buf body = ENC_BUF_INIT (4096);
	struct enc_member one = { .uid = 2001, .gid = 2000, .role = "researcher" };
	struct enc_members m = { .enclave_id = CXR, .enclave_name = "cxr", .version = version, .not_before = NOW, .not_after = (uint64_t) not_after,
		.members_n = 1, .members = &one };
	char head[512];

	(void) snprintf (one.user, sizeof one.user, "%s", user);
	assert_int_equal (enc_members_put (&m, &body, &w.err), 0);
	(void) snprintf (head, sizeof head, "{'verb':'enclave.members','enclave':'" CXR "','document':'%s','not_after':%lld,'nonce':'NONCE'}",
		sha_hex (body.data, body.len), (long long) not_after);
	return ordered (json_of ("{'op':'members','document':'%s'}", b64 (&body)), head);
}

static void a_member_document_is_signed_within_the_lease_and_versions_rise (void **state)
{
	enc_auto_done (enc_buf_done) struct enc_buf env = ENC_BUF_INIT (8192);
	enc_auto_done (enc_members_done) struct enc_members back = { 0 };
	struct enc_vkey vkey;

	(void) state;
	assert_int_equal (members (3, NOW + 3600, "res1"), 0);
	const char *text = enc_json_get_str (w.answer, "members", "");
	assert_int_equal (enc_get_base64 (text, strlen (text), &env, NULL), 0);
	assert_int_equal (enc_vkey_parse (enc_vault_vkey (w.k.vault), strlen (enc_vault_vkey (w.k.vault)), &vkey, NULL), 0);
	assert_int_equal (enc_members_read (enc_view_of (env.data, env.len), &vkey.pub, &back, NULL), 0);
	assert_string_equal (back.members[0].user, "res1");
	assert_int_equal (members (3, NOW + 3600, "res1"), 0);
	assert_int_equal (members (3, NOW + 3600, "res2"), -ENC_ECONFLICT);
	assert_int_equal (members (2, NOW + 3600, "res1"), -ENC_ECONFLICT);
	assert_int_equal (members (4, NOW + 3600, "res2"), 0);
	assert_int_equal (members (5, NOW + 86401, "res1"), -ENC_EDENIED);
}

#define T(name) cmocka_unit_test_setup_teardown (name, world_ready, world_down)

int main (void)
{
	const struct CMUnitTest tests[] = {
		T (a_grant_for_an_enclave_releases_its_keys_to_this_boot), T (invariant_03_the_head_must_be_about_this_document),
		T (a_node_that_is_not_enrolled_gets_nothing), T (invariant_03_no_grant_without_a_live_lease),
		T (invariant_03_an_ended_lease_grants_nothing), T (invariant_03_no_key_to_a_node_that_is_not_attested_in_this_boot),
		T (invariant_03_a_node_that_differs_gets_nothing_and_the_row_is_named), T (generations_of_one_boot_go_forward),
		T (keys_must_be_named_be_the_enclaves_and_be_live),
		T (invariant_03_a_key_of_another_enclave_is_not_released), T (a_grant_for_general_carries_nothing_of_an_enclave),
		T (a_grant_for_the_airlock_loosens_nothing), T (quarantine_and_an_unfenced_enclave_get_no_grant),
		T (a_document_that_is_none_is_refused), T (a_member_document_is_signed_within_the_lease_and_versions_rise),
	};

	return cmocka_run_group_tests_name ("keyd grants", tests, NULL, NULL);
}
