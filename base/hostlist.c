#include <stdio.h>
#include <string.h>
#include "base/hostlist.h"
#include "base/enc.h"

#define NUMBER_MAX 9 /* digits in a bracket */

struct expansion {
	struct enc_strs hosts;
	size_t max;
};

/* Doubles are removed at the end in one pass, so that a long list stays cheap. */
static int add_host (struct expansion *x, const char *name, struct enc_error *err)
{
	if (!enc_node_name_ok (name))
		return enc_fail (err, ENC_EINVAL, "not a node name in the host list");
	if (x->hosts.n >= x->max)
		return enc_fail (err, ENC_ELIMIT, "more than %zu hosts in the list", x->max);
	return enc_strs_add (&x->hosts, name, err);
}

static int add_range (struct expansion *x, const char *prefix, const char *from, const char *to, const char *suffix,
		      struct enc_error *err)
{
	size_t width = strlen (from);
	char *end;
	unsigned long lo = strtoul (from, &end, 10), hi = strtoul (to, &end, 10);
	if (hi < lo || strlen (to) < width)
		return enc_fail (err, ENC_EINVAL, "a range that runs backwards in the host list");
	if (hi - lo >= x->max)
		return enc_fail (err, ENC_ELIMIT, "more than %zu hosts in the list", x->max);
	for (unsigned long n = lo; n <= hi; n++) {
		char name[80];
		int len = snprintf (name, sizeof (name), "%s%0*lu%s", prefix, (int) width, n, suffix);
		if (len < 0 || (size_t) len >= sizeof (name))
			return enc_fail (err, ENC_EINVAL, "not a node name in the host list");
		int rc = add_host (x, name, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static size_t digits_at (const char *s)
{
	return strspn (s, "0123456789");
}

/* The inside of a bracket: "1-3,07,9". */
static int add_bracket (struct expansion *x, const char *prefix, const char *inside, const char *suffix, struct enc_error *err)
{
	for (const char *at = inside;; at++) {
		char from[NUMBER_MAX + 1] = "", to[NUMBER_MAX + 1] = "";
		size_t n = digits_at (at), m = 0;
		if (n == 0 || n > NUMBER_MAX)
			return enc_fail (err, ENC_EINVAL, "a bad number in the host list");
		memcpy (from, at, n);
		at += n;
		if (*at == '-') {
			m = digits_at (++at);
			if (m == 0 || m > NUMBER_MAX)
				return enc_fail (err, ENC_EINVAL, "a bad range in the host list");
			memcpy (to, at, m);
			at += m;
		}
		int rc = add_range (x, prefix, from, m ? to : from, suffix, err);
		if (rc < 0)
			return rc;
		if (!*at)
			return 0;
		if (*at != ',')
			return enc_fail (err, ENC_EINVAL, "a bad character in the brackets of the host list");
	}
}

static int add_item (struct expansion *x, char *item, struct enc_error *err)
{
	char *open = strchr (item, '['), *close = strchr (item, ']');
	if (!open && !close)
		return add_host (x, item, err);
	if (!open || !close || close < open || strpbrk (close + 1, "[]") || strchr (open + 1, '['))
		return enc_fail (err, ENC_EINVAL, "unbalanced or several brackets in the host list");
	*open = *close = 0;
	return add_bracket (x, item, open + 1, close + 1, err);
}

/* The next comma outside of brackets. */
static char *item_end (char *s)
{
	bool inside = false;
	for (; *s; s++) {
		if (*s == '[')
			inside = true;
		else if (*s == ']')
			inside = false;
		else if (*s == ',' && !inside)
			return s;
	}
	return s;
}

static int by_text_then_place (const void *a, const void *b)
{
	char *const *x = *(char **const *) a, *const *y = *(char **const *) b;
	int c = strcmp (*x, *y);
	return c ? c : (x > y) - (x < y);
}

/* Hand the hosts over in order, leaving out what came before in this list or stands in `out`. */
static int hand_over (struct enc_strs *hosts, struct enc_strs *out, struct enc_error *err)
{
	enc_auto_free char ***order = calloc (hosts->n + 1, sizeof (*order));
	if (!order)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	for (size_t i = 0; i < hosts->n; i++)
		order[i] = &hosts->v[i];
	qsort (order, hosts->n, sizeof (*order), by_text_then_place);
	for (size_t i = 1; i < hosts->n; i++) /* from the back, so that the first of equals stays */
		if (strcmp (*order[hosts->n - i - 1], *order[hosts->n - i]) == 0)
			*order[hosts->n - i][0] = 0;
	size_t before = out->n;
	for (size_t i = 0; i < hosts->n; i++) {
		if (!hosts->v[i][0] || (before && enc_strs_has (out, hosts->v[i])))
			continue;
		int rc = enc_strs_add (out, hosts->v[i], err);
		if (rc < 0) {
			while (out->n > before)
				(void) enc_strs_remove (out, out->v[out->n - 1]);
			return rc;
		}
	}
	return 0;
}

int enc_hostlist_expand (const char *text, size_t max, struct enc_strs *out, struct enc_error *err)
{
	struct expansion x = { .max = max && max < ENC_HOSTLIST_MAX ? max : ENC_HOSTLIST_MAX };
	if (strnlen (text, 65536) == 65536)
		return enc_fail (err, ENC_ELIMIT, "host list over 64 KiB");
	enc_auto_free char *copy = strdup (text);
	int rc = copy ? 0 : enc_fail (err, ENC_ENOMEM, "out of memory");
	for (char *at = copy; rc == 0;) {
		char *end = item_end (at);
		bool last = *end == 0;
		*end = 0;
		rc = add_item (&x, at, err);
		if (last)
			break;
		at = end + 1;
	}
	if (rc == 0)
		rc = hand_over (&x.hosts, out, err);
	enc_strs_done (&x.hosts);
	return rc;
}

/* ---- compress ---- */

struct host {
	const char *name;
	size_t prefix;    /* bytes before the number at the end */
	size_t width;     /* digits; 0 = no number */
	unsigned long number;
};

static struct host host_of (const char *name)
{
	struct host h = { .name = name, .prefix = strlen (name) };
	while (h.prefix > 0 && h.width < NUMBER_MAX && name[h.prefix - 1] >= '0' && name[h.prefix - 1] <= '9') {
		h.prefix--;
		h.width++;
	}
	h.number = h.width ? strtoul (name + h.prefix, NULL, 10) : 0;
	return h;
}

/* "9" and "10" belong together though their widths differ; "09" and "9" do not. */
static bool padded (const struct host *h)
{
	return h->width > 1 && h->name[h->prefix] == '0';
}

static int by_host (const void *a, const void *b)
{
	const struct host *x = (const struct host *) a, *y = (const struct host *) b;
	size_t n = x->prefix < y->prefix ? x->prefix : y->prefix;
	int c = memcmp (x->name, y->name, n);
	if (c == 0)
		c = (x->prefix > y->prefix) - (x->prefix < y->prefix);
	if (c == 0)
		c = (x->number > y->number) - (x->number < y->number);
	return c ? c : strcmp (x->name, y->name);
}

static bool same_group (const struct host *x, const struct host *y)
{
	if (x->prefix != y->prefix || memcmp (x->name, y->name, x->prefix) != 0 || !x->width || !y->width)
		return false;
	return x->width == y->width || (!padded (x) && !padded (y));
}

static void put_number (struct enc_buf *b, const struct host *h)
{
	enc_buf_put (b, h->name + h->prefix, h->width);
}

static size_t put_group (struct enc_buf *b, const struct host *h, size_t i, size_t n)
{
	size_t end = i + 1;
	while (end < n && same_group (&h[end - 1], &h[end]))
		end++;
	if (end == i + 1) {
		enc_buf_putf (b, "%s", h[i].name);
		return end;
	}
	enc_buf_put (b, h[i].name, h[i].prefix);
	enc_buf_put_u8 (b, '[');
	for (size_t from = i; from < end;) {
		size_t to = from;
		while (to + 1 < end && h[to + 1].number == h[to].number + 1)
			to++;
		if (from != i)
			enc_buf_put_u8 (b, ',');
		put_number (b, &h[from]);
		if (to > from) {
			enc_buf_put_u8 (b, to == from + 1 ? ',' : '-');
			put_number (b, &h[to]);
		}
		from = to + 1;
	}
	enc_buf_put_u8 (b, ']');
	return end;
}

char *enc_hostlist_compress (const struct enc_strs *hosts)
{
	enc_auto_free struct host *h = calloc (hosts->n + 1, sizeof (*h));
	if (!h)
		return NULL;
	for (size_t i = 0; i < hosts->n; i++)
		h[i] = host_of (hosts->v[i]);
	qsort (h, hosts->n, sizeof (*h), by_host);
	size_t n = 0; /* without doubles */
	for (size_t i = 0; i < hosts->n; i++)
		if (n == 0 || strcmp (h[n - 1].name, h[i].name) != 0)
			h[n++] = h[i];
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (SIZE_MAX / 4);
	for (size_t i = 0; i < n;) {
		if (i)
			enc_buf_put_u8 (&b, ',');
		i = put_group (&b, h, i, n);
	}
	return enc_buf_take_str (&b);
}
