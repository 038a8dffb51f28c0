/* One order of the controller as it came: opaque bytes with their generation. agentd reads the document for its areas only. */
#ifndef ENC_AGENTD_WORK_H
#define ENC_AGENTD_WORK_H

#include "base/json.h"
#include "node-agent/proto/document.h"
#include "node-agent/proto/order.h"

struct enc_work {
	uint64_t generation;
	struct enc_buf document, grant, members;
	size_t sealed_n;
	struct {
		char key[27];
		struct enc_buf data;
	} sealed[ENC_ORDER_SEALED_MAX];
	struct enc_doc doc;
	char digest[65]; /* SHA-256 of the document, hex */
};

/* Read the answer of GET /v1/agent/document (docs/protocol.md section 5). `node` is our own name: a document for another is refused with
 * -ENC_EINTEGRITY, anything malformed with -ENC_EINVAL. Free with enc_work_free(). */
struct enc_work *enc_work_parse (const struct enc_json *answer, const char *node, struct enc_error *err) ENC_MUST_USE;
void enc_work_free (struct enc_work *work);
ENC_DEFINE_AUTO (enc_work, struct enc_work, enc_work_free);

/* An order of `verb` with everything that privd needs to decide; it borrows from `work`. */
void enc_work_order (const struct enc_work *work, uint8_t verb, struct enc_order *ret);

#endif
