#include "controller/enclaved/polls.h"

#include "base/enc.h"

static void on_gone (ENC_UNUSED struct enc_http_req *req, void *arg)
{
	struct enc_poll *p = arg;

	p->gone = true;
}

void enc_poll_park (struct enc_ctl *c, struct enc_http_req *req, enc_poll_fn answer, const char *key, int64_t after, int64_t ms)
{
	struct enc_poll *p = calloc (1, sizeof *p);
	struct enc_error err = { 0 };

	if (!p) {
		(void) enc_fail (&err, ENC_ENOMEM, "out of memory");
		enc_http_reply_error (req, &err);
		return;
	}
	p->req = req;
	p->answer = answer;
	p->after = after;
	p->until = enc_deadline_ms (ms);
	(void) snprintf (p->key, sizeof p->key, "%s", key);
	if (answer (c, req, p, ms <= 0)) {
		free (p);
		return;
	}
	enc_http_on_gone (req, on_gone, p);
	p->next = c->polls;
	c->polls = p;
}

struct enc_poll *enc_poll_find (const struct enc_ctl *c, enc_poll_fn answer, const char *key)
{
	for (struct enc_poll *p = c->polls; p; p = p->next)
		if (p->answer == answer && !p->gone && enc_streq (p->key, key))
			return p;
	return NULL;
}

void enc_poll_end (ENC_UNUSED struct enc_ctl *c, struct enc_poll *poll)
{
	poll->until = 0; /* the next look answers it */
}

void enc_polls_look (struct enc_ctl *c)
{
	struct enc_poll **at = &c->polls;

	while (*at) {
		struct enc_poll *p = *at;

		/* Gone or answered: the request must be ended in either case. */
		if (p->gone) {
			enc_http_reply (p->req, 204, NULL);
		} else if (!p->answer (c, p->req, p, enc_passed (p->until))) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		free (p);
	}
}
