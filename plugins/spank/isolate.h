/* What a task may see and leave behind: its job's own /tmp, /var/tmp and /dev/shm, no other user's processes, no core files, no new
 * privileges. Runs as root in the task's own process, before it becomes the user.
 *
 * The mount namespace is made for each task; what is mounted in it is the job's (made by the prolog, taken away by the epilog), so
 * all steps of a job share one /tmp. */
#ifndef ENC_PLUGINS_ISOLATE_H
#define ENC_PLUGINS_ISOLATE_H

#include "plugins/client/client.h"

/* `no_network`: also a network namespace of its own with nothing but loopback. */
ENC_MUST_USE int enc_isolate (const struct enc_client_conf *conf, uint32_t job, bool no_network, struct enc_error *err);

#endif
