#include "world.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/enctime.h"
#include "base/file.h"
#include "crypto/checkpoint.h"
#include "crypto/secmem.h"
#include "crypto/secretfd.h"
#include "crypto/tlog/proof.h"

struct world w;
int64_t wall = NOW, mono = 1;

static int64_t wall_s (void)
{
	return wall;
}

static int64_t mono_ns (void)
{
	return mono;
}

/* Not under /tmp: what keyd believes must lie in folders that nobody else can write. */
static void make_folder (void)
{
	(void) snprintf (w.folder, sizeof w.folder, "%s/keyd-test-XXXXXX", ENC_BINARY_DIR);
	assert_non_null (mkdtemp (w.folder));
}

static void write_log_key (void)
{
	const struct enc_file_attr attr = ENC_FILE_ATTR (0644);
	char text[ENC_VKEY_TEXT_MAX];

	w.log_key = enc_sign_key_new (ENC_SIGN_ED25519, NULL, NULL);
	w.identity = enc_sign_key_new (ENC_SIGN_ED25519, NULL, NULL);
	w.foreign = enc_sign_key_new (ENC_SIGN_ED25519, NULL, NULL);
	assert_int_equal (enc_vkey_init (&w.log, "lab/log", enc_sign_key_pub (w.log_key), NULL), 0);
	enc_vkey_format (&w.log, text);
	w.conf.log_vkey = enc_strf ("%s/log.vkey", w.folder);
	assert_int_equal (enc_file_write (w.conf.log_vkey, text, strlen (text), &attr, NULL), 0);
}

static void configure (void)
{
	struct enc_list *callers = &w.conf.callers;
	char *path = w.conf.log_vkey;

	assert_int_equal (enc_fields_defaults (enc_keyd_fields, &w.conf, NULL), 0);
	free (w.conf.state);
	free (w.conf.log_vkey);
	w.conf.state = enc_strdup (w.folder);
	w.conf.log_vkey = path;
	w.conf.argon2_mib = 8;
	w.caller.uid = CALLER;
	static const char *const ops[] = { "nonce", "certify", "baseline", "attest", "lease", "key", "grant", "members", "destroy", "lock" };
	for (size_t i = 0; i < ENC_ARRAY_LEN (ops); i++)
		assert_int_equal (enc_strs_add (&w.caller.ops, ops[i], NULL), 0);
	callers->v = &w.caller;
	callers->n = 1;
}

int world_up (void **state)
{
	(void) state;
	memset (&w, 0, sizeof w);
	wall = NOW;
	mono = 1;
	if (enc_secmem_init (1024 * 1024, NULL) < 0)
		return -1;
	make_folder ();
	write_log_key ();
	configure ();
	w.k.wall_s = wall_s;
	w.k.mono = mono_ns;
	assert_int_equal (enc_keyd_open (&w.k, &w.conf, &w.err), 0);
	assert_int_equal (enc_boot_key_new (&w.boot_key, NULL), 0);
	return 0;
}

int world_down (void **state)
{
	int folder = enc_open_dir (ENC_BINARY_DIR, NULL);

	(void) state;
	enc_json_free (w.answer);
	enc_keyd_done (&w.k);
	enc_sign_key_free (w.log_key);
	enc_sign_key_free (w.identity);
	enc_sign_key_free (w.foreign);
	enc_boot_key_free (w.boot_key);
	enc_strs_done (&w.caller.ops);
	w.conf.callers = (struct enc_list){ 0 };
	enc_fields_done (enc_keyd_fields, &w.conf);
	assert_int_equal (enc_remove_tree (folder, strrchr (w.folder, '/') + 1, (uid_t) -1, NULL, NULL), 0);
	close (folder);
	return enc_secmem_used () == 0 ? 0 : -1;
}

/* ---- requests ---- */

static char *quoted (const char *text)
{
	char *copy = enc_strdup (text);

	for (char *p = copy; *p; p++)
		if (*p == '\'')
			*p = '"';
	return copy;
}

struct enc_json *json_of (const char *fmt, ...)
{
	char text[8192];
	va_list args;

	va_start (args, fmt);
	assert_true (vsnprintf (text, sizeof text, fmt, args) < (int) sizeof text);
	va_end (args);
	char *json = quoted (text);
	struct enc_json *j = enc_json_parse (json, strlen (json), sizeof text, &w.err);
	if (!j)
		fail_msg ("%s: %s", w.err.text, json);
	free (json);
	return j;
}

int call_as (uid_t uid, struct enc_json *request, const struct enc_fds *fds)
{
	const struct enc_keyd_request req = { uid, request, fds };

	enc_json_free (w.answer);
	w.answer = NULL;
	enc_error_clear (&w.err);
	int rc = enc_keyd_handle (&w.k, &req, &w.answer, &w.err);
	enc_json_free (request);
	return rc;
}

int call (struct enc_json *request)
{
	return call_as (CALLER, request, NULL);
}

int with_passphrase (const char *op, const char *passphrase)
{
	struct enc_fds fds = { .n = 0 };

	if (passphrase) {
		fds.fd[0] = enc_secret_fd ((const uint8_t *) passphrase, strlen (passphrase), NULL);
		fds.n = 1;
	}
	int rc = call_as (0, json_of ("{'op':'%s'}", op), &fds);
	if (fds.n)
		close (fds.fd[0]);
	return rc;
}

static char *ring_slot (void)
{
	static char ring[16][ENC_ENVELOPE_MAX * 2];
	static unsigned at;

	return ring[at++ % 16];
}

const char *nonce (void)
{
	char *out = ring_slot ();

	assert_int_equal (call (json_of ("{'op':'nonce'}")), 0);
	memcpy (out, enc_json_get_str (w.answer, "nonce", ""), 33);
	return out;
}

const char *sha_hex (const void *data, size_t len)
{
	struct enc_hash hash;
	char *out = ring_slot ();

	enc_sha256 (data, len, &hash);
	enc_hash_hex (&hash, out);
	return out;
}

const char *b64 (const struct enc_buf *b)
{
	char *out = ring_slot ();

	assert_true (enc_b64_put (b->data, b->len, out, ENC_ENVELOPE_MAX * 2) >= 0);
	return out;
}

/* ---- the log ---- */

static struct enc_buf record_of (const char *head, const struct receipt_faults *faults)
{
	struct enc_buf body = ENC_BUF_INIT (65536);
	char time[ENC_TIME_SIZE];
	struct enc_json *record = json_of ("{'class':'node','action':'order','outcome':'%s','v':1,'idx':1,'origin':'lab/log','ts':'%s','head':%s}",
		faults->outcome ? faults->outcome : "intent", enc_time_format ((wall + faults->clock_off_s) * ENC_NS_S, false, time), head);

	assert_int_equal (enc_json_canonical (record, &body, NULL), 0);
	enc_json_free (record);
	return body;
}

/* A log of two records, ours the second. */
static void prove (const struct enc_buf *body, const struct receipt_faults *faults, char *out, size_t size)
{
	struct enc_proof proof = { .index = 1, .path = { .n = 1 } };
	struct enc_tree_head head = { .size = 2 };
	char checkpoint[ENC_CHECKPOINT_MAX];
	struct enc_hash leaf;

	enc_hash_leaf ("{}", 2, &proof.path.hash[0]);
	enc_hash_leaf (body->data, faults->other_leaf ? body->len - 1 : body->len, &leaf);
	enc_hash_node (&proof.path.hash[0], &leaf, &head.root);
	ssize_t n = enc_checkpoint_sign (&head, &w.log, faults->foreign_key ? w.foreign : w.log_key, checkpoint, sizeof checkpoint, NULL);
	assert_true (n > 0);
	proof.checkpoint = checkpoint;
	proof.checkpoint_len = (size_t) n;
	assert_true (enc_proof_format (&proof, out, size, NULL) > 0);
}

void add_receipt (struct enc_json *request, const char *head, const struct receipt_faults *faults)
{
	static const struct receipt_faults good;
	char full[4096], proof[ENC_PROOF_TEXT_MAX];
	const char *at = strstr (head, "NONCE");

	if (!faults)
		faults = &good;
	if (at)
		(void) snprintf (full, sizeof full, "%.*s%s%s", (int) (at - head), head, nonce (), at + 5);
	struct enc_buf body = record_of (at ? full : head, faults);
	prove (&body, faults, proof, sizeof proof);
	enc_buf_put_u8 (&body, 0);
	if (faults->altered)
		*strstr ((char *) body.data, "intent") = 'I';
	enc_json_set_str (request, "record", (char *) body.data);
	enc_json_set_str (request, "proof", proof);
	enc_buf_done (&body);
}

int ordered (struct enc_json *request, const char *head)
{
	add_receipt (request, head, NULL);
	return call (request);
}

/* ---- a node ---- */

struct enc_buf attestation (const struct attest_order *order)
{
	struct enc_attest_row rows[] = { { "kernel", { order->kernel ? order->kernel : 1 } }, { "privd", { 2 } } };
	struct enc_attestation a = { .boot_id = "0f0e0d0c-1111-2222-3333-444455556666", .time = (uint64_t) wall, .driver = "none", .rows = rows,
		.rows_n = 2 };
	struct enc_buf out = ENC_BUF_INIT (ENC_ENVELOPE_MAX);

	(void) snprintf (a.node, sizeof a.node, "%s", order->node ? order->node : "n1");
	assert_int_equal (enc_hex_fixed (order->boot ? order->boot : BOOT, a.boot, sizeof a.boot, NULL), 0);
	assert_int_equal (enc_hex_fixed (order->challenge ? order->challenge : nonce (), a.challenge, sizeof a.challenge, NULL), 0);
	memcpy (a.boot_key, enc_boot_key_point (w.boot_key), sizeof a.boot_key);
	assert_int_equal (enc_attestation_sign (&a, order->foreign ? w.foreign : w.identity, &out, NULL), 0);
	return out;
}

int attest (const struct attest_order *order)
{
	struct attest_order with = *order;

	if (!with.challenge)
		with.challenge = nonce ();
	struct enc_buf env = attestation (&with);
	int rc = call (json_of ("{'op':'attest','node':'n1','challenge':'%s','attestation':'%s'}", with.challenge, b64 (&env)));
	enc_buf_done (&env);
	return rc;
}

static void enrol (void)
{
	enc_auto (enc_cert_key) struct enc_cert_key *key = NULL;
	struct enc_buf csr = ENC_BUF_INIT (ENC_CERT_PEM_MAX);
	char *identity = enc_hex (enc_sign_key_pub (w.identity)->key, 32);
	char head[512];

	assert_int_equal (enc_cert_key_new (&key, NULL), 0);
	assert_int_equal (enc_cert_request (key, "n1", &csr, NULL), 0);
	(void) snprintf (head, sizeof head, "{'verb':'node.enroll','node':'n1','object':'%s','document':'%s','nonce':'NONCE'}", identity,
		sha_hex (csr.data, csr.len));
	enc_buf_put_u8 (&csr, 0);
	struct enc_json *request = json_of ("{'op':'certify','node':'n1','identity':'%s'}", identity);
	enc_json_set_str (request, "csr", (char *) csr.data);
	assert_int_equal (ordered (request, head), 0);
	free (identity);
	enc_buf_done (&csr);
}

static void set_baseline (void)
{
	struct enc_buf env = attestation (&(struct attest_order){ 0 });
	char head[512];

	(void) snprintf (head, sizeof head, "{'verb':'node.baseline','node':'n1','boot':'" BOOT "','document':'%s','nonce':'NONCE'}",
		sha_hex (env.data, env.len));
	assert_int_equal (ordered (json_of ("{'op':'baseline','node':'n1','attestation':'%s'}", b64 (&env)), head), 0);
	enc_buf_done (&env);
}

static void make_key (const char *id, const char *purpose)
{
	char head[512];

	(void) snprintf (head, sizeof head, "{'verb':'key.create','enclave':'" CXR "','object':'%s','nonce':'NONCE'}", id);
	assert_int_equal (ordered (json_of ("{'op':'key','enclave':'" CXR "','key':'%s','purpose':'%s','bytes':64}", id, purpose), head), 0);
}

int world_ready (void **state)
{
	char head[512];

	if (world_up (state) < 0)
		return -1;
	assert_int_equal (with_passphrase ("init", PASSPHRASE), 0);
	enrol ();
	set_baseline ();
	(void) snprintf (head, sizeof head, "{'verb':'enclave.lease','enclave':'" CXR "','object':'cxr','not_after':%lld,'nonce':'NONCE'}",
		(long long) NOW + 86400);
	assert_int_equal (ordered (json_of ("{'op':'lease','enclave':'" CXR "','name':'cxr','not_after':%lld}", (long long) NOW + 86400), head), 0);
	make_key (VOLUME, "volume");
	make_key (MUNGE, "munge");
	assert_int_equal (attest (&(struct attest_order){ 0 }), 0);
	return 0;
}
