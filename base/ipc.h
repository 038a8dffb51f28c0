/* Messages between processes of one host: AF_UNIX stream, frame = u32 big-endian length + body, at most 1 MiB.
 *
 * The body is a JSON object. A request has "op" and what the op needs; the answer is an object with "ok":true, or with "error"
 * (see json.h) if it failed. Answers come in the order of requests. Descriptors travel with the first byte of a frame, at most 4 a frame.
 * This half needs no event loop and is what plugins and tools use; the loop's half is ipc_loop.h. */
#ifndef ENC_BASE_IPC_H
#define ENC_BASE_IPC_H

#include <stddef.h>
#include <stdint.h>
#include "base/cleanup.h"
#include "base/error.h"
#include "base/json.h"

#define ENC_IPC_MAX (1024 * 1024)
#define ENC_IPC_FDS 4

/* Descriptors owned by the holder; n of them. */
struct enc_fds {
	int fd[ENC_IPC_FDS];
	unsigned n;
};
void enc_fds_done (struct enc_fds *fds);

struct enc_ipc;

/* `deadline` is of enctime.h and bounds each whole call. ENC_EUNAVAIL when nobody listens. Not for several threads. */
struct enc_ipc *enc_ipc_connect (const char *path, int64_t deadline, struct enc_error *err) ENC_MUST_USE;
/* Wrap a connected socket, which is taken over. */
struct enc_ipc *enc_ipc_of_fd (int fd, struct enc_error *err) ENC_MUST_USE;
void enc_ipc_free (struct enc_ipc *ipc);
int enc_ipc_fd (const struct enc_ipc *ipc);
ENC_DEFINE_AUTO (enc_ipc, struct enc_ipc, enc_ipc_free);

/* Send a request, wait for its answer. An answer with "error" fills `err` and returns its code. `fds` (may be NULL) are sent and
 * stay the caller's; `ret_fds` (may be NULL: then received ones are closed) receives. `ret` may be NULL. After ENC_ETIMEOUT,
 * ENC_EPROTO or ENC_EUNAVAIL the connection is of no more use. */
ENC_MUST_USE int enc_ipc_call (struct enc_ipc *ipc, const struct enc_json *request, const struct enc_fds *fds, int64_t deadline,
			       struct enc_json **ret, struct enc_fds *ret_fds, struct enc_error *err);
/* Connect, one call, close. */
ENC_MUST_USE int enc_ipc_once (const char *path, const struct enc_json *request, int64_t deadline, struct enc_json **ret,
			       struct enc_error *err);

/* One frame of raw bytes on a socket, for processes that speak something else than JSON over the same frames (privd's children).
 * `max` bounds what is received; ENC_EUNAVAIL at a clean end between frames. */
ENC_MUST_USE int enc_frame_send (int fd, const void *body, size_t len, const struct enc_fds *fds, int64_t deadline, struct enc_error *err);
ENC_MUST_USE int enc_frame_recv (int fd, size_t max, struct enc_buf *body, struct enc_fds *fds, int64_t deadline, struct enc_error *err);

#endif
