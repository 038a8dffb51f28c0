#include "node-agent/privd/render.h"

#include <string.h>

#include "base/cleanup.h"
#include "node-agent/privd/fence_rules.h"

#include "base/enc.h"

struct scene {
	const struct enc_doc *doc;
	const struct enc_render_host *host;
	struct enc_buf *out;
};

const struct enc_doc_peer *enc_render_peer (const struct enc_doc *doc, uint8_t role)
{
	for (size_t i = 0; i < doc->peers_n; i++)
		if (doc->peers[i].role == role)
			return &doc->peers[i];
	return NULL;
}

static const struct enc_doc_peer *self (const struct enc_doc *doc)
{
	for (size_t i = 0; i < doc->peers_n; i++)
		if (enc_fence_is_self (doc, &doc->peers[i]))
			return &doc->peers[i];
	return NULL;
}

/* Each puts one value; false: the document has none. */

static bool put_text (struct scene *s, const char *text)
{
	enc_buf_putf (s->out, "%s", text);
	return text[0] != '\0';
}

static bool put_port (struct scene *s, uint32_t port)
{
	enc_buf_putf (s->out, "%u", port);
	return port != 0;
}

static bool put_cluster (struct scene *s)
{
	return put_text (s, s->doc->slurm_cluster);
}

static bool put_scheduler (struct scene *s)
{
	const struct enc_doc_peer *p = enc_render_peer (s->doc, ENC_ROLE_SCHEDULER);

	return p && put_text (s, p->node);
}

static bool put_scheduler_address (struct scene *s)
{
	const struct enc_doc_peer *p = enc_render_peer (s->doc, ENC_ROLE_SCHEDULER);

	return p && put_text (s, p->overlay);
}

static bool put_own_address (struct scene *s)
{
	const struct enc_doc_peer *p = self (s->doc);

	return p && put_text (s, p->overlay);
}

static bool put_slurmctld_port (struct scene *s)
{
	return put_port (s, s->doc->slurmctld_port);
}

static bool put_slurmd_port (struct scene *s)
{
	return put_port (s, s->doc->slurmd_port);
}

static bool put_srun_first (struct scene *s)
{
	return put_port (s, s->doc->srun_port_first);
}

static bool put_srun_last (struct scene *s)
{
	return put_port (s, s->doc->srun_port_last);
}

static bool put_login_port (struct scene *s)
{
	return put_port (s, s->doc->login_port);
}

static bool put_nodes (struct scene *s)
{
	bool any = false;

	for (size_t i = 0; i < s->doc->peers_n; i++) {
		const struct enc_doc_peer *p = &s->doc->peers[i];
		if (p->role != ENC_ROLE_COMPUTE || !p->overlay[0])
			continue;
		enc_buf_putf (s->out, "%sNodeName=%s NodeAddr=%s CPUs=%u RealMemory=%llu State=UNKNOWN", any ? "\n" : "", p->node,
			p->overlay, p->cpus, (unsigned long long)p->memory_mb);
		any = true;
	}
	return any;
}

static bool put_node_names (struct scene *s)
{
	bool any = false;

	for (size_t i = 0; i < s->doc->peers_n; i++) {
		const struct enc_doc_peer *p = &s->doc->peers[i];
		if (p->role != ENC_ROLE_COMPUTE || !p->overlay[0])
			continue;
		enc_buf_putf (s->out, "%s%s", any ? "," : "", p->node);
		any = true;
	}
	return any;
}

static bool put_state_dir (struct scene *s)
{
	return put_text (s, ENC_STATE_DIR);
}

static bool put_spool_dir (struct scene *s)
{
	return put_text (s, ENC_SPOOL_DIR);
}

static bool put_cgroup_plugin (struct scene *s)
{
	return put_text (s, s->host->cgroup_plugin);
}

static bool put_cgroup_mount (struct scene *s)
{
	return put_text (s, s->host->cgroup_mount);
}

static bool put_spank_plugin (struct scene *s)
{
	return put_text (s, s->host->spank_plugin);
}

static bool put_enclave (struct scene *s)
{
	return put_text (s, s->doc->enclave_name);
}

static bool put_enclave_id (struct scene *s)
{
	return put_text (s, s->doc->enclave_id);
}

static const struct {
	const char *name;
	bool (*put) (struct scene *s);
} values[] = {
	{ "CLUSTER", put_cluster },
	{ "SCHEDULER", put_scheduler },
	{ "SCHEDULER_ADDRESS", put_scheduler_address },
	{ "OWN_ADDRESS", put_own_address },
	{ "SLURMCTLD_PORT", put_slurmctld_port },
	{ "SLURMD_PORT", put_slurmd_port },
	{ "SRUN_FIRST", put_srun_first },
	{ "SRUN_LAST", put_srun_last },
	{ "LOGIN_PORT", put_login_port },
	{ "NODES", put_nodes },
	{ "NODE_NAMES", put_node_names },
	{ "STATE_DIR", put_state_dir },
	{ "SPOOL_DIR", put_spool_dir },
	{ "CGROUP_PLUGIN", put_cgroup_plugin },
	{ "CGROUP_MOUNT", put_cgroup_mount },
	{ "SPANK_PLUGIN", put_spank_plugin },
	{ "ENCLAVE", put_enclave },
	{ "ENCLAVE_ID", put_enclave_id },
};

static int put_value (struct scene *s, const char *name, size_t len, struct enc_error *err)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (values); i++) {
		if (strlen (values[i].name) != len || strncmp (values[i].name, name, len) != 0)
			continue;
		if (!values[i].put (s))
			return enc_fail (err, ENC_EINVAL, "template: the document has no %s", values[i].name);
		return 0;
	}
	return enc_fail (err, ENC_EINVAL, "template: unknown name @%.*s@", (int)(len < 40 ? len : 40), name);
}

static bool is_name (const char *s, size_t len)
{
	return len > 0 && strspn (s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") >= len;
}

static int render_line (struct scene *s, const char *line, size_t len, struct enc_error *err)
{
	int rc;

	for (size_t i = 0; i < len;) {
		const char *end = line[i] == '@' ? memchr (line + i + 1, '@', len - i - 1) : NULL;
		size_t name = end ? (size_t)(end - line) - i - 1 : 0;
		if (!end || !is_name (line + i + 1, name)) {
			enc_buf_put_u8 (s->out, (uint8_t)line[i++]);
			continue;
		}
		if ((rc = put_value (s, line + i + 1, name, err)) < 0)
			return rc;
		i += name + 2;
	}
	enc_buf_put_u8 (s->out, '\n');
	return 0;
}

int enc_render (const char *template, const struct enc_doc *doc, const struct enc_render_host *host, struct enc_buf *out, struct enc_error *err)
{
	struct scene s = { .doc = doc, .host = host, .out = out };
	int rc;

	for (const char *line = template; *line;) {
		size_t len = strcspn (line, "\n");
		/* Comments explain the template and may name anything; they do not go into the file. */
		if (line[0] != '#' && (rc = render_line (&s, line, len, err)) < 0)
			return rc;
		line += len + (line[len] == '\n');
	}
	return enc_buf_check (out, err);
}
