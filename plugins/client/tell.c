#include "plugins/client/tell.h"

#include <string.h>

#include "base/enctime.h"
#include "base/file.h"
#include "crypto/receipt.h"
#include "crypto/tlog/canon.h"
#include "plugins/client/dgram.h"

#include "base/enc.h"

enum { RECEIPT_MAX_MS = 20000 };

int enc_client_tell (const struct enc_client_conf *conf, const struct enc_told *told, uint64_t *ret_counter, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf ask = ENC_BUF_INIT (ENC_TOLD_SIZE_MAX);
	uint64_t counter;
	uint8_t bytes[32];
	uint16_t code;
	ssize_t n;
	int rc;

	if ((rc = enc_told_encode (told, &ask, err)) < 0)
		return rc;
	if ((n = enc_dgram_ask (conf->facts, "privd", conf->facts_uid, enc_deadline_ms (conf->deadline_ms), &ask, bytes, sizeof bytes, err)) < 0)
		return (int)n;
	if ((rc = enc_told_answer_decode (bytes, (size_t)n, &code, &counter, err)) < 0)
		return rc;
	if (code)
		return enc_fail (err, code, "privd takes no such record from here");
	if (ret_counter)
		*ret_counter = counter;
	return 0;
}

void enc_client_tell_only (const struct enc_client_conf *conf, const struct enc_told *told)
{
	enc_auto_done (enc_buf_done) struct enc_buf ask = ENC_BUF_INIT (ENC_TOLD_SIZE_MAX);

	if (enc_told_encode (told, &ask, NULL) == 0)
		(void)!enc_dgram_ask (conf->facts, "privd", conf->facts_uid, enc_deadline_ms (conf->deadline_ms), &ask, NULL, 0, NULL);
}

/* ---- receipts ---- */

/* Is the member `group`.`key` (or the outer one, without group) that text? */
static bool says (struct enc_view record, const char *group, const char *key, const char *text)
{
	struct enc_canon_value outer = { .type = '{', .at = record.at, .len = record.left }, value;

	if (group && (enc_canon_find (record.at, record.left, group, &outer) < 0 || outer.type != '{'))
		return false;
	return enc_canon_find (outer.at, outer.len, key, &value) == 0 && value.type == '"' && value.len == strlen (text) &&
	       memcmp (value.at, text, value.len) == 0;
}

int enc_client_receipt_is (struct enc_view record, struct enc_view proof, const struct enc_vkey *log, const char *session, const char *enclave_id,
	struct enc_error *err)
{
	struct enc_receipt receipt;
	int rc = enc_receipt_check ((const char *)proof.at, proof.left, record.at, record.left, log, &receipt, err);

	if (rc < 0)
		return enc_wrap (err, -ENC_EINTEGRITY, "the session's receipt");
	if (!says (record, NULL, "class", "session") || !says (record, NULL, "action", "start") || !says (record, NULL, "outcome", "ok") ||
		!says (record, "actor", "session", session) || !says (record, "obj", "enclave_id", enclave_id))
		return enc_fail (err, ENC_EINTEGRITY, "the receipt is of another record than this session's");
	return 0;
}

static int log_key (const struct enc_client_conf *conf, struct enc_vkey *ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (ENC_VKEY_TEXT_MAX + 1);
	int rc = enc_file_read_trusted (conf->log_vkey, ENC_VKEY_TEXT_MAX + 1, &text, err);

	if (rc == 0)
		rc = enc_vkey_parse ((const char *)text.data, text.len, ret, err);
	return enc_wrap (err, rc, "the log's verifier key");
}

int enc_client_receipt (const struct enc_client_conf *conf, const char *session, const char *enclave_id, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf ask = ENC_BUF_INIT (ENC_TOLD_SIZE_MAX);
	int64_t deadline = enc_deadline_ms (conf->receipt_ms < RECEIPT_MAX_MS ? conf->receipt_ms : RECEIPT_MAX_MS);
	enc_auto_free uint8_t *bytes = malloc (ENC_TOLD_RECEIPT_MAX);
	struct enc_view record, proof;
	struct enc_vkey log;
	ssize_t n;
	int rc;

	if (!bytes)
		return enc_fail (err, ENC_ENOMEM, "no memory for a receipt");
	if ((rc = log_key (conf, &log, err)) < 0 || (rc = enc_receipt_ask_encode (session, &ask, err)) < 0)
		return rc;
	if ((n = enc_dgram_ask (conf->agent, "the node's agent", (uid_t)-1, deadline, &ask, bytes, ENC_TOLD_RECEIPT_MAX, err)) < 0)
		return (int)n;
	if ((rc = enc_receipt_answer_decode (bytes, (size_t)n, &record, &proof, err)) < 0)
		return rc;
	return enc_client_receipt_is (record, proof, &log, session, enclave_id, err);
}
