#include "controller/cli/args.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hostlist.h"
#include "base/str.h"
#include "base/enc.h"

enum { RAW_MAX = 16384 };

static const char *key_of (const struct enc_arg *a)
{
	return a->key ? a->key : a->name;
}

static int bad (const struct enc_arg *a, const char *value, const char *want, struct enc_error *err)
{
	enc_auto_free char *shown = enc_text_printable (value);
	return enc_fail (err, ENC_EUSAGE, "%s%s: \"%.60s\" is not %s", a->flags & ENC_ARG_WORD ? "" : "--", a->name, shown ? shown : "?", want);
}

/* ---- values ---- */

static int value_name (const struct enc_arg *a, const char *s, struct enc_json **ret, struct enc_error *err)
{
	if (!enc_name_ok (s))
		return bad (a, s, "a name (a-z, 0-9 and -, first a letter, at most 31)", err);
	*ret = enc_json_new_str (s);
	return 0;
}

static int value_user (const struct enc_arg *a, const char *s, struct enc_json **ret, struct enc_error *err)
{
	if (!enc_user_name_ok (s))
		return bad (a, s, "a user name", err);
	*ret = enc_json_new_str (s);
	return 0;
}

static int value_node (const struct enc_arg *a, const char *s, struct enc_json **ret, struct enc_error *err)
{
	if (!enc_node_name_ok (s))
		return bad (a, s, "a node name", err);
	*ret = enc_json_new_str (s);
	return 0;
}

static int value_text (const struct enc_arg *a, const char *s, struct enc_json **ret, struct enc_error *err)
{
	if (!s[0] || strlen (s) > 1024 || !enc_text_ok (s))
		return bad (a, s, "one line of text of 1 to 1,024 bytes", err);
	*ret = enc_json_new_str (s);
	return 0;
}

static int value_number (const struct enc_arg *a, const char *s, struct enc_json **ret, struct enc_error *err)
{
	uint64_t n;
	if (enc_parse_u64 (s, 0, INT64_MAX, &n, NULL) < 0)
		return bad (a, s, "a number", err);
	*ret = enc_json_new_i64 ((int64_t) n);
	return 0;
}

static int value_nodes (const struct enc_arg *a, const char *s, struct enc_json **ret, struct enc_error *err)
{
	uint64_t n;
	if (enc_parse_u64 (s, 1, 5000, &n, NULL) == 0) {
		*ret = enc_json_new_i64 ((int64_t) n);
		return 0;
	}
	struct enc_strs names = { 0 };
	int rc = enc_hostlist_expand (s, 5000, &names, NULL);
	enc_strs_done (&names);
	if (rc < 0 || (s[0] >= '0' && s[0] <= '9' && strspn (s, "0123456789") == strlen (s)))
		return bad (a, s, "a number from 1 to 5,000 or a host list such as n[1-3]", err);
	*ret = enc_json_new_str (s);
	return 0;
}

static int value_duration (const struct enc_arg *a, const char *s, struct enc_json **ret, struct enc_error *err)
{
	uint64_t seconds;
	if (enc_parse_duration (s, &seconds, NULL) < 0 || seconds == 0)
		return bad (a, s, "a duration such as 14d, 2h or 30m", err);
	*ret = enc_json_new_i64 ((int64_t) seconds);
	return 0;
}

static int value_choice (const struct enc_arg *a, const char *s, struct enc_json **ret, struct enc_error *err)
{
	size_t len = strlen (s);
	for (const char *c = a->choices; len && c; c = strchr (c, '|') ? strchr (c, '|') + 1 : NULL)
		if (strncmp (c, s, len) == 0 && (c[len] == '|' || c[len] == 0)) {
			*ret = enc_json_new_str (s);
			return 0;
		}
	return bad (a, s, a->choices, err);
}

static int value_member (const struct enc_arg *a, const char *s, struct enc_json **ret, struct enc_error *err)
{
	struct enc_strs parts = { 0 };
	int rc = enc_strs_split (&parts, s, ':', 2, NULL);
	if (rc == 0 && enc_user_name_ok (parts.v[0]) && (parts.n == 1 || enc_name_ok (parts.v[1]))) {
		*ret = enc_json_object ();
		enc_json_set_str (*ret, "user", parts.v[0]);
		if (parts.n == 2)
			enc_json_set_str (*ret, "role", parts.v[1]);
	} else {
		rc = bad (a, s, "USER or USER:ROLE", err);
	}
	enc_strs_done (&parts);
	return rc;
}

static int value_volume (const struct enc_arg *a, const char *s, struct enc_json **ret, struct enc_error *err)
{
	struct enc_strs parts = { 0 };
	uint64_t bytes = 0;
	int rc = enc_strs_split (&parts, s, ':', 3, NULL);
	bool good = rc == 0 && parts.n >= 2 && enc_name_ok (parts.v[0]) && enc_parse_size (parts.v[1], &bytes, NULL) == 0 && bytes > 0 &&
		    (parts.n == 2 || strcmp (parts.v[2], "scratch") == 0 || strcmp (parts.v[2], "project") == 0);
	if (good) {
		*ret = enc_json_object ();
		enc_json_set_str (*ret, "name", parts.v[0]);
		enc_json_set_u64 (*ret, "size_bytes", bytes);
		enc_json_set_str (*ret, "kind", parts.n == 3 ? parts.v[2] : "project");
	} else {
		rc = bad (a, s, "NAME:SIZE[:scratch|project] such as data:100G:project", err);
	}
	enc_strs_done (&parts);
	return rc;
}

typedef int value_fn (const struct enc_arg *a, const char *s, struct enc_json **ret, struct enc_error *err);
static value_fn *const values[] = {
	[ENC_ARG_TEXT] = value_text,         [ENC_ARG_NAME] = value_name,     [ENC_ARG_USER] = value_user,
	[ENC_ARG_NODE] = value_node,         [ENC_ARG_NODES] = value_nodes,   [ENC_ARG_DURATION] = value_duration,
	[ENC_ARG_NUMBER] = value_number,     [ENC_ARG_CHOICE] = value_choice, [ENC_ARG_MEMBER] = value_member,
	[ENC_ARG_VOLUME] = value_volume,     [ENC_ARG_PATH] = value_text,
};

/* ---- the table ---- */

static int take (struct enc_json *out, const struct enc_arg *a, const char *s, struct enc_error *doubt, struct enc_error *err)
{
	struct enc_json *value = NULL;
	const char *key = key_of (a);
	struct enc_json *old = enc_json_get (out, key);
	if (old && !(a->flags & ENC_ARG_LIST))
		return enc_fail (err, ENC_EUSAGE, "--%s is given twice", a->name);
	struct enc_error bad_value = { 0 };
	if (values[a->kind] (a, s, &value, &bad_value) < 0) {
		if (strlen (s) > RAW_MAX || !enc_utf8_ok (s, strlen (s))) {
			if (err)
				*err = bad_value;
			return -ENC_EUSAGE;
		}
		if (!doubt->code)
			*doubt = bad_value;
		value = enc_json_new_str (s);
	}
	if (a->flags & ENC_ARG_LIST)
		enc_json_add (old ? old : enc_json_set_array (out, key), value);
	else
		enc_json_set (out, key, value);
	return 0;
}

static const struct enc_arg *word_next (const struct enc_arg *table, size_t nth)
{
	for (const struct enc_arg *a = table; a->kind != ENC_ARG_END; a++)
		if ((a->flags & ENC_ARG_WORD) && (nth == 0 || (a->flags & ENC_ARG_LIST)))
			return a;
		else if (a->flags & ENC_ARG_WORD)
			nth--;
	return NULL;
}

static const struct enc_arg *option_find (const struct enc_arg *table, const char *name, size_t len)
{
	for (const struct enc_arg *a = table; a->kind != ENC_ARG_END; a++)
		if (!(a->flags & ENC_ARG_WORD) && strlen (a->name) == len && memcmp (a->name, name, len) == 0)
			return a;
	return NULL;
}

/* One "--name[=value]" at argv[*i]; moves *i over a value in the next word. */
static int option_take (const struct enc_arg *table, int argc, char **argv, int *i, struct enc_json *out, struct enc_error *doubt, struct enc_error *err)
{
	const char *name = argv[*i] + 2, *equal = strchr (name, '=');
	size_t len = equal ? (size_t) (equal - name) : strlen (name);
	const struct enc_arg *a = option_find (table, name, len);
	if (!a)
		return enc_fail (err, ENC_EUSAGE, "unknown option --%.*s", (int) (len > 40 ? 40 : len), name);
	if (a->kind == ENC_ARG_FLAG) {
		if (equal)
			return enc_fail (err, ENC_EUSAGE, "--%s takes no value", a->name);
		enc_json_set_bool (out, key_of (a), true);
		return 0;
	}
	if (!equal && *i + 1 >= argc)
		return enc_fail (err, ENC_EUSAGE, "--%s wants a value", a->name);
	return take (out, a, equal ? equal + 1 : argv[++*i], doubt, err);
}

static int required_check (const struct enc_arg *table, const struct enc_json *out, struct enc_error *err)
{
	for (const struct enc_arg *a = table; a->kind != ENC_ARG_END; a++)
		if ((a->flags & ENC_ARG_REQUIRED) && !enc_json_get (out, key_of (a)))
			return enc_fail (err, ENC_EUSAGE, "%s%s is missing", a->flags & ENC_ARG_WORD ? "" : "--", a->name);
	return 0;
}

struct enc_json *enc_args_parse (const struct enc_arg *table, int argc, char **argv, struct enc_error *doubt, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *out = enc_json_object ();
	size_t words = 0;
	bool only_words = false;
	for (int i = 0; out && i < argc; i++) {
		int rc;
		if (!only_words && strcmp (argv[i], "--") == 0) {
			only_words = true;
			continue;
		}
		if (!only_words && argv[i][0] == '-' && argv[i][1]) {
			if (argv[i][1] != '-')
				rc = enc_fail (err, ENC_EUSAGE, "unknown option %.40s", argv[i]);
			else
				rc = option_take (table, argc, argv, &i, out, doubt, err);
		} else {
			const struct enc_arg *a = word_next (table, words++);
			rc = a ? take (out, a, argv[i], doubt, err) : enc_fail (err, ENC_EUSAGE, "one word too many: %.60s", argv[i]);
		}
		if (rc < 0)
			return NULL;
	}
	if (!out || required_check (table, out, err) < 0)
		return NULL;
	return ENC_TAKE (out);
}

char *enc_args_usage (const char *command, const struct enc_arg *table)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (8192);
	enc_buf_putf (&b, "%s", command);
	for (const struct enc_arg *a = table; a->kind != ENC_ARG_END; a++) {
		const char *open = a->flags & ENC_ARG_REQUIRED ? "" : "[", *close = a->flags & ENC_ARG_REQUIRED ? "" : "]";
		const char *more = a->flags & ENC_ARG_LIST ? "..." : "";
		if (a->flags & ENC_ARG_WORD)
			enc_buf_putf (&b, " %s%s%s%s", open, a->value ? a->value : a->name, close, more);
		else if (a->kind == ENC_ARG_FLAG)
			enc_buf_putf (&b, " [--%s]", a->name);
		else
			enc_buf_putf (&b, " %s--%s %s%s%s", open, a->name, a->choices ? a->choices : a->value ? a->value : "VALUE", close, more);
	}
	return enc_buf_take_str (&b);
}
