#include "base/recipe.h"

#include <fcntl.h>
#include <string.h>

#include "base/buf.h"
#include "base/estimate.h"
#include "base/file.h"
#include "base/str.h"

#include "base/enc.h"

enum { RECIPE_MAX = 65536, RECIPES_MAX = 256, NAME = 32, KEY = 80, VALUE = 256, NEAR = 3 };

/* One line of the file; `at` moves on. False at the end; lines that say nothing give an empty key. */
static bool next_pair (const char **at, char key[static KEY], char value[static VALUE])
{
	const char *line = *at;
	size_t len = strcspn (line, "\n"), name;

	key[0] = value[0] = '\0';
	if (*line == '\0')
		return false;
	*at = line + len + (line[len] == '\n');
	name = strspn (line, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
	if (name == 0 || name >= KEY || strncmp (line + name, " = ", 3) != 0 || len - name - 3 >= VALUE)
		return true;
	(void)snprintf (key, KEY, "%.*s", (int)name, line);
	(void)snprintf (value, VALUE, "%.*s", (int)(len - name - 3), line + name + 3);
	return true;
}

bool enc_recipe_value (const char *text, const char *key, char *ret, size_t size)
{
	char name[KEY], value[VALUE];

	while (next_pair (&text, name, value))
		if (strcmp (name, key) == 0) {
			(void)snprintf (ret, size, "%s", value);
			return true;
		}
	return false;
}

bool enc_recipe_has_option (const char *text, const char *key)
{
	char name[KEY], value[VALUE];

	if (enc_estimate_takes (text, key))
		return true;
	while (next_pair (&text, name, value)) {
		const char *last = strrchr (name, '.');
		if ((enc_starts (name, "option.") || enc_starts (name, "estimate.")) && last && strcmp (last + 1, key) == 0)
			return true;
	}
	return false;
}

static bool env_name_ok (const char *s)
{
	return s[0] && (s[0] < '0' || s[0] > '9') && s[strspn (s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == '\0';
}

int enc_recipe_env (const char *text, enc_recipe_env_fn *fn, void *arg)
{
	char name[KEY], value[VALUE];
	int rc = 0;

	while (rc >= 0 && next_pair (&text, name, value)) {
		bool user_wins = enc_starts (name, "env.default.");
		const char *var = user_wins ? name + strlen ("env.default.") : name + strlen ("env.set.");
		if ((user_wins || enc_starts (name, "env.set.")) && env_name_ok (var))
			rc = fn (var, value, user_wins, arg);
	}
	return rc;
}

/* Edits that turn one name into the other (Levenshtein). */
static unsigned distance (const char *a, const char *b)
{
	unsigned row[NAME + 1], n = (unsigned)strnlen (b, NAME);

	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 0; a[i] && i < NAME; i++) {
		unsigned corner = row[0];
		row[0] = i + 1;
		for (unsigned j = 0; j < n; j++) {
			unsigned change = corner + (a[i] != b[j]), add = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
			corner = row[j + 1];
			row[j + 1] = change < add ? change : add;
		}
	}
	return row[n];
}

static int unknown (const char *folder, const char *name, struct enc_error *err)
{
	enc_auto_done (enc_strs_done) struct enc_strs there = { 0 };
	enc_auto_close int dir = enc_open_dir (folder, NULL);
	const char *near = NULL;
	unsigned best = NEAR + 1;
	int rc = enc_fail (err, ENC_ENOTFOUND, "no recipe %s", name);

	if (dir < 0 || enc_dir_list (dir, RECIPES_MAX, &there, NULL) < 0)
		return rc;
	for (size_t i = 0; i < there.n; i++) {
		unsigned d = enc_name_ok (there.v[i]) ? distance (name, there.v[i]) : NEAR + 1;
		if (d < best)
			best = d, near = there.v[i];
	}
	return near ? enc_error_next (err, rc, "did you mean %s?", near) : enc_error_next (err, rc, "enclavectl recipe list");
}

int enc_recipe_read (const char *folder, const char *name, char **ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (RECIPE_MAX);
	enc_auto_free char *path = enc_name_ok (name) ? enc_strf ("%s/%s/recipe.conf", folder, name) : NULL;
	int rc;

	if (!path)
		return unknown (folder, "of that name", err);
	if ((rc = enc_file_read_trusted (path, RECIPE_MAX - 1, &text, err)) < 0)
		return rc == -ENC_ENOTFOUND ? unknown (folder, name, err) : rc;
	if (!(*ret = enc_buf_take_str (&text)))
		return enc_fail (err, ENC_ENOMEM, "recipe: no memory");
	return 0;
}
