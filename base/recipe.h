/* Recipes: folders with a recipe.conf of `key = value` lines (ops/recipes). Only what a job needs of them is read here. */
#ifndef ENC_BASE_RECIPE_H
#define ENC_BASE_RECIPE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* The text of `folder`/`name`/recipe.conf; the caller frees. ENC_ENOTFOUND names the nearest recipe there is. */
ENC_MUST_USE int enc_recipe_read (const char *folder, const char *name, char **ret, struct enc_error *err);

/* A user may give a value for: "size", every "option.KEY", and what an estimate takes ("estimate.SIZE.KEY"). */
bool enc_recipe_has_option (const char *text, const char *key);

/* The value of a key, copied and cut to `size`; false when there is none. */
bool enc_recipe_value (const char *text, const char *key, char *ret, size_t size);

/* Call `fn` for each "env.set.NAME" and "env.default.NAME" (`user_wins`). Stops at the first negative result and returns it. Names
 * that are not [A-Z_][A-Z0-9_]* are passed over. */
typedef int enc_recipe_env_fn (const char *name, const char *value, bool user_wins, void *arg);
int enc_recipe_env (const char *text, enc_recipe_env_fn *fn, void *arg);

#endif
