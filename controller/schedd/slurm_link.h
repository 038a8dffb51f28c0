/* The only part that calls libslurm. It blocks, and the library may end the process: only the worker child uses it. */
#pragma once

#include <stdbool.h>

#include "controller/schedd/snapshot.h"

struct enc_slurm;

/* `conf` is the path of slurm.conf, NULL: Slurm's default. One configuration per process. */
struct enc_slurm *enc_slurm_open (const char *conf, struct enc_error *err) ENC_MUST_USE;
void enc_slurm_free (struct enc_slurm *slurm);
ENC_DEFINE_AUTO (enc_slurm, struct enc_slurm, enc_slurm_free);

/* Ask for nodes, jobs, partitions and reservations; what has not changed is not sent again. The snapshot is borrowed until the next call.
 * `ret_serial` rises with each change. ENC_EUNAVAIL when slurmctld or munge does not answer. */
int enc_slurm_load (struct enc_slurm *slurm, const struct enc_sched_snapshot **ret, uint64_t *ret_serial, struct enc_error *err) ENC_MUST_USE;

/* Acts. Names and nodes were checked by the caller (worker.c). Each is what one call of scontrol or scancel does. */
int enc_slurm_reserve (const char *name, const char *nodes, int64_t end, bool exists, struct enc_error *err) ENC_MUST_USE;
int enc_slurm_release (const char *name, struct enc_error *err) ENC_MUST_USE;

enum enc_slurm_state { ENC_SLURM_DRAIN, ENC_SLURM_RESUME, ENC_SLURM_DOWN };
int enc_slurm_set_state (const char *node, enum enc_slurm_state state, const char *reason, struct enc_error *err) ENC_MUST_USE;

/* ENC_ENOTFOUND: no such job. A job that has ended already is success. */
int enc_slurm_end (uint32_t job, bool requeue, struct enc_error *err) ENC_MUST_USE;

/* Fill `err` from Slurm's own errno, with the group of codes a caller can act upon. */
int enc_slurm_fail (struct enc_error *err, const char *what);
