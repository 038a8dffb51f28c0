/* What a verifier reads from strangers: notes, keys, checkpoints, proofs, frames and bodies. The first byte of the
 * input picks the decoder. The scanner of canonical JSON must agree with the library that writes it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "crypto/receipt.h"
#include "crypto/tlog/canon.h"
#include "crypto/tlog/frame.h"

#include "base/enc.h"

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

static void body (const uint8_t *data, size_t size)
{
	enc_auto (enc_json) struct enc_json *json = enc_json_parse_canonical ((const char *)data, size, 65536, NULL);
	struct enc_canon_value value;
	uint64_t number;
	int ours = enc_canon_check (data, size, NULL) == 0;
	int theirs = enc_json_type (json) == ENC_JSON_OBJECT;
	int wider = memmem (data, size, "\\u0000", 6) != NULL;

	/* Ours is wider in two things: keys beyond ASCII, and NUL in strings. */
	for (size_t i = 0; i < size; i++)
		wider |= data[i] >= 0x7f;
	if ((theirs && !ours) || (ours && !theirs && !wider))
		abort ();
	if (ours) {
		(void)enc_canon_find (data, size, "ts", &value);
		(void)enc_canon_u64 (data, size, "idx", &number);
	}
}

static void texts (const char *text, size_t size)
{
	static const char key[] = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
	struct enc_receipt receipt;
	struct enc_tree_head head;
	struct enc_vkey vkey, other;
	struct enc_note note;

	if (enc_vkey_parse (key, sizeof (key) - 1, &vkey, NULL) < 0)
		abort ();
	if (enc_vkey_parse (text, size, &other, NULL) == 0) {
		char again[ENC_VKEY_TEXT_MAX];

		enc_vkey_format (&other, again);
		if (strncmp (again, text, strlen (again)) != 0)
			abort ();
	}
	/* Nobody can sign for that key here. */
	if (enc_note_parse (text, size, &note, NULL) == 0 && note.text_len + 2 > size)
		abort ();
	if (enc_checkpoint_open (text, size, &vkey, &head, NULL) == 0 ||
		enc_receipt_check (text, size, "{}", 2, &vkey, &receipt, NULL) == 0)
		abort ();
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
	struct enc_frame frame;
	uint64_t first;

	if (size == 0)
		return 0;
	if (data[0] == 0)
		body (data + 1, size - 1);
	else if (data[0] == 1)
		texts ((const char *)data + 1, size - 1);
	else if (data[0] == 2 && enc_frame_parse (data + 1, size - 1, &frame) == ENC_FRAME_GOOD &&
		 frame.size > size - 1)
		abort ();
	else if (data[0] == 3 && size > 1 && data[size - 1] == 0)
		(void)enc_segment_parse ((const char *)data + 1, &first);
	return 0;
}
