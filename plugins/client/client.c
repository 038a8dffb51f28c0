#include "plugins/client/client.h"

#include <errno.h>
#include <string.h>

#include "base/enctime.h"
#include "base/file.h"

#include "base/enc.h"

const struct enc_client_conf enc_client_conf = {
	.members = "/run/enclave/members",
	.vkey = "/etc/enclave/keyd.vkey",
	.log_vkey = "/etc/enclave/log.vkey",
	.facts = "/run/enclave/privd.sock",
	.agent = "/run/enclave/agent.sock",
	.facts_uid = 0,
	.deadline_ms = 1000,
	.receipt_ms = 8000,
	.plugin = ENC_SPANK_PLUGIN,
	.plugstacks = { "/run/enclave/slurm/plugstack.conf", "/etc/slurm/plugstack.conf" },
	.nodes = "/run/enclave/slurm/slurm.conf",
	.jobs = "/run/enclave/jobs",
	.scratch = "/enclave/scratch",
	.recipes = "/usr/share/enclave/recipes",
};

int enc_client_members (const struct enc_client_conf *conf, struct enc_members *ret, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf file = ENC_BUF_INIT (ENC_ENVELOPE_MAX);
	struct enc_sign_pub keyd;
	int rc;

	if ((rc = enc_vkey_load (conf->vkey, &keyd, err)) < 0)
		return enc_wrap (err, rc, "key service's verifier key");
	if ((rc = enc_file_read (conf->members, ENC_ENVELOPE_MAX, &file, err)) < 0)
		return rc == -ENC_ENOTFOUND ? enc_fail (err, ENC_EUNAVAIL, "there is no member document on this node") : rc;
	rc = enc_members_read (enc_view_of (file.data, file.len), &keyd, ret, err);
	return enc_wrap (err, rc, "member document");
}

int enc_client_fits (const struct enc_members *members, const struct enc_facts *facts, uint64_t now, struct enc_error *err)
{
	if (facts->pool != ENC_POOL_ENCLAVE)
		return enc_fail (err, ENC_EDENIED, "this node is not in an enclave");
	if (facts->not_after <= now)
		return enc_fail (err, ENC_EDENIED, "the lease of this enclave has ended");
	if (strcmp (members->enclave_name, facts->enclave_name) != 0)
		return enc_fail (err, ENC_EINTEGRITY, "the member document is another enclave's");
	return enc_members_hold (members, facts->enclave_id, facts->member_version, now, err);
}

int enc_client_open (const struct enc_client_conf *conf, struct enc_client_view *ret, struct enc_error *err)
{
	struct enc_client_view view = { 0 };
	int rc;

	if ((rc = enc_client_members (conf, &view.members, err)) < 0)
		return rc;
	if ((rc = enc_client_facts (conf, getuid (), &view.facts, err)) == 0)
		rc = enc_client_fits (&view.members, &view.facts, (uint64_t)enc_now_s (), err);
	if (rc < 0) {
		enc_members_done (&view.members);
		return rc;
	}
	*ret = view;
	return 0;
}

void enc_client_close (struct enc_client_view *view)
{
	enc_members_done (&view->members);
	memset (view, 0, sizeof *view);
}
