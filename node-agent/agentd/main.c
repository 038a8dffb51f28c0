/* enclave-agentd: the node's voice. It parses the network so that root need not, carries opaque bytes between the controller and privd,
 * and decides nothing. Started by privd with their socketpair as descriptor 3; on the general head and login nodes it runs alone, as
 * observer (config "observer": true). It sees no key: sealed blobs pass through. */
#include <event2/event.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/daemon.h"
#include "base/log.h"
#include "node-agent/agentd/controller_link.h"
#include "node-agent/agentd/converge.h"
#include "node-agent/agentd/observer.h"
#include "node-agent/agentd/receipts.h"
#include "node-agent/agentd/report.h"
#include "node-agent/agentd/scheduler_link.h"
#include "base/enc.h"

enum { PRIVD_FD = 3, TICK_S = 2, HEARTBEAT_TICKS = 5, SESSION_MS = 20000 };

/* An observer has no privd and so no identity key: keyd binds its certificate to this. */
static const char no_identity[] = "0000000000000000000000000000000000000000000000000000000000000000";
static const char no_boot[] = "00000000000000000000000000000000";

struct agent_conf {
	char *node, *controller_host, *ca, *state, *schedd, *door;
	uint32_t controller_port;
	bool observer;
};

static const struct enc_field agent_fields[] = {
	ENC_FIELD (struct agent_conf, node, "node", ENC_T_NODE, .flags = ENC_REQUIRED, .help = "this node's name in Slurm"),
	ENC_FIELD (struct agent_conf, controller_host, "controller_host", ENC_T_STR, .flags = ENC_REQUIRED, .help = "address of enclaved"),
	ENC_FIELD (struct agent_conf, controller_port, "controller_port", ENC_T_U32, .min = 1, .max = 65535, .dflt = "7443", .help = "its port for agents"),
	ENC_FIELD (struct agent_conf, ca, "ca", ENC_T_PATH, .dflt = "\"/etc/enclave/controller-ca.pem\"", .help = "the CA of its certificate"),
	ENC_FIELD (struct agent_conf, state, "state", ENC_T_PATH, .dflt = "\"/var/lib/enclave-agent\"", .help = "key, certificate and token"),
	ENC_FIELD (struct agent_conf, schedd, "schedd", ENC_T_PATH, .dflt = "\"/run/enclave/schedd.sock\"", .help = "enclave-schedd of an enclave's scheduler node"),
	ENC_FIELD (struct agent_conf, door, "door", ENC_T_PATH, .dflt = "\"/run/enclave/agent.sock\"", .help = "where a login node's door asks for receipts"),
	ENC_FIELD (struct agent_conf, observer, "observer", ENC_T_BOOL, .dflt = "false", .help = "probe from outside only; no privd"),
	ENC_FIELD_END,
};

struct agent {
	struct agent_conf conf;
	struct enc_daemon *daemon;
	struct enc_privd_link *privd;
	struct enc_converge *converge;
	struct enc_observer *observer;
	struct enc_controller_link *controller;
	struct enc_scheduler_link *scheduler;
	struct enc_receipts *receipts;
	int door_fd;
	struct event *tick;
	unsigned ticks;
	struct enc_json *extra;      /* evidence of our own: slurm, probe */
	char attested[33];           /* challenge whose attestation has arrived at the controller */
	uint64_t stored;             /* events up to here are in the log */
	uint64_t observer_generation;
	bool scheduler_role;
};

static struct agent agent = { .door_fd = -1 };

static void report (struct agent *a)
{
	struct enc_report_in in = { .node = a->conf.node, .converge = a->converge, .extra = a->extra,
				    .attestation_for = a->attested[0] ? a->attested : NULL,
				    .receipts = enc_receipts_wanted (a->receipts), .generation = a->observer_generation };
	enc_controller_link_report (a->controller, enc_report_build (&in));
}

/* ---- privd's side ---- */

static const char *state_str (const struct agent *a, const char *key, const char *fallback)
{
	return enc_json_get_str (a->converge ? enc_converge_state (a->converge) : NULL, key, fallback);
}

static void controller_start (struct agent *a)
{
	struct enc_error err = { 0 };
	const char *identity = a->conf.observer ? no_identity : state_str (a, "identity", NULL);
	const char *boot = a->conf.observer ? no_boot : state_str (a, "boot", NULL);
	if (!identity || !boot || enc_controller_link_enrolled (a->controller))
		return;
	int rc = enc_controller_link_start (a->controller, identity, boot, &err);
	if (rc < 0 && -rc != ENC_ENOTFOUND)
		enc_log_err (ENC_LOG_WARN, &err, "controller");
}

static void converged (void *arg)
{
	struct agent *a = arg;
	controller_start (a);
	const struct enc_json *roles = enc_json_get (enc_json_get (enc_converge_state (a->converge), "areas"), "roles");
	a->scheduler_role = false;
	for (size_t i = 0; i < enc_json_len (roles); i++)
		a->scheduler_role |= strcmp (enc_json_str (enc_json_at (roles, i)) ?: "", "scheduler") == 0;
	if (a->scheduler_role)
		enc_scheduler_link_ask (a->scheduler);
	else
		enc_json_del (a->extra, "slurm");
	report (a);
}

static void privd_gone (void *arg)
{
	struct agent *a = arg;
	enc_log_warn ("privd closed the connection; ending");
	enc_daemon_quit (a->daemon, 1);
}

static void slurm_told (struct enc_json *slurm, void *arg)
{
	struct agent *a = arg;
	bool differs = !enc_json_equal (slurm, enc_json_get (a->extra, "slurm"));
	enc_json_set (a->extra, "slurm", slurm);
	if (differs)
		report (a);
}

static void observed (struct enc_json *evidence, void *arg)
{
	struct agent *a = arg;
	enc_json_set (a->extra, "probe", evidence);
	report (a);
}

/* ---- sessions ---- */

static void receipt_wanted (void *arg)
{
	struct agent *a = arg;
	enc_converge_refresh (a->converge, a->stored);
	report (a); /* its event may have gone out already */
}

static void session_ended (int rc, const struct enc_answer *answer ENC_UNUSED, const struct enc_error *err, void *arg)
{
	struct agent *a = arg;
	if (rc < 0)
		enc_log_err (ENC_LOG_WARN, err, "a session is not ended");
	enc_converge_refresh (a->converge, a->stored);
}

/* Sessions that shall end, as often as the controller says so: privd takes one that is gone for done. */
static void end_sessions (struct agent *a, const struct enc_json *list)
{
	for (size_t i = 0; i < enc_json_len (list) && a->privd; i++) {
		const char *id = enc_json_str (enc_json_at (list, i));
		struct enc_order order = { .verb = ENC_VERB_SESSION };
		if (!id || !enc_id_ok (id))
			continue;
		order.extra = enc_view_of (id, strlen (id));
		if (enc_privd_link_order (a->privd, &order, SESSION_MS, session_ended, a, NULL) < 0)
			return;
	}
}

/* ---- the controller's side ---- */

static void document_came (const struct enc_json *answer, void *arg)
{
	struct agent *a = arg;
	struct enc_error err = { 0 };
	end_sessions (a, enc_json_get (answer, "end_sessions"));
	if (!enc_json_str (enc_json_get (answer, "document")))
		return;
	enc_auto (enc_work) struct enc_work *work = enc_work_parse (answer, a->conf.node, &err);
	if (!work) {
		enc_log_err (ENC_LOG_ERROR, &err, "document of the controller refused");
		return;
	}
	if (!a->conf.observer) {
		enc_converge_start (a->converge, ENC_TAKE (work));
		return;
	}
	a->observer_generation = work->generation;
	if (enc_observer_run (a->observer, &work->doc, &err) < 0)
		enc_log_err (ENC_LOG_WARN, &err, "probe");
	report (a);
}

static void report_taken (const struct enc_json *answer, bool attested, void *arg)
{
	struct agent *a = arg;
	uint64_t stored = enc_json_get_u64 (answer, "events_stored", 0);
	enc_receipts_take (a->receipts, enc_json_get (answer, "receipts"));
	end_sessions (a, enc_json_get (answer, "end_sessions"));
	const char *challenge = a->converge ? enc_json_get_str (enc_json_get (enc_converge_state (a->converge), "areas"), "measure", NULL) : NULL;
	if (attested && challenge)
		(void) snprintf (a->attested, sizeof a->attested, "%s", challenge);
	if (stored > a->stored) {
		a->stored = stored;
		enc_converge_refresh (a->converge, stored);
	}
}

static void controller_up (void *arg)
{
	report (arg);
}

static void ticked (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg)
{
	struct agent *a = arg;
	if (a->converge)
		enc_converge_refresh (a->converge, a->stored);
	controller_start (a);
	if (a->scheduler_role)
		enc_scheduler_link_ask (a->scheduler);
	if (++a->ticks % HEARTBEAT_TICKS == 0)
		report (a);
}

/* ---- life ---- */

static int agent_open (struct enc_daemon *d, struct enc_error *err)
{
	struct stat st;
	(void) d;
	if (!agent.conf.observer && (fstat (PRIVD_FD, &st) < 0 || !S_ISSOCK (st.st_mode)))
		return enc_error_next (err, enc_fail (err, ENC_EUSAGE, "no socket to privd on descriptor 3"),
				       "enclave-privd starts the agent; alone it runs with \"observer\": true");
	if (!agent.conf.observer && (agent.door_fd = enc_receipts_listen (agent.conf.door, err)) < 0)
		return agent.door_fd;
	return 0;
}

static int start_node (struct agent *a, struct event_base *base, struct enc_error *err)
{
	(void) fcntl (PRIVD_FD, F_SETFD, FD_CLOEXEC);
	if (!(a->privd = enc_privd_link_new (base, PRIVD_FD, privd_gone, a, err)) ||
	    !(a->converge = enc_converge_new (a->privd, converged, a, err)) ||
	    !(a->scheduler = enc_scheduler_link_new (base, a->conf.schedd, slurm_told, a, err)) ||
	    !(a->receipts = enc_receipts_new (base, ENC_TAKE_FD (a->door_fd), receipt_wanted, a, err)))
		return -ENC_EFAILED;
	enc_converge_refresh (a->converge, 0);
	return 0;
}

static int agent_start (struct enc_daemon *d, struct enc_error *err)
{
	struct agent *a = &agent;
	struct event_base *base = enc_daemon_base (d);
	const struct enc_controller_conf conf = { .node = a->conf.node, .host = a->conf.controller_host, .port = a->conf.controller_port,
						  .ca_file = a->conf.ca, .state_dir = a->conf.state };
	const struct enc_controller_events events = { document_came, report_taken, controller_up, a };
	const struct timeval tv = { .tv_sec = TICK_S };
	a->daemon = d;
	a->extra = enc_json_object ();
	if (!(a->controller = enc_controller_link_new (base, &conf, &events, err)) || !(a->tick = event_new (base, -1, EV_PERSIST, ticked, a)))
		return -ENC_EFAILED;
	if (a->conf.observer && !(a->observer = enc_observer_new (base, observed, a, err)))
		return -ENC_EFAILED;
	if (!a->conf.observer && start_node (a, base, err) < 0)
		return -ENC_EFAILED;
	event_add (a->tick, &tv);
	controller_start (a);
	return 0;
}

static void agent_stop (struct enc_daemon *d ENC_UNUSED)
{
	struct agent *a = &agent;
	enc_controller_link_free (a->controller);
	enc_observer_free (a->observer);
	enc_scheduler_link_free (a->scheduler);
	enc_receipts_free (a->receipts);
	enc_converge_free (a->converge);
	enc_privd_link_free (a->privd);
	if (a->tick)
		event_free (a->tick);
	enc_json_free (a->extra);
}

int main (int argc, char **argv)
{
	const struct enc_daemon_spec spec = {
		.name = "enclave-agentd",
		.summary = "carries documents to privd and reports to the controller",
		.fields = agent_fields,
		.conf = &agent.conf,
		.user = "enclave-agent",
		.flags = ENC_D_NETWORK,
		.open = agent_open,
		.start = agent_start,
		.stop = agent_stop,
	};
	return enc_daemon_main (&spec, argc, argv);
}
