/* Orders, answers and facts on the wire (docs/protocol.md section 7). All three begin with a version byte. */
#include "node-agent/proto/order.h"

#include <string.h>

#include "base/str.h"
#include "node-agent/proto/document.h"
#include "node-agent/proto/wire.h"

#include "base/enc.h"

enum { ORDER_VERSION = 1, FACTS_VERSION = 1, FACTS_ASK = 1, ORDER_MIN = 12 };

static const char *const verb_names[ENC_VERB_MAX + 1] = {
	[ENC_VERB_DOOR] = "door",
	[ENC_VERB_ROLE] = "role",
	[ENC_VERB_VOLUME] = "volume",
	[ENC_VERB_UNITS] = "units",
	[ENC_VERB_FENCE] = "fence",
	[ENC_VERB_OVERLAY] = "overlay",
	[ENC_VERB_CLEAN] = "clean",
	[ENC_VERB_MEASURE] = "measure",
	[ENC_VERB_PROBE] = "probe",
	[ENC_VERB_STATE] = "state",
	[ENC_VERB_MEMBERS] = "members",
	[ENC_VERB_QUARANTINE] = "quarantine",
	[ENC_VERB_SESSION] = "session",
};

const char *enc_verb_name (uint8_t verb)
{
	return verb >= 1 && verb <= ENC_VERB_MAX ? verb_names[verb] : "?";
}

static bool verb_ok (uint8_t verb)
{
	return verb >= 1 && verb <= ENC_VERB_MAX;
}

/* Put the length where room was left at `start`, or take everything back. */
static int finish (struct enc_buf *buf, size_t start, struct enc_error *err)
{
	size_t len;

	if (buf->failed == 0 && buf->len - start - 4 > ENC_ORDER_SIZE_MAX)
		buf->failed = -ENC_ELIMIT;
	if (buf->failed != 0) {
		int rc = enc_buf_check (buf, err);
		buf->len = start;
		return enc_wrap (err, rc, "order");
	}
	len = buf->len - start - 4;
	for (int i = 0; i < 4; i++)
		buf->data[start + (size_t)i] = (uint8_t)(len >> (8 * i));
	return 0;
}

int enc_order_encode (const struct enc_order *order, struct enc_buf *buf, struct enc_error *err)
{
	size_t start = buf->len;

	if (!verb_ok (order->verb))
		return enc_fail (err, ENC_EINVAL, "order: unknown verb %u", order->verb);
	if (order->sealed_n > ENC_ORDER_SEALED_MAX)
		return enc_fail (err, ENC_EINVAL, "order: more than %d sealed keys", ENC_ORDER_SEALED_MAX);
	for (size_t i = 0; i < order->sealed_n; i++)
		if (!enc_id_ok (order->sealed[i].key) || order->sealed[i].data.left > ENC_ORDER_SEALED_SIZE_MAX)
			return enc_fail (err, ENC_EINVAL, "order: sealed key %zu is malformed", i);
	enc_buf_put_u32 (buf, 0);
	enc_buf_put_u8 (buf, ORDER_VERSION);
	enc_buf_put_u8 (buf, order->verb);
	enc_buf_put_u16 (buf, 0);
	enc_buf_put_u64 (buf, order->request);
	enc_buf_put_bytes (buf, order->document.at, order->document.left);
	enc_buf_put_bytes (buf, order->grant.at, order->grant.left);
	enc_buf_put_u16 (buf, (uint16_t)order->sealed_n);
	for (size_t i = 0; i < order->sealed_n; i++) {
		enc_buf_put_str (buf, order->sealed[i].key);
		enc_buf_put_bytes (buf, order->sealed[i].data.at, order->sealed[i].data.left);
	}
	enc_buf_put_bytes (buf, order->extra.at, order->extra.left);
	return finish (buf, start, err);
}

int enc_answer_encode (const struct enc_answer *answer, struct enc_buf *buf, struct enc_error *err)
{
	size_t start = buf->len;

	if (!verb_ok (answer->verb))
		return enc_fail (err, ENC_EINVAL, "answer: unknown verb %u", answer->verb);
	enc_buf_put_u32 (buf, 0);
	enc_buf_put_u8 (buf, ORDER_VERSION);
	enc_buf_put_u8 (buf, answer->verb);
	enc_buf_put_u16 (buf, answer->code);
	enc_buf_put_u64 (buf, answer->request);
	enc_buf_put_str (buf, answer->text);
	enc_buf_put_str (buf, answer->next);
	enc_buf_put_bytes (buf, answer->evidence.at, answer->evidence.left);
	return finish (buf, start, err);
}

int enc_order_length (const uint8_t head[4], size_t *ret, struct enc_error *err)
{
	size_t len = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;

	if (len > ENC_ORDER_SIZE_MAX)
		return enc_fail (err, ENC_ELIMIT, "order: %zu bytes, the limit is %d", len, ENC_ORDER_SIZE_MAX);
	if (len < ORDER_MIN)
		return enc_fail (err, ENC_EINVAL, "order: %zu bytes are too few", len);
	*ret = len;
	return 0;
}

/* The 12 bytes that orders and answers begin with. */
static int get_head (
	struct enc_view *view, uint8_t *ret_verb, uint16_t *ret_code, uint64_t *ret_request, struct enc_error *err)
{
	uint8_t version = enc_view_u8 (view);

	*ret_verb = enc_view_u8 (view);
	*ret_code = enc_view_u16 (view);
	*ret_request = enc_view_u64 (view);
	if (view->bad || version != ORDER_VERSION)
		return enc_fail (err, ENC_EINVAL, "order: unknown version %u", version);
	if (!verb_ok (*ret_verb))
		return enc_fail (err, ENC_EINVAL, "order: unknown verb %u", *ret_verb);
	return 0;
}

static int get_sealed (struct enc_view *view, struct enc_order *order, struct enc_error *err)
{
	order->sealed_n = enc_view_u16 (view);
	if (order->sealed_n > ENC_ORDER_SEALED_MAX)
		return enc_fail (err, ENC_EINVAL, "order: more than %d sealed keys", ENC_ORDER_SEALED_MAX);
	for (size_t i = 0; i < order->sealed_n; i++) {
		enc_view_str (view, order->sealed[i].key, sizeof order->sealed[i].key);
		order->sealed[i].data = enc_view_bytes (view, ENC_ORDER_SEALED_SIZE_MAX);
		if (view->bad || !enc_id_ok (order->sealed[i].key))
			return enc_fail (err, ENC_EINVAL, "order: sealed key %zu is malformed", i);
	}
	return 0;
}

int enc_order_decode (const void *data, size_t len, struct enc_order *ret, struct enc_error *err)
{
	struct enc_view view = enc_view_of (data, len);
	struct enc_order order = { 0 };
	uint16_t zero;
	int rc;

	if (len > ENC_ORDER_SIZE_MAX)
		return enc_fail (err, ENC_ELIMIT, "order: longer than %d bytes", ENC_ORDER_SIZE_MAX);
	if ((rc = get_head (&view, &order.verb, &zero, &order.request, err)) < 0)
		return rc;
	if (zero != 0)
		return enc_fail (err, ENC_EINVAL, "order: reserved field is not 0");
	order.document = enc_view_bytes (&view, ENC_DOC_SIZE_MAX);
	order.grant = enc_view_bytes (&view, ENC_ORDER_BYTES_MAX);
	if ((rc = get_sealed (&view, &order, err)) < 0)
		return rc;
	order.extra = enc_view_bytes (&view, ENC_ORDER_BYTES_MAX);
	if ((rc = enc_view_end (&view, err)) < 0)
		return enc_wrap (err, rc, "order");
	*ret = order;
	return 0;
}

int enc_answer_decode (const void *data, size_t len, struct enc_answer *ret, struct enc_error *err)
{
	struct enc_view view = enc_view_of (data, len);
	struct enc_answer answer = { 0 };
	int rc;

	if (len > ENC_ORDER_SIZE_MAX)
		return enc_fail (err, ENC_ELIMIT, "answer: longer than %d bytes", ENC_ORDER_SIZE_MAX);
	if ((rc = get_head (&view, &answer.verb, &answer.code, &answer.request, err)) < 0)
		return rc;
	enc_view_str (&view, answer.text, sizeof answer.text);
	enc_view_str (&view, answer.next, sizeof answer.next);
	answer.evidence = enc_view_bytes (&view, ENC_ORDER_BYTES_MAX);
	if ((rc = enc_view_end (&view, err)) < 0)
		return enc_wrap (err, rc, "answer");
	*ret = answer;
	return 0;
}

int enc_facts_ask_encode (uint32_t uid, struct enc_buf *buf, struct enc_error *err)
{
	enc_buf_put_u8 (buf, FACTS_VERSION);
	enc_buf_put_u8 (buf, FACTS_ASK);
	enc_buf_put_u32 (buf, uid);
	return enc_buf_check (buf, err);
}

int enc_facts_ask_decode (const void *data, size_t len, uint32_t *ret_uid, struct enc_error *err)
{
	struct enc_view view = enc_view_of (data, len);
	uint8_t version = enc_view_u8 (&view), ask = enc_view_u8 (&view);
	uint32_t uid = enc_view_u32 (&view);
	int rc;

	if ((rc = enc_view_end (&view, err)) < 0)
		return enc_wrap (err, rc, "facts");
	if (version != FACTS_VERSION || ask != FACTS_ASK)
		return enc_fail (err, ENC_EINVAL, "facts: unknown version or question");
	*ret_uid = uid;
	return 0;
}

int enc_facts_encode (const struct enc_facts *facts, struct enc_buf *buf, struct enc_error *err)
{
	enc_buf_put_u8 (buf, FACTS_VERSION);
	enc_buf_put_u8 (buf, facts->pool);
	enc_buf_put_u8 (buf, facts->door);
	enc_buf_put_u8 (buf, facts->agent_alive);
	enc_buf_put_u64 (buf, facts->generation);
	enc_buf_put_u64 (buf, facts->not_after);
	enc_buf_put_str (buf, facts->enclave_id);
	enc_buf_put_str (buf, facts->enclave_name);
	enc_buf_put_u64 (buf, facts->member_version);
	enc_buf_put_u8 (buf, facts->volumes_open);
	enc_buf_put_bytes (buf, facts->plugin_hash, sizeof facts->plugin_hash);
	enc_buf_put_bytes (buf, facts->plugstack_hash, sizeof facts->plugstack_hash);
	return enc_buf_check (buf, err);
}

int enc_facts_decode (const void *data, size_t len, struct enc_facts *ret, struct enc_error *err)
{
	struct enc_view view = enc_view_of (data, len);
	struct enc_facts facts = { 0 };
	uint8_t version = enc_view_u8 (&view), door, alive;
	int rc;

	facts.pool = enc_view_u8 (&view);
	door = enc_view_u8 (&view);
	alive = enc_view_u8 (&view);
	facts.generation = enc_view_u64 (&view);
	facts.not_after = enc_view_u64 (&view);
	enc_view_str (&view, facts.enclave_id, sizeof facts.enclave_id);
	enc_view_str (&view, facts.enclave_name, sizeof facts.enclave_name);
	facts.member_version = enc_view_u64 (&view);
	facts.volumes_open = enc_view_u8 (&view);
	enc_proto_fixed (&view, facts.plugin_hash, sizeof facts.plugin_hash);
	enc_proto_fixed (&view, facts.plugstack_hash, sizeof facts.plugstack_hash);
	if ((rc = enc_view_end (&view, err)) < 0)
		return enc_wrap (err, rc, "facts");
	if (version != FACTS_VERSION || facts.pool > ENC_POOL_QUARANTINE || door > 1 || alive > 1)
		return enc_fail (err, ENC_EINVAL, "facts: unknown version or value");
	if ((facts.enclave_id[0] && !enc_id_ok (facts.enclave_id)) ||
		(facts.enclave_name[0] && !enc_name_ok (facts.enclave_name)))
		return enc_fail (err, ENC_EINVAL, "facts: malformed enclave");
	facts.door = door;
	facts.agent_alive = alive;
	*ret = facts;
	return 0;
}
