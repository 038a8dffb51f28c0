#include "node-agent/proto/told.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/str.h"

#include "base/enc.h"

enum { VERSION = 1, TOLD = 2, RECEIPT = 3, TEXT_MAX = 65535 };

static bool word_ok (const char *s)
{
	return s[strspn (s, "abcdefghijklmnopqrstuvwxyz0123456789+-")] == '\0';
}

static bool address_ok (const char *s)
{
	struct in6_addr any;

	return !s[0] || inet_pton (AF_INET, s, &any) == 1 || inet_pton (AF_INET6, s, &any) == 1;
}

static int check (const struct enc_told *t, struct enc_error *err)
{
	bool session = t->kind == ENC_TOLD_SESSION_START || t->kind == ENC_TOLD_SESSION_END;

	if (t->kind < 1 || t->kind > ENC_TOLD_MAX)
		return enc_fail (err, ENC_EINVAL, "told: unknown kind %u", t->kind);
	if (session ? !enc_id_ok (t->session) : t->session[0] && !enc_id_ok (t->session))
		return enc_fail (err, ENC_EINVAL, "told: malformed session");
	if ((t->user[0] && !enc_user_name_ok (t->user)) || !address_ok (t->source) || !word_ok (t->factor) || !enc_text_ok (t->reason))
		return enc_fail (err, ENC_EINVAL, "told: malformed user, address, factor or reason");
	return 0;
}

int enc_told_encode (const struct enc_told *t, struct enc_buf *buf, struct enc_error *err)
{
	int rc = check (t, err);

	if (rc < 0)
		return rc;
	enc_buf_put_u8 (buf, VERSION);
	enc_buf_put_u8 (buf, TOLD);
	enc_buf_put_u8 (buf, t->kind);
	enc_buf_put_str (buf, t->session);
	enc_buf_put_str (buf, t->user);
	enc_buf_put_str (buf, t->source);
	enc_buf_put_str (buf, t->factor);
	enc_buf_put_str (buf, t->reason);
	enc_buf_put_u32 (buf, t->job);
	enc_buf_put_u64 (buf, t->seconds);
	enc_buf_put_u64 (buf, t->bytes_in);
	enc_buf_put_u64 (buf, t->bytes_out);
	return enc_buf_check (buf, err);
}

bool enc_told_is (const void *data, size_t len)
{
	const uint8_t *bytes = data;

	return len >= 2 && bytes[0] == VERSION && bytes[1] == TOLD;
}

int enc_told_decode (const void *data, size_t len, struct enc_told *ret, struct enc_error *err)
{
	struct enc_view view = enc_view_of (data, len);
	struct enc_told t = { 0 };
	uint8_t version = enc_view_u8 (&view), what = enc_view_u8 (&view);
	int rc;

	t.kind = enc_view_u8 (&view);
	enc_view_str (&view, t.session, sizeof t.session);
	enc_view_str (&view, t.user, sizeof t.user);
	enc_view_str (&view, t.source, sizeof t.source);
	enc_view_str (&view, t.factor, sizeof t.factor);
	enc_view_str (&view, t.reason, sizeof t.reason);
	t.job = enc_view_u32 (&view);
	t.seconds = enc_view_u64 (&view);
	t.bytes_in = enc_view_u64 (&view);
	t.bytes_out = enc_view_u64 (&view);
	if ((rc = enc_view_end (&view, err)) < 0)
		return enc_wrap (err, rc, "told");
	if (version != VERSION || what != TOLD)
		return enc_fail (err, ENC_EINVAL, "told: unknown version");
	if ((rc = check (&t, err)) < 0)
		return rc;
	*ret = t;
	return 0;
}

int enc_told_answer_encode (uint16_t code, uint64_t counter, struct enc_buf *buf, struct enc_error *err)
{
	enc_buf_put_u8 (buf, VERSION);
	enc_buf_put_u8 (buf, TOLD);
	enc_buf_put_u16 (buf, code);
	enc_buf_put_u64 (buf, counter);
	return enc_buf_check (buf, err);
}

int enc_told_answer_decode (const void *data, size_t len, uint16_t *ret_code, uint64_t *ret_counter, struct enc_error *err)
{
	struct enc_view view = enc_view_of (data, len);
	uint8_t version = enc_view_u8 (&view), what = enc_view_u8 (&view);
	uint16_t code = enc_view_u16 (&view);
	uint64_t counter = enc_view_u64 (&view);
	int rc = enc_view_end (&view, err);

	if (rc < 0 || version != VERSION || what != TOLD)
		return enc_fail (err, ENC_EPROTO, "told: privd's answer is malformed");
	*ret_code = code;
	*ret_counter = counter;
	return 0;
}

int enc_receipt_ask_encode (const char *session, struct enc_buf *buf, struct enc_error *err)
{
	enc_buf_put_u8 (buf, VERSION);
	enc_buf_put_u8 (buf, RECEIPT);
	enc_buf_put_str (buf, session);
	return enc_buf_check (buf, err);
}

int enc_receipt_ask_decode (const void *data, size_t len, char ret_session[static 27], struct enc_error *err)
{
	struct enc_view view = enc_view_of (data, len);
	uint8_t version = enc_view_u8 (&view), what = enc_view_u8 (&view);
	char session[27];
	int rc;

	enc_view_str (&view, session, sizeof session);
	if ((rc = enc_view_end (&view, err)) < 0)
		return enc_wrap (err, rc, "receipt");
	if (version != VERSION || what != RECEIPT || !enc_id_ok (session))
		return enc_fail (err, ENC_EINVAL, "receipt: unknown version or malformed session");
	memcpy (ret_session, session, sizeof session);
	return 0;
}

int enc_receipt_answer_encode (const char *record, const char *proof, struct enc_buf *buf, struct enc_error *err)
{
	enc_buf_put_u8 (buf, VERSION);
	enc_buf_put_u8 (buf, RECEIPT);
	enc_buf_put_bytes (buf, record, strlen (record));
	enc_buf_put_bytes (buf, proof, strlen (proof));
	return enc_buf_check (buf, err);
}

int enc_receipt_answer_decode (const void *data, size_t len, struct enc_view *ret_record, struct enc_view *ret_proof, struct enc_error *err)
{
	struct enc_view view = enc_view_of (data, len), record, proof;
	uint8_t version = enc_view_u8 (&view), what = enc_view_u8 (&view);
	int rc;

	record = enc_view_bytes (&view, TEXT_MAX);
	proof = enc_view_bytes (&view, TEXT_MAX);
	if ((rc = enc_view_end (&view, err)) < 0 || version != VERSION || what != RECEIPT)
		return enc_fail (err, ENC_EPROTO, "receipt: the agent's answer is malformed");
	*ret_record = record;
	*ret_proof = proof;
	return 0;
}
