/* enclaved: API, policy, engine, store. It sees no key, is not root, and links no libslurm. */
#include <event2/event.h>
#include <fcntl.h>
#include <sys/stat.h>
#include "base/daemon.h"
#include "base/file.h"
#include "base/log.h"
#include "base/point.h"
#include "controller/enclaved/agents.h"
#include "controller/enclaved/api.h"
#include "controller/enclaved/metrics.h"
#include "controller/enclaved/polls.h"
#include "controller/enclaved/sweep.h"
#include "base/enc.h"

static const char USER[] = "enclave";

struct process {
	struct enc_conf conf;
	struct enc_ctl ctl;
	struct event *look, *second;
};

static void on_look (ENC_UNUSED evutil_socket_t fd, ENC_UNUSED short what, void *arg)
{
	enc_polls_look (arg);
}

/* From the loop, not from wherever the change was made. */
static void look_soon (struct enc_ctl *c)
{
	struct process *p = c->owner;

	event_active (p->look, EV_TIMEOUT, 1);
}

/* ---- as root: sockets and folders ---- */

static int own_folder (const char *file, struct enc_error *err)
{
	enc_auto_free char *folder = enc_strdup (file);
	struct enc_file_attr attr = ENC_FILE_ATTR (0700);
	enc_auto_close int parent = -1;
	struct stat st;
	char *slash = folder ? strrchr (folder, '/') : NULL;

	if (!slash || slash == folder)
		return 0;
	*slash = '\0';
	slash = strrchr (folder, '/');
	if (!slash || slash == folder || geteuid () != 0)
		return 0;
	if (enc_uid_of_user (USER, &attr.uid, &attr.gid, err) < 0)
		return -ENC_ENOTFOUND;
	*slash = '\0';
	if ((parent = enc_open_dir (folder, err)) < 0)
		return parent;
	/* As installed it is there already, and root without any capability cannot look into it. */
	if (fstatat (parent, slash + 1, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR (st.st_mode) && st.st_uid == attr.uid)
		return 0;
	return enc_mkdir_at (parent, slash + 1, &attr, err);
}

static int on_open (struct enc_daemon *d, struct enc_error *err)
{
	struct process *p = enc_daemon_arg (d);
	int rc;

	p->ctl.api_fd = p->ctl.agents_fd = -1;
	if ((rc = own_folder (p->conf.store, err)) < 0)
		return rc;
	p->ctl.api_fd = enc_unix_listen (p->conf.socket, 0666, (uid_t) -1, (gid_t) -1, err);
	if (p->ctl.api_fd < 0)
		return p->ctl.api_fd;
	p->ctl.agents_fd = enc_tcp_listen (p->conf.listen, p->conf.port, err);
	return p->ctl.agents_fd < 0 ? p->ctl.agents_fd : 0;
}

/* ---- as ourselves ---- */

static int clients (struct enc_ctl *c, struct enc_error *err)
{
	if (!(c->auditd = enc_ipc_client_new (c->base, c->conf->auditd, 0, err)) ||
	    !(c->keyd = enc_ipc_client_new (c->base, c->conf->keyd, 0, err)) ||
	    !(c->schedd = enc_ipc_client_new (c->base, c->conf->schedd, 0, err)))
		return err->code ? -err->code : -ENC_EFAILED;
	return 0;
}

static int events (struct process *p, struct enc_error *err)
{
	struct timeval second = { .tv_sec = 1 };

	p->look = event_new (p->ctl.base, -1, 0, on_look, &p->ctl);
	p->second = event_new (p->ctl.base, -1, EV_PERSIST, on_look, &p->ctl);
	if (!p->look || !p->second || event_add (p->second, &second) < 0)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	p->ctl.owner = p;
	p->ctl.look = look_soon;
	return 0;
}

static int on_start (struct enc_daemon *d, struct enc_error *err)
{
	struct process *p = enc_daemon_arg (d);
	struct enc_ctl *c = &p->ctl;
	int rc;

	c->conf = &p->conf;
	c->base = enc_daemon_base (d);
	enc_point_open ("enclaved", NULL);
	(void) umask (077);
	if (!(c->fibers = enc_fibers_new (c->base)))
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if ((rc = enc_ctl_policies (c, err)) < 0)
		return rc;
	if (!(c->db = enc_db_open (p->conf.store, enc_store_migrations, err)))
		return err->code ? -err->code : -ENC_EFAILED;
	if ((rc = clients (c, err)) < 0 || (rc = events (p, err)) < 0 || (rc = enc_fiber_start (c->fibers, enc_record_spool, c, NULL, err)) < 0 ||
	    (rc = enc_api_start (c, err)) < 0 || (rc = enc_agents_start (c, err)) < 0)
		return rc;
	if ((rc = enc_sweep_start (c, err)) < 0 || (rc = enc_metrics_start (c, err)) < 0)
		return rc;
	return enc_life_start (c, err);
}

static void on_reload (struct enc_daemon *d)
{
	struct process *p = enc_daemon_arg (d);
	struct enc_error err = { 0 };

	if (enc_ctl_policies (&p->ctl, &err) < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "the policies stay as they were");
	else
		enc_log_notice ("policies read anew");
}

/* What is in motion stays in the store and goes on with the next start; here only the door is closed. */
static void on_stop (struct enc_daemon *d)
{
	struct process *p = enc_daemon_arg (d);

	p->ctl.stopping = true;
	enc_db_free (p->ctl.db);
	p->ctl.db = NULL;
}

static int on_check (struct enc_daemon *d, struct enc_error *err)
{
	struct process *p = enc_daemon_arg (d);

	if (p->conf.srun_port_first > p->conf.srun_port_last)
		return enc_error_pointer (err, enc_fail (err, ENC_EUSAGE, "srun_port_first is above srun_port_last"), "/srun_port_first");
	return 0;
}

int main (int argc, char **argv)
{
	/* SQLite locks and truncates its files, and maps its index. */
	static const char *const syscalls[] = { "fcntl", "ftruncate", "pread64", "pwrite64", "fdatasync", "fsync", "unlink", "rename", "openat",
						"mremap", "fchmod", "fchown", "geteuid", NULL };
	static struct process p;
	static const struct enc_daemon_spec spec = {
		.name = "enclaved", .summary = "controller of the enclaves: API, policy, engine, store", .config = "/etc/enclave/enclaved.json",
		.fields = enc_conf_fields, .conf = &p.conf, .user = USER, .syscalls = syscalls, .flags = ENC_D_NETWORK, .check = on_check,
		.open = on_open, .start = on_start, .reload = on_reload, .stop = on_stop, .arg = &p,
	};

	return enc_daemon_main (&spec, argc, argv);
}
