/* Changes in the general cluster, one libslurm call each, and what its errors mean. */
#include "controller/schedd/slurm_link.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "base/enctime.h"
#include "base/enc.h"

static const struct {
	int from;
	enum enc_code to;
} codes[] = {
	{ ESLURM_INVALID_NODE_NAME, ENC_ENOTFOUND },
	{ ESLURM_INVALID_JOB_ID, ENC_ENOTFOUND },
	{ ESLURM_RESERVATION_INVALID, ENC_ENOTFOUND },
	{ ESLURM_USER_ID_MISSING, ENC_EDENIED },
	{ ESLURM_ACCESS_DENIED, ENC_EDENIED },
	{ ESLURM_RESERVATION_ACCESS, ENC_EDENIED },
	{ ESLURM_RESERVATION_OVERLAP, ENC_ECONFLICT },
	{ ESLURM_RESERVATION_NAME_DUP, ENC_ECONFLICT },
	{ ESLURM_RESERVATION_BUSY, ENC_EBUSY },
	{ ESLURM_NODES_BUSY, ENC_EBUSY },
	{ ESLURM_INVALID_NODE_STATE, ENC_ECONFLICT },
	{ ESLURM_JOB_PENDING, ENC_ECONFLICT },
	{ ESLURM_DISABLED, ENC_ECONFLICT },
	{ ESLURM_BATCH_ONLY, ENC_ECONFLICT },
	{ SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT, ENC_ETIMEOUT },
	{ SLURM_PROTOCOL_AUTHENTICATION_ERROR, ENC_EUNAVAIL },
	{ SLURM_UNEXPECTED_MSG_ERROR, ENC_EPROTO },
	{ SLURM_PROTOCOL_VERSION_ERROR, ENC_EPROTO },
};

/* Slurm has a range of errnos for "could not talk to slurmctld", and passes system errors of connect through. */
static enum enc_code code_of (int e)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (codes); i++)
		if (codes[i].from == e)
			return codes[i].to;
	if ((e >= SLURM_COMMUNICATIONS_CONNECTION_ERROR && e <= SLURM_COMMUNICATIONS_MISSING_SOCKET_ERROR) ||
	    (e >= SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR && e <= SLURMCTLD_COMMUNICATIONS_SHUTDOWN_ERROR) || e == ECONNREFUSED ||
	    e == EHOSTUNREACH || e == ENETUNREACH || e == ECONNRESET || e == ETIMEDOUT || e == ESLURM_IN_STANDBY_MODE)
		return ENC_EUNAVAIL;
	return ENC_EFAILED;
}

int enc_slurm_fail (struct enc_error *err, const char *what)
{
	int e = errno;
	enum enc_code code = code_of (e);
	int rc = enc_fail (err, code, "%s: Slurm says: %s", what, slurm_strerror (e));

	if (code == ENC_EUNAVAIL)
		return enc_error_next (err, rc, "look at slurmctld and munge on the scheduler's host");
	return rc;
}

/* libslurm wants char *, and does not change what it gets. */
static char *loose (const char *s)
{
	union {
		const char *in;
		char *out;
	} u = { .in = s };

	return u.out;
}

int enc_slurm_reserve (const char *name, const char *nodes, int64_t end, bool exists, struct enc_error *err)
{
	resv_desc_msg_t msg;
	char *made;

	slurm_init_resv_desc_msg (&msg);
	msg.name = loose (name);
	msg.node_list = loose (nodes);
	msg.end_time = end;
	if (exists)
		return slurm_update_reservation (&msg) == SLURM_SUCCESS ? 0 : enc_slurm_fail (err, "cannot change the reservation");
	msg.start_time = enc_now_s ();
	/* Running jobs go on to their end; nothing new starts. Only root may use it, and nobody does. No OVERLAP, no MAINT: a
	 * reservation of the site's keeps its nodes, and we get the conflict. */
	msg.flags = RESERVE_FLAG_IGN_JOBS;
	msg.users = loose ("root");
	if (!(made = slurm_create_reservation (&msg)))
		return enc_slurm_fail (err, "cannot reserve");
	free (made);
	return 0;
}

int enc_slurm_release (const char *name, struct enc_error *err)
{
	reservation_name_msg_t msg = { .name = loose (name) };

	if (slurm_delete_reservation (&msg) == SLURM_SUCCESS || errno == ESLURM_RESERVATION_INVALID)
		return 0;
	return enc_slurm_fail (err, "cannot release the reservation");
}

int enc_slurm_set_state (const char *node, enum enc_slurm_state state, const char *reason, struct enc_error *err)
{
	static const uint32_t states[] = { [ENC_SLURM_DRAIN] = NODE_STATE_DRAIN,
					   [ENC_SLURM_RESUME] = NODE_RESUME,
					   [ENC_SLURM_DOWN] = NODE_STATE_DOWN };
	update_node_msg_t msg;

	slurm_init_update_node_msg (&msg);
	msg.node_names = loose (node);
	msg.node_state = states[state];
	msg.reason = loose (reason);
	msg.reason_uid = getuid ();
	if (slurm_update_node (&msg) != SLURM_SUCCESS)
		return enc_slurm_fail (err, "cannot change the node's state");
	return 0;
}

int enc_slurm_end (uint32_t job, bool requeue, struct enc_error *err)
{
	int rc = requeue ? slurm_requeue (job, 0) : slurm_kill_job (job, SIGKILL, 0);

	if (rc == SLURM_SUCCESS || errno == ESLURM_ALREADY_DONE)
		return 0;
	if (requeue && (errno == ESLURM_DISABLED || errno == ESLURM_BATCH_ONLY))
		return enc_error_next (err, enc_fail (err, ENC_ECONFLICT, "job %u cannot be requeued", job), "cancel it, or wait for its end");
	return enc_slurm_fail (err, "cannot end the job");
}
