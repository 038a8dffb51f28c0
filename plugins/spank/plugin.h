/* The parts of spank_enclave.so, one for each kind of process that loads it. Slurm's table of which failure stops what is in
 * spank(8): everything that must hold is therefore checked where a failure does stop it, above all in task_init_privileged. */
#ifndef ENC_PLUGINS_PLUGIN_H
#define ENC_PLUGINS_PLUGIN_H

#include <slurm/spank.h>

#include "plugins/spank/options.h"

/* srun, sbatch, salloc: before anything is sent. Refuses on behalf of the enclave, and adds the proof for job_submit. */
int enc_plugin_submit (spank_t sp, const struct enc_options *options);
/* slurmd, before the prolog: leaves the ticket that the prolog asks for. */
int enc_plugin_job_prolog (spank_t sp);
/* slurmstepd, in the task's process, still root. */
int enc_plugin_task (spank_t sp, const struct enc_options *options);

/* Tell the user (or the log) what is wrong and what to do next; returns -1. */
int enc_plugin_refuse (const struct enc_error *err);

#endif
