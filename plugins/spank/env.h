/* The environment that a task gets: who it is among the job's tasks, where they meet, and nothing that leads or leaks out. Pure:
 * what it decides goes through two functions. */
#ifndef ENC_PLUGINS_ENV_H
#define ENC_PLUGINS_ENV_H

#include <stdint.h>

#include "plugins/spank/options.h"

struct enc_env_in {
	bool batch;                /* the batch script: no rank, but what its steps need */
	uint32_t job, rank, local_rank, world, local_world, node_rank, nodes, cpus, restarts;
	char master[64];           /* overlay address of the first node, or its name; "" in a batch script */
	char interface[16];        /* that carries it on this node; "" unknown */
	char cpus_per_task[12];    /* what the user asked for; "" nothing */
	const char *enclave;
	const struct enc_options *options;
	const char *recipe;        /* text of recipe.conf, NULL: none */
};

struct enc_env_out {
	/* `user_wins`: leave a value that is there. 0 or negative. */
	int (*set) (const char *name, const char *value, bool user_wins, void *arg);
	int (*unset) (const char *name, void *arg);
	void *arg;
};

/* MASTER_PORT of a job: above the ports that the kernel gives out by itself. */
enum { ENC_PORT_FIRST = 61000, ENC_PORTS = 4500 };

/* `env`: the task's environment as it is, NULL-ended. First what must not be there is taken away, then the rest is set. */
ENC_MUST_USE int enc_env_apply (const struct enc_env_in *in, char *const *env, const struct enc_env_out *out, struct enc_error *err);

/* A variable that names a way out (proxy) or a secret (token, key, password, agent). */
bool enc_env_forbidden (const char *name, size_t len);

#endif
