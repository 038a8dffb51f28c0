/* Tickets: what the gates of one job leave for each other on a node, root's alone, in `jobs`/ID.
 *
 *   plugin   the SPANK plugin ran in this node's stack for this job; without it the prolog refuses
 *   gate     the prolog let the job in; without it the plugin starts no task
 *
 * So neither a missing plugin nor a missing prolog lets anything run. Beside them stands `shm`, a memory file system that becomes
 * the job's /dev/shm; its private /tmp is `scratch`/.jobs/ID. */
#ifndef ENC_PLUGINS_TICKET_H
#define ENC_PLUGINS_TICKET_H

#include "plugins/client/client.h"

struct enc_ticket {
	char version[32];      /* of who wrote it */
	char enclave_id[27];
	uint64_t generation;   /* of the node when it was written */
	uid_t uid;             /* the job's user */
};

/* Write one, the job's folder first. Needs root, or the folders' owner in tests. */
ENC_MUST_USE int enc_ticket_write (const struct enc_client_conf *conf, uint32_t job, const char *name, const struct enc_ticket *t,
	struct enc_error *err);
/* Is there one that fits? Same version, enclave and user, and a generation not above the node's. ENC_EDENIED says what is not. */
ENC_MUST_USE int enc_ticket_check (const struct enc_client_conf *conf, uint32_t job, const char *name, const struct enc_ticket *want,
	struct enc_error *err);

/* The job's private places; idempotent. `memory`: mount `shm` (needs root). */
ENC_MUST_USE int enc_job_places_make (const struct enc_client_conf *conf, uint32_t job, uid_t uid, gid_t gid, bool memory,
	struct enc_error *err);
/* Everything of the job away: tickets, memory, scratch. Missing is success. */
ENC_MUST_USE int enc_job_places_remove (const struct enc_client_conf *conf, uint32_t job, struct enc_error *err);

/* "0.1.0 ID 5": what the submitting side says of itself. It is no secret and no proof against a liar, for whom the gates are; it
 * shows a plugin that did not run where the job came from. */
enum { ENC_PROOF_SIZE = 96 };
#define ENC_PROOF_NAME "ENCLAVE_PROOF"
void enc_job_proof_format (const struct enc_client_view *view, char ret[static ENC_PROOF_SIZE]);
/* Same version and same enclave; with `fresh` also a member document no further than one version away (a job may wait for days). */
ENC_MUST_USE int enc_job_proof_check (const struct enc_client_view *view, const char *proof, bool fresh, struct enc_error *err);

#endif
