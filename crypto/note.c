#include "crypto/note.h"

#include "crypto/hash.h"

#include <stdio.h>
#include <string.h>

#include "base/enc.h"

static const char dash[] = "\xe2\x80\x94 "; /* U+2014 and a space */
#define DASH_LEN (sizeof (dash) - 1)

int enc_note_name_ok (const char *name, size_t len)
{
	if (len == 0 || len > ENC_NOTE_NAME_MAX)
		return 0;
	for (size_t i = 0; i < len; i++)
		if (name[i] <= ' ' || name[i] > '~' || name[i] == '+')
			return 0;
	return 1;
}

/* SHA-256(name || LF || algorithm || key)[:4]; for ECDSA the format takes the
 * hash of the SPKI bytes alone. */
static uint32_t key_id (const char *name, const struct enc_sign_pub *pub)
{
	struct enc_span spans[4] = { { name, strlen (name) }, { "\n", 1 }, { &pub->alg, 1 }, { pub->key, pub->len } };
	struct enc_hash hash;

	if (pub->alg == ENC_SIGN_ECDSA_P256)
		enc_sha256 (pub->key, pub->len, &hash);
	else
		enc_sha256_spans (spans, 4, &hash);
	return (uint32_t)hash.b[0] << 24 | (uint32_t)hash.b[1] << 16 | (uint32_t)hash.b[2] << 8 | hash.b[3];
}

int enc_vkey_init (struct enc_vkey *vkey, const char *name, const struct enc_sign_pub *pub, struct enc_error *err)
{
	size_t len = strnlen (name, ENC_NOTE_NAME_MAX + 1);

	if (!enc_note_name_ok (name, len))
		return enc_fail (err, ENC_EINVAL, "bad key name");
	memset (vkey, 0, sizeof (*vkey));
	memcpy (vkey->name, name, len);
	vkey->pub = *pub;
	vkey->id = key_id (vkey->name, pub);
	return 0;
}

void enc_vkey_format (const struct enc_vkey *vkey, char out[static ENC_VKEY_TEXT_MAX])
{
	uint8_t raw[1 + ENC_SIGN_PUB_MAX];
	char b64[ENC_B64_LEN (sizeof (raw)) + 1];

	raw[0] = vkey->pub.alg;
	memcpy (raw + 1, vkey->pub.key, vkey->pub.len);
	(void)enc_b64_put (raw, 1 + (size_t)vkey->pub.len, b64, sizeof (b64));
	(void)snprintf (out, ENC_VKEY_TEXT_MAX, "%s+%08x+%s", vkey->name, vkey->id, b64);
}

static int parse_hex32 (const char *s, uint32_t *ret)
{
	uint32_t v = 0;

	for (int i = 0; i < 8; i++) {
		char c = s[i];

		if (c >= '0' && c <= '9')
			v = v << 4 | (uint32_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v << 4 | (uint32_t)(c - 'a' + 10);
		else
			return -1;
	}
	*ret = v;
	return 0;
}

int enc_vkey_parse (const char *text, size_t len, struct enc_vkey *ret, struct enc_error *err)
{
	const char *plus;
	uint8_t raw[1 + ENC_SIGN_PUB_MAX];
	char name[ENC_NOTE_NAME_MAX + 1];
	struct enc_sign_pub pub = { 0 };
	struct enc_vkey vkey;
	size_t name_len;
	uint32_t id;
	ssize_t n;
	int rc;

	if (len > 0 && text[len - 1] == '\n')
		len--;
	plus = memchr (text, '+', len);
	name_len = plus ? (size_t)(plus - text) : 0;
	if (!plus || !enc_note_name_ok (text, name_len) || len < name_len + 10 || plus[9] != '+' ||
		parse_hex32 (plus + 1, &id) < 0)
		return enc_fail (err, ENC_EINVAL, "not a verifier key (NAME+KEYID+KEY)");
	n = enc_b64_get (plus + 10, len - name_len - 10, raw, sizeof (raw));
	if (n < 2)
		return enc_fail (err, ENC_EINVAL, "verifier key: bad base64");
	memcpy (name, text, name_len);
	name[name_len] = '\0';
	pub.alg = raw[0];
	pub.len = (uint8_t)(n - 1);
	memcpy (pub.key, raw + 1, pub.len);
	if ((rc = enc_vkey_init (&vkey, name, &pub, err)) < 0)
		return rc;
	if (vkey.id != id)
		return enc_fail (err, ENC_EINTEGRITY, "verifier key: the key id does not match the key");
	*ret = vkey;
	return 0;
}

/* UTF-8 without control characters other than newline. Only the byte rules
 * that keep two readers from seeing two texts are checked: no overlong forms,
 * no surrogates, nothing above U+10FFFF. */
static int text_ok (const char *bytes, size_t len)
{
	const unsigned char *p = (const unsigned char *)bytes;
	const unsigned char *end = p + len;

	while (p < end) {
		size_t more = *p < 0x80 ? 0 : *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : 1;
		unsigned char c = *p;

		if ((c < 0x20 && c != '\n') || (c >= 0x80 && c < 0xc2) || c > 0xf4 || more >= (size_t)(end - p))
			return 0;
		for (size_t i = 1; i <= more; i++)
			if ((p[i] & 0xc0) != 0x80)
				return 0;
		if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f) || (c == 0xf0 && p[1] < 0x90) ||
			(c == 0xf4 && p[1] > 0x8f))
			return 0;
		p += more + 1;
	}
	return 1;
}

/* One line without its newline: "— NAME BASE64". */
static int parse_sig_line (const char *line, size_t len, struct enc_note_sig *ret)
{
	const char *end = line + len;
	const char *space;
	uint8_t id[6];
	size_t b64_len;

	if (len < DASH_LEN || memcmp (line, dash, DASH_LEN) != 0)
		return -1;
	line += DASH_LEN;
	space = memchr (line, ' ', (size_t)(end - line));
	if (!space || space == line || memchr (line, '+', (size_t)(space - line)))
		return -1;
	b64_len = (size_t)(end - space - 1);
	/* The first eight digits hold the key id and two bytes of signature. */
	if (b64_len < 8 || b64_len % 4 != 0 || enc_b64_get (space + 1, 8, id, sizeof (id)) < 5)
		return -1;
	ret->name = line;
	ret->name_len = (size_t)(space - line);
	ret->id = (uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 8 | id[3];
	ret->b64 = space + 1;
	ret->b64_len = b64_len;
	return 0;
}

/* The last empty line parts text and signatures. */
static const char *find_split (const char *bytes, size_t len)
{
	for (size_t i = len; i >= 2; i--)
		if (bytes[i - 1] == '\n' && bytes[i - 2] == '\n')
			return bytes + i;
	return NULL;
}

int enc_note_parse (const char *bytes, size_t len, struct enc_note *ret, struct enc_error *err)
{
	struct enc_note note = { 0 };
	const char *end = bytes + len;
	const char *line;

	if (len > ENC_NOTE_MAX || len < 3 || bytes[len - 1] != '\n' || !text_ok (bytes, len))
		return enc_fail (err, ENC_EINVAL, "not a signed note");
	line = find_split (bytes, len);
	if (!line || line - bytes < 2 || line == end)
		return enc_fail (err, ENC_EINVAL, "note without signatures");
	note.text = bytes;
	note.text_len = (size_t)(line - bytes) - 1;
	while (line < end) {
		const char *nl = memchr (line, '\n', (size_t)(end - line));

		if (note.n_sigs == ENC_NOTE_SIGS_MAX ||
			parse_sig_line (line, (size_t)(nl - line), &note.sigs[note.n_sigs]) < 0)
			return enc_fail (err, ENC_EINVAL, "bad signature line in a note");
		note.n_sigs++;
		line = nl + 1;
	}
	*ret = note;
	return 0;
}

static int is_by (const struct enc_note_sig *sig, const struct enc_vkey *vkey)
{
	size_t len = strlen (vkey->name);

	return sig->id == vkey->id && sig->name_len == len && memcmp (sig->name, vkey->name, len) == 0;
}

int enc_note_pick (const struct enc_note *note, const struct enc_vkey *vkey, char *out, size_t size, size_t *ret_len, struct enc_error *err)
{
	size_t used = note->text_len + 1;

	if (used + 1 > size)
		return enc_fail (err, ENC_ELIMIT, "note does not fit");
	memcpy (out, note->text, note->text_len);
	out[note->text_len] = '\n';
	for (size_t i = 0; i < note->n_sigs; i++) {
		const struct enc_note_sig *sig = &note->sigs[i];
		size_t len = DASH_LEN + sig->name_len + 1 + sig->b64_len + 1;

		if (!is_by (sig, vkey))
			continue;
		if (used + len + 1 > size)
			return enc_fail (err, ENC_ELIMIT, "note does not fit");
		memcpy (out + used, sig->name - DASH_LEN, len);
		used += len;
	}
	out[used] = '\0';
	*ret_len = used;
	return 0;
}

int enc_note_check (const struct enc_note *note, const struct enc_vkey *vkey, struct enc_error *err)
{
	int seen = 0;

	for (size_t i = 0; i < note->n_sigs; i++) {
		const struct enc_note_sig *sig = &note->sigs[i];
		uint8_t raw[4 + ENC_SIGN_SIG_MAX];
		ssize_t n;

		if (!is_by (sig, vkey))
			continue;
		n = enc_b64_get (sig->b64, sig->b64_len, raw, sizeof (raw));
		if (n < 5 || enc_sign_check (&vkey->pub, note->text, note->text_len, raw + 4, (size_t)n - 4) < 0)
			return enc_fail (err, ENC_EINTEGRITY, "bad signature by %s", vkey->name);
		seen = 1;
	}
	return seen ? 0 : enc_fail (err, ENC_ENOTFOUND, "no signature by %s", vkey->name);
}

ssize_t enc_note_sign (const char *text, const struct enc_vkey *vkey, const struct enc_sign_key *key, char *out,
	size_t size, struct enc_error *err)
{
	uint8_t raw[4 + ENC_SIGN_SIG_MAX];
	char b64[ENC_B64_LEN (sizeof (raw)) + 1];
	size_t len = strlen (text);
	struct enc_sig sig;
	int rc;

	if (len == 0 || text[len - 1] != '\n' || !text_ok (text, len))
		return enc_fail (err, ENC_EINVAL, "text cannot be a note");
	if ((rc = enc_sign (key, text, len, &sig, err)) < 0)
		return rc;
	for (int i = 0; i < 4; i++)
		raw[i] = (uint8_t)(vkey->id >> (24 - 8 * i));
	memcpy (raw + 4, sig.b, sig.len);
	(void)enc_b64_put (raw, 4 + sig.len, b64, sizeof (b64));
	rc = snprintf (out, size, "%s\n%s%s %s\n", text, dash, vkey->name, b64);
	if (rc < 0 || (size_t)rc >= size)
		return enc_fail (err, ENC_EINVAL, "note does not fit");
	return rc;
}
