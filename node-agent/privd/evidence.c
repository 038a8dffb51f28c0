#include <string.h>

#include "base/enctime.h"
#include "crypto/attestation.h"
#include "node-agent/privd/privd.h"

#include "base/enc.h"

enum { EVENTS_AT_ONCE = 64 };

static void set_hex (struct enc_json *object, const char *key, const void *data, size_t len)
{
	enc_auto_free char *hex = enc_hex (data, len);

	enc_json_set_str (object, key, hex);
}

static void set_areas (struct enc_json *out, const struct enc_node_state *s)
{
	struct enc_json *areas = enc_json_set_object (out, "areas"), *list;

	enc_json_set_str (areas, "door", s->door ? "open" : "shut");
	list = enc_json_set_array (areas, "roles");
	for (unsigned bit = ENC_ROLE_COMPUTE; bit <= ENC_ROLE_LOGIN; bit <<= 1)
		if (s->roles & bit)
			enc_json_add_str (list, enc_role_name ((uint8_t)bit));
	list = enc_json_set_array (areas, "volumes");
	for (size_t i = 0; i < s->volumes.n; i++)
		enc_json_add_str (list, s->volumes.v[i]);
	/* What was begun and has not ended well: named above, but do not rely on it. */
	list = enc_json_set_array (areas, "unsure");
	if (s->unsure & 1u << ENC_JOB_VOLUMES)
		enc_json_add_str (list, "volumes");
	if (s->unsure & 1u << ENC_JOB_ROLES)
		enc_json_add_str (list, "roles");
	enc_json_set_str (areas, "units", s->units == ENC_UNITS_DOWN ? "down" : "site");
	enc_json_set_str (areas, "fence", enc_fence_mode_name ((uint8_t)s->fence));
	enc_json_set_str (areas, "overlay", s->overlay ? "up" : "down");
	enc_json_set_str (areas, "clean", s->clean);
	enc_json_set_str (areas, "measure", s->measure);
	enc_json_set_str (areas, "probe", s->probe);
}

/* The oldest events, as many as fit into an answer; the rest follows when these are in the log. */
static struct enc_json *oldest (const struct enc_json *events)
{
	struct enc_json *out = enc_json_array ();

	for (size_t i = 0; i < enc_json_len (events) && i < EVENTS_AT_ONCE; i++)
		enc_json_add (out, enc_json_copy (enc_json_at (events, i)));
	return out;
}

struct enc_json *enc_privd_state_evidence (const struct enc_privd *p)
{
	const struct enc_node_state *s = &p->state;
	struct enc_json *out = enc_json_object ();

	enc_json_set_str (out, "pool", enc_pool_name ((uint8_t)s->pool));
	enc_json_set_u64 (out, "generation", s->generation);
	set_hex (out, "boot", p->boot, sizeof p->boot);
	enc_json_set_str (out, "boot_id", p->boot_id);
	set_hex (out, "identity", enc_sign_key_pub (p->identity)->key, enc_sign_key_pub (p->identity)->len);
	if (s->document)
		set_hex (out, "document", s->digest, sizeof s->digest);
	else
		enc_json_set_null (out, "document");
	enc_json_set_u64 (out, "member_version", s->member_version);
	enc_json_set_u64 (out, "grant_until", s->grant_until);
	enc_json_set_str (out, "overlay_key", s->overlay_key);
	set_areas (out, s);
	enc_json_set (out, "events", oldest (p->spool.events));
	return out;
}

static int by_name (const void *a, const void *b)
{
	return strcmp (((const struct enc_attest_row *)a)->name, ((const struct enc_attest_row *)b)->name);
}

static int read_rows (const struct enc_json *list, struct enc_attestation *a, struct enc_error *err)
{
	size_t n = enc_json_len (list);
	int rc;

	if (n > ENC_ATTEST_ROWS_MAX || !(a->rows = calloc (n ? n : 1, sizeof *a->rows)))
		return enc_fail (err, ENC_ELIMIT, "measure: %zu rows", n);
	for (size_t i = 0; i < n; i++) {
		const struct enc_json *row = enc_json_at (list, i);
		if ((rc = enc_str_copy (a->rows[i].name, sizeof a->rows[i].name, enc_json_get_str (row, "name", ""), err)) < 0 ||
			(rc = enc_hex_fixed (enc_json_get_str (row, "digest", ""), a->rows[i].digest, 32, err)) < 0)
			return rc;
	}
	a->rows_n = n;
	qsort (a->rows, n, sizeof *a->rows, by_name);
	return 0;
}

static int fill (const struct enc_privd *p, const struct enc_doc *doc, const struct enc_json *evidence, struct enc_attestation *a, struct enc_error *err)
{
	int rc;

	memcpy (a->boot, p->boot, sizeof a->boot);
	memcpy (a->boot_key, enc_boot_key_point (p->boot_key), sizeof a->boot_key);
	a->time = (uint64_t)enc_now_s ();
	if ((rc = enc_str_copy (a->node, sizeof a->node, p->conf.node, err)) < 0 || (rc = enc_str_copy (a->boot_id, sizeof a->boot_id, p->boot_id, err)) < 0 ||
		(rc = enc_str_copy (a->driver, sizeof a->driver, "none", err)) < 0)
		return rc;
	if (!doc->challenge[0])
		return enc_fail (err, ENC_EINVAL, "measure: the document has no challenge");
	if ((rc = enc_hex_fixed (doc->challenge, a->challenge, sizeof a->challenge, err)) < 0)
		return rc;
	return read_rows (enc_json_get (evidence, "rows"), a, err);
}

int enc_privd_attest (const struct enc_privd *p, const struct enc_doc *doc, struct enc_json *evidence, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (ENC_ENVELOPE_MAX);
	enc_auto_free struct enc_attestation *a = calloc (1, sizeof *a);
	enc_auto_free char *text = NULL;
	int rc;

	if (!a)
		return enc_fail (err, ENC_ENOMEM, "measure: no memory");
	if ((rc = fill (p, doc, evidence, a, err)) == 0)
		rc = enc_attestation_sign (a, p->identity, &out, err);
	free (a->rows);
	if (rc < 0)
		return rc;
	if (!(text = enc_base64 (out.data, out.len)))
		return enc_fail (err, ENC_ENOMEM, "measure: no memory");
	enc_json_set_str (evidence, "attestation", text);
	return 0;
}
