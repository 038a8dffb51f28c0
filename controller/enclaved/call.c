/* Waiting for another daemon's answer from a fiber. The answer may come after the fiber has given up, so what the callback
 * writes to is freed by whoever comes last. */
#include "controller/enclaved/ctl.h"

#include "base/enc.h"

enum { CALL_MS = 20000 };

struct pending {
	struct enc_cond cond;
	bool answered, abandoned;
	int rc;
	struct enc_error err;
	struct enc_json *answer;
};

static void pending_free (struct pending *p)
{
	enc_json_free (p->answer);
	free (p);
}

static void on_answer (int rc, const struct enc_json *answer, ENC_UNUSED struct enc_fds *fds, const struct enc_error *err, void *arg)
{
	struct pending *p = arg;

	if (p->abandoned) {
		pending_free (p);
		return;
	}
	p->answered = true;
	p->rc = rc;
	if (rc < 0 && err)
		p->err = *err;
	if (rc == 0)
		p->answer = enc_json_ref (answer);
	enc_cond_signal (&p->cond);
}

static const char *peer_name (const struct enc_ctl *c, const struct enc_ipc_client *to)
{
	if (to == c->auditd)
		return "the log service";
	return to == c->keyd ? "the key service" : "the scheduler helper";
}

struct enc_json *enc_request (const char *op)
{
	struct enc_json *r = enc_json_object ();

	enc_json_set_str (r, "op", op);
	return r;
}

static int wait_answer (struct enc_ctl *c, struct pending *p, struct enc_error *err)
{
	while (!p->answered) {
		int rc = enc_cond_wait (c->fibers, &p->cond, ENC_FOREVER, err);

		if (rc < 0 && !p->answered) {
			p->abandoned = true;
			return rc;
		}
	}
	return 0;
}

int enc_ctl_call (struct enc_ctl *c, struct enc_ipc_client *to, struct enc_json *request, struct enc_json **ret, struct enc_error *err)
{
	struct pending *p = calloc (1, sizeof *p);
	int rc;

	if (!p) {
		enc_json_free (request);
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	if ((rc = enc_ipc_client_call (to, request, CALL_MS, on_answer, p, err)) < 0) {
		free (p);
		return rc;
	}
	if ((rc = wait_answer (c, p, err)) < 0)
		return rc; /* the callback frees it */
	rc = p->rc;
	if (rc < 0 && err)
		*err = p->err;
	if (rc == -ENC_EUNAVAIL)
		rc = enc_wrap (err, rc, "%s", peer_name (c, to));
	if (rc == 0 && ret)
		*ret = ENC_TAKE (p->answer);
	pending_free (p);
	return rc;
}

enum { SERIAL_TRIES = 5 };

/* One walk over the pages. 1: all are there. 0: the helper took a new snapshot in between. */
static int walk_pages (struct enc_ctl *c, struct enc_json **ret, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *first = NULL;
	struct enc_json *all;

	for (uint64_t page = 0, pages = 1; page < pages; page++) {
		enc_auto (enc_json) struct enc_json *answer = NULL;
		struct enc_json *request = enc_request ("nodes");
		const struct enc_json *nodes;
		int rc;

		enc_json_set_u64 (request, "page", page);
		rc = enc_ctl_call (c, c->schedd, request, &answer, err);
		/* Nodes were taken from the cluster, and with them the last page. */
		if (rc < 0)
			return rc == -ENC_EINVAL && page > 0 ? 0 : rc;
		if (page == 0) {
			pages = enc_json_get_u64 (answer, "pages", 1);
			first = enc_json_copy (answer);
			continue;
		}
		if (enc_json_get_u64 (answer, "serial", 0) != enc_json_get_u64 (first, "serial", 0))
			return 0;
		nodes = enc_json_get (answer, "nodes");
		all = enc_json_get (first, "nodes");
		for (size_t i = 0; i < enc_json_len (nodes); i++)
			enc_json_add (all, enc_json_copy (enc_json_at (nodes, i)));
	}
	*ret = ENC_TAKE (first);
	return 1;
}

int enc_ctl_slurm (struct enc_ctl *c, struct enc_json **ret, struct enc_error *err)
{
	for (int i = 0; i < SERIAL_TRIES; i++) {
		int rc = walk_pages (c, ret, err);

		if (rc != 0)
			return rc < 0 ? rc : 0;
	}
	return enc_fail (err, ENC_EUNAVAIL, "the scheduler's state changes faster than it can be read");
}
