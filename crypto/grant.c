#include "crypto/grant.h"

#include "base/str.h"
#include "crypto/wire.h"
#include "base/enc.h"

enum { VERSION = 1, BODY_MAX = 256 };

static int check (const struct enc_grant *g, struct enc_error *err)
{
	if (!enc_node_name_ok (g->node))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "grant: bad node name"), "/node");
	if (g->enclave[0] && !enc_id_ok (g->enclave))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "grant: bad enclave id"), "/enclave");
	if (g->pool > ENC_GRANT_POOL_MAX)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "grant: unknown pool %u", g->pool), "/pool");
	if (g->generation == 0)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "grant: generation 0"), "/generation");
	if (g->not_after <= g->not_before)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "grant: ends before it starts"), "/not_after");
	return 0;
}

int enc_grant_sign (const struct enc_grant *g, const struct enc_sign_key *key, struct enc_buf *out, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf body = ENC_BUF_INIT (BODY_MAX);
	int rc = check (g, err);

	if (rc < 0)
		return rc;
	enc_buf_put_u8 (&body, VERSION);
	enc_wire_put_str (&body, g->node, sizeof g->node - 1);
	enc_wire_put_bytes (&body, g->boot, sizeof g->boot, sizeof g->boot);
	enc_buf_put_u64 (&body, g->generation);
	enc_wire_put_str (&body, g->enclave, sizeof g->enclave - 1);
	enc_wire_put_bytes (&body, g->document, sizeof g->document, sizeof g->document);
	enc_buf_put_u8 (&body, g->pool);
	enc_buf_put_u64 (&body, g->not_before);
	enc_buf_put_u64 (&body, g->not_after);
	enc_buf_put_u64 (&body, g->record);
	return enc_envelope_sign (key, ENC_ENVELOPE_GRANT, &body, out, err);
}

int enc_grant_decode (struct enc_view v, struct enc_grant *ret, struct enc_error *err)
{
	struct enc_grant g = { 0 };

	if (enc_view_u8 (&v) != VERSION)
		return enc_fail (err, ENC_EINVAL, "a grant of an unknown version");
	enc_wire_str (&v, g.node, sizeof g.node);
	enc_wire_fixed (&v, g.boot, sizeof g.boot);
	g.generation = enc_view_u64 (&v);
	enc_wire_str (&v, g.enclave, sizeof g.enclave);
	enc_wire_fixed (&v, g.document, sizeof g.document);
	g.pool = enc_view_u8 (&v);
	g.not_before = enc_view_u64 (&v);
	g.not_after = enc_view_u64 (&v);
	g.record = enc_view_u64 (&v);
	int rc = enc_view_end (&v, err);
	if (rc == 0)
		rc = check (&g, err);
	if (rc == 0)
		*ret = g;
	return rc;
}

int enc_grant_read (struct enc_view envelope, const struct enc_sign_pub *keyd, struct enc_grant *ret, struct enc_error *err)
{
	struct enc_view body;
	int rc = enc_envelope_check (envelope, ENC_ENVELOPE_GRANT, keyd, &body, err);

	if (rc == 0)
		rc = enc_grant_decode (body, ret, err);
	return enc_wrap (err, rc, "grant");
}

int enc_grant_fits (const struct enc_grant *g, const struct enc_grant_facts *facts, struct enc_error *err)
{
	if (!enc_streq (g->node, facts->node))
		return enc_fail (err, ENC_EDENIED, "the grant is for node %s", g->node);
	if (!enc_mem_equal (g->boot, facts->boot, sizeof g->boot))
		return enc_fail (err, ENC_EDENIED, "the grant is for another boot of this node");
	if (!enc_mem_equal (g->document, facts->document, sizeof g->document))
		return enc_fail (err, ENC_EDENIED, "the grant is for another document");
	if (g->generation != facts->generation || g->generation < facts->last_generation)
		return enc_fail (err, ENC_EDENIED, "the grant is for generation %llu", (unsigned long long) g->generation);
	if (facts->now + ENC_GRANT_SKEW_S < g->not_before)
		return enc_fail (err, ENC_EDENIED, "the grant does not hold yet: compare the clocks");
	if (facts->now >= g->not_after)
		return enc_fail (err, ENC_EDENIED, "the grant has ended");
	return 0;
}
