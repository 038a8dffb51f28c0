/* enclave-auditd: the only writer of the audit log. It takes records over a Unix
 * socket, makes them durable in batches, signs the tree, and only then answers.
 * It has no network, no children and no rights beyond its own folder. */
#include "controller/auditd/auditd.h"

#include "base/file.h"
#include "base/log.h"
#include "base/peer.h"
#include "base/str.h"
#include "crypto/note.h"
#include "crypto/secmem.h"

#include <event2/event.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

#include "base/enc.h"

/* Indexing takes turns with appending: short ones while records come, long ones else. */
#define INDEX_EVERY_MS 10
#define INDEX_PIECE 64
#define INDEX_IDLE_MS 20
#define MAX_PENDING 1024
#define ARENA (64u * 1024)

static const struct enc_field peer_fields[] = { ENC_FIELD (struct auditd_peer, name, "name", ENC_T_NAME,
							.flags = ENC_REQUIRED,
							.help = "stands in the records as src.name"),
	ENC_FIELD (struct auditd_peer, user, "user", ENC_T_USER, .flags = ENC_REQUIRED,
		.help = "the process runs as this user"),
	ENC_FIELD (struct auditd_peer, append, "append", ENC_T_BOOL, .help = "may append"),
	ENC_FIELD (struct auditd_peer, read, "read", ENC_T_BOOL, .help = "may search and read"),
	ENC_FIELD (struct auditd_peer, cosign, "cosign", ENC_T_BOOL, .help = "may bring cosignatures: enclave-cosignd"), ENC_FIELD_END };

static const struct enc_field conf_fields[] = {
	ENC_FIELD (struct auditd_conf, origin, "origin", ENC_T_STR, .flags = ENC_REQUIRED, .max = ENC_NOTE_NAME_MAX,
		.help = "name of the log, like a URL without scheme; cannot be changed later"),
	ENC_FIELD (struct auditd_conf, state, "state", ENC_T_PATH, .dflt = "\"/var/lib/enclave-audit\"",
		.help = "folder of the log"),
	ENC_FIELD (struct auditd_conf, socket, "socket", ENC_T_PATH, .dflt = "\"/run/enclave/auditd.sock\"",
		.help = "where it listens"),
	ENC_FIELD (struct auditd_conf, witnesses, "witnesses", ENC_T_PATH,
		.help = "file of the witness policy (C2SP tlog-policy); read again on SIGHUP"),
	ENC_FIELD (struct auditd_conf, witness_max_age_s, "witness_max_age_s", ENC_T_DURATION,
		.help = "no receipts, hence nothing loosened, when no quorum vouched within this; 0: never refused for that"),
	ENC_FIELD (struct auditd_conf, segment_bytes, "segment_bytes", ENC_T_SIZE, .min = 4096, .dflt = "268435456",
		.help = "a new file begins beyond this size"),
	ENC_FIELD (struct auditd_conf, reserve_bytes, "reserve_bytes", ENC_T_SIZE, .dflt = "67108864",
		.help = "kept back for urgent records on a full disk"),
	ENC_FIELD (struct auditd_conf, full_bytes, "full_bytes", ENC_T_SIZE, .dflt = "33554432",
		.help = "less free space than this counts as full"),
	ENC_FIELD (struct auditd_conf, checkpoint_ms, "checkpoint_ms", ENC_T_U64, .min = 10, .max = 60000,
		.dflt = "1000", .help = "longest time between a record and its checkpoint"),
	ENC_FIELD (struct auditd_conf, checkpoint_records, "checkpoint_records", ENC_T_U64, .min = 1, .max = 65536,
		.dflt = "1024", .help = "most records without a checkpoint"),
	ENC_FIELD (struct auditd_conf, peers, "peers", ENC_T_OBJS, .flags = ENC_REQUIRED | ENC_NONEMPTY, .max = 32,
		.sub = peer_fields, .sub_size = sizeof (struct auditd_peer), .help = "who may use the socket"),
	ENC_FIELD_END
};

/* ---- stores ---- */

/* The witness policy; NULL with an empty error when there is none. */
static struct enc_tlog_policy *load_policy (struct auditd *a, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (ENC_POLICY_MAX);
	struct enc_tlog_policy *policy;

	if (!a->conf->witnesses || enc_file_read_trusted (a->conf->witnesses, ENC_POLICY_MAX, &text, err) < 0)
		return NULL;
	policy = enc_tlog_policy_parse ((const char *)text.data, text.len, err);
	if (!policy)
		(void)enc_wrap (err, -ENC_EINVAL, "%s", a->conf->witnesses);
	return policy;
}

static int open_cosigned (struct auditd *a, struct enc_error *err)
{
	struct enc_tlog_policy *policy = load_policy (a, err);

	/* Not there yet is fine: a new site has the log's key first, and its witnesses after that. */
	if (!policy && err->code && err->code != ENC_ENOTFOUND)
		return -err->code;
	enc_error_clear (err);
	a->cosigned = enc_cosigned_open (a->log, policy, err);
	return a->cosigned ? 0 : -ENC_EFAILED;
}

int auditd_open_stores (struct auditd *a, uint64_t floor, struct enc_error *err)
{
	struct enc_trail_conf conf = { .state = a->conf->state,
		.origin = a->conf->origin,
		.segment_bytes = a->conf->segment_bytes,
		.reserve_bytes = a->conf->reserve_bytes,
		.full_bytes = a->conf->full_bytes };

	a->log = enc_trail_open (&conf, floor, err);
	if (!a->log)
		return err->code ? -err->code : -ENC_EFAILED;
	a->texts = open_cosigned (a, err) < 0 ? NULL : enc_texts_open (a->conf->state, enc_trail_size (a->log), err);
	a->index = a->texts ? enc_index_open (a->conf->state, enc_trail_dirfd (a->log), enc_trail_origin (a->log),
				      enc_trail_size (a->log), err)
			    : NULL;
	if (!a->index) {
		auditd_close_stores (a);
		return err->code ? -err->code : -ENC_EFAILED;
	}
	return 0;
}

void auditd_close_stores (struct auditd *a)
{
	struct enc_error err = { 0 };

	(void)enc_fail (&err, ENC_EUNAVAIL, "the log is closed");
	auditd_searches (a, &err);
	enc_index_free (ENC_TAKE (a->index));
	enc_texts_free (ENC_TAKE (a->texts));
	enc_cosigned_free (ENC_TAKE (a->cosigned));
	enc_trail_free (ENC_TAKE (a->log));
}

/* ---- events ---- */

static void on_commit (evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	auditd_commit (arg);
}

static void on_tick (evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	auditd_tick (arg);
}

void auditd_index_soon (struct auditd *a)
{
	const struct timeval soon = { .tv_usec = INDEX_EVERY_MS * 1000 };

	if (a->index_event && !event_pending (a->index_event, EV_TIMEOUT, NULL))
		(void)event_add (a->index_event, &soon);
}

static void on_index (evutil_socket_t fd, short what, void *arg)
{
	static uint64_t seen;
	const struct timeval now = { 0, 0 };
	struct auditd *a = arg;
	struct enc_error err = { 0 };
	bool busy = a->commits != seen;
	int64_t end = enc_mono () + (busy ? 0 : INDEX_IDLE_MS * ENC_NS_MS);
	ssize_t n = 0;

	(void)fd;
	(void)what;
	seen = a->commits;
	if (!a->index)
		return;
	/* On a full disk the index, which can be made again, leaves the reserved space to records. */
	while (!enc_trail_is_full (a->log) && (n = enc_index_update (a->index, enc_trail_size (a->log), INDEX_PIECE, &err)) == INDEX_PIECE &&
		enc_mono () < end)
		;
	if (n < 0)
		enc_log_err (ENC_LOG_WARN, &err, "the side index is behind");
	auditd_searches (a, n < 0 ? &err : NULL);
	if (n < 0 || enc_trail_is_full (a->log) || enc_index_next (a->index) >= enc_trail_size (a->log))
		return;
	if (busy || n == 0)
		auditd_index_soon (a);
	else
		(void)event_add (a->index_event, &now);
}

static int start_events (struct auditd *a, struct enc_error *err)
{
	const struct timeval tick = { .tv_sec = (time_t)(a->conf->checkpoint_ms / 1000),
		.tv_usec = (suseconds_t)(a->conf->checkpoint_ms % 1000 * 1000) };

	a->commit_event = event_new (a->base, -1, 0, on_commit, a);
	a->tick_event = event_new (a->base, -1, EV_PERSIST, on_tick, a);
	a->index_event = event_new (a->base, -1, 0, on_index, a);
	if (!a->commit_event || !a->tick_event || !a->index_event || event_add (a->tick_event, &tick) < 0)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	auditd_index_soon (a);
	return 0;
}

/* ---- the daemon's hooks ---- */

static int auditd_check (struct enc_daemon *d, struct enc_error *err)
{
	struct auditd_conf *conf = enc_daemon_conf (d);
	struct auditd_peer *peers = conf->peers.v;

	if (!enc_note_name_ok (conf->origin, strlen (conf->origin)) || strpbrk (conf->origin, "'\"\\"))
		return enc_error_pointer (
			err, enc_fail (err, ENC_EINVAL, "/origin: no blanks, quotes or '+'"), "/origin");
	for (size_t i = 0; i < conf->peers.n; i++)
		for (size_t k = 0; k < i; k++)
			if (strcmp (peers[i].user, peers[k].user) == 0 || strcmp (peers[i].name, peers[k].name) == 0)
				return enc_error_pointer (err,
					enc_fail (err, ENC_EINVAL, "/peers/%zu: user or name is there twice", i),
					"/peers/%zu", i);
	return 0;
}

static int auditd_open (struct enc_daemon *d, struct enc_error *err)
{
	struct auditd *a = enc_daemon_arg (d);
	struct auditd_peer *peers;
	int rc;

	a->daemon = d;
	a->conf = enc_daemon_conf (d);
	peers = a->conf->peers.v;
	if ((rc = enc_secmem_init (ARENA, err)) < 0)
		return rc;
	for (size_t i = 0; i < a->conf->peers.n; i++) {
		uid_t uid;
		gid_t gid;

		if ((rc = enc_uid_of_user (peers[i].user, &uid, &gid, err)) < 0)
			return enc_wrap (err, rc, "peer %s", peers[i].name);
		peers[i].uid = uid;
	}
	/* Everybody may connect; who is who is asked from the kernel. */
	rc = enc_unix_listen (a->conf->socket, 0666, (uid_t)-1, (gid_t)-1, err);
	if (rc < 0)
		return rc;
	a->listen_fd = rc;
	return 0;
}

static void note_start (struct auditd *a)
{
	struct enc_json *data = enc_json_object ();

	enc_json_set_u64 (data, "size", enc_trail_size (a->log));
	auditd_own (a, "start", "ok", data);
	auditd_note_repair (a);
	a->sign = true;
	auditd_commit (a);
}

static int auditd_start (struct enc_daemon *d, struct enc_error *err)
{
	struct auditd *a = enc_daemon_arg (d);
	struct enc_ipc_server_conf conf = {
		.ops = auditd_ops, .admit = auditd_admit, .arg = a, .max_conns = 1024, .max_pending = MAX_PENDING
	};
	int rc;

	a->base = enc_daemon_base (d);
	(void)sqlite3_config (SQLITE_CONFIG_SINGLETHREAD);
	if ((rc = enc_boot_id (a->boot, err)) < 0 || (rc = auditd_open_stores (a, 0, err)) < 0 ||
		(rc = start_events (a, err)) < 0)
		return rc;
	note_start (a);
	if (!a->log)
		return enc_fail (err, ENC_EUNAVAIL, "the first record could not be written");
	a->server = enc_ipc_server_new (a->base, ENC_TAKE_FD (a->listen_fd), &conf, err);
	if (!a->server)
		return -ENC_EFAILED;
	enc_log_info (
		"log %s with %llu records", enc_trail_origin (a->log), (unsigned long long)enc_trail_size (a->log));
	return 0;
}

static void auditd_reload (struct enc_daemon *d)
{
	struct auditd *a = enc_daemon_arg (d);
	struct enc_error err = { 0 };
	struct enc_tlog_policy *policy = a->log ? load_policy (a, &err) : NULL;

	if (err.code)
		enc_log_err (ENC_LOG_ERROR, &err, "the witness policy stays as it was");
	else if (a->log)
		enc_cosigned_set_policy (a->cosigned, policy);
}

static void auditd_stop (struct enc_daemon *d)
{
	struct auditd *a = enc_daemon_arg (d);
	struct enc_error closing = { 0 };
	struct enc_json *data;

	auditd_tick (a);
	auditd_flush (a);
	if (a->log) {
		data = enc_json_object ();
		enc_json_set_u64 (data, "size", enc_trail_size (a->log));
		a->sign = true;
		auditd_own (a, "stop", "ok", data);
		auditd_commit (a);
	}
	(void)enc_fail (&closing, ENC_EUNAVAIL, "the log service stops");
	auditd_searches (a, &closing);
	enc_ipc_server_free (ENC_TAKE (a->server));
	if (a->commit_event)
		event_free (ENC_TAKE (a->commit_event));
	if (a->tick_event)
		event_free (ENC_TAKE (a->tick_event));
	if (a->index_event)
		event_free (ENC_TAKE (a->index_event));
	auditd_close_stores (a);
	enc_secmem_done ();
}

int main (int argc, char **argv)
{
	static const char *const syscalls[] = { "fadvise64", NULL };
	static struct auditd_conf conf;
	static struct auditd auditd = { .listen_fd = -1 };
	static const struct enc_daemon_spec spec = { .name = "enclave-auditd",
		.summary = "the only writer of the audit log",
		.fields = conf_fields,
		.conf = &conf,
		.user = "enclave-audit",
		.syscalls = syscalls,
		.check = auditd_check,
		.open = auditd_open,
		.start = auditd_start,
		.reload = auditd_reload,
		.stop = auditd_stop,
		.arg = &auditd };

	return enc_daemon_main (&spec, argc, argv);
}
