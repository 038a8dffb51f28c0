/* Configuration of privd (/etc/enclave/privd.json, root's). Paths come from here alone, never from a message. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/fields.h"
#include "base/str.h"

struct enc_privd_conf {
	char *node;            /* this node's name; default: the host name */
	char *run_dir;         /* this boot's state */
	char *state_dir;       /* identity and held marker */
	char *facts_socket;
	char *keyd_vkey;
	char *agent, *agent_config, *agent_user;
	char *controller4, *controller6; /* if given, every document must name these */
	uint32_t controller_port;
	char *disk;            /* this node's own file system for scratch */
	char *shared;          /* the site's directory for project volumes, the same on all nodes */
	char *root;            /* where volumes appear: /enclave */
	char *templates;
	char *units;           /* the site's units, in the order in which they stop */
	char *plugin;          /* spank_enclave.so as installed */
	struct enc_strs plugstacks; /* the first of these that exists is the one in force */
	struct enc_strs site_users; /* users whose processes a clean leaves alone, besides root and system users */
	uint64_t grace_s;      /* from the end of the grant until volumes are locked */
	uint64_t uid_min;      /* from here on uids are people's */
#ifdef ENC_POINTS
	struct enc_strs no_clean; /* residue rows whose cleaner is off, to see that what is left is found */
#endif
};

extern const struct enc_field enc_privd_fields[];

/* Is this a person's uid? Distributions give packages 60000 to 64999 (slurm is there), and the service manager its own up to 65535. */
static inline bool enc_uid_is_person (uint64_t uid_min, uint64_t uid)
{
	return uid >= uid_min && uid != UINT32_MAX && (uid < 60000 || uid > 65535);
}
