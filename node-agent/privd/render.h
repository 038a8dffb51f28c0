/* Files for an enclave's services, rendered from templates of the distribution with the checked fields of a node document. A
 * template has @NAME@ for each of a closed list of values; an unknown name is an error, and no value can hold a line end but the
 * generated node lines. Pure. */
#pragma once

#include "base/buf.h"
#include "node-agent/privd/conf.h"
#include "node-agent/proto/document.h"

#define ENC_STATE_DIR "/var/spool/slurmctld"
#define ENC_SPOOL_DIR "/var/spool/slurmd"

/* Facts of this host that a template may name. */
struct enc_render_host {
	const char *cgroup_plugin; /* "cgroup/v1" or "cgroup/v2" */
	const char *cgroup_mount;
	const char *spank_plugin;
};

/* Append `template` with its names replaced to `out`. ENC_EINVAL names what is unknown or missing in the document. */
int enc_render (const char *template, const struct enc_doc *doc, const struct enc_render_host *host, struct enc_buf *out, struct enc_error *err) ENC_MUST_USE;

/* The overlay address of the first peer with that role, or NULL. */
const struct enc_doc_peer *enc_render_peer (const struct enc_doc *doc, uint8_t role);
