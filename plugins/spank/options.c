#include "plugins/spank/options.h"

#include <string.h>

#include "base/estimate.h"
#include "base/recipe.h"
#include "base/str.h"

#include "base/enc.h"

const struct enc_option_row enc_option_rows[ENC_OPT_COUNT] = {
	[ENC_OPT_ENCLAVE] = { "enclave", "NAME", "the enclave the job is meant for" },
	[ENC_OPT_RECIPE] = { "enclave-recipe", "NAME[,key=value]...", "settings of a recipe that comes with the enclave" },
	[ENC_OPT_DATA] = { "enclave-data", "NAME[:ro][,...]", "datasets the job reads, at /enclave/data/NAME" },
	[ENC_OPT_NET] = { "enclave-net", "none|job", "no network at all, or that of the enclave" },
	[ENC_OPT_PLAN] = { "enclave-plan", "off|warn|strict", "what a memory estimate that does not fit leads to" },
};

static int usage (struct enc_error *err, enum enc_option which, const char *what)
{
	return enc_fail (err, ENC_EUSAGE, "--%s: %s", enc_option_rows[which].name, what);
}

static int take_name (const char *text, char ret[32], enum enc_option which, struct enc_error *err)
{
	if (!enc_name_ok (text))
		return usage (err, which, "a name has small letters, digits and '-', begins with a letter and is at most 31 long");
	return enc_str_copy (ret, 32, text, err);
}

static int take_enclave (struct enc_options *o, char *text, struct enc_error *err)
{
	return take_name (text, o->enclave, ENC_OPT_ENCLAVE, err);
}

static bool key_ok (const char *s)
{
	size_t n = strspn (s, "abcdefghijklmnopqrstuvwxyz0123456789_");

	return s[0] >= 'a' && s[0] <= 'z' && s[n] == '\0' && n < sizeof ((struct enc_option_key *)0)->key;
}

static bool value_ok (const char *s)
{
	size_t n = strspn (s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

	return n > 0 && s[n] == '\0' && n < sizeof ((struct enc_option_key *)0)->value;
}

static int take_key (struct enc_options *o, char *pair, struct enc_error *err)
{
	char *key = strsep (&pair, "=");
	struct enc_option_key *to = &o->keys[o->keys_n];

	if (!key_ok (key) || !pair || !value_ok (pair))
		return usage (err, ENC_OPT_RECIPE, "after the name come key=value, separated by commas");
	for (size_t i = 0; i < o->keys_n; i++)
		if (strcmp (o->keys[i].key, key) == 0)
			return usage (err, ENC_OPT_RECIPE, "a key is given twice");
	if (o->keys_n == ENC_OPT_KEYS_MAX)
		return usage (err, ENC_OPT_RECIPE, "too many keys");
	(void)snprintf (to->key, sizeof to->key, "%s", key);
	(void)snprintf (to->value, sizeof to->value, "%s", pair);
	o->keys_n++;
	return 0;
}

static int take_recipe (struct enc_options *o, char *text, struct enc_error *err)
{
	char *word = strsep (&text, ",");
	int rc = take_name (word, o->recipe, ENC_OPT_RECIPE, err);

	while (rc == 0 && (word = strsep (&text, ",")))
		rc = take_key (o, word, err);
	return rc;
}

static int take_dataset (struct enc_options *o, char *word, struct enc_error *err)
{
	char *name = strsep (&word, ":");
	int rc;

	if (word && strcmp (word, "rw") == 0)
		return usage (err, ENC_OPT_DATA, "datasets are read-only; write to /enclave/data or your home");
	if (word && strcmp (word, "ro") != 0)
		return usage (err, ENC_OPT_DATA, "after the name may come :ro only");
	if (o->data_n == ENC_OPT_DATA_MAX)
		return usage (err, ENC_OPT_DATA, "too many datasets");
	if ((rc = take_name (name, o->data[o->data_n], ENC_OPT_DATA, err)) < 0)
		return rc;
	for (size_t i = 0; i < o->data_n; i++)
		if (strcmp (o->data[i], name) == 0)
			return 0;
	o->data_n++;
	return 0;
}

static int take_data (struct enc_options *o, char *text, struct enc_error *err)
{
	char *word;
	int rc = 0;

	while (rc == 0 && (word = strsep (&text, ",")))
		rc = take_dataset (o, word, err);
	return rc;
}

static int take_net (struct enc_options *o, char *text, struct enc_error *err)
{
	if (strcmp (text, "none") != 0 && strcmp (text, "job") != 0)
		return usage (err, ENC_OPT_NET, "none or job");
	o->net = text[0] == 'n' ? ENC_NET_NONE : ENC_NET_JOB;
	return 0;
}

static int take_plan (struct enc_options *o, char *text, struct enc_error *err)
{
	if (strcmp (text, "off") != 0 && strcmp (text, "warn") != 0 && strcmp (text, "strict") != 0)
		return usage (err, ENC_OPT_PLAN, "off, warn or strict");
	o->plan = text[0] == 'o' ? ENC_PLAN_OFF : text[0] == 'w' ? ENC_PLAN_WARN : ENC_PLAN_STRICT;
	return 0;
}

static int (*const takers[ENC_OPT_COUNT]) (struct enc_options *, char *, struct enc_error *) = {
	[ENC_OPT_ENCLAVE] = take_enclave, [ENC_OPT_RECIPE] = take_recipe, [ENC_OPT_DATA] = take_data,
	[ENC_OPT_NET] = take_net, [ENC_OPT_PLAN] = take_plan,
};

int enc_options_take (struct enc_options *o, enum enc_option which, const char *text, struct enc_error *err)
{
	enc_auto_free struct enc_options *next = NULL;
	char copy[ENC_OPT_TEXT_MAX + 1];
	int rc;

	if (!text || text[0] == '\0')
		return usage (err, which, "needs a value");
	if (strlen (text) > ENC_OPT_TEXT_MAX)
		return usage (err, which, "the value is too long");
	if (strcmp (o->given[which], text) == 0)
		return 0;
	if (o->given[which][0])
		return usage (err, which, "given twice with different values");
	if (!(next = malloc (sizeof *next)))
		return enc_fail (err, ENC_ENOMEM, "no memory");
	*next = *o;
	(void)snprintf (copy, sizeof copy, "%s", text);
	if ((rc = takers[which] (next, copy, err)) < 0)
		return rc;
	(void)snprintf (next->given[which], sizeof next->given[which], "%s", text);
	*o = *next;
	return 0;
}

static int dataset_fits (const char *name, const struct enc_members *members, struct enc_error *err)
{
	for (size_t i = 0; i < members->datasets_n; i++)
		if (strcmp (members->datasets[i], name) == 0)
			return 0;
	return enc_fail (err, ENC_ENOTFOUND, "no dataset %s in this enclave, or not yours", name);
}

static int recipe_fits (const struct enc_options *o, const struct enc_client_conf *conf, struct enc_error *err)
{
	enc_auto_free char *text = NULL;
	int rc = enc_recipe_read (conf->recipes, o->recipe, &text, err);

	for (size_t i = 0; rc == 0 && i < o->keys_n; i++)
		if (!enc_recipe_has_option (text, o->keys[i].key))
			rc = enc_fail (err, ENC_ENOTFOUND, "recipe %s has no key %s", o->recipe, o->keys[i].key);
	return rc;
}

int enc_options_fit (const struct enc_options *o, const struct enc_client_conf *conf, const struct enc_members *members, struct enc_error *err)
{
	int rc = 0;

	if (o->enclave[0] && strcmp (o->enclave, members->enclave_name) != 0)
		return enc_client_stranger (err);
	for (size_t i = 0; rc == 0 && i < o->data_n; i++)
		rc = dataset_fits (o->data[i], members, err);
	return rc == 0 && o->recipe[0] ? recipe_fits (o, conf, err) : rc;
}

static const char *key_given (const void *arg, const char *key)
{
	const struct enc_options *o = arg;

	for (size_t i = 0; i < o->keys_n; i++)
		if (strcmp (o->keys[i].key, key) == 0)
			return o->keys[i].value;
	return NULL;
}

int enc_options_plan (const struct enc_options *o, const struct enc_client_conf *conf, char *said, size_t size, struct enc_error *err)
{
	enc_auto_free char *text = NULL;
	struct enc_estimate e;
	struct enc_error why = { 0 };
	int rc;

	said[0] = '\0';
	if (!o->recipe[0] || o->plan == ENC_PLAN_OFF)
		return 0;
	if ((rc = enc_recipe_read (conf->recipes, o->recipe, &text, err)) < 0)
		return rc;
	if (o->plan != ENC_PLAN_STRICT && !(enc_estimate_takes (text, "size") && key_given (o, "gpu")))
		return 0;
	if ((rc = enc_estimate (text, key_given, o, &e, &why)) < 0)
		return enc_error_next (err, enc_fail (err, ENC_EUSAGE, "no memory estimate for recipe %s: %s", o->recipe, why.text), "%s", why.next);
	if (e.verdict == ENC_ESTIMATE_FITS)
		return 0;
	enc_estimate_say (&e, said, size);
	if (e.verdict == ENC_ESTIMATE_TIGHT || o->plan != ENC_PLAN_STRICT)
		return 0;
	return enc_fail (err, ENC_EFAILED, "--enclave-plan=strict: %s", said);
}
