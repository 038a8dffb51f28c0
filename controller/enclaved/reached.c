/* Is a node what its document asks for? The comparison of wish and report, area by area. */
#include "controller/enclaved/nodes.h"

#include "base/enc.h"

static bool text_is (const struct enc_json *areas, const char *area, const char *want, const char *when_absent)
{
	return enc_streq (enc_json_get_str (areas, area, when_absent), want);
}

static bool has (const struct enc_json *list, const char *name)
{
	for (size_t i = 0; i < enc_json_len (list); i++)
		if (enc_streq (enc_json_str (enc_json_at (list, i)), name))
			return true;
	return false;
}

static bool roles_are (const struct enc_json *areas, uint8_t roles)
{
	static const uint8_t all[] = { ENC_ROLE_COMPUTE, ENC_ROLE_SCHEDULER, ENC_ROLE_LOGIN };
	const struct enc_json *list = enc_json_get (areas, "roles");
	size_t n = 0;

	for (size_t i = 0; i < ENC_ARRAY_LEN (all); i++) {
		if (!(roles & all[i]))
			continue;
		n++;
		if (!has (list, enc_role_name (all[i])))
			return false;
	}
	return enc_json_len (list) == n;
}

static bool volumes_are (const struct enc_json *areas, const struct enc_doc *doc)
{
	const struct enc_json *list = enc_json_get (areas, "volumes");

	for (size_t i = 0; i < doc->volumes_n; i++)
		if (!has (list, doc->volumes[i].name))
			return false;
	return enc_json_len (list) == doc->volumes_n;
}

/* An id that was asked for must have been answered; "" asks for nothing. */
static bool id_is (const struct enc_json *areas, const char *area, const char *want)
{
	return !want[0] || text_is (areas, area, want, "");
}

/* Begun on the node and not known to have ended well (its privd died in between). */
static bool is_sure (const struct enc_doc *doc, const struct enc_json *areas)
{
	const struct enc_json *unsure = enc_json_get (areas, "unsure");

	return !(doc->volumes_n && has (unsure, "volumes")) && !(doc->roles && has (unsure, "roles"));
}

static bool areas_are (const struct enc_doc *doc, const struct enc_json *a)
{
	return text_is (a, "door", doc->door ? "open" : "shut", "shut") && roles_are (a, doc->roles) && volumes_are (a, doc) &&
	       text_is (a, "units", doc->units == ENC_UNITS_DOWN ? "down" : "site", "site") &&
	       text_is (a, "fence", enc_fence_mode_name (doc->fence), "none") &&
	       text_is (a, "overlay", doc->overlay ? "up" : "down", "down") && id_is (a, "clean", doc->clean_id) &&
	       is_sure (doc, a) && id_is (a, "measure", doc->challenge) && id_is (a, "probe", doc->probe_id);
}

static int failure (const struct enc_doc *doc, const struct enc_json *failed, struct enc_error *err)
{
	const char *area = enc_json_get_str (failed, "area", "?");
	const char *next = enc_json_get_str (failed, "next", NULL);
	int rc = enc_fail (err, enc_code_of_name (enc_json_get_str (failed, "code", "failed")), "%s: %s: %s", doc->node, area, enc_json_get_str (failed, "text", "failed"));

	return next && *next ? enc_error_next (err, rc, "%s", next) : rc;
}

int enc_doc_reached (const struct enc_doc *doc, const char *digest, const struct enc_observed *seen, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *report = NULL;
	const struct enc_json *failed;

	/* A report for another generation says nothing, also if it is a higher one: an agent that runs ahead lies. */
	if ((uint64_t) seen->generation != doc->generation || !seen->report)
		return 0;
	if (seen->digest[0] && !enc_streq (seen->digest, digest))
		return 0;
	report = enc_json_parse (seen->report, strlen (seen->report), ENC_JSON_MAX_DEFAULT, err);
	if (!report)
		return -ENC_EPROTO;
	/* An observer outside has no areas: it answers for its probe alone. */
	if (enc_json_type (enc_json_get (report, "areas")) != ENC_JSON_OBJECT)
		return enc_streq (enc_json_str (enc_json_find (report, "/evidence/probe/probe")), doc->probe_id) ? 1 : 0;
	failed = enc_json_get (report, "failed");
	if (enc_json_type (failed) == ENC_JSON_OBJECT)
		return failure (doc, failed, err);
	return areas_are (doc, enc_json_get (report, "areas")) ? 1 : 0;
}
