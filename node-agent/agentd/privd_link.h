/* The agent's end of the socketpair to privd: orders go out one at a time, each with a deadline. Bytes are carried, never understood. */
#ifndef ENC_AGENTD_PRIVD_LINK_H
#define ENC_AGENTD_PRIVD_LINK_H

#include "node-agent/proto/order.h"

struct event_base;
struct enc_privd_link;

/* rc 0: `answer` is valid during the call and its code is 0. A refusal by privd is a negative code with text in `err`; `answer` is then
 * still given. ENC_ETIMEOUT, ENC_EUNAVAIL: no answer. */
typedef void enc_privd_done_fn (int rc, const struct enc_answer *answer, const struct enc_error *err, void *arg);

/* `fd` is taken over. `gone` is called once when privd has closed the pair: the agent then ends, since privd starts it anew. */
struct enc_privd_link *enc_privd_link_new (struct event_base *base, int fd, void (*gone) (void *arg), void *arg, struct enc_error *err) ENC_MUST_USE;
void enc_privd_link_free (struct enc_privd_link *link);

/* Queue an order; its bytes are copied. The callback comes exactly once, from the loop. At most 32 wait. */
int enc_privd_link_order (struct enc_privd_link *link, struct enc_order *order, int64_t timeout_ms, enc_privd_done_fn *done, void *arg,
			  struct enc_error *err) ENC_MUST_USE;

#endif
