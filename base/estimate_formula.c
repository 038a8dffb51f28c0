/* The formulas of the memory estimate, each with its source. Keep tests/unit/base/test_estimate.c beside it: it has the figures. */
#include "base/estimate.h"

#include <math.h>
#include <stddef.h>

#include "base/enc.h"

/* Shape at which ENC_EST_ITEM was measured: Llama-2-7B with 2,048 tokens. */
#define ITEM_SHAPE (32.0 * 4096.0 * 2048.0)

double enc_estimate_tokens (const double *v)
{
	double side = floor (v[ENC_EST_IMAGE] / v[ENC_EST_PATCH]);

	return v[ENC_EST_IMAGE] > 0 ? side * side : v[ENC_EST_LENGTH];
}

static double squares (const double *v, double tokens, double of)
{
	return v[ENC_EST_FLASH] > 0 ? 0 : v[ENC_EST_SQUARE] * v[ENC_EST_HEADS] * tokens * of;
}

double enc_estimate_layer (const double *v, double s)
{
	return v[ENC_EST_LINEAR] * s * v[ENC_EST_WIDTH] + squares (v, s, s);
}

/* The formulas count 16-bit activations. */
static double wide (const double *v)
{
	return v[ENC_EST_PRECISION] / 2;
}

static double states (const double *v)
{
	return v[ENC_EST_PARAMETERS] * v[ENC_EST_STATE];
}

static double adapters (const double *v)
{
	return v[ENC_EST_PARAMETERS] * v[ENC_EST_PRECISION] + v[ENC_EST_TRAINABLE] + v[ENC_EST_REST];
}

static double full_fixed (const double *v)
{
	return v[ENC_EST_LORA] > 0 ? v[ENC_EST_PARAMETERS] * 1 + v[ENC_EST_TRAINABLE] : states (v);
}

static double full_item (const double *v)
{
	double s = v[ENC_EST_LENGTH], layer = enc_estimate_layer (v, s) * wide (v);
	double kept = v[ENC_EST_LAYERS] * s * v[ENC_EST_WIDTH] * v[ENC_EST_KEPT] * wide (v);

	return (v[ENC_EST_RECOMPUTE] > 0 ? kept + layer : v[ENC_EST_LAYERS] * layer) + s * v[ENC_EST_VOCABULARY] * v[ENC_EST_LOGIT];
}

static double lora_item (const double *v)
{
	return v[ENC_EST_ITEM] * (v[ENC_EST_LAYERS] * v[ENC_EST_WIDTH] * v[ENC_EST_LENGTH]) / ITEM_SHAPE;
}

static double weights (const double *v)
{
	return v[ENC_EST_PARAMETERS] * v[ENC_EST_PRECISION];
}

static double kv_item (const double *v)
{
	return 2 * v[ENC_EST_LAYERS] * v[ENC_EST_WIDTH] * 2 * v[ENC_EST_LENGTH];
}

static double vit_item (const double *v)
{
	return v[ENC_EST_LAYERS] * enc_estimate_layer (v, enc_estimate_tokens (v)) * wide (v);
}

static double pair_item (const double *v)
{
	double s = enc_estimate_tokens (v), t = v[ENC_EST_LENGTH], h = v[ENC_EST_WIDTH];
	double decoder = enc_estimate_layer (v, t) + v[ENC_EST_CROSS] * t * h + 4 * s * h + squares (v, t, s);

	return (v[ENC_EST_ENCODER_LAYERS] * enc_estimate_layer (v, s) + v[ENC_EST_DECODER_LAYERS] * decoder) * wide (v) +
	       t * v[ENC_EST_VOCABULARY] * v[ENC_EST_LOGIT];
}

#define COMMON " batch gpu precision rows "

const struct enc_estimate_formula enc_estimate_formulas[] = {
	{ "full", full_fixed, full_item, COMMON "parameters width layers heads vocabulary length flash recompute lora ",
	  "12 B a parameter (fp16 weights and gradients, fp32 Adam) + batch * (layers * (34 s h + 5 a s^2) + 14 s V)",
	  "arXiv 2205.05198 (activations); notes 1.3: 84 GB for 7e9 parameters" },
	{ "lora", adapters, lora_item, COMMON "parameters width layers length ",
	  "weights + 1 GB trainable + 1.1 GB + batch * 4.302 GB for 2,048 tokens of a 7B shape",
	  "Llama-2-7B on an A100 of 40 GiB: fits at batch 4 and 7, not at 8; its figure for batch 1 (9.31 GB) is off this line" },
	{ "infer", weights, kv_item, COMMON "parameters width layers length ",
	  "weights + batch * 4 layers h tokens (keys and values, 16-bit)", "Llama-2-7B: 0.524 MB a token" },
	{ "vit", states, vit_item, COMMON "parameters width layers heads image patch flash ",
	  "16 B a parameter (fp32 with Adam) + batch * layers * (34 s h + 5 a s^2), s = (image / patch)^2",
	  "arXiv 2205.05198; ViT-base on mammograms: 2.3 times less with Flash at 384/16" },
	{ "encoder-decoder", states, pair_item, COMMON "parameters width encoder_layers decoder_layers heads vocabulary image patch length flash ",
	  "16 B a parameter + batch * (encoder + decoder with cross-attention + 14 t V)", "measured on one H200: the page of cxr-mllm" },
	{ .name = NULL },
};
