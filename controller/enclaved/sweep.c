#include "controller/enclaved/sweep.h"

#include "base/log.h"
#include "base/enc.h"

enum { SWEEP_MS = 5000 };

/* Only what our own store knows as closed: a reservation that nobody here ever heard of is a person's to look at. */
static bool is_over (struct enc_ctl *c, const char *cluster)
{
	return enc_db_int (c->db, 0, "SELECT count(*)>0 AND sum(state!='closed')=0 FROM enclaves WHERE cluster=?", "s", cluster) == 1;
}

static int release (struct enc_ctl *c, const char *cluster, struct enc_error *err)
{
	struct enc_json *request = enc_request ("release");

	enc_json_set_str (request, "name", cluster);
	return enc_ctl_call (c, c->schedd, request, NULL, err);
}

static int sweep (struct enc_ctl *c, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *answer = NULL;
	enc_auto_done (enc_strs_done) struct enc_strs done = { 0 };
	const struct enc_json *nodes;
	int rc = enc_ctl_slurm (c, &answer, err);

	nodes = enc_json_get (answer, "nodes");
	for (size_t i = 0; rc == 0 && i < enc_json_len (nodes); i++) {
		const char *held = enc_json_get_str (enc_json_at (nodes, i), "held", NULL);

		if (!held || enc_strs_has (&done, held) || !is_over (c, held))
			continue;
		if ((rc = enc_strs_add (&done, held, err)) < 0 || (rc = release (c, held, err)) < 0)
			break;
		enc_log_notice ("a reservation that had been dropped was there again (was the scheduler killed?), and is dropped again");
	}
	return rc;
}

static void sweeper (void *arg)
{
	struct enc_ctl *c = arg;

	while (!c->stopping && enc_fiber_sleep (c->fibers, SWEEP_MS, NULL) == 0) {
		struct enc_error err = { 0 };

		if (sweep (c, &err) < 0 && err.code != ENC_EUNAVAIL)
			enc_log_err (ENC_LOG_WARN, &err, "reservations that are left over could not be looked for");
	}
}

int enc_sweep_start (struct enc_ctl *c, struct enc_error *err)
{
	return enc_fiber_start (c->fibers, sweeper, c, NULL, err);
}
