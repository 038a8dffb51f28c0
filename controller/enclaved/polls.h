/* Requests that wait for something without a fiber: agents for their next document, callers for events. Ten thousand of them cost
 * ten thousand small structs. */
#ifndef ENC_ENCLAVED_POLLS_H
#define ENC_ENCLAVED_POLLS_H

#include "controller/enclaved/ctl.h"

/* Try to answer: true when it did (or the peer has gone), false to wait on. `last` is true when the time is up: answer now. */
typedef bool (*enc_poll_fn) (struct enc_ctl *c, struct enc_http_req *req, struct enc_poll *poll, bool last);

struct enc_poll {
	struct enc_poll *next;
	struct enc_http_req *req;
	enc_poll_fn answer;
	char key[65];      /* node name or operation id */
	int64_t after;
	int64_t until;     /* deadline */
	bool gone;
};

/* Answer at once or park for `ms`. A failure is answered too. */
void enc_poll_park (struct enc_ctl *c, struct enc_http_req *req, enc_poll_fn answer, const char *key, int64_t after, int64_t ms);
/* The parked poll of that key, NULL if none. */
struct enc_poll *enc_poll_find (const struct enc_ctl *c, enc_poll_fn answer, const char *key);
/* Answer one now, as if its time were up. */
void enc_poll_end (struct enc_ctl *c, struct enc_poll *poll);
/* Look at all: called from the loop when something moved, and every second. */
void enc_polls_look (struct enc_ctl *c);

#endif
