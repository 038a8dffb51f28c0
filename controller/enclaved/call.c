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
