#include "controller/keyd/claim.h"

#include "base/enctime.h"
#include "crypto/hash.h"
#include "crypto/receipt.h"
#include "base/enc.h"

enum { RECORD_MAX = 65535, PROOF_MAX = 65536, CLOCK_OFF_S = 300 };

/* As it stands in the record; strings are checked on the way into the claim. */
struct head {
	char *verb, *object, *node, *boot, *enclave, *document, *nonce;
	uint64_t generation, not_after;
};

static const struct enc_field head_fields[] = {
	ENC_FIELD (struct head, verb, "verb", ENC_T_STR, .flags = ENC_REQUIRED | ENC_NONEMPTY, .max = 32),
	ENC_FIELD (struct head, object, "object", ENC_T_STR, .max = 128),
	ENC_FIELD (struct head, node, "node", ENC_T_NODE),
	ENC_FIELD (struct head, boot, "boot", ENC_T_STR, .max = 32),
	ENC_FIELD (struct head, generation, "generation", ENC_T_U64, .max = UINT64_C (1) << 53),
	ENC_FIELD (struct head, enclave, "enclave", ENC_T_ID),
	ENC_FIELD (struct head, document, "document", ENC_T_STR, .max = 64),
	ENC_FIELD (struct head, nonce, "nonce", ENC_T_STR, .flags = ENC_REQUIRED, .max = 32),
	ENC_FIELD (struct head, not_after, "not_after", ENC_T_U64, .max = UINT64_C (1) << 40),
	ENC_FIELD_END,
};

static const struct member {
	unsigned bit;
	const char *name;
} members[] = {
	{ ENC_HEAD_OBJECT, "object" }, { ENC_HEAD_NODE, "node" }, { ENC_HEAD_BOOT, "boot" }, { ENC_HEAD_GENERATION, "generation" },
	{ ENC_HEAD_ENCLAVE, "enclave" }, { ENC_HEAD_DOCUMENT, "document" }, { ENC_HEAD_NOT_AFTER, "not_after" },
};

static void head_done (struct head *h)
{
	enc_fields_done (head_fields, h);
}

/* Which members are there; null is not there. */
static unsigned present (const struct enc_json *head)
{
	unsigned has = 0;

	for (size_t i = 0; i < ENC_ARRAY_LEN (members); i++)
		if (enc_json_type (enc_json_get (head, members[i].name)) > ENC_JSON_NULL)
			has |= members[i].bit;
	return has;
}

static int take_text (char *out, size_t size, const char *from, struct enc_error *err)
{
	return from ? enc_str_copy (out, size, from, err) : 0;
}

static int fill (const struct head *h, struct enc_claim *c, struct enc_error *err)
{
	int rc;

	if ((rc = take_text (c->verb, sizeof c->verb, h->verb, err)) < 0 ||
		(rc = take_text (c->object, sizeof c->object, h->object, err)) < 0 ||
		(rc = take_text (c->node, sizeof c->node, h->node, err)) < 0 ||
		(rc = take_text (c->enclave, sizeof c->enclave, h->enclave, err)) < 0 ||
		(rc = enc_hex_fixed (h->nonce, c->nonce, sizeof c->nonce, err)) < 0)
		return rc;
	if ((c->has & ENC_HEAD_BOOT) && (rc = enc_hex_fixed (h->boot, c->boot, sizeof c->boot, err)) < 0)
		return rc;
	if ((c->has & ENC_HEAD_DOCUMENT) && (rc = enc_hex_fixed (h->document, c->document, sizeof c->document, err)) < 0)
		return rc;
	c->generation = h->generation;
	c->not_after = h->not_after;
	return 0;
}

/* The log's clock and ours must roughly agree: a clock that is off would stretch leases and grants. */
static int check_time (struct enc_keyd *k, const struct enc_json *record, struct enc_error *err)
{
	int64_t ns = 0, now = k->wall_s ();

	if (enc_time_parse (enc_json_get_str (record, "ts", ""), &ns, NULL) < 0)
		return enc_fail (err, ENC_EINTEGRITY, "the record has no time");
	int64_t off = ns / ENC_NS_S - now;
	if (off > CLOCK_OFF_S || off < -CLOCK_OFF_S)
		return enc_error_next (err, enc_fail (err, ENC_EFAILED, "the clocks of log and key service differ by %lld s", (long long) off),
			"set the clocks of both hosts");
	return 0;
}

static int read_head (const struct enc_json *record, struct enc_claim *c, struct enc_error *err)
{
	const struct enc_json *json = enc_json_get (record, "head");
	const char *outcome = enc_json_get_str (record, "outcome", "");
	enc_auto_done (head_done) struct head h = { 0 };
	int rc;

	if (enc_json_type (json) != ENC_JSON_OBJECT)
		return enc_fail (err, ENC_EDENIED, "the record has no head");
	/* A record that something was refused or failed allows nothing. */
	if (!enc_streq (outcome, "intent") && !enc_streq (outcome, "ok"))
		return enc_fail (err, ENC_EDENIED, "the record does not say that the act goes ahead");
	if ((rc = enc_json_decode (head_fields, json, &h, err)) < 0)
		return enc_wrap (err, rc, "head of the record");
	c->has = present (json);
	return enc_wrap (err, fill (&h, c, err), "head of the record");
}

int enc_claim_check (struct enc_keyd *k, const struct enc_json *body, struct enc_claim *ret, struct enc_error *err)
{
	struct enc_claim c = { 0 };
	struct enc_receipt receipt;
	struct enc_error why = { 0 };
	const char *record = NULL, *proof = NULL;
	int rc;

	if ((rc = enc_json_need_str (body, "record", &record, err)) < 0 || (rc = enc_json_need_str (body, "proof", &proof, err)) < 0)
		return rc;
	if (strlen (record) > RECORD_MAX || strlen (proof) > PROOF_MAX)
		return enc_fail (err, ENC_ELIMIT, "record or proof is too long");
	if (enc_receipt_check (proof, strlen (proof), record, strlen (record), &k->log, &receipt, &why) < 0)
		return enc_fail (err, ENC_EINTEGRITY, "the receipt does not hold: %s", why.text);
	enc_auto (enc_json) struct enc_json *json = enc_json_parse (record, strlen (record), RECORD_MAX, err);
	if (!json)
		return enc_fail (err, ENC_EINTEGRITY, "the record is not JSON");
	if ((rc = read_head (json, &c, err)) < 0 || (rc = check_time (k, json, err)) < 0)
		return rc;
	c.record = receipt.index;
	if ((rc = enc_nonces_take (k->nonces, k->mono (), c.nonce, ENC_NONCE_RECEIPT_S, err)) < 0)
		return rc;
	*ret = c;
	return 0;
}

static int differs (const char *member, struct enc_error *err)
{
	return enc_error_pointer (err, enc_fail (err, ENC_EDENIED, "the record is about another %s than the request", member), "/head/%s",
		member);
}

/* A member of the request that the head has too. Request members of another type are the handler's to refuse. */
static bool equal_there (const struct enc_claim *c, const struct enc_json *body, unsigned bit)
{
	const struct enc_json *node = enc_json_get (body, "node"), *enclave = enc_json_get (body, "enclave");
	const struct enc_json *generation = enc_json_get (body, "generation"), *not_after = enc_json_get (body, "not_after");

	switch (bit) {
	case ENC_HEAD_NODE:
		return !node || enc_streq (enc_json_str (node), c->node);
	case ENC_HEAD_ENCLAVE:
		return !enclave || enc_streq (enc_json_str (enclave), c->enclave);
	case ENC_HEAD_GENERATION:
		return !generation || enc_json_u64 (generation, UINT64_MAX) == c->generation;
	case ENC_HEAD_NOT_AFTER:
		return !not_after || enc_json_u64 (not_after, UINT64_MAX) == c->not_after;
	default:
		return true;
	}
}

int enc_claim_fits (const struct enc_claim *c, const struct enc_json *body, unsigned need, unsigned may, struct enc_error *err)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (members); i++) {
		unsigned bit = members[i].bit;

		if ((need & bit) && !(c->has & bit))
			return enc_error_pointer (err, enc_fail (err, ENC_EDENIED, "the record's head has no %s", members[i].name), "/head/%s",
				members[i].name);
		if ((c->has & bit) && !((need | may) & bit))
			return enc_error_pointer (err, enc_fail (err, ENC_EDENIED, "the record's head has a %s, which %s does not use",
				members[i].name, c->verb), "/head/%s", members[i].name);
		if ((c->has & bit) && !equal_there (c, body, bit))
			return differs (members[i].name, err);
	}
	return 0;
}

int enc_claim_document (const struct enc_claim *c, const void *data, size_t len, struct enc_error *err)
{
	struct enc_hash hash;

	enc_sha256 (data, len, &hash);
	return enc_mem_equal (hash.b, c->document, sizeof c->document) ? 0 : differs ("document", err);
}

int enc_claim_object (const struct enc_claim *c, const char *object, struct enc_error *err)
{
	return enc_streq (c->object, object) ? 0 : differs ("object", err);
}
