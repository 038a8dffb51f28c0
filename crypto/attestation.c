#include "crypto/attestation.h"

#include "base/str.h"
#include "crypto/wire.h"
#include "base/enc.h"

enum { VERSION = 1, BODY_MAX = 48 * 1024 };

static bool row_name_ok (const char *s)
{
	if (!s[0])
		return false;
	for (; *s; s++)
		if (*s <= ' ' || *s > '~')
			return false;
	return true;
}

static int check_rows (const struct enc_attest_row *rows, size_t n, struct enc_error *err)
{
	if (n > ENC_ATTEST_ROWS_MAX)
		return enc_fail (err, ENC_ELIMIT, "%zu rows measured; %d are possible", n, ENC_ATTEST_ROWS_MAX);
	for (size_t i = 0; i < n; i++) {
		if (!row_name_ok (rows[i].name))
			return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "bad row name"), "/rows/%zu", i);
		if (i > 0 && strcmp (rows[i - 1].name, rows[i].name) >= 0)
			return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "rows are not sorted at %s", rows[i].name),
				"/rows/%zu", i);
	}
	return 0;
}

static int check (const struct enc_attestation *a, struct enc_error *err)
{
	if (!enc_node_name_ok (a->node))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "attestation: bad node name"), "/node");
	if (strlen (a->boot_id) != 36)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "attestation: bad boot id"), "/boot_id");
	if (a->boot_key[0] != 4)
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "attestation: bad boot key"), "/boot_key");
	if (!enc_streq (a->driver, "none") && !enc_streq (a->driver, "tpm2"))
		return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "attestation: unknown driver"), "/driver");
	return check_rows (a->rows, a->rows_n, err);
}

int enc_attest_rows_put (const struct enc_attest_row *rows, size_t n, struct enc_buf *out, struct enc_error *err)
{
	int rc = check_rows (rows, n, err);

	if (rc < 0)
		return rc;
	enc_buf_put_u16 (out, (uint16_t) n);
	for (size_t i = 0; i < n; i++) {
		enc_wire_put_str (out, rows[i].name, sizeof rows[i].name - 1);
		enc_wire_put_bytes (out, rows[i].digest, sizeof rows[i].digest, sizeof rows[i].digest);
	}
	return enc_buf_check (out, err);
}

int enc_attest_rows_get (struct enc_view *v, struct enc_attest_row **ret, size_t *ret_n, struct enc_error *err)
{
	size_t n = enc_wire_count (v, ENC_ATTEST_ROWS_MAX);
	enc_auto_free struct enc_attest_row *rows = calloc (n ? n : 1, sizeof *rows);

	if (!rows)
		return enc_fail (err, ENC_ENOMEM, "no memory for %zu rows", n);
	for (size_t i = 0; i < n && !v->bad; i++) {
		enc_wire_str (v, rows[i].name, sizeof rows[i].name);
		enc_wire_fixed (v, rows[i].digest, sizeof rows[i].digest);
	}
	if (v->bad)
		return enc_fail (err, ENC_EINVAL, "rows are cut short or too long");
	int rc = check_rows (rows, n, err);
	if (rc < 0)
		return rc;
	*ret = ENC_TAKE (rows);
	*ret_n = n;
	return 0;
}

int enc_attestation_sign (const struct enc_attestation *a, const struct enc_sign_key *identity, struct enc_buf *out,
	struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf body = ENC_BUF_INIT (BODY_MAX);
	int rc = check (a, err);

	if (rc < 0)
		return rc;
	enc_buf_put_u8 (&body, VERSION);
	enc_wire_put_str (&body, a->node, sizeof a->node - 1);
	enc_wire_put_bytes (&body, a->boot, sizeof a->boot, sizeof a->boot);
	enc_wire_put_str (&body, a->boot_id, sizeof a->boot_id - 1);
	enc_wire_put_bytes (&body, a->challenge, sizeof a->challenge, sizeof a->challenge);
	enc_buf_put_u64 (&body, a->time);
	enc_wire_put_bytes (&body, a->boot_key, sizeof a->boot_key, sizeof a->boot_key);
	enc_wire_put_str (&body, a->driver, sizeof a->driver - 1);
	enc_wire_put_bytes (&body, a->quote, a->quote_len, ENC_ATTEST_QUOTE_MAX);
	if ((rc = enc_attest_rows_put (a->rows, a->rows_n, &body, err)) < 0)
		return rc;
	return enc_envelope_sign (identity, ENC_ENVELOPE_ATTESTATION, &body, out, err);
}

void enc_attestation_done (struct enc_attestation *a)
{
	free (a->rows);
	*a = (struct enc_attestation){ 0 };
}

int enc_attestation_decode (struct enc_view v, struct enc_attestation *ret, struct enc_error *err)
{
	enc_auto_done (enc_attestation_done) struct enc_attestation a = { 0 };
	int rc;

	if (enc_view_u8 (&v) != VERSION)
		return enc_fail (err, ENC_EINVAL, "an attestation of an unknown version");
	enc_wire_str (&v, a.node, sizeof a.node);
	enc_wire_fixed (&v, a.boot, sizeof a.boot);
	enc_wire_str (&v, a.boot_id, sizeof a.boot_id);
	enc_wire_fixed (&v, a.challenge, sizeof a.challenge);
	a.time = enc_view_u64 (&v);
	enc_wire_fixed (&v, a.boot_key, sizeof a.boot_key);
	enc_wire_str (&v, a.driver, sizeof a.driver);
	struct enc_view quote = enc_wire_bytes (&v, ENC_ATTEST_QUOTE_MAX);
	a.quote = quote.at;
	a.quote_len = quote.left;
	if (v.bad)
		return enc_fail (err, ENC_EINVAL, "an attestation that is cut short or malformed");
	if ((rc = enc_attest_rows_get (&v, &a.rows, &a.rows_n, err)) < 0 || (rc = enc_view_end (&v, err)) < 0 ||
		(rc = check (&a, err)) < 0)
		return rc;
	*ret = a;
	a.rows = NULL;
	return 0;
}

int enc_attestation_read (struct enc_view envelope, const struct enc_sign_pub *identity, struct enc_attestation *ret,
	struct enc_error *err)
{
	struct enc_view body;
	int rc = enc_envelope_check (envelope, ENC_ENVELOPE_ATTESTATION, identity, &body, err);

	if (rc == 0)
		rc = enc_attestation_decode (body, ret, err);
	return enc_wrap (err, rc, "attestation");
}

size_t enc_attest_differs (const struct enc_attestation *a, const struct enc_attest_row *baseline, size_t baseline_n,
	const char **out, size_t max)
{
	size_t i = 0, k = 0, n = 0;

	while (i < a->rows_n || k < baseline_n) {
		int order = i == a->rows_n ? 1 : k == baseline_n ? -1 : strcmp (a->rows[i].name, baseline[k].name);
		const char *name = order <= 0 ? a->rows[i].name : baseline[k].name;
		bool same = order == 0 && memcmp (a->rows[i].digest, baseline[k].digest, sizeof baseline[k].digest) == 0;

		if (!same && n < max)
			out[n] = name;
		n += !same;
		i += order <= 0;
		k += order >= 0;
	}
	return n;
}
