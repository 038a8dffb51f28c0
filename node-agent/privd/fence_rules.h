/* The fence of one node as the text of its nftables tables, from the checked fields of a node document. Pure. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/str.h"
#include "node-agent/proto/document.h"

#define ENC_FENCE_TABLE "enclave"
#define ENC_OVERLAY_IFACE "encov0"

/* What a fence is made of. Borrowed from the document. */
struct enc_fence {
	uint8_t mode;              /* enum enc_fence_mode */
	const struct enc_doc *doc;
	bool door;                 /* the login port is open to the outside; only on a node with the role login */
	const struct enc_strs *devices; /* interfaces whose frames are looked at; NULL: none */
};

/* Append a transaction that replaces both tables: it applies as one or not at all. Mode none removes them. */
int enc_fence_text (const struct enc_fence *fence, struct enc_buf *out, struct enc_error *err) ENC_MUST_USE;

/* True if this node's peer entry is `peer` itself. */
bool enc_fence_is_self (const struct enc_doc *doc, const struct enc_doc_peer *peer);

/* Call `fn` for each underlay address that the fence lets through (controller, and in mode enclave the peers but this node). */
typedef int (*enc_fence_addr_fn) (const char *addr, void *arg, struct enc_error *err);
int enc_fence_each_address (const struct enc_fence *fence, enc_fence_addr_fn fn, void *arg, struct enc_error *err) ENC_MUST_USE;
