#include "crypto/envelope.h"

#include "base/file.h"
#include "base/str.h"
#include "crypto/hash.h"
#include "crypto/note.h"
#include "base/enc.h"

enum { VERSION = 1 };

static const uint8_t magic[4] = { 'E', 'N', 'C', 'S' };

void enc_envelope_key_id (const struct enc_sign_pub *pub, uint8_t ret[static ENC_KEY_ID])
{
	const struct enc_span spans[] = { { &pub->alg, 1 }, { pub->key, pub->len } };
	struct enc_hash hash;

	enc_sha256_spans (spans, ENC_ARRAY_LEN (spans), &hash);
	memcpy (ret, hash.b, ENC_KEY_ID);
}

int enc_envelope_sign (const struct enc_sign_key *key, enum enc_envelope_type type, const struct enc_buf *body,
	struct enc_buf *out, struct enc_error *err)
{
	const struct enc_sign_pub *pub = enc_sign_key_pub (key);
	size_t start = out->len;
	uint8_t id[ENC_KEY_ID];
	struct enc_sig sig;
	int rc = enc_buf_check (body, err);

	if (rc < 0)
		return rc;
	if (body->len > ENC_ENVELOPE_BODY_MAX)
		return enc_fail (err, ENC_ELIMIT, "a signed body of %zu bytes; %d are possible", body->len, ENC_ENVELOPE_BODY_MAX);
	enc_envelope_key_id (pub, id);
	enc_buf_put (out, magic, sizeof magic);
	enc_buf_put_u8 (out, VERSION);
	enc_buf_put_u8 (out, pub->alg);
	enc_buf_put_u8 (out, (uint8_t) type);
	enc_buf_put_u8 (out, 0);
	enc_buf_put (out, id, sizeof id);
	enc_buf_put_u32 (out, (uint32_t) body->len);
	enc_buf_put (out, body->data, body->len);
	if ((rc = enc_buf_check (out, err)) < 0)
		return rc;
	if ((rc = enc_sign (key, out->data + start, out->len - start, &sig, err)) < 0)
		return rc;
	if (sig.len != ENC_ENVELOPE_SIGNATURE)
		return enc_fail (err, ENC_EINVAL, "this algorithm is not known for envelopes");
	enc_buf_put (out, sig.b, sig.len);
	return enc_buf_check (out, err);
}

int enc_envelope_check (struct enc_view data, enum enc_envelope_type type, const struct enc_sign_pub *pub,
	struct enc_view *ret_body, struct enc_error *err)
{
	struct enc_view v = data;
	uint8_t head[8], id[ENC_KEY_ID], want[ENC_KEY_ID];

	enc_view_copy (&v, head, sizeof head);
	enc_view_copy (&v, id, sizeof id);
	uint32_t len = enc_view_u32 (&v);
	if (v.bad || len > ENC_ENVELOPE_BODY_MAX)
		return enc_fail (err, ENC_EINVAL, "not a signed envelope");
	const uint8_t *body = enc_view_take (&v, len);
	const uint8_t *signature = enc_view_take (&v, ENC_ENVELOPE_SIGNATURE);
	if (v.bad || v.left || memcmp (head, magic, sizeof magic) != 0 || head[4] != VERSION || head[7] != 0)
		return enc_fail (err, ENC_EINVAL, "not a signed envelope");
	if (head[6] != type)
		return enc_fail (err, ENC_EINVAL, "a signed envelope of type %u where %d is expected", head[6], type);
	enc_envelope_key_id (pub, want);
	if (head[5] != pub->alg || memcmp (id, want, sizeof id) != 0)
		return enc_fail (err, ENC_EINTEGRITY, "signed by another key");
	if (enc_sign_check (pub, data.at, ENC_ENVELOPE_HEAD + len, signature, ENC_ENVELOPE_SIGNATURE) < 0)
		return enc_fail (err, ENC_EINTEGRITY, "the signature does not hold");
	*ret_body = enc_view_of (body, len);
	return 0;
}

int enc_vkey_load (const char *path, struct enc_sign_pub *ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (ENC_VKEY_TEXT_MAX + 1);
	struct enc_vkey vkey;
	int rc = enc_file_read_trusted (path, ENC_VKEY_TEXT_MAX + 1, &text, err);

	if (rc == 0)
		rc = enc_vkey_parse ((const char *) text.data, text.len, &vkey, err);
	if (rc < 0)
		return enc_wrap (err, rc, "verifier key %s", path);
	*ret = vkey.pub;
	return 0;
}
