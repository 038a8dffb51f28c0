/* What root reads: the first byte of the input picks the decoder. What decodes as a document must encode to the same
 * bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "node-agent/proto/document.h"
#include "node-agent/proto/order.h"

#include "base/enc.h"

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

static void document (const uint8_t *data, size_t size)
{
	static struct enc_doc doc;
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);

	if (enc_doc_decode (data, size, &doc, NULL) < 0)
		return;
	if (enc_doc_encode (&doc, &buf, NULL) < 0 || buf.len != size || memcmp (buf.data, data, size) != 0)
		abort ();
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
	struct enc_order order;
	struct enc_answer answer;
	struct enc_facts facts;
	uint32_t uid;

	if (size == 0)
		return 0;
	if (data[0] == 0)
		document (data + 1, size - 1);
	else if (data[0] == 1)
		(void)!enc_order_decode (data + 1, size - 1, &order, NULL);
	else if (data[0] == 2)
		(void)!enc_answer_decode (data + 1, size - 1, &answer, NULL);
	else if (data[0] == 3)
		(void)!enc_facts_decode (data + 1, size - 1, &facts, NULL);
	else
		(void)!enc_facts_ask_decode (data + 1, size - 1, &uid, NULL);
	return 0;
}
