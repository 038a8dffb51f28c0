/* The overlay: a WireGuard interface of the kernel, or wireguard-go where the kernel has none. Its private key is made here for one
 * stay and stands in this family's locked memory and in the interface, never on a disk. */
#pragma once

#include "node-agent/privd/family.h"

int enc_overlay_apply (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err) ENC_MUST_USE;
int enc_overlay_key (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err) ENC_MUST_USE;

/* The configuration text for `wg`, with the private key; in a buffer that wipes itself. Pure but for the key. */
int enc_overlay_text (const struct enc_doc *doc, const uint8_t key[32], struct enc_buf *out, struct enc_error *err) ENC_MUST_USE;
