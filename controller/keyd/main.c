/* enclave-keyd: holds the root key, signs grants and member documents, releases keys. One Unix socket, no network, no child, no
 * shell. The root key outlives a crash in systemd's descriptor store, and nothing outlives a reboot. */
#include <systemd/sd-daemon.h>

#include "base/daemon.h"
#include "base/file.h"
#include "base/ipc_loop.h"
#include "base/log.h"
#include "controller/keyd/keyd.h"
#include "crypto/secmem.h"
#include "crypto/secretfd.h"
#include "base/enc.h"

enum { ARENA = 1024 * 1024, OPS_MAX = 32 };
#define ROOT_FD "root-key"

static struct enc_keyd_conf conf;
static struct enc_keyd keyd;

static struct service {
	struct enc_ipc_server *server;
	struct enc_ipc_op ops[OPS_MAX];
	int listening;
} service = { .listening = -1 };

/* ---- descriptor store ---- */

/* Only here is the root key ever outside of this process: in memory without a name, which systemd holds and never looks into. */
static void keep_root (const struct enc_secret *root)
{
	struct enc_error err = { 0 };

	enc_daemon_status ("%s", enc_vault_state_name (keyd.vault));
	if (!root) {
		(void) sd_notify (0, "FDSTOREREMOVE=1\nFDNAME=" ROOT_FD);
		return;
	}
	enc_auto_close int fd = enc_secret_fd (root->data, root->len, &err);
	if (fd < 0 || enc_daemon_store_fd (ROOT_FD, fd, &err) < 0)
		enc_log_err (ENC_LOG_WARN, &err, "the root key will not outlive a crash");
}

static void adopt_root (void)
{
	enc_auto_done (enc_secret_done) struct enc_secret root = { 0 };
	enc_auto_close int fd = enc_daemon_take_fd (ROOT_FD);
	struct enc_error err = { 0 };

	if (fd < 0)
		return;
	if (enc_secret_of_fd (fd, &root, &err) < 0 || enc_vault_adopt (keyd.vault, &root, &err) < 0) {
		enc_log_err (ENC_LOG_ERROR, &err, "the kept root key is of no use");
		keep_root (NULL);
		return;
	}
	enc_log_notice ("unsealed with the root key that was kept over the restart");
}

/* ---- socket ---- */

static bool on_connect (const struct enc_peer *peer, void *arg ENC_UNUSED)
{
	bool admitted = enc_keyd_admits (&keyd, peer->uid);

	if (!admitted)
		enc_log_warn ("uid %u may not connect", (unsigned) peer->uid);
	return admitted;
}

static void on_request (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds, void *arg ENC_UNUSED)
{
	const struct enc_keyd_request request = { enc_ipc_req_peer (req)->uid, body, fds };
	struct enc_json *answer = NULL;
	struct enc_error err = { 0 };

	if (enc_keyd_handle (&keyd, &request, &answer, &err) < 0) {
		enc_ipc_reply_error (req, &err);
		return;
	}
	enc_json_set_bool (answer, "ok", true);
	enc_ipc_reply (req, answer);
}

static void fill_ops (void)
{
	const char *name;

	for (size_t i = 0; i < OPS_MAX - 1 && (name = enc_keyd_op_name (i)); i++)
		service.ops[i] = (struct enc_ipc_op){ name, on_request, ENC_IPC_WITH_FDS };
}

/* ---- life ---- */

static int on_open (struct enc_daemon *d ENC_UNUSED, struct enc_error *err)
{
	int rc = enc_secmem_init (ARENA, err);

	if (rc < 0)
		return rc;
	/* Who may do what is decided per request, by uid. */
	if ((service.listening = enc_unix_listen (conf.socket, 0666, (uid_t) -1, (gid_t) -1, err)) < 0)
		return service.listening;
	return 0;
}

/* The state is opened by the user it belongs to, after the rights were dropped. */
static int on_start (struct enc_daemon *d, struct enc_error *err)
{
	int rc = enc_keyd_open (&keyd, &conf, err);

	if (rc < 0)
		return rc;
	keyd.root_changed = keep_root;
	adopt_root ();
	fill_ops ();
	const struct enc_ipc_server_conf sc = { .ops = service.ops, .admit = on_connect };
	service.server = enc_ipc_server_new (enc_daemon_base (d), ENC_TAKE_FD (service.listening), &sc, err);
	if (!service.server)
		return -ENC_EFAILED;
	enc_daemon_status ("%s", enc_vault_state_name (keyd.vault));
	return 0;
}

static void on_stop (struct enc_daemon *d ENC_UNUSED)
{
	enc_ipc_server_free (service.server);
	enc_keyd_done (&keyd);
	enc_secmem_done ();
}

static const char *const syscalls[] = { "memfd_secret", NULL };

int main (int argc, char **argv)
{
	const struct enc_daemon_spec spec = {
		.name = "enclave-keyd",
		.summary = "holds the keys of enclaves and signs grants",
		.fields = enc_keyd_fields,
		.conf = &conf,
		.user = "enclave-key",
		.syscalls = syscalls,
		.open = on_open,
		.start = on_start,
		.stop = on_stop,
	};

	return enc_daemon_main (&spec, argc, argv);
}
