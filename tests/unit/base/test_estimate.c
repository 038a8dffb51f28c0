/* The memory estimate against figures that others measured or printed (notes: 84 GB, 15-17 GB, Flash 2.3 times, what needs patch 32 ...),
 * through the recipes as they are shipped. */
#include "tests/unit/base/test.h"

#include <math.h>

#include "base/estimate.h"
#include "base/recipe.h"
#include "base/str.h"

#include "base/enc.h"

static struct enc_error err;

/* arg: "a=1 b=2". */
static const char *word (const void *arg, const char *key)
{
	static char value[64];
	enc_auto_free char *padded = enc_strf (" %s", (const char *) arg), *want = enc_strf (" %s=", key);
	const char *at = strstr (padded, want);
	if (!at)
		return NULL;
	at += strlen (want);
	(void) snprintf (value, sizeof value, "%.*s", (int) strcspn (at, " "), at);
	return value;
}

static char *shipped (const char *recipe)
{
	enc_auto_free char *path = enc_strf (ENC_RECIPES "/%s/recipe.conf", recipe);
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (65536);
	ok (enc_file_read (path, 65535, &text, &err));
	return enc_buf_take_str (&text);
}

static struct enc_estimate of (const char *recipe, const char *words)
{
	enc_auto_free char *text = shipped (recipe);
	struct enc_estimate e;
	ok (enc_estimate (text, word, words, &e, &err));
	return e;
}

static void near (double is, double wanted, double share)
{
	if (!(fabs (is - wanted) <= wanted * share))
		fail_msg ("%g, wanted %g within %g", is, wanted, share);
}

T (full_training_of_7e9_parameters_takes_84_gb)
{
	struct enc_estimate e = of ("llm-full", "gpu=40GiB");
	near (e.fixed, 84e9, 1e-9);
	assert_int_equal (e.verdict, ENC_ESTIMATE_NO);
	assert_int_equal (e.largest_batch, 0);
	assert_non_null (strstr (e.change, "lora=yes"));
}

/* 7 GB of weights, 1 GB trained, 7 to 9 GB besides: the one sum the source gives. */
T (adapters_take_15_to_17_gb)
{
	struct enc_estimate e = of ("llm-lora", "gpu=40GiB");
	near (e.fixed - e.v[ENC_EST_REST] + 7e9, 15e9, 1e-9);
	near (e.fixed - e.v[ENC_EST_REST] + 9e9, 17e9, 1e-9);
}

T (adapters_fit_40_gib_at_batch_4_and_7_and_not_at_8)
{
	near (of ("llm-lora", "gpu=40GiB batch=4").need, 26.21e9, 0.01);
	near (of ("llm-lora", "gpu=40GiB batch=7").need, 39.31e9, 0.01);
	assert_int_equal (of ("llm-lora", "gpu=40GiB batch=4").verdict, ENC_ESTIMATE_FITS);
	assert_int_equal (of ("llm-lora", "gpu=40GiB batch=7").verdict, ENC_ESTIMATE_TIGHT);
	struct enc_estimate e = of ("llm-lora", "params=7B batch=8 gpu=40GiB");
	assert_int_equal (e.verdict, ENC_ESTIMATE_NO);
	assert_int_equal (e.largest_batch, 7);
	assert_true (e.need > 43.4e9 && e.need < 44.9e9);
}

/* 9.31 GB at batch 1 is on no line with the other two and the slope of 4.302 GB that the source gives: it is stated, not bent to. */
T (batch_1_of_that_series_does_not_fit_the_line_and_is_stated)
{
	struct enc_estimate e = of ("llm-lora", "gpu=40GiB batch=1");
	assert_true (e.need > 13.3e9 && e.need < 13.5e9);
	assert_non_null (strstr (e.formula->source, "9.31"));
	assert_non_null (strstr (e.formula->source, "off this line"));
}

/* Packs of 2,048 tokens, a last batch that is not full left out. */
T (an_epoch_of_1555_packs_has_388_and_222_steps)
{
	struct enc_estimate four = of ("llm-lora", "gpu=40GiB rows=1555 batch=4"), seven = of ("llm-lora", "gpu=40GiB rows=1555 batch=7");
	assert_int_equal (enc_estimate_steps (&four), 388);
	assert_int_equal (enc_estimate_steps (&seven), 222);
}

T (flash_takes_2_3_times_less_at_384_16)
{
	struct enc_estimate with = of ("mammo-vit", "gpu=80GB image=384 patch=16"), without = of ("mammo-vit", "gpu=80GB image=384 patch=16 flash=no");
	near (enc_estimate_tokens (with.v), 576, 0);
	near (without.item / with.item, 2.32, 0.005);
}

T (without_flash_2048_pixels_need_patch_32)
{
	static const struct { const char *words; double item; bool fits; } rows[] = {
		{ "gpu=80GB image=2048 patch=32 flash=no", 13.4e9, true }, { "gpu=80GB image=2048 patch=16 flash=no", 198e9, false },
		{ "gpu=80GB image=2048 patch=8 flash=no", 3.1e12, false }, { "gpu=80GB image=2048 patch=16", 5.1e9, true },
		{ "gpu=80GB image=2048 patch=8", 20.5e9, true } };
	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++) {
		struct enc_estimate e = of ("mammo-vit", rows[i].words);
		near (e.item, rows[i].item, 0.015);
		assert_int_equal (e.verdict != ENC_ESTIMATE_NO, rows[i].fits);
		if (!rows[i].fits)
			assert_non_null (strstr (e.change, "flash=yes"));
	}
}

T (largest_batches_of_vit_base_on_80_gb)
{
	static const struct { unsigned image, patch, plain, flash; } rows[] = {
		{ 384, 16, 187, 435 }, { 512, 16, 73, 244 }, { 1024, 16, 5, 61 }, { 1024, 8, 0, 15 }, { 2048, 32, 5, 61 }, { 2048, 16, 0, 15 }, { 2048, 8, 0, 3 } };
	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++) {
		enc_auto_free char *plain = enc_strf ("gpu=80GB image=%u patch=%u flash=no", rows[i].image, rows[i].patch);
		enc_auto_free char *flash = enc_strf ("gpu=80GB image=%u patch=%u flash=yes", rows[i].image, rows[i].patch);
		assert_int_equal (of ("mammo-vit", plain).largest_batch, rows[i].plain);
		assert_int_equal (of ("mammo-vit", flash).largest_batch, rows[i].flash);
	}
}

/* Measured by tests/bench/gpu_memory.py on one H200: image, patch, flash, batch, peak. The softmax there is 32 bits wide and keeps more
 * than the 5 bytes a score of the formula; without Flash it is up to a third above. */
T (vit_as_measured_on_an_h200)
{
	static const struct { const char *words; double gb, share; } rows[] = {
		{ "gpu=80GB image=384 patch=16 batch=64", 14.12, 0.10 }, { "gpu=80GB image=512 patch=16 batch=46", 17.68, 0.10 },
		{ "gpu=80GB image=1024 patch=16 batch=3", 5.62, 0.10 }, { "gpu=80GB image=2048 patch=8 batch=1", 24.54, 0.15 },
		{ "gpu=80GB image=384 patch=16 batch=64 flash=no", 33.90, 0.20 }, { "gpu=80GB image=1024 patch=16 batch=3 flash=no", 54.75, 0.30 } };
	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++)
		near (of ("mammo-vit", rows[i].words).need, rows[i].gb * 1e9, rows[i].share);
}

T (inference_with_its_cache)
{
	struct enc_estimate e = of ("llm-infer", "gpu=48GB");
	near (e.item / e.v[ENC_EST_LENGTH], 0.524e6, 0.001);
	near (e.need, 13.8e9, 0.01);
	near (of ("llm-infer", "gpu=48GB precision=int4").need, 4.3e9, 0.01);
	near (of ("llm-infer", "gpu=48GB batch=16").need, 19.4e9, 0.01);
	near (of ("llm-infer", "gpu=48GB batch=16 precision=int4").need, 9.9e9, 0.01);
	assert_string_equal (of ("llm-infer", "gpu=10GB").change, "precision=int8");
}

/* The table of the recipe's page. */
T (encoder_decoder_as_measured)
{
	near (of ("cxr-mllm", "size=base gpu=80GB batch=32").need, 11.1e9, 0.01);
	near (of ("cxr-mllm", "size=base gpu=80GB batch=128").need, 32.9e9, 0.01);
	near (of ("cxr-mllm", "size=base gpu=80GB batch=128 flash=no").need, 40.2e9, 0.01);
	near (of ("cxr-mllm", "size=base gpu=80GB batch=256").need, 61.9e9, 0.01);
}

T (bad_values_are_refused_and_named)
{
	static const struct { const char *recipe, *words; int code; } rows[] = {
		{ "llm-lora", "", ENC_EUSAGE }, { "llm-lora", "gpu=none", ENC_EUSAGE }, { "llm-lora", "gpu=40GiB batch=0", ENC_EUSAGE },
		{ "llm-lora", "gpu=40GiB batch=-1", ENC_EUSAGE }, { "llm-lora", "gpu=40GiB batch=nan", ENC_EUSAGE }, { "llm-lora", "gpu=0x10", ENC_EUSAGE },
		{ "llm-lora", "gpu=inf", ENC_EUSAGE }, { "llm-infer", "gpu=40GB precision=awq", ENC_EUSAGE }, { "mammo-vit", "gpu=80GB precision=int4", ENC_EUSAGE },
		{ "mammo-vit", "gpu=80GB patch=0", ENC_EUSAGE }, { "mammo-vit", "gpu=80GB image=8 patch=16", ENC_EINVAL },
		{ "mammo-vit", "gpu=80GB size=giant", ENC_ENOTFOUND }, { "mammo-vit", "gpu=80GB size=../x", ENC_EUSAGE }, { "smoke", "gpu=80GB", ENC_ENOTFOUND } };
	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++) {
		enc_auto_free char *text = shipped (rows[i].recipe);
		struct enc_estimate e = { .need = -1 };
		fails (enc_estimate (text, word, rows[i].words, &e, &err), rows[i].code);
		assert_true (e.need < 0);
	}
}

T (a_recipe_takes_the_keys_of_its_formula_alone)
{
	enc_auto_free char *lora = shipped ("llm-lora"), *smoke = shipped ("smoke");
	assert_true (enc_estimate_takes (lora, "batch") && enc_estimate_takes (lora, "params") && enc_estimate_takes (lora, "size"));
	assert_false (enc_estimate_takes (lora, "patch") || enc_estimate_takes (lora, "item_bytes") || enc_estimate_takes (lora, " ") || enc_estimate_takes (lora, ""));
	assert_false (enc_estimate_takes (smoke, "size") || enc_estimate_takes (smoke, "batch"));
}

T (the_line_says_both_units)
{
	struct enc_estimate e = of ("llm-lora", "gpu=40GiB batch=8");
	char line[256];
	enc_estimate_say (&e, line, sizeof line);
	assert_string_equal (line, "does not fit: about 43.5 GB (40.5 GiB) of 42.9 GB (40.0 GiB) at batch 8; largest batch 7; would fit with precision=int4");
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		RUN (full_training_of_7e9_parameters_takes_84_gb), RUN (adapters_take_15_to_17_gb), RUN (adapters_fit_40_gib_at_batch_4_and_7_and_not_at_8),
		RUN (batch_1_of_that_series_does_not_fit_the_line_and_is_stated), RUN (an_epoch_of_1555_packs_has_388_and_222_steps), RUN (flash_takes_2_3_times_less_at_384_16),
		RUN (without_flash_2048_pixels_need_patch_32), RUN (largest_batches_of_vit_base_on_80_gb), RUN (vit_as_measured_on_an_h200),
		RUN (inference_with_its_cache), RUN (encoder_decoder_as_measured), RUN (bad_values_are_refused_and_named),
		RUN (a_recipe_takes_the_keys_of_its_formula_alone), RUN (the_line_says_both_units),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
