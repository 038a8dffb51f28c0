#include "node-agent/agentd/work.h"

#include <string.h>

#include "base/str.h"
#include "base/enc.h"

enum { BYTES_MAX = ENC_ORDER_BYTES_MAX };

/* A base64 member into `out`; absent and null are empty. */
static int get_bytes (const struct enc_json *j, const char *key, struct enc_buf *out, struct enc_error *err)
{
	const struct enc_json *v = enc_json_get (j, key);
	const char *s = enc_json_str (v);
	if (!v || enc_json_type (v) == ENC_JSON_NULL)
		return 0;
	if (!s)
		return enc_fail (err, ENC_EINVAL, "/%s: not a string", key);
	return enc_wrap (err, enc_get_base64 (s, strlen (s), out, err), "/%s", key);
}

static int get_sealed (const struct enc_json *j, struct enc_work *w, struct enc_error *err)
{
	const struct enc_json *list = enc_json_get (j, "sealed");
	size_t n = enc_json_len (list);
	if (n > ENC_ORDER_SEALED_MAX)
		return enc_fail (err, ENC_ELIMIT, "/sealed: %zu keys, at most %d", n, ENC_ORDER_SEALED_MAX);
	for (size_t i = 0; i < n; i++) {
		const struct enc_json *item = enc_json_at (list, i);
		const char *key;
		int rc = enc_json_need_str (item, "key", &key, err);
		if (rc < 0)
			return rc;
		if (!enc_id_ok (key))
			return enc_fail (err, ENC_EINVAL, "/sealed/%zu/key: not an id", i);
		memcpy (w->sealed[i].key, key, ENC_ID_SIZE);
		w->sealed[i].data = ENC_BUF_INIT (ENC_ORDER_SEALED_SIZE_MAX);
		w->sealed_n = i + 1;
		if ((rc = get_bytes (item, "data", &w->sealed[i].data, err)) < 0)
			return rc;
	}
	return 0;
}

static int work_fill (const struct enc_json *answer, const char *node, struct enc_work *w, struct enc_error *err)
{
	int rc = enc_json_need_u64 (answer, "generation", UINT64_MAX, &w->generation, err);
	if (rc < 0 || (rc = get_bytes (answer, "document", &w->document, err)) < 0 || (rc = get_bytes (answer, "grant", &w->grant, err)) < 0 ||
	    (rc = get_bytes (answer, "members", &w->members, err)) < 0 || (rc = get_sealed (answer, w, err)) < 0)
		return rc;
	if ((rc = enc_doc_decode (w->document.data, w->document.len, &w->doc, err)) < 0)
		return enc_wrap (err, rc, "/document");
	if (strcmp (w->doc.node, node) != 0)
		return enc_fail (err, ENC_EINTEGRITY, "the controller sent a document for another node");
	if (w->doc.generation != w->generation)
		return enc_fail (err, ENC_EINTEGRITY, "the document's generation differs from the message's");
	uint8_t digest[32];
	enc_doc_digest (w->document.data, w->document.len, digest);
	enc_auto_free char *hex = enc_hex (digest, sizeof digest);
	if (!hex)
		return enc_fail (err, ENC_ENOMEM, "no memory for a document");
	memcpy (w->digest, hex, sizeof w->digest);
	return 0;
}

struct enc_work *enc_work_parse (const struct enc_json *answer, const char *node, struct enc_error *err)
{
	enc_auto (enc_work) struct enc_work *w = calloc (1, sizeof *w);
	if (!w) {
		(void) enc_fail (err, ENC_ENOMEM, "no memory for a document");
		return NULL;
	}
	w->document = ENC_BUF_INIT (BYTES_MAX);
	w->grant = ENC_BUF_INIT (BYTES_MAX);
	w->members = ENC_BUF_INIT (BYTES_MAX);
	if (work_fill (answer, node, w, err) < 0)
		return NULL;
	return ENC_TAKE (w);
}

void enc_work_free (struct enc_work *w)
{
	if (!w)
		return;
	enc_buf_done (&w->document);
	enc_buf_done (&w->grant);
	enc_buf_done (&w->members);
	for (size_t i = 0; i < w->sealed_n; i++)
		enc_buf_done (&w->sealed[i].data);
	free (w);
}

void enc_work_order (const struct enc_work *w, uint8_t verb, struct enc_order *ret)
{
	memset (ret, 0, sizeof *ret);
	ret->verb = verb;
	if (verb == ENC_VERB_MEMBERS) {
		ret->extra = enc_view_of (w->members.data, w->members.len);
		return;
	}
	ret->document = enc_view_of (w->document.data, w->document.len);
	ret->grant = enc_view_of (w->grant.data, w->grant.len);
	ret->sealed_n = w->sealed_n;
	for (size_t i = 0; i < w->sealed_n; i++) {
		memcpy (ret->sealed[i].key, w->sealed[i].key, ENC_ID_SIZE);
		ret->sealed[i].data = enc_view_of (w->sealed[i].data.data, w->sealed[i].data.len);
	}
}
