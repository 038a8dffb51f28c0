/* enclave-prolog: the gate that does not rest on the SPANK plugin. slurmd runs it as root before anything of a job starts on this
 * node; any status but 0 keeps the job from running and takes the node out of use until someone has looked.
 *
 * It asks for the ticket that the plugin leaves when slurmd runs the plugin's own prolog (always before this one): no ticket, no
 * plugin in this node's stack, no job. */
#include <string.h>

#include "plugins/prolog/job_env.h"

#include "base/enc.h"

static struct enc_ticket ticket_for (const struct enc_client_view *view, uid_t uid)
{
	struct enc_ticket t = { .version = ENC_PLUGIN_VERSION, .generation = view->facts.generation, .uid = uid };

	memcpy (t.enclave_id, view->facts.enclave_id, sizeof t.enclave_id);
	return t;
}

static int let_in (const struct enc_job_env *e, const struct enc_client_view *view, struct enc_error *err)
{
	struct enc_ticket t = ticket_for (view, e->uid);
	const struct enc_member *who;
	int rc;

	if ((rc = enc_client_judge (view, ENC_ACT_RUN, NULL, e->uid, &who, err)) < 0 || (rc = enc_client_stack (&enc_client_conf, &view->facts, err)) < 0)
		return rc;
	if ((rc = enc_job_proof_check (view, e->proof, false, err)) < 0 || (rc = enc_ticket_check (&enc_client_conf, e->job, "plugin", &t, err)) < 0)
		return rc;
	if ((rc = enc_job_places_make (&enc_client_conf, e->job, e->uid, who->gid, true, err)) < 0)
		return rc;
	return enc_ticket_write (&enc_client_conf, e->job, "gate", &t, err);
}

int main (void)
{
	struct enc_error err = { 0 };
	struct enc_client_view view;
	struct enc_job_env e;
	int rc = enc_job_env_take (&e, &err);

	if (rc == 0 && (rc = enc_client_open (&enc_client_conf, &view, &err)) == 0) {
		rc = let_in (&e, &view, &err);
		enc_client_close (&view);
	}
	if (rc < 0)
		enc_job_env_say ("enclave-prolog", &err);
	return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
