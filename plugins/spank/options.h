/* The options that researchers give to srun, sbatch and salloc, as values. Parsing looks at nothing but the text; enc_options_fit
 * compares with the enclave at hand. */
#ifndef ENC_PLUGINS_OPTIONS_H
#define ENC_PLUGINS_OPTIONS_H

#include "plugins/client/client.h"

enum enc_option { ENC_OPT_ENCLAVE, ENC_OPT_RECIPE, ENC_OPT_DATA, ENC_OPT_NET, ENC_OPT_PLAN, ENC_OPT_COUNT };
enum enc_option_net { ENC_NET_DEFAULT, ENC_NET_NONE, ENC_NET_JOB };
enum enc_option_plan { ENC_PLAN_DEFAULT, ENC_PLAN_OFF, ENC_PLAN_WARN, ENC_PLAN_STRICT };

enum { ENC_OPT_TEXT_MAX = 511, ENC_OPT_DATA_MAX = 16, ENC_OPT_KEYS_MAX = 16 };

struct enc_option_key {
	char key[32];   /* [a-z][a-z0-9_]* */
	char value[64]; /* [A-Za-z0-9._-]+ */
};

struct enc_options {
	char given[ENC_OPT_COUNT][ENC_OPT_TEXT_MAX + 1]; /* as it was written; "" when not given */
	char enclave[32];
	char recipe[32];
	size_t keys_n;
	struct enc_option_key keys[ENC_OPT_KEYS_MAX];    /* of the recipe */
	size_t data_n;
	char data[ENC_OPT_DATA_MAX][32];
	enum enc_option_net net;
	enum enc_option_plan plan;
};

struct enc_option_row {
	const char *name, *arginfo, *usage;
};
extern const struct enc_option_row enc_option_rows[ENC_OPT_COUNT];

/* Take one option. The same text again is accepted; another text for the same option, an empty or malformed one is ENC_EUSAGE and
 * changes nothing. */
ENC_MUST_USE int enc_options_take (struct enc_options *o, enum enc_option which, const char *text, struct enc_error *err);

/* Is it this enclave, are its datasets the enclave's, is the recipe there and has it these keys? ENC_ENOTFOUND says what is unknown,
 * with the nearest recipe; an enclave or dataset that exists elsewhere is as unknown as any other. */
ENC_MUST_USE int enc_options_fit (const struct enc_options *o, const struct enc_client_conf *conf, const struct enc_members *members, struct enc_error *err);

/* The memory verdict on the recipe that was asked for (base/estimate.h), unless the plan is "off". What does not fit is ENC_EFAILED under
 * "strict", and so is an estimate that cannot be made; else `said` has a line for the user, or "". */
ENC_MUST_USE int enc_options_plan (const struct enc_options *o, const struct enc_client_conf *conf, char *said, size_t size, struct enc_error *err);

#endif
