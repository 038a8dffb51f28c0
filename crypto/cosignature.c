#include "crypto/cosignature.h"

#include "crypto/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/enc.h"

#define HEAD 12 /* key id and time before the signature */
#define SIG 64

int enc_cosign_vkey (struct enc_vkey *ret, const char *name, const struct enc_sign_key *key, struct enc_error *err)
{
	struct enc_sign_pub pub = *enc_sign_key_pub (key);

	if (pub.alg != ENC_SIGN_ED25519)
		return enc_fail (err, ENC_EINVAL, "witnesses sign with Ed25519");
	pub.alg = ENC_COSIGN_ED25519;
	return enc_vkey_init (ret, name, &pub, err);
}

/* "cosignature/v1\ntime T\n" and the whole text of the note. The caller frees. */
static char *message (const struct enc_note *note, uint64_t time, size_t *ret_len)
{
	char head[64];
	int n = snprintf (head, sizeof (head), "cosignature/v1\ntime %llu\n", (unsigned long long)time);
	char *text = malloc ((size_t)n + note->text_len);

	if (!text)
		return NULL;
	memcpy (text, head, (size_t)n);
	memcpy (text + n, note->text, note->text_len);
	*ret_len = (size_t)n + note->text_len;
	return text;
}

static void put_be (uint8_t *out, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		out[i] = (uint8_t)(v >> (8 * (bytes - 1 - i)));
}

static uint64_t get_be64 (const uint8_t *in)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v = v << 8 | in[i];
	return v;
}

ssize_t enc_cosign (const struct enc_note *note, const struct enc_vkey *vkey, const struct enc_sign_key *key, uint64_t time,
	char *out, size_t size, struct enc_error *err)
{
	uint8_t raw[HEAD + SIG];
	char b64[ENC_B64_LEN (sizeof (raw)) + 1];
	size_t len = 0;
	enc_auto_free char *text = message (note, time, &len);
	struct enc_sig sig;
	int rc;

	if (!text)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if (time > INT64_MAX)
		return enc_fail (err, ENC_EINVAL, "no time for a cosignature");
	if ((rc = enc_sign (key, text, len, &sig, err)) < 0)
		return rc;
	put_be (raw, vkey->id, 4);
	put_be (raw + 4, time, 8);
	memcpy (raw + HEAD, sig.b, SIG);
	(void)enc_b64_put (raw, sizeof (raw), b64, sizeof (b64));
	rc = snprintf (out, size, "\xe2\x80\x94 %s %s\n", vkey->name, b64);
	return rc > 0 && (size_t)rc < size ? rc : enc_fail (err, ENC_ELIMIT, "cosignature does not fit");
}

static int check_one (const struct enc_note *note, const struct enc_note_sig *sig, const struct enc_vkey *vkey, uint64_t *ret_time)
{
	struct enc_sign_pub pub = vkey->pub;
	uint8_t raw[HEAD + SIG + 3];
	size_t len = 0;
	uint64_t time;
	enc_auto_free char *text = NULL;

	if (enc_b64_get (sig->b64, sig->b64_len, raw, sizeof (raw)) != HEAD + SIG)
		return -ENC_EINTEGRITY;
	time = get_be64 (raw + 4);
	text = message (note, time, &len);
	pub.alg = ENC_SIGN_ED25519;
	if (!text || time > INT64_MAX || enc_sign_check (&pub, text, len, raw + HEAD, SIG) < 0)
		return -ENC_EINTEGRITY;
	*ret_time = time;
	return 0;
}

int enc_cosign_check (const struct enc_note *note, const struct enc_vkey *vkey, uint64_t *ret_time, struct enc_error *err)
{
	size_t name_len = strlen (vkey->name);
	uint64_t newest = 0, time = 0;
	int seen = 0;

	if (vkey->pub.alg != ENC_COSIGN_ED25519)
		return enc_fail (err, ENC_EINVAL, "%s is not the key of a witness", vkey->name);
	for (size_t i = 0; i < note->n_sigs; i++) {
		const struct enc_note_sig *sig = &note->sigs[i];

		if (sig->id != vkey->id || sig->name_len != name_len || memcmp (sig->name, vkey->name, name_len) != 0)
			continue;
		if (check_one (note, sig, vkey, &time) < 0)
			return enc_fail (err, ENC_EINTEGRITY, "wrong cosignature by %s", vkey->name);
		newest = time > newest ? time : newest;
		seen = 1;
	}
	if (!seen)
		return enc_fail (err, ENC_ENOTFOUND, "no cosignature by %s", vkey->name);
	*ret_time = newest;
	return 0;
}
