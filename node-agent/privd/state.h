/* What privd holds to be true of its node: this boot's part in <run_dir>/state, and the marker <state_dir>/held that outlives a boot
 * for as long as the node is out of the general pool (invariant 9: rebooted while held, it comes up fenced and keyless). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fields.h"
#include "node-agent/privd/conf.h"
#include "node-agent/proto/document.h"

struct enc_node_state {
	uint32_t pool;             /* enum enc_pool */
	uint64_t generation;       /* of the last document that was accepted; 0 none */
	char *document;            /* its bytes in base64; NULL none */
	uint8_t digest[32];
	uint64_t grant_until;      /* Unix seconds: end of the newest grant; 0 none */
	uint64_t record;           /* index that the newest grant rests on */
	bool door, overlay, expired_door, expired_volumes;
	uint32_t roles;            /* set of enum enc_role that is up */
	struct enc_strs volumes;   /* names that are open */
	uint32_t units, fence;
	bool clean_ok;             /* the last act of this stay was a passed clean */
	char *clean, *measure, *probe; /* ids last done; NULL none */
	char *overlay_key;         /* base64; NULL none */
	uint64_t member_version;
	uint32_t unsure;           /* set of enum enc_job whose last task failed: the door stays shut */
	uint64_t counter;          /* of the last event */
	char *controller4, *controller6;
	uint32_t controller_port;
	char *enclave_id, *enclave_name;
};

extern const struct enc_field enc_node_state_fields[];

/* Load this boot's state; a boot without one starts in pool general, or, with the held marker, in the airlock with the marker's
 * controller and generation and `ret_rebooted` true. ENC_EINTEGRITY when the file is damaged. */
int enc_node_state_load (const struct enc_privd_conf *conf, struct enc_node_state *ret, bool *ret_rebooted, struct enc_error *err) ENC_MUST_USE;

/* Write both files; the marker is made before the state and removed after it. */
int enc_node_state_store (const struct enc_privd_conf *conf, const struct enc_node_state *s, struct enc_error *err) ENC_MUST_USE;
void enc_node_state_done (struct enc_node_state *s);

/* Held: out of the general and service pools, or its fence or units not back yet. */
bool enc_node_state_held (const struct enc_node_state *s);

/* The document of the state; ENC_ENOTFOUND when there is none. */
int enc_node_state_document (const struct enc_node_state *s, struct enc_doc *ret, struct enc_error *err) ENC_MUST_USE;

/* A document that only tightens, made of what the state knows: pool airlock (or quarantine), fence airlock, everything else down.
 * ENC_ENOTFOUND when no controller is known. */
int enc_node_state_tight (const struct enc_privd_conf *conf, const struct enc_node_state *s, uint8_t pool, struct enc_doc *ret, struct enc_error *err) ENC_MUST_USE;

/* Replace a heap text member; NULL empties. */
int enc_state_set (char **member, const char *text, struct enc_error *err) ENC_MUST_USE;
