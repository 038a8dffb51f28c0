/* What the general scheduler forgot that we had taken back. A slurmctld that is killed starts again from a state up to some seconds old:
 * a reservation that was dropped in between stands again, its enclave is closed, and nobody would ever drop it. */
#ifndef ENC_ENCLAVED_SWEEP_H
#define ENC_ENCLAVED_SWEEP_H

#include "controller/enclaved/ctl.h"

/* A fiber that looks for such reservations every few seconds. */
ENC_MUST_USE int enc_sweep_start (struct enc_ctl *c, struct enc_error *err);

#endif
