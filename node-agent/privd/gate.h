/* May this order be obeyed? The whole of privd's judgement, without I/O: whoever wants to know what a taken-over agent could do reads
 * this file and gate.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "crypto/grant.h"
#include "node-agent/privd/state.h"
#include "node-agent/proto/order.h"

struct enc_gate {
	const struct enc_privd_conf *conf;
	const struct enc_node_state *state;
	const uint8_t *boot;             /* 16 bytes: this boot's nonce */
	uint64_t now;                    /* Unix seconds */
};

/* `grant` is one whose signature holds, or NULL. `ret_loosens` tells whether the order loosens anything. ENC_EDENIED: it would
 * need a grant, or the grant is not for this; ENC_ECONFLICT: not in this state of the node; ENC_EINVAL: not this node's. */
int enc_gate_check (const struct enc_gate *gate, uint8_t verb, const struct enc_doc *doc, const uint8_t digest[32], const struct enc_grant *grant,
	bool *ret_loosens, struct enc_error *err) ENC_MUST_USE;
