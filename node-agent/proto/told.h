/* What programs of a node tell privd for the log (docs/protocol.md section 7): one datagram on the facts socket, answered with the number
 * that the record got in this boot. privd numbers, the agent carries, the log acknowledges; a record that is held back leaves a gap.
 * Beside it: how a door asks the agent for the receipt of a session's record. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

enum enc_told_kind {
	ENC_TOLD_LOGIN = 1,     /* root, like all but the last */
	ENC_TOLD_LOGIN_FAILED,
	ENC_TOLD_SESSION_START, /* privd notes the asking process as the session's */
	ENC_TOLD_SESSION_END,
	ENC_TOLD_JOB_START,
	ENC_TOLD_JOB_END,
	ENC_TOLD_JOB_REFUSED,   /* root or slurm */
	ENC_TOLD_MAX = ENC_TOLD_JOB_REFUSED,
};

struct enc_told {
	uint8_t kind;
	char session[27];  /* id; "" where there is none */
	char user[33];     /* a member's name; "" for anybody else: what a stranger typed may be a password */
	char source[46];   /* address */
	char factor[33];   /* "publickey+code"; [a-z0-9+-] */
	char reason[128];  /* why refused, in our own words */
	uint32_t job;
	uint64_t seconds, bytes_in, bytes_out;
};

enum { ENC_TOLD_SIZE_MAX = 512, ENC_TOLD_RECEIPT_MAX = 80 * 1024 };

/* Strict; `ret` is untouched on failure. */
int enc_told_encode (const struct enc_told *told, struct enc_buf *buf, struct enc_error *err) ENC_MUST_USE;
int enc_told_decode (const void *data, size_t len, struct enc_told *ret, struct enc_error *err) ENC_MUST_USE;
/* Is this datagram one of these, and no question about facts? */
bool enc_told_is (const void *data, size_t len);
/* The answer: 0 and the number, or a positive enum enc_code. */
int enc_told_answer_encode (uint16_t code, uint64_t counter, struct enc_buf *buf, struct enc_error *err) ENC_MUST_USE;
int enc_told_answer_decode (const void *data, size_t len, uint16_t *ret_code, uint64_t *ret_counter, struct enc_error *err) ENC_MUST_USE;

/* Ask the agent (its own socket, root only) for the receipt of a session's record; it answers when the record is in the log. */
int enc_receipt_ask_encode (const char *session, struct enc_buf *buf, struct enc_error *err) ENC_MUST_USE;
int enc_receipt_ask_decode (const void *data, size_t len, char ret_session[static 27], struct enc_error *err) ENC_MUST_USE;
/* The record's bytes and its tlog-proof; the views borrow from `data`. */
int enc_receipt_answer_encode (const char *record, const char *proof, struct enc_buf *buf, struct enc_error *err) ENC_MUST_USE;
int enc_receipt_answer_decode (const void *data, size_t len, struct enc_view *ret_record, struct enc_view *ret_proof, struct enc_error *err) ENC_MUST_USE;
