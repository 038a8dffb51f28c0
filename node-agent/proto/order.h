/* The messages of docs/protocol.md section 7: orders from agentd to privd, their answers, and the facts that plugins ask for.
 * Pure encoders and decoders; the caller moves the bytes. Decoded bytes are borrowed from the message. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

enum {
	ENC_ORDER_SIZE_MAX = 128 * 1024, /* one message without its length */
	ENC_ORDER_SEALED_MAX = 64,       /* sealed keys in one order */
	ENC_ORDER_SEALED_SIZE_MAX = 1024,
	ENC_ORDER_BYTES_MAX = 65535,     /* document, grant, extra, evidence: each */
	ENC_FACTS_SIZE_MAX = 256,
};

enum enc_verb {
	ENC_VERB_DOOR = 1,
	ENC_VERB_ROLE = 2,
	ENC_VERB_VOLUME = 3,
	ENC_VERB_UNITS = 4,
	ENC_VERB_FENCE = 5,
	ENC_VERB_OVERLAY = 6,
	ENC_VERB_CLEAN = 7,
	ENC_VERB_MEASURE = 8,
	ENC_VERB_PROBE = 9,
	ENC_VERB_STATE = 10,      /* only asks: evidence says what privd holds; also the heartbeat (≤ 10 s apart) */
	ENC_VERB_MEMBERS = 11,    /* extra = member document envelope */
	ENC_VERB_QUARANTINE = 12, /* extra = reason, text of at most 200 bytes */
	ENC_VERB_SESSION = 13,    /* extra = id of a login session that shall end */
	ENC_VERB_MAX = 13,
};

/* The target of a verb always stands in the document: DOOR shuts or opens as `door` says, ROLE makes `roles` true, and so on. */
struct enc_order {
	uint8_t verb;
	uint64_t request;          /* the answer carries it back */
	struct enc_view document;  /* wire form; empty only for STATE, QUARANTINE, MEMBERS and SESSION */
	struct enc_view grant;     /* envelope; empty if there is none */
	size_t sealed_n;
	struct enc_sealed {
		char key[27];
		struct enc_view data;
	} sealed[ENC_ORDER_SEALED_MAX];
	struct enc_view extra;
};

struct enc_answer {
	uint8_t verb;
	uint16_t code;             /* 0, or a positive enum enc_code */
	uint64_t request;
	char text[256];            /* what went wrong, one line; "" when code is 0 */
	char next[160];            /* advice, may be "" */
	struct enc_view evidence;  /* JSON object, may be empty */
};

/* Append a whole message, its u32 length in front. -ENC_EINVAL names what does not fit; the buffer is then as before. */
int enc_order_encode (const struct enc_order *order, struct enc_buf *buf, struct enc_error *err) ENC_MUST_USE;
int enc_answer_encode (const struct enc_answer *answer, struct enc_buf *buf, struct enc_error *err) ENC_MUST_USE;

/* Length of the body that follows these four bytes; -ENC_ELIMIT over ENC_ORDER_SIZE_MAX, -ENC_EINVAL for one too short to be any. */
int enc_order_length (const uint8_t head[4], size_t *ret, struct enc_error *err) ENC_MUST_USE;

/* Decode one body (without the length). Strict; `ret` is untouched on failure and borrows from `data`. */
int enc_order_decode (const void *data, size_t len, struct enc_order *ret, struct enc_error *err) ENC_MUST_USE;
int enc_answer_decode (const void *data, size_t len, struct enc_answer *ret, struct enc_error *err) ENC_MUST_USE;

/* "door", "fence" …; "?" for an unknown verb. */
const char *enc_verb_name (uint8_t verb);

/* What any local process may know of its node. `uid` in the question is for later versions; today's answer does not depend on it. */
struct enc_facts {
	uint8_t pool;              /* enum enc_pool */
	bool door, agent_alive;
	uint64_t generation;
	uint64_t not_after;        /* Unix seconds: end of the lease that privd has seen; 0 outside an enclave */
	char enclave_id[27];
	char enclave_name[32];
	uint64_t member_version;
	uint8_t volumes_open;
	uint8_t plugin_hash[32];   /* SHA-256 of the installed spank_enclave.so; zero: none */
	uint8_t plugstack_hash[32];/* SHA-256 of the plugstack.conf in force; zero: none */
};

/* One datagram each, no length in front. Encoders write to `buf`, decoders are strict. */
int enc_facts_ask_encode (uint32_t uid, struct enc_buf *buf, struct enc_error *err) ENC_MUST_USE;
int enc_facts_ask_decode (const void *data, size_t len, uint32_t *ret_uid, struct enc_error *err) ENC_MUST_USE;
int enc_facts_encode (const struct enc_facts *facts, struct enc_buf *buf, struct enc_error *err) ENC_MUST_USE;
int enc_facts_decode (const void *data, size_t len, struct enc_facts *ret, struct enc_error *err) ENC_MUST_USE;
