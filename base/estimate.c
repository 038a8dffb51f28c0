#include "base/estimate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/recipe.h"
#include "base/str.h"

#include "base/enc.h"

enum { KEY = 80, VALUE = 64, WORD = 40 };

#define GB 1e9
#define GIB 1073741824.0
#define TIGHT 0.85

const char *const enc_estimate_verdicts[] = { "fits", "tight", "does not fit" };

/* Default NAN: the recipe has to say it where the formula needs it. */
static const struct {
	const char *name;
	double dflt, min, max;
} keys[ENC_EST_COUNT] = {
	[ENC_EST_PARAMETERS] = { "parameters", NAN, 1, 1e14 }, [ENC_EST_WIDTH] = { "width", NAN, 1, 1e6 },
	[ENC_EST_LAYERS] = { "layers", NAN, 1, 1e4 }, [ENC_EST_ENCODER_LAYERS] = { "encoder_layers", NAN, 1, 1e4 },
	[ENC_EST_DECODER_LAYERS] = { "decoder_layers", NAN, 1, 1e4 }, [ENC_EST_HEADS] = { "heads", NAN, 1, 1e4 },
	[ENC_EST_VOCABULARY] = { "vocabulary", NAN, 1, 1e7 }, [ENC_EST_IMAGE] = { "image", 0, 1, 1e5 },
	[ENC_EST_PATCH] = { "patch", 1, 1, 1e5 }, [ENC_EST_LENGTH] = { "length", NAN, 1, 1e8 },
	[ENC_EST_BATCH] = { "batch", 1, 1, 1e7 }, [ENC_EST_GPU] = { "gpu", NAN, 1e6, 1e15 },
	[ENC_EST_FLASH] = { "flash", 1, 0, 1 }, [ENC_EST_RECOMPUTE] = { "recompute", 0, 0, 1 }, [ENC_EST_LORA] = { "lora", 0, 0, 1 },
	[ENC_EST_PRECISION] = { "precision", 2, 0.5, 4 }, [ENC_EST_STATE] = { "bytes_per_parameter", 16, 1, 64 },
	[ENC_EST_TRAINABLE] = { "trainable_bytes", 1e9, 0, 1e15 }, [ENC_EST_REST] = { "rest_bytes", 0, 0, 1e15 },
	[ENC_EST_ITEM] = { "item_bytes", NAN, 1, 1e15 }, [ENC_EST_LINEAR] = { "act.linear", 34, 0, 1e3 },
	[ENC_EST_SQUARE] = { "act.square", 5, 0, 1e3 }, [ENC_EST_CROSS] = { "act.cross", 24, 0, 1e3 },
	[ENC_EST_KEPT] = { "act.kept", 2, 0, 16 }, [ENC_EST_LOGIT] = { "logit_bytes", 14, 0, 64 },
	[ENC_EST_ROWS] = { "rows", 0, 1, 1e12 },
};

static const struct {
	const char *word;
	double value;
} words[] = {
	{ "yes", 1 }, { "on", 1 }, { "no", 0 }, { "off", 0 }, { "fp32", 4 }, { "bf16", 2 }, { "fp16", 2 }, { "int8", 1 },
	{ "int4", 0.583 }, /* groups with their scales, embeddings left in 16 bits */
};

static const struct {
	const char *suffix;
	double times;
} suffixes[] = {
	{ "", 1 }, { "K", 1e3 }, { "M", 1e6 }, { "B", 1e9 }, { "G", 1e9 }, { "T", 1e12 }, { "MB", 1e6 }, { "GB", 1e9 }, { "TB", 1e12 },
	{ "MiB", 1048576.0 }, { "GiB", GIB }, { "TiB", GIB * 1024 },
};

static double number (const char *text)
{
	char *end;
	double n;

	for (size_t i = 0; i < ENC_ARRAY_LEN (words); i++)
		if (strcmp (text, words[i].word) == 0)
			return words[i].value;
	if (text[0] < '0' || text[0] > '9' || strspn (text, "0123456789.eE") < 1 || strpbrk (text, "xX"))
		return NAN;
	n = strtod (text, &end);
	for (size_t i = 0; i < ENC_ARRAY_LEN (suffixes); i++)
		if (strcmp (end, suffixes[i].suffix) == 0)
			return n * suffixes[i].times;
	return NAN;
}

static const struct enc_estimate_formula *formula_of (const char *recipe)
{
	char name[VALUE];

	if (!enc_recipe_value (recipe, "estimate.formula", name, sizeof name))
		return NULL;
	for (const struct enc_estimate_formula *f = enc_estimate_formulas; f->name; f++)
		if (strcmp (f->name, name) == 0)
			return f;
	return NULL;
}

/* A user's other names for a key. */
static const char *full_name (const char *key)
{
	return strcmp (key, "params") == 0 ? "parameters" : key;
}

bool enc_estimate_takes (const char *recipe, const char *key)
{
	const struct enc_estimate_formula *f = formula_of (recipe);
	char word[WORD];

	if (!f || strlen (key) + 3 > sizeof word)
		return false;
	(void)snprintf (word, sizeof word, " %s ", full_name (key));
	return strcmp (key, "size") == 0 || strstr (f->uses, word) != NULL;
}

/* "base" when neither the user nor the recipe names a size; the keys without a size count for every one. */
static int size_of (const char *recipe, enc_estimate_get_fn *get, const void *arg, char ret[static VALUE], struct enc_error *err)
{
	const char *given = get (arg, "size");
	char key[KEY + VALUE], unused[VALUE];

	if (!given && !enc_recipe_value (recipe, "estimate.size", ret, VALUE))
		(void)snprintf (ret, VALUE, "base");
	if (!given)
		return 0;
	if (!enc_name_ok (given))
		return enc_fail (err, ENC_EUSAGE, "size: not a name");
	(void)snprintf (ret, VALUE, "%s", given);
	(void)snprintf (key, sizeof key, "estimate.%s.parameters", ret);
	return enc_recipe_value (recipe, key, unused, sizeof unused) ? 0 : enc_fail (err, ENC_ENOTFOUND, "the recipe has no size %s", given);
}

static int take (enum enc_estimate_key k, const char *recipe, const char *size, const char *user, double *ret, struct enc_error *err)
{
	char key[KEY + VALUE], text[VALUE];

	*ret = keys[k].dflt;
	if (user)
		(void)snprintf (text, sizeof text, "%s", user);
	else {
		(void)snprintf (key, sizeof key, "estimate.%s.%s", size, keys[k].name);
		if (!enc_recipe_value (recipe, key, text, sizeof text)) {
			(void)snprintf (key, sizeof key, "estimate.%s", keys[k].name);
			if (!enc_recipe_value (recipe, key, text, sizeof text))
				return 0;
		}
	}
	*ret = number (text);
	if (!(*ret >= keys[k].min && *ret <= keys[k].max))
		return enc_fail (err, ENC_EUSAGE, "%s: not a value it can have", keys[k].name);
	return 0;
}

static void judge (struct enc_estimate *e)
{
	double device = e->v[ENC_EST_GPU];

	e->fixed = e->formula->fixed (e->v);
	e->item = e->formula->item (e->v);
	e->need = e->fixed + e->v[ENC_EST_BATCH] * e->item;
	e->verdict = e->need > device ? ENC_ESTIMATE_NO : e->need >= TIGHT * device ? ENC_ESTIMATE_TIGHT : ENC_ESTIMATE_FITS;
	e->largest_batch = e->fixed + e->item <= device ? (uint64_t)floor ((device - e->fixed) / e->item) : 0;
}

/* In the order in which they cost least. A smaller batch comes last: it is what everybody thinks of. */
static const struct {
	enum enc_estimate_key key;
	double to;
	const char *text;
} changes[] = {
	{ ENC_EST_FLASH, 1, "flash=yes (fused attention)" },
	{ ENC_EST_RECOMPUTE, 1, "recompute=yes (activations are computed again)" },
	{ ENC_EST_LORA, 1, "lora=yes (adapters on 8-bit weights)" },
	{ ENC_EST_PRECISION, 1, "precision=int8" },
	{ ENC_EST_PRECISION, 0.583, "precision=int4" },
};

static bool quantised (const struct enc_estimate_formula *f)
{
	return strcmp (f->name, "lora") == 0 || strcmp (f->name, "infer") == 0;
}

static bool would_help (const struct enc_estimate *e, size_t i)
{
	struct enc_estimate other = *e;
	char word[WORD];

	(void)snprintf (word, sizeof word, " %s ", keys[changes[i].key].name);
	if (!strstr (e->formula->uses, word) || (changes[i].key == ENC_EST_PRECISION && (!quantised (e->formula) || e->v[ENC_EST_PRECISION] <= changes[i].to)))
		return false;
	other.v[changes[i].key] = changes[i].to;
	judge (&other);
	return other.verdict != ENC_ESTIMATE_NO;
}

static void advise (struct enc_estimate *e)
{
	for (size_t i = 0; e->verdict == ENC_ESTIMATE_NO && i < ENC_ARRAY_LEN (changes); i++)
		if (would_help (e, i)) {
			(void)snprintf (e->change, sizeof e->change, "%s", changes[i].text);
			return;
		}
	if (e->verdict == ENC_ESTIMATE_NO && e->largest_batch > 0)
		(void)snprintf (e->change, sizeof e->change, "batch=%llu", (unsigned long long)e->largest_batch);
}

static int complete (const struct enc_estimate *e, struct enc_error *err)
{
	if (isnan (e->v[ENC_EST_GPU]))
		return enc_error_next (err, enc_fail (err, ENC_EUSAGE, "the memory of the device is not known"), "add gpu=80GB or gpu=40GiB");
	if (!quantised (e->formula) && e->v[ENC_EST_PRECISION] < 2)
		return enc_fail (err, ENC_EUSAGE, "precision: training here is fp32, bf16 or fp16");
	if (!isfinite (e->need) || e->item <= 0)
		return enc_fail (err, ENC_EINVAL, "the recipe lacks values that formula %s needs", e->formula->name);
	return 0;
}

int enc_estimate (const char *recipe, enc_estimate_get_fn *get, const void *arg, struct enc_estimate *ret, struct enc_error *err)
{
	struct enc_estimate e = { .formula = formula_of (recipe) };
	char size[VALUE];
	int rc;

	if (!e.formula)
		return enc_fail (err, ENC_ENOTFOUND, "the recipe has no memory estimate");
	rc = size_of (recipe, get, arg, size, err);
	for (unsigned k = 0; rc == 0 && k < ENC_EST_COUNT; k++) {
		const char *user = enc_estimate_takes (recipe, keys[k].name) ? get (arg, keys[k].name) : NULL;
		if (!user && k == ENC_EST_PARAMETERS)
			user = get (arg, "params");
		rc = take ((enum enc_estimate_key)k, recipe, size, user, &e.v[k], err);
	}
	if (rc < 0)
		return rc;
	judge (&e);
	if ((rc = complete (&e, err)) < 0)
		return rc;
	advise (&e);
	*ret = e;
	return 0;
}

uint64_t enc_estimate_steps (const struct enc_estimate *e)
{
	return (uint64_t)floor (e->v[ENC_EST_ROWS] / e->v[ENC_EST_BATCH]);
}

void enc_estimate_say (const struct enc_estimate *e, char *ret, size_t size)
{
	double device = e->v[ENC_EST_GPU];

	(void)snprintf (ret, size, "%s: about %.1f GB (%.1f GiB) of %.1f GB (%.1f GiB) at batch %.0f; largest batch %llu%s%s",
			enc_estimate_verdicts[e->verdict], e->need / GB, e->need / GIB, device / GB, device / GIB, e->v[ENC_EST_BATCH],
			(unsigned long long)e->largest_batch, e->change[0] ? "; would fit with " : "", e->change);
}
