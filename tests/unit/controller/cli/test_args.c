/* Arguments by table: what people type becomes typed members, and what they mistype goes to the controller as it came. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "controller/cli/args.h"
#include "controller/cli/command.h"

static const struct enc_arg table[] = {
	{ "NAME", "name", ENC_ARG_NAME, ENC_ARG_WORD | ENC_ARG_REQUIRED, NULL, NULL },
	{ "nodes", NULL, ENC_ARG_NODES, ENC_ARG_REQUIRED, NULL, NULL },
	{ "ttl", "ttl_s", ENC_ARG_DURATION, 0, NULL, NULL },
	{ "member", "members", ENC_ARG_MEMBER, ENC_ARG_LIST, NULL, NULL },
	{ "volume", "volumes", ENC_ARG_VOLUME, ENC_ARG_LIST, NULL, NULL },
	{ "entry", NULL, ENC_ARG_CHOICE, 0, "live|reboot", NULL },
	{ "now", NULL, ENC_ARG_FLAG, 0, NULL, NULL },
	{ .kind = ENC_ARG_END },
};
static struct enc_error err, doubt;

static struct enc_json *parse (const char *line)
{
	static char copy[4096];
	char *argv[64], *rest = copy;
	int argc = 0;
	memset (&err, 0, sizeof err);
	memset (&doubt, 0, sizeof doubt);
	(void) snprintf (copy, sizeof copy, "%s", line);
	for (char *w = strsep (&rest, " "); w; w = strsep (&rest, " "))
		argv[argc++] = w;
	return enc_args_parse (table, argc, argv, &doubt, &err);
}

static void values_get_their_types (void **state)
{
	(void) state;
	enc_auto (enc_json) struct enc_json *j = parse ("cxr --nodes 2 --ttl=14d --member res1 --member res2:researcher --volume d:2G --now");
	assert_non_null (j);
	assert_int_equal (doubt.code, 0);
	assert_string_equal (enc_json_get_str (j, "name", ""), "cxr");
	assert_int_equal (enc_json_get_i64 (j, "nodes", 0), 2);
	assert_int_equal (enc_json_get_i64 (j, "ttl_s", 0), 14 * 86400);
	assert_int_equal (enc_json_len (enc_json_get (j, "members")), 2);
	assert_string_equal (enc_json_str (enc_json_find (j, "/members/1/role")), "researcher");
	assert_string_equal (enc_json_str (enc_json_find (j, "/volumes/0/kind")), "project");
	assert_true (enc_json_get_bool (j, "now", false));
}

static void a_host_list_stays_text (void **state)
{
	(void) state;
	enc_auto (enc_json) struct enc_json *j = parse ("cxr --nodes n[1-3]");
	assert_non_null (j);
	assert_string_equal (enc_json_get_str (j, "nodes", ""), "n[1-3]");
}

static void malformed_values_go_on_as_they_came_and_leave_a_doubt (void **state)
{
	static const char *const lines[] = { "Bad.Name --nodes 2", "cxr --nodes 0", "cxr --nodes -1", "cxr --nodes 2 --ttl soon", "cxr --nodes 2 --entry maybe",
					     "cxr --nodes 2 --member a:b:c", "cxr --nodes 2 --volume x", "cxr --nodes n[1-" };
	(void) state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		enc_auto (enc_json) struct enc_json *j = parse (lines[i]);
		assert_non_null (j);
		assert_int_equal (doubt.code, ENC_EUSAGE);
	}
}

static void wrong_structure_is_usage (void **state)
{
	static const char *const lines[] = { "", "cxr", "--nodes 2", "cxr --nodes", "cxr --nodes 2 --nodes 3", "cxr --nodes 2 --what", "cxr --nodes 2 -x",
					     "cxr more --nodes 2", "cxr --nodes 2 --now=1" };
	(void) state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		assert_null (parse (lines[i]));
		assert_int_equal (err.code, ENC_EUSAGE);
	}
}

static void bytes_that_are_not_utf8_are_refused_here (void **state)
{
	(void) state;
	assert_null (parse ("c\xff --nodes 2"));
	assert_int_equal (err.code, ENC_EUSAGE);
}

static void every_command_has_a_way_to_run_and_a_word_of_help (void **state)
{
	(void) state;
	for (const struct enc_command *c = enc_commands; c->verb; c++) {
		enc_auto_free char *usage = enc_args_usage (c->verb, c->args);
		assert_non_null (usage);
		assert_non_null (c->help);
		assert_true (c->fn || (c->method && c->path));
		assert_true (!c->list || c->columns);
	}
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (values_get_their_types),
		cmocka_unit_test (a_host_list_stays_text),
		cmocka_unit_test (malformed_values_go_on_as_they_came_and_leave_a_doubt),
		cmocka_unit_test (wrong_structure_is_usage),
		cmocka_unit_test (bytes_that_are_not_utf8_are_refused_here),
		cmocka_unit_test (every_command_has_a_way_to_run_and_a_word_of_help),
	};
	return cmocka_run_group_tests (tests, NULL, NULL);
}
