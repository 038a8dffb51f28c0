#include <string.h>

#include "plugins/client/ticket.h"
#include "plugins/spank/plugin.h"

#include "base/enc.h"

static int write_ticket (const struct enc_client_view *view, uint32_t job, uid_t uid, struct enc_error *err)
{
	struct enc_ticket t = { .version = ENC_PLUGIN_VERSION, .generation = view->facts.generation, .uid = uid };

	memcpy (t.enclave_id, view->facts.enclave_id, sizeof t.enclave_id);
	return enc_ticket_write (&enc_client_conf, job, "plugin", &t, err);
}

int enc_plugin_job_prolog (spank_t sp)
{
	struct enc_client_view view;
	struct enc_error err = { 0 };
	uint32_t job;
	uid_t uid;
	int rc;

	if (spank_get_item (sp, S_JOB_ID, &job) != ESPANK_SUCCESS || spank_get_item (sp, S_JOB_UID, &uid) != ESPANK_SUCCESS) {
		(void)enc_fail (&err, ENC_EFAILED, "job and user are not known");
		return enc_plugin_refuse (&err);
	}
	if (enc_client_open (&enc_client_conf, &view, &err) < 0)
		return enc_plugin_refuse (&err);
	if ((rc = enc_client_judge (&view, ENC_ACT_RUN, NULL, uid, NULL, &err)) == 0)
		rc = write_ticket (&view, job, uid, &err);
	enc_client_close (&view);
	return rc < 0 ? enc_plugin_refuse (&err) : 0;
}
