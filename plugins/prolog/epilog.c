/* enclave-epilog: takes away what a job had for itself on this node. A failure takes the node out of use: nothing of one job may be
 * there for the next. */
#include "plugins/prolog/job_env.h"

#include "base/enc.h"

int main (void)
{
	struct enc_error err = { 0 };
	struct enc_job_env e;
	int rc = enc_job_env_take (&e, &err);

	if (rc == 0)
		rc = enc_job_places_remove (&enc_client_conf, e.job, &err);
	if (rc < 0)
		enc_job_env_say ("enclave-epilog", &err);
	return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
