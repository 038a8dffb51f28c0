/* The lendable list and the floor: see lend.h. */
#include "controller/schedd/lend.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hostlist.h"
#include "base/enc.h"

enum { LEND_FILE_MAX = 256 * 1024, LEND_LINES_MAX = 4096, LEND_NODES_MAX = 20000, LEND_FLOOR_MAX = 100000 };

static const char floor_head[] = "general never below ";
static const char *const floor_tails[] = { " schedulable nodes", " schedulable node" };

/* The line without comment and blanks around it; changed in place. */
static char *trimmed (char *line)
{
	char *hash = strchr (line, '#');
	char *end;

	if (hash)
		*hash = '\0';
	while (isspace ((unsigned char) *line))
		line++;
	end = line + strlen (line);
	while (end > line && isspace ((unsigned char) end[-1]))
		*--end = '\0';
	return line;
}

static int parse_floor (const char *text, unsigned *ret, struct enc_error *err)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (floor_tails); i++) {
		char number[16];
		size_t len = strlen (text), tail = strlen (floor_tails[i]);
		uint64_t v;
		int rc;

		if (!enc_ends (text, floor_tails[i]) || len - tail >= sizeof number)
			continue;
		memcpy (number, text, len - tail);
		number[len - tail] = '\0';
		if ((rc = enc_parse_u64 (number, 0, LEND_FLOOR_MAX, &v, err)) < 0)
			return rc;
		*ret = (unsigned) v;
		return 0;
	}
	return enc_fail (err, ENC_EINVAL, "a floor reads \"general never below N schedulable nodes\"");
}

static int parse_line (const char *line, struct enc_lend *lend, bool *have_floor, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs hosts = { 0 };
	int rc;

	if (enc_starts (line, "general ")) {
		if (*have_floor)
			return enc_fail (err, ENC_EINVAL, "a second floor");
		if (!enc_starts (line, floor_head))
			return enc_fail (err, ENC_EINVAL, "a floor reads \"general never below N schedulable nodes\"");
		*have_floor = true;
		return parse_floor (line + sizeof floor_head - 1, &lend->floor, err);
	}
	if ((rc = enc_hostlist_expand (line, 0, &hosts, err)) < 0)
		return rc;
	if (lend->nodes.n + hosts.n > LEND_NODES_MAX)
		return enc_fail (err, ENC_ELIMIT, "more than %d nodes", LEND_NODES_MAX);
	for (size_t i = 0; i < hosts.n; i++)
		if ((rc = enc_strs_add (&lend->nodes, hosts.v[i], err)) < 0)
			return rc;
	return 0;
}

int enc_lend_parse (const char *text, struct enc_lend *ret, struct enc_error *err)
{
	enc_auto_free char *copy = enc_strdup (text);
	enc_auto_done (enc_lend_done) struct enc_lend lend = { .floor = 1 };
	bool have_floor = false;
	unsigned number = 0;
	char *rest = copy;
	char *line;
	int rc;

	if (!copy)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	while ((line = strsep (&rest, "\n"))) {
		if (++number > LEND_LINES_MAX)
			return enc_fail (err, ENC_ELIMIT, "more than %d lines", LEND_LINES_MAX);
		line = trimmed (line);
		if (*line && (rc = parse_line (line, &lend, &have_floor, err)) < 0)
			return enc_wrap (err, rc, "line %u", number);
	}
	*ret = lend;
	lend = (struct enc_lend){ 0 };
	return 0;
}

int enc_lend_load (const char *path, struct enc_lend *ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (LEND_FILE_MAX + 1);
	enc_auto_free char *text = NULL;
	int rc;

	rc = enc_file_read_trusted (path, LEND_FILE_MAX, &buf, err);
	if (rc == -ENC_ENOTFOUND)
		return enc_error_next (err, enc_fail (err, ENC_ENOTFOUND, "no nodes may be lent: %s does not exist", path),
				       "write the host list of lendable nodes to %s as root", path);
	if (rc < 0)
		return rc;
	if (buf.len && memchr (buf.data, '\0', buf.len))
		return enc_fail (err, ENC_EINVAL, "%s: has a NUL byte", path);
	text = enc_buf_take_str (&buf);
	if (!text)
		return enc_fail (err, ENC_ENOMEM, "no memory");
	return enc_wrap (err, enc_lend_parse (text, ret, err), "%s", path);
}

void enc_lend_done (struct enc_lend *lend)
{
	enc_strs_done (&lend->nodes);
	lend->floor = 0;
}

static int by_name (const void *key, const void *item)
{
	return strcmp (key, ((const struct enc_lend_node *) item)->name);
}

int enc_lend_listed (const struct enc_lend *lend, const struct enc_lend_node *nodes, size_t n, const struct enc_strs *want,
		     struct enc_error *err)
{
	for (size_t i = 0; i < want->n; i++)
		if (!n || !bsearch (want->v[i], nodes, n, sizeof *nodes, by_name))
			return enc_error_object (err, enc_fail (err, ENC_ENOTFOUND, "Slurm has no node %s", want->v[i]), "%s", want->v[i]);
	for (size_t i = 0; i < want->n; i++)
		if (!enc_strs_has (&lend->nodes, want->v[i]))
			return enc_error_object (err, enc_fail (err, ENC_EDENIED, "node %s is not one that the site lends", want->v[i]), "%s",
						 want->v[i]);
	return 0;
}

int enc_lend_check (const struct enc_lend *lend, const struct enc_lend_node *nodes, size_t n, const struct enc_strs *want,
		    struct enc_error *err)
{
	size_t left = 0, taken = 0;
	int rc;

	if ((rc = enc_lend_listed (lend, nodes, n, want, err)) < 0)
		return rc;
	for (size_t i = 0; i < n; i++) {
		if (!nodes[i].schedulable)
			continue;
		if (enc_strs_has (want, nodes[i].name))
			taken++;
		else
			left++;
	}
	/* What takes nothing away is allowed also below the floor: the pool may have shrunk by itself meanwhile. */
	if (taken && left < lend->floor)
		return enc_error_next (err,
				       enc_fail (err, ENC_EBUSY, "the general pool would keep %zu schedulable nodes, and the site's floor is %u", left,
						 lend->floor),
				       "ask for fewer nodes, or wait until others are back");
	return 0;
}
