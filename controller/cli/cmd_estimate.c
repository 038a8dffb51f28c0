/* estimate RECIPE key=value...: does a training job fit its device. Asks nobody: recipes lie on this machine. */
#include <string.h>

#include "base/cleanup.h"
#include "base/estimate.h"
#include "base/recipe.h"
#include "base/str.h"
#include "controller/cli/command.h"
#include "base/enc.h"

/* The words as given; the last of a key counts. */
static const char *value_of (const void *arg, const char *key)
{
	const struct enc_json *words = arg;
	size_t len = strlen (key);
	for (size_t i = enc_json_len (words); i-- > 0;) {
		const char *word = enc_json_str (enc_json_at (words, i));
		if (word && strncmp (word, key, len) == 0 && word[len] == '=')
			return word + len + 1;
	}
	return NULL;
}

static int words_fit (const char *text, const char *recipe, const struct enc_json *words, struct enc_error *err)
{
	for (size_t i = 0; i < enc_json_len (words); i++) {
		const char *word = enc_json_str (enc_json_at (words, i));
		char key[32];
		if (!word || !strchr (word, '=') || strcspn (word, "=") >= sizeof key)
			return enc_fail (err, ENC_EUSAGE, "after the recipe come key=value");
		(void) snprintf (key, sizeof key, "%.*s", (int) strcspn (word, "="), word);
		if (!enc_estimate_takes (text, key))
			return enc_fail (err, ENC_EUSAGE, "the estimate of recipe %s has no key %s", recipe, key);
	}
	return 0;
}

static void bytes (struct enc_json *to, const char *key, double n)
{
	enc_json_set_u64 (to, key, n < 1 ? 0 : (uint64_t) n);
}

static struct enc_json *answer_of (const char *recipe, const struct enc_estimate *e)
{
	struct enc_json *to = enc_json_object ();
	char line[256];
	enc_estimate_say (e, line, sizeof line);
	enc_json_set_str (to, "recipe", recipe);
	enc_json_set_str (to, "verdict", enc_estimate_verdicts[e->verdict]);
	enc_json_set_str (to, "text", line);
	bytes (to, "need_bytes", e->need);
	bytes (to, "device_bytes", e->v[ENC_EST_GPU]);
	bytes (to, "fixed_bytes", e->fixed);
	bytes (to, "item_bytes", e->item);
	bytes (to, "batch", e->v[ENC_EST_BATCH]);
	enc_json_set_u64 (to, "largest_batch", e->largest_batch);
	bytes (to, "tokens", enc_estimate_tokens (e->v));
	enc_json_set_u64 (to, "steps", enc_estimate_steps (e));
	enc_json_set_str (to, "change", e->change);
	enc_json_set_str (to, "formula", e->formula->text);
	enc_json_set_str (to, "source", e->formula->source);
	return to;
}

int enc_cmd_estimate_in (const char *folder, const struct enc_json *args, struct enc_json **ret, struct enc_error *err)
{
	const char *recipe = enc_json_get_str (args, "name", "");
	const struct enc_json *words = enc_json_get (args, "words");
	enc_auto_free char *text = NULL;
	struct enc_estimate e;
	int rc = enc_recipe_read (folder, recipe, &text, err);
	if (rc == 0)
		rc = words_fit (text, recipe, words, err);
	if (rc == 0)
		rc = enc_estimate (text, value_of, words, &e, err);
	if (rc < 0)
		return rc;
	*ret = answer_of (recipe, &e);
	return e.verdict == ENC_ESTIMATE_NO ? enc_fail (err, ENC_EFAILED, "recipe %s does not fit the device", recipe) : 0;
}

int enc_cmd_estimate (const struct enc_session *s ENC_UNUSED, const struct enc_command *c ENC_UNUSED, const struct enc_json *args,
		      struct enc_json **ret, struct enc_error *err)
{
	return enc_cmd_estimate_in (ENC_CLI_RECIPES, args, ret, err);
}
