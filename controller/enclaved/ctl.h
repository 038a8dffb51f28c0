/* The controller's state in one place: what every part of enclaved is handed. One process, one loop, no threads. */
#ifndef ENC_ENCLAVED_CTL_H
#define ENC_ENCLAVED_CTL_H

#include "base/http.h"
#include "base/ipc_loop.h"
#include "controller/enclaved/fiber.h"
#include "controller/enclaved/store.h"
#include "policies/policy.h"

struct enc_conf {
	char *store, *socket, *auditd, *keyd, *schedd;
	char *listen;              /* address for agents */
	uint32_t port;
	char *address4, *address6; /* of this host, as nodes in the airlock reach it */
	char *certificate, *key, *ca;
	char *users, *policies, *policy;
	struct enc_strs outsiders; /* addresses that probes must find unreachable, beside those of the observers */
	struct enc_strs service_nodes, observers; /* what a node is when it is enrolled; all others are of the general pool */
	uint64_t token_ttl_s, measure_every_s, node_lost_s;
	uint32_t slurmctld_port, slurmd_port, srun_port_first, srun_port_last, login_port_base, overlay_port_base;
	char *overlay_prefix;      /* "10.77": enclave K gets <prefix>.K.0/24 */
	char *metrics_file;        /* NULL: none */
	uint64_t metrics_every_s;
};
extern const struct enc_field enc_conf_fields[];

struct enc_run;
struct enc_poll;

enum { ENC_REFUSED_KINDS = 7 };

struct enc_ctl {
	struct enc_conf *conf;
	struct event_base *base;
	struct enc_fibers *fibers;
	struct enc_db *db;
	struct enc_policies policies;
	struct enc_ipc_client *auditd, *keyd, *schedd;
	struct enc_http_server *api, *agents;
	struct enc_cond changed;   /* a report came, a document or an operation moved: look again */
	struct enc_cond spooled;   /* a record was put aside for the log */
	struct enc_run *runs;      /* enclaves in motion */
	struct enc_poll *polls;    /* parked requests: agents waiting for a document, callers waiting for events */
	struct enc_strs baselining; /* nodes whose baseline is being taken */
	uint64_t refused[ENC_REFUSED_KINDS]; /* since the start; metrics.h */
	int api_fd, agents_fd;     /* opened as root, -1 once handed over */
	bool stopping;
	void (*look) (struct enc_ctl *c); /* have enc_polls_look() called soon, from the loop */
	void *owner;
};

/* Tell everybody who waits that something moved: fibers and parked requests. */
void enc_ctl_changed (struct enc_ctl *c);

/* Read the policy folder anew; on failure the old set stays. */
ENC_MUST_USE int enc_ctl_policies (struct enc_ctl *c, struct enc_error *err);

/* ---- calls to the other daemons; from a fiber only ---- */

/* `request` is taken over. `ret` (may be NULL) gets the answer, freed by the caller. Unreachable is ENC_EUNAVAIL. */
ENC_MUST_USE int enc_ctl_call (struct enc_ctl *c, struct enc_ipc_client *to, struct enc_json *request, struct enc_json **ret,
			       struct enc_error *err);
/* {"nodes":[…]} of the general cluster as the scheduler helper last saw it: all of its pages, all of one snapshot. */
ENC_MUST_USE int enc_ctl_slurm (struct enc_ctl *c, struct enc_json **ret, struct enc_error *err);
/* A new request with its op. */
struct enc_json *enc_request (const char *op);

/* ---- site users: /etc/enclave/users.json ---- */

struct enc_site_user {
	char *user;
	uint32_t uid, gid;
	struct enc_strs ssh_keys;
};
/* Look one up; ENC_ENOTFOUND. `keys_json` (heap) is the list of key lines. */
ENC_MUST_USE int enc_site_user_find (const char *path, const char *user, uint32_t *ret_uid, uint32_t *ret_gid, char **ret_keys_json,
				     struct enc_error *err);

#endif
