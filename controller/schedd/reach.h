/* Is anybody listening where slurm.conf says that slurmctld is? libslurm waits and retries for a whole MessageTimeout when nobody is; a connect of
 * our own says so at once. */
#pragma once

#include <stdbool.h>

#include "base/str.h"

enum { ENC_REACH_HOSTS_MAX = 8 };

struct enc_reach {
	struct enc_strs hosts; /* names or addresses, in the file's order */
	unsigned port_first, port_last;
};

/* From the text of slurm.conf: SlurmctldHost (and the older ControlMachine, ControlAddr), SlurmctldPort. Lines that say something else are passed
 * over; without a host, `ret->hosts` stays empty. */
int enc_reach_parse (const char *text, struct enc_reach *ret, struct enc_error *err) ENC_MUST_USE;
void enc_reach_done (struct enc_reach *reach);

/* False only if every host refuses or does not answer within `ms`. True also if no host is known: then libslurm may try. */
bool enc_reach_any (const struct enc_reach *reach, int ms);
