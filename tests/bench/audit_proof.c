/* Sizes and times of proofs: `audit_proof` prints one JSON object. The tree has 10^10 leaves in name: one path through it is made, and its
 * root follows from the path, by the rule of RFC 9162 section 2.1.3.2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "crypto/cosignature.h"
#include "crypto/receipt.h"
#include "crypto/tlog/policy.h"
#include "base/cleanup.h"
#include "base/enc.h"

#define SIZE UINT64_C (10000000000)
#define INDEX UINT64_C (6172839455)
#define ROUNDS 20000
#define FILES 300

/* Time of this process on its core: others on the machine do not count. */
static double now_us (void)
{
	struct timespec ts;

	(void)clock_gettime (CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

/* Hash upwards with made-up siblings until the path is as long as it must be. */
static void climb (const struct enc_hash *leaf, struct enc_path *path, struct enc_hash *root)
{
	uint64_t fn = INDEX, sn = SIZE - 1;

	*root = *leaf;
	for (path->n = 0; sn != 0; fn >>= 1, sn >>= 1) {
		struct enc_hash *p = &path->hash[path->n];
		char text[32];
		int n = snprintf (text, sizeof (text), "sibling %zu", path->n);

		if (!(fn & 1) && fn == sn)
			continue; /* no sibling on this level */
		enc_sha256 (text, (size_t)n, p);
		path->n++;
		if (fn & 1)
			enc_hash_node (p, root, root);
		else
			enc_hash_node (root, p, root);
	}
}

struct world {
	struct enc_vkey log, witness[2];
	struct enc_path path;
	struct enc_tree_head head;
	struct enc_hash leaf;
	char record[512];
	int record_len;
	char proof[ENC_PROOF_TEXT_MAX];
	size_t proof_len;
	struct enc_tlog_policy *policy;
};

static void must (int ok, const char *what)
{
	if (!ok) {
		(void)fprintf (stderr, "audit_proof: %s\n", what);
		exit (1);
	}
}

static void make (struct world *w)
{
	static const char *const names[] = { "witness-1.example/bench", "witness-2.example/bench" };
	struct enc_sign_key *key = enc_sign_key_new (ENC_SIGN_ED25519, NULL, NULL), *other[2];
	char note[4096], text[4096] = "", vkey[ENC_VKEY_TEXT_MAX];
	struct enc_proof proof = { .index = INDEX };
	struct enc_note parsed;
	ssize_t len, n;

	must (key && enc_vkey_init (&w->log, "log.example/bench", enc_sign_key_pub (key), NULL) == 0, "key");
	w->record_len = snprintf (w->record, sizeof (w->record), "{\"idx\":%llu,\"origin\":\"log.example/bench\",\"pad\":\"%0190d\",\"v\":1}",
		(unsigned long long)INDEX, 7);
	enc_hash_leaf (w->record, (size_t)w->record_len, &w->leaf);
	climb (&w->leaf, &w->path, &w->head.root);
	w->head.size = SIZE;
	must ((len = enc_checkpoint_sign (&w->head, &w->log, key, note, sizeof (note), NULL)) > 0, "checkpoint");
	for (int i = 0; i < 2; i++) {
		other[i] = enc_sign_key_new (ENC_SIGN_ED25519, NULL, NULL);
		must (other[i] && enc_cosign_vkey (&w->witness[i], names[i], other[i], NULL) == 0 &&
				enc_note_parse (note, (size_t)len, &parsed, NULL) == 0 &&
				(n = enc_cosign (&parsed, &w->witness[i], other[i], 1700000000, note + len, sizeof (note) - (size_t)len, NULL)) > 0,
			"cosignature");
		len += n;
		enc_vkey_format (&w->witness[i], vkey);
		(void)snprintf (text + strlen (text), sizeof (text) - strlen (text), "witness w%d %s\n", i, vkey);
	}
	(void)snprintf (text + strlen (text), sizeof (text) - strlen (text), "group both all w0 w1\nquorum both\n");
	must ((w->policy = enc_tlog_policy_parse (text, strlen (text), NULL)) != NULL, "policy");
	proof.path = w->path;
	proof.checkpoint = note;
	proof.checkpoint_len = (size_t)len;
	must ((n = enc_proof_format (&proof, w->proof, sizeof (w->proof), NULL)) > 0, "proof");
	w->proof_len = (size_t)n;
}

static void check_file (const struct world *w)
{
	struct enc_tlog_quorum quorum;
	struct enc_receipt receipt;
	struct enc_proof proof;
	struct enc_note note;

	must (enc_receipt_check (w->proof, w->proof_len, w->record, (size_t)w->record_len, &w->log, &receipt, NULL) == 0 &&
			enc_proof_parse (w->proof, w->proof_len, &proof, NULL) == 0 &&
			enc_note_parse (proof.checkpoint, proof.checkpoint_len, &note, NULL) == 0 &&
			enc_tlog_policy_judge (w->policy, &note, &quorum, NULL) == 0 && quorum.met,
		"the proof does not hold");
}

int main (void)
{
	static struct world w;
	double start, path_us, file_us;

	make (&w);
	start = now_us ();
	for (int i = 0; i < ROUNDS; i++)
		must (enc_tree_check (INDEX, SIZE, &w.leaf, &w.path, &w.head.root) == 0, "the path does not hold");
	path_us = (now_us () - start) / ROUNDS;
	start = now_us ();
	for (int i = 0; i < FILES; i++)
		check_file (&w);
	file_us = (now_us () - start) / FILES;
	(void)printf ("{\"proof_bytes\":%zu,\"proof_file_bytes\":%zu,\"path_check_us\":%.2f,\"proof_file_check_us\":%.1f}\n",
		w.path.n * ENC_HASH_SIZE, w.proof_len, path_us, file_us);
	return 0;
}
