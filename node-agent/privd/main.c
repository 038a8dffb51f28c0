/* enclave-privd: the only root of a node. The main process decides (gate.c), holds keys and state, and has no capability at all; one
 * child process for each verb family does the work (families.c). docs/protocol.md sections 4 to 7; design of the node in docs/admin.md.
 *
 * Start: families forked → identity, boot nonce, boot key → capabilities and system calls dropped → a held node is fenced again before
 * anybody is told that we are ready → agent, plugins' socket. */
#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/daemon.h"
#include "base/file.h"
#include "base/log.h"
#include "crypto/secmem.h"
#include "node-agent/privd/privd.h"
#include "node-agent/privd/told.h"

#include "base/enc.h"

enum { SECMEM_BYTES = 512 * 1024, START_MS = 20000 };

static struct enc_privd self;
static int facts_fd = -1;

static int make_folders (const struct enc_privd *p, struct enc_error *err)
{
	const struct {
		const char *path;
		unsigned mode;
	} rows[] = { { p->conf.run_dir, 0700 }, { p->conf.state_dir, 0700 }, { "/run/enclave", 0755 } };

	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++) {
		if (mkdir (rows[i].path, rows[i].mode) < 0 && errno != EEXIST)
			return enc_fail_sys (err, "%s", rows[i].path);
		if (chmod (rows[i].path, rows[i].mode) < 0)
			return enc_fail_sys (err, "%s", rows[i].path);
	}
	return 0;
}

static int name_node (struct enc_privd *p, struct enc_error *err)
{
	char name[65] = "";

	if (p->conf.node)
		return 0;
	if (gethostname (name, sizeof name - 1) < 0)
		return enc_fail_sys (err, "host name");
	name[strcspn (name, ".")] = '\0';
	if (!enc_node_name_ok (name) || !(p->conf.node = enc_strdup (name)))
		return enc_fail (err, ENC_EINVAL, "the host name is no node name; set \"node\"");
	return 0;
}

static int privd_open (struct enc_daemon *d, struct enc_error *err)
{
	struct enc_privd *p = &self;
	int rc;

	p->base = enc_daemon_base (d);
	p->daemon = d;
	(void)umask (022);
	if ((rc = name_node (p, err)) < 0 || (rc = make_folders (p, err)) < 0)
		return rc;
	/* Before anything secret is in this process. */
	if (!(p->hands = enc_hands_new (&p->conf, err)))
		return -ENC_EFAILED;
	if ((rc = enc_secmem_init (SECMEM_BYTES, err)) < 0 || (rc = enc_privd_identity (p, err)) < 0)
		return rc;
	return (facts_fd = enc_facts_listen (p->conf.facts_socket, err)) < 0 ? facts_fd : 0;
}

static void quit (struct enc_privd *p, int rc)
{
	enc_daemon_quit (p->daemon, rc);
}

/* ---- a family that ends ---- */

static void died (const char *family, void *arg)
{
	struct enc_privd *p = arg;
	struct enc_json *obj = enc_json_object (), *data = enc_json_object ();

	enc_log_error ("family %s ended", family);
	enc_json_set_str (obj, "node", p->conf.node);
	enc_json_set_str (data, "area", family);
	enc_json_set_str (data, "reason", "a family's process ended");
	enc_json_set_u64 (data, "generation", p->state.generation);
	enc_spool_add (&p->spool, "node", "tighten", "ok", obj, data);
	/* Shut first: plugins are told at once. Then begin anew: a process that has dropped its rights cannot make another one that has them.
	 * The service manager starts us again, and the start ends sessions. */
	p->state.door = false;
	p->state.counter = p->spool.counter;
	(void)!enc_node_state_store (&p->conf, &p->state, NULL);
	quit (p, -ENC_EFAILED);
}

static void noticed (const char *family, void *arg)
{
	struct enc_privd *p = arg;

	(void)family;
	if (p->runner)
		enc_runner_check_fence (p->runner);
}

/* ---- start ---- */

static int put_back (struct enc_privd *p, uint8_t job, const struct enc_doc *doc, uint8_t flags, struct enc_json **ret, struct enc_error *err)
{
	struct enc_task task = { .job = job, .flags = flags, .doc = doc, .fd = -1 };

	return enc_hands_wait (p->hands, &task, START_MS, ret, err);
}

/* A restarted privd: apply again what stands in the state, so that the fence's family knows it. */
static int resume (struct enc_privd *p, struct enc_error *err)
{
	enc_auto_free struct enc_doc *doc = calloc (1, sizeof *doc);
	int rc;

	if (!doc)
		return enc_fail (err, ENC_ENOMEM, "start: no memory");
	rc = p->state.fence == ENC_FENCE_ENCLAVE ? enc_node_state_document (&p->state, doc, err) : -ENC_ENOTFOUND;
	if (rc < 0 || doc->fence != ENC_FENCE_ENCLAVE)
		rc = enc_node_state_tight (&p->conf, &p->state, (uint8_t)p->state.pool, doc, err);
	if (rc < 0)
		return rc;
	return put_back (p, ENC_JOB_FENCE, doc, p->state.door ? ENC_TASK_DOOR : 0, NULL, err);
}

static int start_held (struct enc_privd *p, bool rebooted, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *found = NULL;
	int rc;

	if (!enc_node_state_held (&p->state))
		return 0;
	if (p->state.units == ENC_UNITS_DOWN && (rc = put_back (p, ENC_JOB_UNITS, NULL, 0, NULL, err)) < 0)
		return enc_wrap (err, rc, "keep the site's units down");
	if (p->state.fence != ENC_FENCE_NONE && (rc = resume (p, err)) < 0)
		return enc_wrap (err, rc, "fence");
	if (p->state.pool == ENC_POOL_GENERAL || p->state.pool == ENC_POOL_SERVICE)
		return 0;
	if ((rc = put_back (p, ENC_JOB_OVERLAY_KEY, NULL, 0, &found, err)) < 0 ||
		(rc = enc_state_set (&p->state.overlay_key, enc_json_get_str (found, "overlay_key", NULL), err)) < 0)
		return rc;
	/* Whoever died had shut the door and could not end what was behind it. */
	if (!rebooted && p->state.roles && !p->state.door && (rc = put_back (p, ENC_JOB_DOOR, NULL, 0, NULL, err)) < 0)
		return enc_wrap (err, rc, "end sessions");
	if (rebooted) {
		struct enc_json *obj = enc_json_object (), *data = enc_json_object ();
		enc_json_set_str (obj, "node", p->conf.node);
		enc_json_set_str (data, "area", "all");
		enc_json_set_str (data, "reason", "rebooted while held");
		enc_json_set_u64 (data, "generation", p->state.generation);
		enc_spool_add (&p->spool, "node", "tighten", "ok", obj, data);
		enc_log_notice ("rebooted while held: fenced, without keys");
	}
	return 0;
}

static int privd_start (struct enc_daemon *d, struct enc_error *err)
{
	const struct enc_hands_events events = { died, noticed, &self };
	struct enc_privd *p = &self;
	bool rebooted;
	int rc;

	(void)d;
	(void)umask (022);
	p->quit = quit;
	if ((rc = enc_spool_open (&p->spool, &p->conf, err)) < 0 || (rc = enc_node_state_load (&p->conf, &p->state, &rebooted, err)) < 0)
		return rc;
	if (p->spool.counter < p->state.counter)
		p->spool.counter = p->state.counter;
	if ((rc = start_held (p, rebooted, err)) < 0 || (rc = enc_node_state_store (&p->conf, &p->state, err)) < 0)
		return rc;
	if ((rc = enc_hands_loop (p->hands, p->base, &events, err)) < 0 || (rc = enc_runner_new (p, err)) < 0)
		return rc;
	if ((rc = enc_sessions_new (p, err)) < 0)
		return rc;
	if ((rc = enc_facts_server_new (p, ENC_TAKE_FD (facts_fd), err)) < 0)
		return rc;
	return enc_agent_link_new (p, err);
}

static void privd_stop (struct enc_daemon *d)
{
	struct enc_privd *p = &self;

	(void)d;
	enc_agent_link_free (p->agent);
	enc_facts_server_free (p->facts);
	enc_sessions_free (p->sessions);
	enc_runner_free (p->runner);
	enc_hands_free (p->hands);
	enc_spool_done (&p->spool);
	enc_node_state_done (&p->state);
	enc_sign_key_free (p->identity);
	enc_boot_key_free (p->boot_key);
}

int main (int argc, char **argv)
{
	static const int caps[] = { -1 };
	static const char *const syscalls[] = { "unlink", "rename", "renameat", "renameat2", "mkdir", "fchmod", "chmod", "accept4", "kill", "wait4", "pidfd_open", NULL };
	const struct enc_daemon_spec spec = {
		.name = "enclave-privd",
		.summary = "the verbs of a node that need root",
		.fields = enc_privd_fields,
		.conf = &self.conf,
		.caps = caps,
		.syscalls = syscalls,
		.flags = ENC_D_KEEP_ROOT,
		.open = privd_open,
		.start = privd_start,
		.stop = privd_stop,
	};

	return enc_daemon_main (&spec, argc, argv);
}
