#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/enctime.h"
#include "base/file.h"
#include "crypto/members.h"
#include "node-agent/privd/privd.h"

#include "base/enc.h"

#define MEMBERS "/run/enclave/members"

static int check (struct enc_privd *p, struct enc_view envelope, uint64_t version_min, uint64_t *ret_version, struct enc_error *err)
{
	enc_auto_done (enc_members_done) struct enc_members m = { 0 };
	int rc = enc_privd_keyd (p, err);

	if (rc < 0 || (rc = enc_members_read (envelope, &p->keyd, &m, err)) < 0)
		return rc;
	if (!p->state.enclave_id)
		return enc_fail (err, ENC_ECONFLICT, "members: this node is in no enclave");
	if ((rc = enc_members_hold (&m, p->state.enclave_id, version_min, (uint64_t)enc_now_s (), err)) < 0)
		return rc;
	*ret_version = m.version;
	return 0;
}

int enc_privd_members_take (struct enc_privd *p, struct enc_view envelope, struct enc_error *err)
{
	struct enc_file_attr attr = ENC_FILE_ATTR (0644);
	uint64_t version;
	int rc = check (p, envelope, p->state.member_version, &version, err);

	if (rc < 0)
		return rc;
	if (mkdir ("/run/enclave", 0755) < 0 && errno != EEXIST)
		return enc_fail_sys (err, "/run/enclave");
	if ((rc = enc_file_write (MEMBERS, envelope.at, envelope.left, &attr, err)) < 0)
		return rc;
	p->state.member_version = version;
	return enc_node_state_store (&p->conf, &p->state, err);
}

int enc_privd_members_body (struct enc_privd *p, struct enc_buf *out, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf bytes = ENC_BUF_INIT (ENC_ENVELOPE_MAX);
	struct enc_view body;
	uint64_t version;
	int rc;

	if (access (MEMBERS, F_OK) < 0 && errno == ENOENT)
		return enc_fail (err, ENC_ENOTFOUND, "members: no document yet");
	if ((rc = enc_file_read (MEMBERS, ENC_ENVELOPE_MAX, &bytes, err)) < 0)
		return rc;
	if ((rc = check (p, enc_view_of (bytes.data, bytes.len), p->state.member_version, &version, err)) < 0)
		return rc;
	if ((rc = enc_envelope_check (enc_view_of (bytes.data, bytes.len), ENC_ENVELOPE_MEMBERS, &p->keyd, &body, err)) < 0)
		return rc;
	enc_buf_put (out, body.at, body.left);
	return enc_buf_check (out, err);
}
