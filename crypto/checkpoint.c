#include "crypto/checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "base/enc.h"

ssize_t enc_checkpoint_sign (const struct enc_tree_head *head, const struct enc_vkey *vkey,
	const struct enc_sign_key *key, char *out, size_t size, struct enc_error *err)
{
	char text[ENC_NOTE_NAME_MAX + 96];
	char root[ENC_HASH_B64_SIZE];

	enc_hash_b64 (&head->root, root);
	(void)snprintf (text, sizeof (text), "%s\n%llu\n%s\n", vkey->name, (unsigned long long)head->size, root);
	return enc_note_sign (text, vkey, key, out, size, err);
}

/* Take the next line, without its newline. */
static int next_line (const char **p, const char *end, const char **line, size_t *len)
{
	const char *nl = *p < end ? memchr (*p, '\n', (size_t)(end - *p)) : NULL;

	if (!nl || nl == *p)
		return -1;
	*line = *p;
	*len = (size_t)(nl - *p);
	*p = nl + 1;
	return 0;
}

static int parse_size (const char *s, size_t len, uint64_t *ret)
{
	uint64_t v = 0;

	if (len == 0 || len > 19 || (s[0] == '0' && len > 1))
		return -1;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -1;
		v = v * 10 + (uint64_t)(s[i] - '0');
	}
	if (v > ENC_TREE_SIZE_MAX)
		return -1;
	*ret = v;
	return 0;
}

int enc_checkpoint_open (
	const char *bytes, size_t len, const struct enc_vkey *vkey, struct enc_tree_head *ret, struct enc_error *err)
{
	struct enc_tree_head head;
	struct enc_note note;
	const char *p, *end, *origin, *line;
	size_t origin_len, line_len;
	int rc;

	if ((rc = enc_note_parse (bytes, len, &note, err)) < 0)
		return rc;
	p = note.text;
	end = note.text + note.text_len;
	if (next_line (&p, end, &origin, &origin_len) < 0 || next_line (&p, end, &line, &line_len) < 0 ||
		parse_size (line, line_len, &head.size) < 0)
		return enc_fail (err, ENC_EINVAL, "not a checkpoint: bad origin or size");
	if (next_line (&p, end, &line, &line_len) < 0 || enc_hash_from_b64 (line, line_len, &head.root) < 0)
		return enc_fail (err, ENC_EINVAL, "not a checkpoint: bad root");
	while (p < end)
		if (next_line (&p, end, &line, &line_len) < 0)
			return enc_fail (err, ENC_EINVAL, "not a checkpoint: empty extension line");
	if (origin_len != strlen (vkey->name) || memcmp (origin, vkey->name, origin_len) != 0)
		return enc_fail (err, ENC_ENOTFOUND, "checkpoint of another log than %s", vkey->name);
	if ((rc = enc_note_check (&note, vkey, err)) < 0)
		return rc;
	*ret = head;
	return 0;
}
