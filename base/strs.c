#include <string.h>
#include "base/str.h"
#include "base/enc.h"

int enc_strs_add (struct enc_strs *l, const char *s, struct enc_error *err)
{
	enc_auto_free char *copy = strdup (s);
	/* Grow at powers of two, counting the NULL at the end. */
	bool full = l->n == 0 || ((l->n + 1) & l->n) == 0;
	if (copy && full) {
		char **v = realloc (l->v, (l->n ? 2 * (l->n + 1) : 2) * sizeof (*v));
		if (v)
			l->v = v;
		full = !v;
	} else {
		full = false;
	}
	if (!copy || full)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	l->v[l->n++] = ENC_TAKE (copy);
	l->v[l->n] = NULL;
	return 0;
}

int enc_strs_copy (struct enc_strs *to, const struct enc_strs *from, struct enc_error *err)
{
	struct enc_strs fresh = { 0 };
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < from->n; i++)
		rc = enc_strs_add (&fresh, from->v[i], err);
	if (rc < 0) {
		enc_strs_done (&fresh);
		return rc;
	}
	enc_strs_done (to);
	*to = fresh;
	return 0;
}

static size_t index_of (const struct enc_strs *l, const char *s)
{
	size_t i = 0;
	while (i < l->n && strcmp (l->v[i], s) != 0)
		i++;
	return i;
}

bool enc_strs_has (const struct enc_strs *l, const char *s)
{
	return s && index_of (l, s) < l->n;
}

bool enc_strs_remove (struct enc_strs *l, const char *s)
{
	size_t i = s ? index_of (l, s) : l->n;
	if (i == l->n)
		return false;
	free (l->v[i]);
	memmove (&l->v[i], &l->v[i + 1], (l->n - i) * sizeof (*l->v)); /* with the NULL */
	l->n--;
	return true;
}

static int by_text (const void *a, const void *b)
{
	return strcmp (*(char *const *) a, *(char *const *) b);
}

void enc_strs_sort (struct enc_strs *l)
{
	if (l->n > 1)
		qsort (l->v, l->n, sizeof (*l->v), by_text);
}

char *enc_strs_join (const struct enc_strs *l, const char *between)
{
	struct enc_buf b = ENC_BUF_INIT (SIZE_MAX / 4);
	for (size_t i = 0; i < l->n; i++)
		enc_buf_putf (&b, "%s%s", i ? between : "", l->v[i]);
	char *s = enc_buf_take_str (&b);
	enc_buf_done (&b);
	return s;
}

int enc_strs_split (struct enc_strs *l, const char *s, char at, size_t max, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs fresh = { 0 };
	for (;;) {
		const char *end = strchrnul (s, at);
		if (end == s)
			return enc_fail (err, ENC_EINVAL, "an empty item in the list");
		if (fresh.n == max)
			return enc_fail (err, ENC_ELIMIT, "more than %zu items in the list", max);
		enc_auto_free char *part = strndup (s, (size_t) (end - s));
		if (!part)
			return enc_fail (err, ENC_ENOMEM, "out of memory");
		int rc = enc_strs_add (&fresh, part, err);
		if (rc < 0)
			return rc;
		if (!*end)
			break;
		s = end + 1;
	}
	for (size_t i = 0; i < fresh.n; i++) {
		int rc = enc_strs_add (l, fresh.v[i], err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

void enc_strs_done (struct enc_strs *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		free (l->v[i]);
	free (l->v);
	l->v = NULL;
	l->n = 0;
}
