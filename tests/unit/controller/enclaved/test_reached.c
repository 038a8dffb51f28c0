/* Wish against report: one row for each way in which a node may not be there yet, or lies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "controller/enclaved/nodes.h"

static struct enc_doc doc;
static struct enc_observed seen;

static void fresh (const char *report)
{
	memset (&doc, 0, sizeof doc);
	memset (&seen, 0, sizeof seen);
	doc.generation = 7;
	(void) snprintf (doc.node, sizeof doc.node, "n1");
	doc.pool = ENC_POOL_ENCLAVE;
	doc.units = ENC_UNITS_DOWN;
	doc.fence = ENC_FENCE_ENCLAVE;
	doc.overlay = 1;
	doc.roles = ENC_ROLE_LOGIN;
	doc.door = 1;
	doc.volumes_n = 2;
	(void) snprintf (doc.volumes[0].name, sizeof doc.volumes[0].name, "scratch");
	(void) snprintf (doc.volumes[1].name, sizeof doc.volumes[1].name, "data");
	(void) snprintf (doc.clean_id, sizeof doc.clean_id, "c");
	(void) snprintf (doc.challenge, sizeof doc.challenge, "m");
	(void) snprintf (doc.probe_id, sizeof doc.probe_id, "p");
	seen.generation = 7;
	(void) snprintf (seen.digest, sizeof seen.digest, "d");
	seen.report = strdup (report);
}

static int reached (struct enc_error *err)
{
	int rc = enc_doc_reached (&doc, "d", &seen, err);

	free (seen.report);
	seen.report = NULL;
	return rc;
}

#define AREAS(door, roles, volumes, units, fence, overlay, clean, measure, probe)                                      \
	"{\"areas\":{\"door\":\"" door "\",\"roles\":" roles ",\"volumes\":" volumes ",\"units\":\"" units "\",\"fence\":\"" fence            \
	"\",\"overlay\":\"" overlay "\",\"clean\":\"" clean "\",\"measure\":\"" measure "\",\"probe\":\"" probe "\"},\"failed\":null}"
#define ALL "[\"scratch\",\"data\"]"
#define LOGIN "[\"login\"]"

static const struct {
	const char *what, *report;
	int rc;
} rows[] = {
	{ "all as ordered", AREAS ("open", LOGIN, ALL, "down", "enclave", "up", "c", "m", "p"), 1 },
	{ "door shut", AREAS ("shut", LOGIN, ALL, "down", "enclave", "up", "c", "m", "p"), 0 },
	{ "role missing", AREAS ("open", "[]", ALL, "down", "enclave", "up", "c", "m", "p"), 0 },
	{ "a role too many", AREAS ("open", "[\"login\",\"compute\"]", ALL, "down", "enclave", "up", "c", "m", "p"), 0 },
	{ "volume missing", AREAS ("open", LOGIN, "[\"data\"]", "down", "enclave", "up", "c", "m", "p"), 0 },
	{ "a volume too many", AREAS ("open", LOGIN, "[\"scratch\",\"data\",\"x\"]", "down", "enclave", "up", "c", "m", "p"), 0 },
	{ "site units up", AREAS ("open", LOGIN, ALL, "site", "enclave", "up", "c", "m", "p"), 0 },
	{ "another fence", AREAS ("open", LOGIN, ALL, "down", "airlock", "up", "c", "m", "p"), 0 },
	{ "no overlay", AREAS ("open", LOGIN, ALL, "down", "enclave", "down", "c", "m", "p"), 0 },
	{ "an earlier clean", AREAS ("open", LOGIN, ALL, "down", "enclave", "up", "b", "m", "p"), 0 },
	{ "an earlier challenge", AREAS ("open", LOGIN, ALL, "down", "enclave", "up", "c", "l", "p"), 0 },
	{ "an earlier probe", AREAS ("open", LOGIN, ALL, "down", "enclave", "up", "c", "m", "o"), 0 },
	{ "no areas", "{\"areas\":{},\"failed\":null}", 0 },
	{ "failed", "{\"areas\":{},\"failed\":{\"area\":\"fence\",\"text\":\"no\",\"next\":\"look\"}}", -ENC_EFAILED },
	{ "failed with a code", "{\"areas\":{},\"failed\":{\"area\":\"clean\",\"code\":\"integrity\",\"text\":\"no\"}}", -ENC_EINTEGRITY },
};

static void each_area_counts (void **state)
{
	(void) state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct enc_error err = { 0 };
		int rc;

		fresh (rows[i].report);
		rc = reached (&err);
		if (rc != rows[i].rc)
			fail_msg ("%s: %d, %s", rows[i].what, rc, err.text);
		if (rc < 0)
			assert_non_null (strstr (err.text, "n1: "));
	}
}

static void another_generation_or_document_says_nothing (void **state)
{
	(void) state;
	fresh (rows[0].report);
	seen.generation = 6;
	assert_int_equal (reached (NULL), 0);
	fresh (rows[0].report);
	seen.generation = 8; /* an agent that runs ahead */
	assert_int_equal (reached (NULL), 0);
	fresh (rows[0].report);
	(void) snprintf (seen.digest, sizeof seen.digest, "other");
	assert_int_equal (reached (NULL), 0);
	fresh (rows[0].report);
	free (seen.report);
	seen.report = NULL;
	assert_int_equal (enc_doc_reached (&doc, "d", &seen, NULL), 0);
}

static void a_report_that_is_no_json_is_a_failure (void **state)
{
	(void) state;
	fresh ("{");
	assert_true (reached (NULL) < 0);
}

static void an_observer_answers_for_its_probe_alone (void **state)
{
	(void) state;
	fresh ("{\"areas\":null,\"evidence\":{\"probe\":{\"probe\":\"p\"}}}");
	assert_int_equal (reached (NULL), 1);
	fresh ("{\"areas\":null,\"evidence\":{\"probe\":{\"probe\":\"o\"}}}");
	assert_int_equal (reached (NULL), 0);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (each_area_counts),
		cmocka_unit_test (another_generation_or_document_says_nothing),
		cmocka_unit_test (a_report_that_is_no_json_is_a_failure),
		cmocka_unit_test (an_observer_answers_for_its_probe_alone),
	};

	return cmocka_run_group_tests (tests, NULL, NULL);
}
