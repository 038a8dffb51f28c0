/* What others sign and send: the first byte of the input picks the decoder. A body that decodes must encode to the same bytes, so
 * that one signature stands for one meaning. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "crypto/attestation.h"
#include "crypto/kdf.h"
#include "crypto/members.h"
#include "crypto/secmem.h"
#include "crypto/wrap.h"

#include "base/enc.h"

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

static const struct enc_sign_pub nobody = { .alg = ENC_SIGN_ED25519, .len = 32, .key = { 1 } };

static struct enc_sign_key *signer (void)
{
	static struct enc_sign_key *key; /* one for the whole run */
	static const uint8_t seed[ENC_SIGN_SEED_SIZE];

	if (!key && !(key = enc_sign_key_new (ENC_SIGN_ED25519, seed, NULL)))
		abort ();
	return key;
}

/* The body inside a fresh envelope must be the input. */
static void same (const struct enc_buf *envelope, const uint8_t *data, size_t size)
{
	if (envelope->len != ENC_ENVELOPE_HEAD + size + ENC_ENVELOPE_SIGNATURE || memcmp (envelope->data + ENC_ENVELOPE_HEAD, data, size) != 0)
		abort ();
}

static void envelope (struct enc_view v)
{
	struct enc_view body;

	for (enum enc_envelope_type t = ENC_ENVELOPE_GRANT; t <= ENC_ENVELOPE_CERTIFICATE_ORDER; t++)
		if (enc_envelope_check (v, t, &nobody, &body, NULL) == 0)
			abort (); /* nobody can sign */
}

static void grant (struct enc_view v)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (ENC_ENVELOPE_MAX);
	struct enc_grant g;

	if (enc_grant_decode (v, &g, NULL) < 0)
		return;
	if (enc_grant_sign (&g, signer (), &out, NULL) < 0)
		abort ();
	same (&out, v.at, v.left);
}

static void members (struct enc_view v)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (1 << 20);
	enc_auto_done (enc_members_done) struct enc_members m = { 0 };

	if (enc_members_get (v, &m, NULL) < 0)
		return;
	if (enc_members_put (&m, &out, NULL) < 0 || out.len != v.left || memcmp (out.data, v.at, v.left) != 0)
		abort ();
}

static void attestation (struct enc_view v)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (ENC_ENVELOPE_MAX);
	enc_auto_done (enc_attestation_done) struct enc_attestation a = { 0 };

	if (enc_attestation_decode (v, &a, NULL) < 0)
		return;
	if (enc_attestation_sign (&a, signer (), &out, NULL) < 0)
		abort ();
	same (&out, v.at, v.left);
}

static void wrap (struct enc_view v)
{
	static const uint8_t key[32];
	const struct enc_wrap_parent parent = { key, 0 };
	const struct enc_wrap_id id = { "volume", "k", "e", 1 };
	struct enc_secret secret = { 0 };
	struct enc_kdf kdf;

	if (enc_secmem_init (1 << 20, NULL) < 0)
		abort ();
	if (enc_key_unwrap (&parent, &id, v.at, v.left, &secret) == 0)
		enc_secret_done (&secret);
	(void) !enc_kdf_read (v.at, v.left, &kdf, NULL);
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
	static void (*const decoders[]) (struct enc_view) = { envelope, grant, members, attestation, wrap };

	if (size > 0)
		decoders[data[0] % ENC_ARRAY_LEN (decoders)] (enc_view_of (data + 1, size - 1));
	return 0;
}
