#include "crypto/tlog/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/enc.h"

#define WORDS (ENC_POLICY_WITNESSES + ENC_POLICY_GROUPS + 3)
#define NONE (-1)

/* Members of groups, and the quorum, are one number: witnesses first, groups after them. */
#define GROUP(i) ((int)ENC_POLICY_WITNESSES + (int)(i))

struct group {
	char name[ENC_POLICY_NAME];
	unsigned k;
	uint64_t members; /* bit by number */
};

struct enc_tlog_policy {
	size_t n_logs, n_witnesses, n_groups;
	struct enc_vkey logs[ENC_POLICY_LOGS];
	struct enc_tlog_witness witnesses[ENC_POLICY_WITNESSES];
	struct group groups[ENC_POLICY_GROUPS];
	uint64_t taken; /* members of some group */
	int quorum;	/* number, or NONE */
	int has_quorum;
};

struct words {
	size_t n;
	struct {
		const char *at;
		size_t len;
	} w[WORDS];
};

static int split (const char *line, size_t len, struct words *ret)
{
	const char *end = line + len;

	ret->n = 0;
	while (line < end) {
		const char *start;

		if (*line == ' ' || *line == '\t') {
			line++;
			continue;
		}
		if (ret->n == WORDS)
			return -1;
		for (start = line; line < end && *line != ' ' && *line != '\t'; line++)
			if ((unsigned char)*line < 0x20 || *line == 0x7f)
				return -1;
		ret->w[ret->n].at = start;
		ret->w[ret->n++].len = (size_t)(line - start);
	}
	return 0;
}

static int word_is (const struct words *words, size_t i, const char *text)
{
	return i < words->n && words->w[i].len == strlen (text) && memcmp (words->w[i].at, text, words->w[i].len) == 0;
}

static int copy_word (const struct words *words, size_t i, char *out, size_t size)
{
	if (i >= words->n || words->w[i].len >= size)
		return -1;
	memcpy (out, words->w[i].at, words->w[i].len);
	out[words->w[i].len] = '\0';
	return 0;
}

static int same_key (const struct enc_vkey *a, const struct enc_vkey *b)
{
	return a->pub.len == b->pub.len && memcmp (a->pub.key, b->pub.key, a->pub.len) == 0;
}

static int find (const struct enc_tlog_policy *p, const struct words *words, size_t i)
{
	for (size_t k = 0; k < p->n_witnesses; k++)
		if (word_is (words, i, p->witnesses[k].name))
			return (int)k;
	for (size_t k = 0; k < p->n_groups; k++)
		if (word_is (words, i, p->groups[k].name))
			return GROUP (k);
	return NONE;
}

/* ---- lines ---- */

static int add_log (struct enc_tlog_policy *p, const struct words *words, struct enc_error *err)
{
	struct enc_vkey vkey;
	int rc;

	if (words->n < 2 || words->n > 3 || p->n_logs == ENC_POLICY_LOGS)
		return enc_fail (err, ENC_EINVAL, "log VKEY [URL], %u at most", ENC_POLICY_LOGS);
	if ((rc = enc_vkey_parse (words->w[1].at, words->w[1].len, &vkey, err)) < 0)
		return rc;
	if (vkey.pub.alg == ENC_COSIGN_ED25519)
		return enc_fail (err, ENC_EINVAL, "this is the key of a witness");
	for (size_t i = 0; i < p->n_logs; i++)
		if (same_key (&p->logs[i], &vkey))
			return enc_fail (err, ENC_EINVAL, "this log is there twice");
	p->logs[p->n_logs++] = vkey;
	return 0;
}

static int add_witness (struct enc_tlog_policy *p, const struct words *words, struct enc_error *err)
{
	struct enc_tlog_witness *w = &p->witnesses[p->n_witnesses];
	int rc;

	if (words->n < 3 || words->n > 4 || p->n_witnesses == ENC_POLICY_WITNESSES)
		return enc_fail (err, ENC_EINVAL, "witness NAME VKEY [URL], %u at most", ENC_POLICY_WITNESSES);
	if (word_is (words, 1, "none") || find (p, words, 1) != NONE || copy_word (words, 1, w->name, sizeof (w->name)) < 0 ||
		(words->n == 4 && copy_word (words, 3, w->url, sizeof (w->url)) < 0))
		return enc_fail (err, ENC_EINVAL, "bad name or URL, or a name that is there already");
	if ((rc = enc_vkey_parse (words->w[2].at, words->w[2].len, &w->vkey, err)) < 0)
		return rc;
	if (w->vkey.pub.alg != ENC_COSIGN_ED25519 || w->vkey.pub.len != 32)
		return enc_fail (err, ENC_EINVAL, "a witness has a key of type 4 (Ed25519 cosignature)");
	for (size_t i = 0; i < p->n_witnesses; i++)
		if (same_key (&p->witnesses[i].vkey, &w->vkey))
			return enc_fail (err, ENC_EINVAL, "this witness is there twice");
	p->n_witnesses++;
	return 0;
}

static int threshold (const struct words *words, unsigned members, unsigned *ret)
{
	unsigned k = 0;

	if (word_is (words, 2, "all") || word_is (words, 2, "any")) {
		*ret = word_is (words, 2, "all") ? members : 1;
		return 0;
	}
	for (size_t i = 0; i < words->w[2].len; i++) {
		char c = words->w[2].at[i];

		if (c < '0' || c > '9' || (i == 0 && c == '0') || i > 2)
			return -1;
		k = k * 10 + (unsigned)(c - '0');
	}
	*ret = k;
	return k >= 1 && k <= members ? 0 : -1;
}

static int add_group (struct enc_tlog_policy *p, const struct words *words, struct enc_error *err)
{
	struct group *g = &p->groups[p->n_groups];

	if (words->n < 4 || p->n_groups == ENC_POLICY_GROUPS)
		return enc_fail (err, ENC_EINVAL, "group NAME all|any|K NAME..., %u at most", ENC_POLICY_GROUPS);
	if (word_is (words, 1, "none") || find (p, words, 1) != NONE || copy_word (words, 1, g->name, sizeof (g->name)) < 0)
		return enc_fail (err, ENC_EINVAL, "bad name, or a name that is there already");
	if (threshold (words, (unsigned)words->n - 3, &g->k) < 0)
		return enc_fail (err, ENC_EINVAL, "the number of members that is asked for");
	for (size_t i = 3; i < words->n; i++) {
		int member = find (p, words, i);

		if (member == NONE || (p->taken & (UINT64_C (1) << member)))
			return enc_fail (err, ENC_EINVAL, "member %zu is not known, or is in a group already", i - 2);
		g->members |= UINT64_C (1) << member;
		p->taken |= UINT64_C (1) << member;
	}
	p->n_groups++;
	return 0;
}

static int set_quorum (struct enc_tlog_policy *p, const struct words *words, struct enc_error *err)
{
	if (words->n != 2 || p->has_quorum)
		return enc_fail (err, ENC_EINVAL, "one line: quorum NAME|none");
	p->quorum = word_is (words, 1, "none") ? NONE : find (p, words, 1);
	if (p->quorum == NONE && !word_is (words, 1, "none"))
		return enc_fail (err, ENC_EINVAL, "quorum of what is not known");
	p->has_quorum = 1;
	return 0;
}

static const struct {
	const char *word;
	int (*fn) (struct enc_tlog_policy *, const struct words *, struct enc_error *);
} kinds[] = { { "log", add_log }, { "witness", add_witness }, { "group", add_group }, { "quorum", set_quorum } };

static int take_line (struct enc_tlog_policy *p, const char *line, size_t len, struct enc_error *err)
{
	struct words words;

	if (split (line, len, &words) < 0)
		return enc_fail (err, ENC_EINVAL, "control characters, or too many words");
	if (words.n == 0 || words.w[0].at[0] == '#')
		return 0;
	for (size_t i = 0; i < ENC_ARRAY_LEN (kinds); i++)
		if (word_is (&words, 0, kinds[i].word))
			return kinds[i].fn (p, &words, err);
	return enc_fail (err, ENC_EINVAL, "a line begins with log, witness, group or quorum");
}

struct enc_tlog_policy *enc_tlog_policy_parse (const char *text, size_t len, struct enc_error *err)
{
	enc_auto (enc_tlog_policy) struct enc_tlog_policy *p = calloc (1, sizeof (*p));
	const char *end = text + len;
	unsigned line = 0;

	if (!p || len > ENC_POLICY_MAX) {
		(void)enc_fail (err, p ? ENC_ELIMIT : ENC_ENOMEM, p ? "policy is too long" : "out of memory");
		return NULL;
	}
	while (text < end) {
		const char *nl = memchr (text, '\n', (size_t)(end - text));
		int rc = nl ? take_line (p, text, (size_t)(nl - text), err) : enc_fail (err, ENC_EINVAL, "no newline at the end");

		line++;
		if (rc < 0) {
			(void)enc_wrap (err, rc, "witness policy, line %u", line);
			return NULL;
		}
		text = nl + 1;
	}
	if (!p->has_quorum) {
		(void)enc_fail (err, ENC_EINVAL, "witness policy without a quorum line");
		return NULL;
	}
	return ENC_TAKE (p);
}

void enc_tlog_policy_free (struct enc_tlog_policy *policy)
{
	free (policy);
}

/* ---- asking ---- */

const struct enc_vkey *enc_tlog_policy_log (const struct enc_tlog_policy *p, size_t i)
{
	return i < p->n_logs ? &p->logs[i] : NULL;
}

size_t enc_tlog_policy_witnesses (const struct enc_tlog_policy *p)
{
	return p->n_witnesses;
}

const struct enc_tlog_witness *enc_tlog_policy_witness (const struct enc_tlog_policy *p, size_t i)
{
	return &p->witnesses[i];
}

/* Groups name only what stands before them: one pass in order settles them all. */
static int met (const struct enc_tlog_policy *p, const struct enc_tlog_quorum *q, uint64_t since)
{
	uint64_t have = 0;

	if (p->quorum == NONE)
		return 1;
	for (size_t i = 0; i < p->n_witnesses; i++)
		if (q->times[i] > 0 && q->times[i] >= since)
			have |= UINT64_C (1) << i;
	for (size_t i = 0; i < p->n_groups; i++)
		if ((unsigned)__builtin_popcountll (have & p->groups[i].members) >= p->groups[i].k)
			have |= UINT64_C (1) << GROUP (i);
	return have >> p->quorum & 1;
}

/* The cheapest members of each group, in the order in which groups may refer to each other. */
unsigned enc_tlog_policy_required (const struct enc_tlog_policy *p)
{
	unsigned cost[ENC_POLICY_WITNESSES + ENC_POLICY_GROUPS];

	if (p->quorum == NONE)
		return 0;
	for (size_t i = 0; i < ENC_POLICY_WITNESSES; i++)
		cost[i] = 1;
	for (size_t i = 0; i < p->n_groups; i++) {
		uint64_t left = p->groups[i].members;

		cost[GROUP (i)] = 0;
		for (unsigned k = 0; k < p->groups[i].k; k++) {
			int best = __builtin_ctzll (left);

			for (int m = 0; m < GROUP (i); m++)
				if ((left >> m & 1) && cost[m] < cost[best])
					best = m;
			cost[GROUP (i)] += cost[best];
			left &= ~(UINT64_C (1) << best);
		}
	}
	return cost[p->quorum];
}

void enc_tlog_policy_weigh (const struct enc_tlog_policy *p, struct enc_tlog_quorum *q)
{
	q->cosigned = 0;
	q->time = 0;
	for (size_t i = 0; i < p->n_witnesses; i++)
		q->cosigned += q->times[i] > 0;
	q->met = met (p, q, 0);
	for (size_t i = 0; q->met && i < p->n_witnesses; i++)
		if (q->times[i] > q->time && met (p, q, q->times[i]))
			q->time = q->times[i];
}

int enc_tlog_policy_judge (
	const struct enc_tlog_policy *p, const struct enc_note *note, struct enc_tlog_quorum *ret, struct enc_error *err)
{
	struct enc_tlog_quorum q = { 0 };

	for (size_t i = 0; i < p->n_witnesses; i++) {
		int rc = enc_cosign_check (note, &p->witnesses[i].vkey, &q.times[i], err);

		if (rc < 0 && rc != -ENC_ENOTFOUND)
			return rc;
	}
	if (err)
		enc_error_clear (err);
	enc_tlog_policy_weigh (p, &q);
	*ret = q;
	return 0;
}
