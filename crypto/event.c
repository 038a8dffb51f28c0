/* Checks a producer's record against the tables in event_table.c. Records have
 * two levels: top members, and groups ("actor", "obj", …) of plain values. */
#include "crypto/event.h"

#include "crypto/event_table.h"

#include "base/enctime.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#include "base/enc.h"

#define PATH_MAX_LEN 64
#define INT_MAX_EXACT ((int64_t)1 << 53)

static const char *const outcomes[] = { "ok", "failed", "denied", "intent", NULL };
static const char *const severities[] = { "info", "notice", "warning", "alert", NULL };
static const char *const groups[] = { "actor", "peer", "obj", "policy", "head", "src", "data", NULL };

const struct enc_event *enc_event_at (size_t i)
{
	for (size_t k = 0; enc_event_rows[k].cls; k++)
		if (k == i)
			return &enc_event_rows[k];
	return NULL;
}

const struct enc_event_field *enc_event_field_at (size_t i)
{
	for (size_t k = 0; enc_event_fields[k].path; k++)
		if (k == i)
			return &enc_event_fields[k];
	return NULL;
}

const struct enc_event *enc_event_find (const char *cls, const char *action)
{
	if (!cls || !action)
		return NULL;
	for (const struct enc_event *e = enc_event_rows; e->cls; e++)
		if (strcmp (e->cls, cls) == 0 && strcmp (e->action, action) == 0)
			return e;
	return NULL;
}

static int one_of (const char *const *list, const char *word)
{
	for (; word && *list; list++)
		if (strcmp (*list, word) == 0)
			return 1;
	return 0;
}

/* Is `word` one of the blank-separated words of `list`? */
static int listed (const char *list, const char *word)
{
	size_t len = strlen (word);

	for (const char *p = list; *p;) {
		size_t n = strcspn (p, " ");

		if (n == len && memcmp (p, word, len) == 0)
			return 1;
		p += n;
		p += *p == ' ';
	}
	return 0;
}

static const struct enc_event_field *find_field (const char *group, const char *key)
{
	size_t n = group ? strlen (group) : 0;

	for (const struct enc_event_field *f = enc_event_fields; f->path; f++) {
		const char *p = f->path;

		if (group && (strncmp (p, group, n) != 0 || p[n] != '.'))
			continue;
		if (strcmp (group ? p + n + 1 : p, key) == 0)
			return f;
	}
	return NULL;
}

static int word_ok (const char *s, size_t max)
{
	size_t len = strspn (s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/@+-");

	return len > 0 && len <= max && s[len] == '\0';
}

static int hex_ok (const char *s)
{
	return strlen (s) == 64 && strspn (s, "0123456789abcdef") == 64;
}

/* Replace what a terminal or a reader could be fooled by. Returns the new string
 * (caller frees), or NULL when `s` is fine as it is. */
static char *clean (const char *s, size_t max)
{
	char *shown, *cut;

	if (enc_text_ok (s) && strlen (s) <= max)
		return NULL;
	shown = enc_text_printable (s);
	if (!shown || strlen (shown) <= max)
		return shown;
	/* Cut between characters. */
	cut = shown + max;
	while (cut > shown && ((unsigned char)*cut & 0xc0) == 0x80)
		cut--;
	*cut = '\0';
	return shown;
}

static int item_ok (const struct enc_json *item)
{
	struct enc_json_iter it = { 0 };

	if (enc_json_type (item) != ENC_JSON_OBJECT || enc_json_len (item) > 16)
		return 0;
	while (enc_json_next (item, &it)) {
		enum enc_json_type type = enc_json_type (it.value);
		const char *s = enc_json_str (it.value);

		if (!word_ok (it.key, 32))
			return 0;
		if (type == ENC_JSON_STRING ? !enc_text_ok (s) || strlen (s) > 256
					    : type != ENC_JSON_INT && type != ENC_JSON_BOOL)
			return 0;
	}
	return 1;
}

static int items_ok (const struct enc_json *value, size_t max)
{
	size_t n = enc_json_len (value);

	if (enc_json_type (value) != ENC_JSON_ARRAY || n > max)
		return 0;
	for (size_t i = 0; i < n; i++)
		if (!item_ok (enc_json_at (value, i)))
			return 0;
	return 1;
}

static int int_ok (const struct enc_json *value)
{
	int64_t v = enc_json_i64 (value, INT64_MAX);

	return enc_json_type (value) == ENC_JSON_INT && v < INT_MAX_EXACT && v > -INT_MAX_EXACT;
}

static int string_ok (const struct enc_event_field *field, const char *s)
{
	int64_t when;

	if (!s || strlen (s) > (field->type == ENC_EV_CLAIMED ? 65535 : field->max))
		return 0;
	switch (field->type) {
	case ENC_EV_WORD:
		return word_ok (s, field->max);
	case ENC_EV_LINE:
		return enc_text_ok (s);
	case ENC_EV_HEX:
		return hex_ok (s);
	case ENC_EV_TIME:
		return enc_time_parse (s, &when, NULL) == 0;
	case ENC_EV_CLAIMED:
	case ENC_EV_TEXT:
		return 1;
	case ENC_EV_INT:
	case ENC_EV_BOOL:
	case ENC_EV_ITEMS:
		break;
	}
	return 0;
}

static int value_ok (const struct enc_event_field *field, const struct enc_json *value)
{
	switch (field->type) {
	case ENC_EV_INT:
		return int_ok (value);
	case ENC_EV_BOOL:
		return enc_json_type (value) == ENC_JSON_BOOL;
	case ENC_EV_ITEMS:
		return items_ok (value, field->max);
	case ENC_EV_WORD:
	case ENC_EV_LINE:
	case ENC_EV_CLAIMED:
	case ENC_EV_HEX:
	case ENC_EV_TIME:
	case ENC_EV_TEXT:
		break;
	}
	return string_ok (field, enc_json_str (value));
}

/* One member of the record or of a group. */
static int check_value (
	struct enc_json *owner, const char *group, const char *key, const struct enc_json *value, struct enc_error *err)
{
	const struct enc_event_field *field = find_field (group, key);
	enc_auto_free char *cleaned = NULL;
	char at[PATH_MAX_LEN];

	(void)snprintf (at, sizeof (at), "%s%s/%s", group ? "/" : "", group ? group : "", key);
	if (!field)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "%.60s: unknown field", at), "%s", at);
	if (!value_ok (field, value))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "%s: malformed or too long", at), "%s", at);
	if (field->type == ENC_EV_CLAIMED && (cleaned = clean (enc_json_str (value), field->max))) {
		enc_json_set_str (owner, key, cleaned);
		return 1;
	}
	return 0;
}

/* Returns 1 when something was cleaned. Cleaning replaces a value of the member
 * that the loop stands on, which the iterator allows. */
static int check_group (struct enc_json *group, const char *name, const struct enc_event *event, struct enc_error *err)
{
	struct enc_json_iter it = { 0 };
	int cleaned = 0;

	if (enc_json_type (group) != ENC_JSON_OBJECT)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "/%s: not an object", name), "/%s", name);
	while (enc_json_next (group, &it)) {
		int rc = check_value (group, name, it.key, it.value, err);

		if (rc < 0)
			return rc;
		if (strcmp (name, "data") == 0 && !listed (event->data, it.key))
			return enc_error_pointer (err,
				enc_fail (err, ENC_EINVAL, "/data/%s: not a field of %s.%s", it.key, event->cls,
					event->action),
				"/data/%s", it.key);
		cleaned |= rc;
	}
	return cleaned;
}

static int check_needs (const struct enc_json *record, const struct enc_event *event, struct enc_error *err)
{
	for (const char *p = event->needs; *p;) {
		size_t len = strcspn (p, " ");
		char pointer[PATH_MAX_LEN];

		(void)snprintf (pointer, sizeof (pointer), "/%.*s", (int)len, p);
		for (char *dot = pointer; *dot; dot++)
			if (*dot == '.')
				*dot = '/';
		if (!enc_json_find (record, pointer))
			return enc_error_pointer (err,
				enc_fail (err, ENC_EINVAL, "%s: missing, %s.%s needs it", pointer, event->cls,
					event->action),
				"%s", pointer);
		p += len;
		p += strspn (p, " ");
	}
	return 0;
}

static int check_members (struct enc_json *record, const struct enc_event *event, struct enc_error *err)
{
	struct enc_json_iter it = { 0 };
	int cleaned = 0;

	while (enc_json_next (record, &it)) {
		int rc = one_of (groups, it.key) ? check_group (it.value, it.key, event, err)
						 : check_value (record, NULL, it.key, it.value, err);

		if (rc < 0)
			return rc;
		cleaned |= rc;
	}
	return cleaned;
}

int enc_event_check (struct enc_json *record, const struct enc_event **ret, struct enc_error *err)
{
	const char *severity = enc_json_get_str (record, "severity", NULL);
	const char *cls = enc_json_get_str (record, "class", NULL);
	const char *action = enc_json_get_str (record, "action", NULL);
	const struct enc_event *event = enc_event_find (cls, action);
	int rc;

	if (enc_json_type (record) != ENC_JSON_OBJECT || !cls || !action)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "record without class and action"), "/class");
	if (!event)
		return enc_error_pointer (
			err, enc_fail (err, ENC_EINVAL, "no event %.32s.%.32s", cls, action), "/action");
	if (!one_of (outcomes, enc_json_get_str (record, "outcome", NULL)))
		return enc_error_pointer (
			err, enc_fail (err, ENC_EINVAL, "/outcome: ok, failed, denied or intent"), "/outcome");
	if (enc_json_get (record, "severity") && !one_of (severities, severity))
		return enc_error_pointer (
			err, enc_fail (err, ENC_EINVAL, "/severity: info, notice, warning or alert"), "/severity");
	if ((rc = check_members (record, event, err)) < 0)
		return rc;
	if (rc > 0)
		enc_json_set_bool (record, "cleaned", true);
	if ((rc = check_needs (record, event, err)) < 0)
		return rc;
	*ret = event;
	return 0;
}
