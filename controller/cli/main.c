/* enclavectl: the command line. Finds the command in the table, parses its arguments by table, calls its route, shows the answer. */
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "controller/cli/command.h"
#include "base/enc.h"

#ifndef ENC_VERSION
#define ENC_VERSION "0.1.0"
#endif

static void help_print (FILE *out)
{
	(void) fprintf (out, "usage: enclavectl [--json] [--progress] [--socket PATH | --url URL] COMMAND ...\n\n");
	for (const struct enc_command *c = enc_commands; c->verb; c++)
		(void) fprintf (out, "  %-12s%-12s %s\n", c->verb, c->sub ? c->sub : "", c->help);
	(void) fprintf (out, "\nenclavectl COMMAND --help shows a command's options. Exit status: 0 done, 1 failed, 2 usage, 3 denied, 4 not found or not\n"
			     "yours, 5 busy or conflict, 6 timed out, 7 integrity, 8 log or key service unavailable.\n");
}

/* Global options may stand before the command, and --json and --progress anywhere. What is left is counted in *argc. */
static int globals_take (struct enc_session *s, int *argc, char **argv, struct enc_error *err)
{
	int kept = 0;
	for (int i = 0; i < *argc; i++) {
		const char *value = i + 1 < *argc ? argv[i + 1] : NULL;
		bool path = strcmp (argv[i], "--socket") == 0, url = strcmp (argv[i], "--url") == 0;
		if (strcmp (argv[i], "--") == 0) {
			while (i < *argc)
				argv[kept++] = argv[i++];
		} else if (strcmp (argv[i], "--json") == 0) {
			s->json = true;
		} else if (strcmp (argv[i], "--progress") == 0) {
			s->progress = true;
		} else if (path || url) {
			if (!value)
				return enc_fail (err, ENC_EUSAGE, "%s wants a value", argv[i]);
			*(path ? &s->socket : &s->url) = value;
			i++;
		} else {
			argv[kept++] = argv[i];
		}
	}
	*argc = kept;
	s->progress = s->progress && s->json;
	return 0;
}

/* The row for these words; *used says how many of them it took. A verb's row without `sub` serves what no other row names. */
static const struct enc_command *command_find (int argc, char **argv, int *used)
{
	const struct enc_command *rest = NULL;
	for (const struct enc_command *c = enc_commands; argc > 0 && c->verb; c++) {
		if (strcmp (c->verb, argv[0]) != 0)
			continue;
		if (c->sub && argc > 1 && strcmp (c->sub, argv[1]) == 0) {
			*used = 2;
			return c;
		}
		if (!c->sub)
			rest = c;
	}
	*used = 1;
	return rest;
}

static int no_command (int argc, char **argv, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf subs = ENC_BUF_INIT (1024);
	for (const struct enc_command *c = enc_commands; argc > 0 && c->verb; c++)
		if (strcmp (c->verb, argv[0]) == 0 && c->sub)
			enc_buf_putf (&subs, "%s%s", subs.len ? " " : "", c->sub);
	enc_auto_free char *known = enc_buf_take_str (&subs);
	if (known && known[0])
		return enc_fail (err, ENC_EUSAGE, "%s wants one of: %s", argv[0], known);
	int rc = enc_fail (err, ENC_EUSAGE, argc ? "unknown command %.40s" : "no command%.0s", argc ? argv[0] : "");
	return enc_error_next (err, rc, "enclavectl --help");
}

static int answer_show (const struct enc_session *s, const struct enc_command *c, const struct enc_json *answer, struct enc_error *err)
{
	if (s->json)
		return enc_session_document (s, answer, err);
	if (c->view)
		return c->view (s, answer, err);
	if (c->columns && c->list)
		return enc_table_print (c->columns, enc_json_find (answer, c->list), err);
	if (c->columns)
		return enc_sheet_print (c->columns, answer, err);
	(void) printf ("done\n");
	return 0;
}

static int command_run (const struct enc_session *s, const struct enc_command *c, int argc, char **argv, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *args = NULL, *answer = NULL;
	struct enc_error show_err = { 0 }, doubt = { 0 };
	if (argc == 1 && strcmp (argv[0], "--help") == 0) {
		enc_auto_free char *name = enc_strf ("enclavectl %s%s%s", c->verb, c->sub ? " " : "", c->sub ? c->sub : "");
		enc_auto_free char *usage = name ? enc_args_usage (name, c->args) : NULL;
		(void) printf ("usage: %s\n%s\n", usage ? usage : "", c->help);
		return 0;
	}
	if (!(args = enc_args_parse (c->args, argc, argv, &doubt, err)))
		return enc_error_next (err, -ENC_EUSAGE, "enclavectl %s%s%s --help", c->verb, c->sub ? " " : "", c->sub ? c->sub : "");
	int rc = c->fn ? c->fn (s, c, args, &answer, err) : enc_command_call (s, c, args, &answer, err);
	if (rc == -ENC_EUNAVAIL && doubt.code) {
		*err = doubt;
		return enc_error_next (err, -ENC_EUSAGE, "enclavectl %s%s%s --help", c->verb, c->sub ? " " : "", c->sub ? c->sub : "");
	}
	if (!answer)
		return rc;
	int shown = answer_show (s, c, answer, &show_err);
	if (rc == 0 && shown < 0) {
		*err = show_err;
		return shown;
	}
	/* The answer told the story already: only the status is left to give. */
	if (rc < 0 && s->json)
		err->code = -rc;
	return rc < 0 && s->json ? -ENC_CODE_COUNT : rc;
}

int main (int argc, char **argv)
{
	struct enc_session s = { .socket = ENC_CLI_SOCKET };
	struct enc_error err = { 0 };
	int used = 0, words = argc - 1;
	char **word = argv + 1;
	/* Only for what characters the terminal shows: numbers and texts are the same everywhere. */
	(void) setlocale (LC_CTYPE, "");
	s.tty = isatty (STDOUT_FILENO) == 1;
	s.colour = s.tty && !getenv ("NO_COLOR");
	if (globals_take (&s, &words, word, &err) < 0)
		return enc_session_failed (&s, &err);
	if (words == 1 && strcmp (word[0], "--help") == 0) {
		help_print (stdout);
		return 0;
	}
	if (words == 1 && strcmp (word[0], "--version") == 0) {
		(void) printf ("enclavectl " ENC_VERSION "\n");
		return 0;
	}
	const struct enc_command *c = command_find (words, word, &used);
	int rc = c ? command_run (&s, c, words - used, word + used, &err) : no_command (words, word, &err);
	if (rc == -ENC_CODE_COUNT)
		return enc_code_exit (err.code);
	if (rc < 0) {
		err.code = err.code ? err.code : -rc;
		return enc_session_failed (&s, &err);
	}
	return fflush (stdout) == 0 ? 0 : 1;
}
