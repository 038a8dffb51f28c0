#include "crypto/tlog/proof.h"

#include <stdio.h>
#include <string.h>

#include "base/enc.h"

static const char magic[] = "c2sp.org/tlog-proof@v1\n";

ssize_t enc_proof_format (const struct enc_proof *proof, char *out, size_t size, struct enc_error *err)
{
	int n = snprintf (out, size, "%sindex %llu\n", magic, (unsigned long long)proof->index);
	size_t used = n > 0 ? (size_t)n : size;

	for (size_t i = 0; i < proof->path.n && used + ENC_HASH_B64_SIZE < size; i++) {
		enc_hash_b64 (&proof->path.hash[i], out + used);
		used += ENC_HASH_B64_SIZE - 1;
		out[used++] = '\n';
	}
	if (used + 2 + proof->checkpoint_len > size)
		return enc_fail (err, ENC_ELIMIT, "proof does not fit");
	out[used++] = '\n';
	memcpy (out + used, proof->checkpoint, proof->checkpoint_len);
	used += proof->checkpoint_len;
	out[used] = '\0';
	return (ssize_t)used;
}

static int parse_index (const char *s, size_t len, uint64_t *ret)
{
	uint64_t v = 0;

	if (len < 7 || len > 6 + 19 || memcmp (s, "index ", 6) != 0 || (s[6] == '0' && len > 7))
		return -1;
	for (size_t i = 6; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -1;
		v = v * 10 + (uint64_t)(s[i] - '0');
	}
	*ret = v;
	return 0;
}

/* The length of the line at `p` without its newline, -1 when there is none. */
static ssize_t line_len (const char *p, const char *end)
{
	const char *nl = p < end ? memchr (p, '\n', (size_t)(end - p)) : NULL;

	return nl ? nl - p : -1;
}

/* The hash lines up to the empty line. Returns the position after it, or NULL. */
static const char *parse_path (const char *p, const char *end, struct enc_path *path)
{
	for (;;) {
		ssize_t len = line_len (p, end);

		if (len == 0)
			return p + 1;
		if (len < 0 || path->n == ENC_TREE_LEVELS ||
			enc_hash_from_b64 (p, (size_t)len, &path->hash[path->n]) < 0)
			return NULL;
		path->n++;
		p += len + 1;
	}
}

int enc_proof_parse (const char *text, size_t len, struct enc_proof *ret, struct enc_error *err)
{
	struct enc_proof proof = { 0 };
	const char *end = text + len;
	const char *p = text + sizeof (magic) - 1;
	ssize_t n;

	if (len > ENC_PROOF_MAX || len < sizeof (magic) || memcmp (text, magic, sizeof (magic) - 1) != 0)
		return enc_fail (err, ENC_EINVAL, "not a tlog-proof");
	n = line_len (p, end);
	if (n > 6 && memcmp (p, "extra ", 6) == 0) {
		p += n + 1;
		n = line_len (p, end);
	}
	if (n < 0 || parse_index (p, (size_t)n, &proof.index) < 0)
		return enc_fail (err, ENC_EINVAL, "tlog-proof: bad index line");
	p = parse_path (p + n + 1, end, &proof.path);
	if (!p || p == end)
		return enc_fail (err, ENC_EINVAL, "tlog-proof: bad hash line or no checkpoint");
	proof.checkpoint = p;
	proof.checkpoint_len = (size_t)(end - p);
	*ret = proof;
	return 0;
}

int enc_proof_check (const struct enc_proof *proof, const struct enc_hash *leaf, const struct enc_vkey *vkey,
	struct enc_tree_head *ret_head, struct enc_error *err)
{
	struct enc_tree_head head;
	int rc = enc_checkpoint_open (proof->checkpoint, proof->checkpoint_len, vkey, &head, err);

	if (rc < 0)
		return rc;
	if (enc_tree_check (proof->index, head.size, leaf, &proof->path, &head.root) < 0)
		return enc_fail (
			err, ENC_EINTEGRITY, "record is not the one at index %llu", (unsigned long long)proof->index);
	if (ret_head)
		*ret_head = head;
	return 0;
}
