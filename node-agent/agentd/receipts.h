/* /run/enclave/agent.sock, root's alone: the door of a login node asks here for the receipt of a session that it has told privd of, and lets
 * nobody in before it holds one (docs/protocol.md section 7). The agent carries it and is not believed: the door checks the log's signature. */
#ifndef ENC_AGENTD_RECEIPTS_H
#define ENC_AGENTD_RECEIPTS_H

#include "base/error.h"
#include "base/json.h"

struct event_base;
struct enc_receipts;

/* Bind the socket, while still root. Returns the descriptor. */
int enc_receipts_listen (const char *path, struct enc_error *err) ENC_MUST_USE;

/* `fd` is taken over. `wanted` is called when somebody new waits: the next report should ask. */
struct enc_receipts *enc_receipts_new (struct event_base *base, int fd, void (*wanted) (void *arg), void *arg, struct enc_error *err) ENC_MUST_USE;
void enc_receipts_free (struct enc_receipts *r);

/* Sessions that are waited for, as an array of ids; NULL when there is none. */
struct enc_json *enc_receipts_wanted (const struct enc_receipts *r);
/* The controller's answer: [{"session","record","proof"}]. */
void enc_receipts_take (struct enc_receipts *r, const struct enc_json *list);

#endif
