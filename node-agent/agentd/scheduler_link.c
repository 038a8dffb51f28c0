#include "node-agent/agentd/scheduler_link.h"

#include "base/cleanup.h"
#include "base/ipc_loop.h"
#include "base/enc.h"

enum { ASK_TIMEOUT_MS = 3000 };

struct enc_scheduler_link {
	struct enc_ipc_client *client;
	enc_scheduler_fn *done;
	void *arg;
	struct enc_json *slurm; /* being filled; NULL when idle */
};

static void ask_end (struct enc_scheduler_link *s)
{
	s->done (ENC_TAKE (s->slurm), s->arg);
}

static void take (struct enc_scheduler_link *s, const struct enc_json *answer, const char *key)
{
	const struct enc_json *list = enc_json_get (answer, key);
	enc_json_set (s->slurm, key, list ? enc_json_copy (list) : enc_json_array ());
}

static void jobs_done (int rc, const struct enc_json *answer, struct enc_fds *fds ENC_UNUSED, const struct enc_error *err, void *arg)
{
	struct enc_scheduler_link *s = arg;
	if (rc == -ENC_ECANCELED)
		return;
	if (rc < 0)
		enc_json_set_str (s->slurm, "error", err->text);
	else
		take (s, answer, "jobs");
	ask_end (s);
}

static int ask (struct enc_scheduler_link *s, const char *op, enc_ipc_answer_fn *done)
{
	struct enc_json *request = enc_json_object ();
	enc_json_set_str (request, "op", op);
	return enc_ipc_client_call (s->client, request, ASK_TIMEOUT_MS, done, s, NULL);
}

static void nodes_done (int rc, const struct enc_json *answer, struct enc_fds *fds ENC_UNUSED, const struct enc_error *err, void *arg)
{
	struct enc_scheduler_link *s = arg;
	if (rc == -ENC_ECANCELED)
		return;
	if (rc < 0) {
		enc_json_set_str (s->slurm, "error", err->text);
		ask_end (s);
		return;
	}
	take (s, answer, "nodes");
	if (ask (s, "jobs", jobs_done) < 0)
		ask_end (s);
}

void enc_scheduler_link_ask (struct enc_scheduler_link *s)
{
	if (s->slurm || !(s->slurm = enc_json_object ()))
		return;
	if (ask (s, "nodes", nodes_done) < 0) {
		enc_json_free (s->slurm);
		s->slurm = NULL;
	}
}

struct enc_scheduler_link *enc_scheduler_link_new (struct event_base *base, const char *path, enc_scheduler_fn *done, void *arg,
						   struct enc_error *err)
{
	struct enc_scheduler_link *s = calloc (1, sizeof *s);
	if (!s || !(s->client = enc_ipc_client_new (base, path, 4, err))) {
		if (!s)
			(void) enc_fail (err, ENC_ENOMEM, "no memory for the link to the scheduler");
		free (s);
		return NULL;
	}
	s->done = done;
	s->arg = arg;
	return s;
}

void enc_scheduler_link_free (struct enc_scheduler_link *s)
{
	if (!s)
		return;
	enc_ipc_client_free (s->client);
	enc_json_free (s->slurm);
	free (s);
}
