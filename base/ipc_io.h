/* One socket of frames in the event loop: between ipc_io.c, ipc_server.c and ipc_client.c alone. */
#ifndef ENC_BASE_IPC_IO_H
#define ENC_BASE_IPC_IO_H

#include <fcntl.h>
#include "base/ipc.h"

struct event;
struct event_base;

/* A whole frame; descriptors left in `fds` are closed afterwards. Returns false if the io is gone. */
typedef bool enc_ipc_frame_fn (void *arg, const char *text, size_t len, struct enc_fds *fds);
/* The connection ended or failed; the owner calls enc_ipc_io_done(). */
typedef void enc_ipc_end_fn (void *arg, const struct enc_error *err);

struct enc_ipc_io_conf {
	size_t max_frame;
	unsigned idle_s; /* for the rest of a begun frame, and for the peer to read answers */
	enc_ipc_frame_fn *frame;
	enc_ipc_end_fn *end;
	void *arg;
};

struct enc_ipc_out; /* a frame that waits to be written */
struct enc_ipc_io {
	struct enc_ipc_io_conf conf;
	int fd;
	struct event *read;
	struct event *write;
	struct enc_buf in;
	struct enc_fds in_fds;
	struct enc_ipc_out *out;
	struct enc_ipc_out **out_tail;
	size_t out_bytes;
	bool paused;
};

/* `fd` is taken over, also on failure. */
ENC_MUST_USE int enc_ipc_io_init (struct enc_ipc_io *io, struct event_base *base, int fd, const struct enc_ipc_io_conf *conf,
				  struct enc_error *err);
void enc_ipc_io_done (struct enc_ipc_io *io);
/* Queue a frame; `fds` are duplicated. -ENC_EINVAL, -ENC_ELIMIT, -ENC_ENOMEM: nothing was queued; -ENC_EUNAVAIL: the peer does not read. */
ENC_MUST_USE int enc_ipc_io_send (struct enc_ipc_io *io, const struct enc_json *json, const struct enc_fds *fds, struct enc_error *err);
void enc_ipc_io_pause (struct enc_ipc_io *io, bool pause);

/* Of ipc.c: one sendmsg or recvmsg, non-blocking, with descriptors. */
ssize_t enc_ipc_send_some (int fd, const uint8_t *at, size_t len, const struct enc_fds *fds);
ssize_t enc_ipc_recv_some (int fd, uint8_t *at, size_t len, struct enc_fds *fds);

#endif
