#include "plugins/client/ticket.h"
#include "plugins/spank/plugin.h"

#include "base/enc.h"

int enc_plugin_submit (spank_t sp, const struct enc_options *options)
{
	struct enc_client_view view;
	struct enc_error err = { 0 };
	char proof[ENC_PROOF_SIZE], said[256] = "";
	int rc;

	if (enc_client_open (&enc_client_conf, &view, &err) < 0)
		return enc_plugin_refuse (&err);
	if ((rc = enc_client_judge (&view, ENC_ACT_SUBMIT, NULL, getuid (), NULL, &err)) == 0)
		rc = enc_options_fit (options, &enc_client_conf, &view.members, &err);
	if (rc == 0)
		rc = enc_options_plan (options, &enc_client_conf, said, sizeof said, &err);
	enc_job_proof_format (&view, proof);
	enc_client_close (&view);
	if (rc == 0 && spank_job_control_setenv (sp, ENC_PROOF_NAME, proof, 1) != ESPANK_SUCCESS)
		rc = enc_fail (&err, ENC_EFAILED, "the job cannot be marked as the enclave's");
	if (rc == 0 && said[0])
		slurm_info ("enclave: memory: %s", said);
	return rc < 0 ? enc_plugin_refuse (&err) : 0;
}
