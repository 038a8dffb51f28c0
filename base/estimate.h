/* How much memory a job takes on one device, before it is queued. Bytes throughout; GB is 10^9 bytes, GiB 2^30.
 *
 *   need = fixed + batch * item
 *
 * What "fixed" and "item" are depends on the formula that a recipe names (estimate.formula); its constants come from the user, else from
 * the recipe's "estimate.SIZE.KEY", else "estimate.KEY", else the table in estimate_formula.c. An upper bound it is not: the driver's own
 * share and fragmentation are not counted, hence "tight". */
#ifndef ENC_BASE_ESTIMATE_H
#define ENC_BASE_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum enc_estimate_verdict { ENC_ESTIMATE_FITS, ENC_ESTIMATE_TIGHT, ENC_ESTIMATE_NO };
extern const char *const enc_estimate_verdicts[]; /* "fits" below 85 % of the device, "tight" up to 100 %, "does not fit" */

enum enc_estimate_key {
	ENC_EST_PARAMETERS, ENC_EST_WIDTH, ENC_EST_LAYERS, ENC_EST_ENCODER_LAYERS, ENC_EST_DECODER_LAYERS, ENC_EST_HEADS,
	ENC_EST_VOCABULARY, ENC_EST_IMAGE, ENC_EST_PATCH, ENC_EST_LENGTH, ENC_EST_BATCH, ENC_EST_GPU, ENC_EST_FLASH, ENC_EST_RECOMPUTE,
	ENC_EST_LORA, ENC_EST_PRECISION, ENC_EST_STATE, ENC_EST_TRAINABLE, ENC_EST_REST, ENC_EST_ITEM, ENC_EST_LINEAR, ENC_EST_SQUARE,
	ENC_EST_CROSS, ENC_EST_KEPT, ENC_EST_LOGIT,
	ENC_EST_ROWS, ENC_EST_COUNT
};

struct enc_estimate_formula {
	const char *name;
	double (*fixed) (const double *v); /* v: by enum enc_estimate_key */
	double (*item) (const double *v);
	const char *uses;                  /* keys a user may give, between blanks: " batch gpu " */
	const char *text, *source;         /* the formula as it is shown, and where it is from */
};
extern const struct enc_estimate_formula enc_estimate_formulas[]; /* ended by name NULL */

/* One transformer layer's activations for one sample of `s` tokens, 16-bit: 34 s h + 5 a s^2; fused attention does without the square. */
double enc_estimate_layer (const double *v, double s);
/* Tokens of one item: (image / patch)^2, or the length of the text. */
double enc_estimate_tokens (const double *v);

struct enc_estimate {
	const struct enc_estimate_formula *formula;
	double v[ENC_EST_COUNT];
	double fixed, item, need;
	enum enc_estimate_verdict verdict;
	uint64_t largest_batch;  /* that does not exceed the device; 0: not even one */
	char change[96];         /* the one change after which it is within the device; "" when none is needed, or none is enough */
};

/* Steps of one pass over "rows" items, a last batch that is not full left out; 0 when no rows were given. */
uint64_t enc_estimate_steps (const struct enc_estimate *e);

/* The user's value of a key, or NULL. */
typedef const char *enc_estimate_get_fn (const void *arg, const char *key);

/* Estimate with the text of a recipe.conf. ENC_ENOTFOUND: the recipe has no estimate, or no such size. ENC_EUSAGE: a value that is no
 * number or out of range, or no "gpu" given. `ret` is written on success alone. */
ENC_MUST_USE int enc_estimate (const char *recipe, enc_estimate_get_fn *get, const void *arg, struct enc_estimate *ret, struct enc_error *err);

/* May a user give this key to a recipe? "size" and "params" (parameters) count. */
bool enc_estimate_takes (const char *recipe, const char *key);

/* One line: verdict, need and device in GB and GiB, largest batch, change. */
void enc_estimate_say (const struct enc_estimate *e, char *ret, size_t size);

#endif
