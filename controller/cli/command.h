/* The commands as data: verb, arguments, route, and how the answer is shown. Most need no code of their own. */
#ifndef ENC_CLI_COMMAND_H
#define ENC_CLI_COMMAND_H

#include "controller/cli/args.h"
#include "controller/cli/session.h"
#include "controller/cli/table.h"

struct enc_command;
/* `args` is borrowed; `ret` gets the answer that --json prints and the view shows (NULL: the function has shown everything itself). A
 * negative code with `err` filled may come together with an answer: the answer is then printed and the code is the exit status. */
typedef int enc_command_fn (const struct enc_session *s, const struct enc_command *c, const struct enc_json *args, struct enc_json **ret,
			    struct enc_error *err);
typedef int enc_view_fn (const struct enc_session *s, const struct enc_json *answer, struct enc_error *err);

struct enc_command {
	const char *verb, *sub;              /* "member" "add"; sub NULL where there is none */
	const struct enc_arg *args;
	const char *method, *path;           /* "{key}" takes an argument; the others become query (GET, DELETE) or body */
	enc_command_fn *fn;                  /* instead of the plain call */
	const char *list;                    /* JSON pointer of the list that `columns` are rows of; NULL: a sheet of one object */
	const struct enc_column *columns;    /* NULL: `view`, or just "done" */
	enc_view_fn *view;
	const char *help;
};

extern const struct enc_command enc_commands[]; /* ended by verb NULL */

/* The plain call of a command's route. */
enc_command_fn enc_command_call;
/* Send an order that answers 202 with an operation, follow its events (live on a terminal), and return its result. */
int enc_command_follow (const struct enc_session *s, const char *method, const char *path, const struct enc_json *body, bool wait,
			const char *left_running, struct enc_json **ret, struct enc_error *err) ENC_MUST_USE;

/* Own functions, by file. */
enc_command_fn enc_cmd_member_add, enc_cmd_create, enc_cmd_plan, enc_cmd_destroy, enc_cmd_watch, enc_cmd_change, enc_cmd_session_end;        /* cmd_enclave.c */
enc_view_fn enc_view_plan, enc_view_show, enc_view_created, enc_view_destroyed;
enc_command_fn enc_cmd_audit_verify, enc_cmd_audit_tail, enc_cmd_audit_proof, enc_cmd_audit_export; /* cmd_audit.c */
enc_view_fn enc_view_search, enc_view_verify;
enc_command_fn enc_cmd_audit_consistency;                                                            /* cmd_witness.c */
enc_view_fn enc_view_witness;
struct enc_vkey;
/* The log's verifier key of this machine, or of --vkey. */
int enc_cli_vkey (const struct enc_json *args, struct enc_vkey *ret, struct enc_error *err) ENC_MUST_USE;
enc_command_fn enc_cmd_policy_explain;                                                               /* cmd_local.c */
enc_command_fn enc_cmd_key;                                                                          /* cmd_key.c */
enc_command_fn enc_cmd_recipe_list, enc_cmd_recipe_show, enc_cmd_recipe_run;                          /* cmd_recipe.c */
enc_command_fn enc_cmd_policy_check, enc_cmd_doctor;                                                 /* cmd_local.c */
enc_view_fn enc_view_text, enc_view_doctor;
enc_command_fn enc_cmd_estimate;                                                                     /* cmd_estimate.c */
/* With the recipes of `folder`. What does not fit is -ENC_EFAILED together with an answer. */
int enc_cmd_estimate_in (const char *folder, const struct enc_json *args, struct enc_json **ret, struct enc_error *err) ENC_MUST_USE;
#define ENC_CLI_RECIPES "/usr/share/enclave/recipes"
enc_command_fn enc_cmd_later;                                                                        /* not served yet */

#endif
