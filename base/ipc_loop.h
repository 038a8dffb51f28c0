/* The event loop's half of ipc.h: a server with a table of ops, and a client with a queue that reconnects. Library enc_loop. */
#ifndef ENC_BASE_IPC_LOOP_H
#define ENC_BASE_IPC_LOOP_H

#include "base/ipc.h"
#include "base/peer.h"

struct event_base;
struct enc_ipc_server;
struct enc_ipc_req;   /* a request waiting for its answer; valid until answered, also when the peer has gone meanwhile */

/* Called for one request. `body` and `fds` are borrowed (take descriptors by ENC_TAKE_FD and they are yours). Answer now or later,
 * exactly once, by enc_ipc_reply* (req, …). */
typedef void enc_ipc_handler_fn (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds, void *arg);

enum {
	ENC_IPC_WITH_FDS = 1 /* the op accepts descriptors; else a request with some is refused */
};
struct enc_ipc_op {
	const char *op;
	enc_ipc_handler_fn *handler;
	unsigned flags;
};
/* Asked once per connection before anything is read; a refused peer is closed. NULL: everybody who can reach the socket. */
typedef bool enc_ipc_admit_fn (const struct enc_peer *peer, void *arg);
typedef void enc_ipc_gone_fn (uint64_t conn, void *arg);

struct enc_ipc_server_conf {
	const struct enc_ipc_op *ops; /* ended by op NULL */
	enc_ipc_admit_fn *admit;
	enc_ipc_gone_fn *gone;        /* a connection ended; may be NULL */
	void *arg;                    /* for handler, admit, gone */
	unsigned max_conns;           /* 0: 64 */
	unsigned max_pending;         /* requests unanswered per connection before reading pauses; 0: 16 */
	size_t max_frame;             /* 0: ENC_IPC_MAX */
	unsigned idle_s;              /* a frame begun must be complete, and answers be read, within this; 0: 30 */
};

/* `fd` is a listening socket (enc_unix_listen), taken over also on failure. */
struct enc_ipc_server *enc_ipc_server_new (struct event_base *base, int fd, const struct enc_ipc_server_conf *conf,
					   struct enc_error *err) ENC_MUST_USE;
void enc_ipc_server_free (struct enc_ipc_server *s); /* open requests are answered to nobody */

const struct enc_peer *enc_ipc_req_peer (const struct enc_ipc_req *req);
/* A number per connection, never used twice in this process. */
uint64_t enc_ipc_req_conn (const struct enc_ipc_req *req);
const char *enc_ipc_req_op (const struct enc_ipc_req *req);

/* Each ends the request. `answer` is taken over (NULL: {}) and gets "ok":true; `fds` are sent and stay the caller's. */
void enc_ipc_reply (struct enc_ipc_req *req, struct enc_json *answer);
void enc_ipc_reply_fds (struct enc_ipc_req *req, struct enc_json *answer, const struct enc_fds *fds);
void enc_ipc_reply_error (struct enc_ipc_req *req, const struct enc_error *err);

/* ---- client ---- */

struct enc_ipc_client;
/* rc 0 and `answer` (borrowed), or a negative code and `err`. `fds` are closed after the call unless taken. */
typedef void enc_ipc_answer_fn (int rc, const struct enc_json *answer, struct enc_fds *fds, const struct enc_error *err, void *arg);

/* Connects at the first call and again after a loss (at most once per 200 ms). Calls queue up to `max_queue` (0: 1024). */
struct enc_ipc_client *enc_ipc_client_new (struct event_base *base, const char *path, unsigned max_queue, struct enc_error *err) ENC_MUST_USE;
/* Pending calls end with ENC_ECANCELED, from within. */
void enc_ipc_client_free (struct enc_ipc_client *c);
/* Queue a request (`request` is taken over). The callback comes exactly once, never from within this call: with the answer; with
 * ENC_ETIMEOUT after `timeout_ms`; with ENC_EUNAVAIL when the connection was lost *after* sending (the peer may have
 * acted) or could not be made. Nothing is sent twice. Returns a negative code, without a callback, if the queue is full or memory short. */
ENC_MUST_USE int enc_ipc_client_call (struct enc_ipc_client *c, struct enc_json *request, int64_t timeout_ms, enc_ipc_answer_fn *done,
				      void *arg, struct enc_error *err);
ENC_MUST_USE int enc_ipc_client_call_fds (struct enc_ipc_client *c, struct enc_json *request, const struct enc_fds *fds,
					  int64_t timeout_ms, enc_ipc_answer_fn *done, void *arg, struct enc_error *err);

#endif
