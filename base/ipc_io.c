#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include "base/ipc_io.h"
#include "base/str.h"
#include "base/enc.h"

#define QUEUE_MAX ((size_t) 8 * 1024 * 1024) /* answers a peer may leave unread */

struct enc_ipc_out {
	struct enc_ipc_out *next;
	struct enc_fds fds;
	size_t at;
	size_t len;
	uint8_t bytes[];
};

static void out_free (struct enc_ipc_out *o)
{
	enc_fds_done (&o->fds);
	free (o);
}

static void end (struct enc_ipc_io *io, enum enc_code code, const char *text)
{
	struct enc_error err;
	(void) enc_fail (&err, code, "%s", text);
	io->conf.end (io->conf.arg, &err);
}

/* ---- reading ---- */

static int arm_read (struct enc_ipc_io *io)
{
	/* Between frames a peer may be silent for ever; within one it may not. */
	struct timeval limit = { .tv_sec = (time_t) io->conf.idle_s };
	if (io->paused)
		return event_del (io->read);
	return event_add (io->read, io->in.len ? &limit : NULL);
}

static size_t frame_len (const struct enc_buf *in)
{
	return (size_t) in->data[0] << 24 | (size_t) in->data[1] << 16 | (size_t) in->data[2] << 8 | in->data[3];
}

/* Hand over each whole frame. False: the io is gone. */
static bool take_frames (struct enc_ipc_io *io)
{
	while (!io->paused && io->in.len >= 4) {
		size_t len = frame_len (&io->in);
		if (len > io->conf.max_frame) {
			end (io, ENC_EPROTO, "a message larger than the limit");
			return false;
		}
		if (io->in.len < 4 + len)
			return true;
		enc_auto_done (enc_fds_done) struct enc_fds fds = io->in_fds;
		io->in_fds.n = 0;
		/* The frame goes out of the buffer first: the handler may end the connection. */
		enc_auto_free char *text = malloc (len + 1);
		if (!text) {
			end (io, ENC_ENOMEM, "out of memory");
			return false;
		}
		memcpy (text, io->in.data + 4, len);
		text[len] = 0;
		enc_buf_consume (&io->in, 4 + len);
		bool alive = io->conf.frame (io->conf.arg, text, len, &fds);
		enc_wipe (text, len);
		if (!alive)
			return false;
	}
	return true;
}

/* Never read beyond the frame at hand: descriptors belong to the frame whose first byte they came with. */
static size_t wanted (const struct enc_ipc_io *io)
{
	return io->in.len < 4 ? 4 - io->in.len : 4 + frame_len (&io->in) - io->in.len;
}

static void on_read (evutil_socket_t fd, short what, void *arg)
{
	struct enc_ipc_io *io = (struct enc_ipc_io *) arg;
	uint8_t chunk[16384];
	if (what & EV_TIMEOUT) {
		end (io, ENC_ETIMEOUT, "a message was not finished in time");
		return;
	}
	for (int rounds = 0; rounds < 64 && !io->paused; rounds++) {
		size_t want = wanted (io);
		ssize_t n = enc_ipc_recv_some (fd, chunk, want < sizeof (chunk) ? want : sizeof (chunk), &io->in_fds);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0) {
			end (io, n < 0 && errno == EPROTO ? ENC_EPROTO : ENC_EUNAVAIL, "the other end closed the connection");
			return;
		}
		enc_buf_put (&io->in, chunk, (size_t) n);
		enc_wipe (chunk, (size_t) n);
		if (io->in.failed) {
			end (io, ENC_ELIMIT, "a message larger than the limit");
			return;
		}
		if (!take_frames (io))
			return;
	}
	(void) arm_read (io);
}

void enc_ipc_io_pause (struct enc_ipc_io *io, bool pause)
{
	if (io->paused == pause)
		return;
	io->paused = pause; /* nothing is left in the buffer: we read no further than a frame */
	if (pause)
		(void) event_del (io->read);
	else
		(void) event_add (io->read, NULL);
}

/* ---- writing ---- */

static int write_out (struct enc_ipc_io *io)
{
	struct enc_ipc_out *o;
	while ((o = io->out)) {
		ssize_t n = enc_ipc_send_some (io->fd, o->bytes + o->at, o->len - o->at, o->at == 0 ? &o->fds : NULL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n < 0)
			return -ENC_EUNAVAIL;
		o->at += (size_t) n;
		io->out_bytes -= (size_t) n;
		if (o->at < o->len)
			continue;
		io->out = o->next;
		if (!io->out)
			io->out_tail = &io->out;
		out_free (o);
	}
	return 0;
}

static int arm_write (struct enc_ipc_io *io)
{
	struct timeval limit = { .tv_sec = (time_t) io->conf.idle_s };
	return io->out ? event_add (io->write, &limit) : event_del (io->write);
}

static void on_write (evutil_socket_t fd ENC_UNUSED, short what, void *arg)
{
	struct enc_ipc_io *io = (struct enc_ipc_io *) arg;
	if (what & EV_TIMEOUT)
		end (io, ENC_ETIMEOUT, "the other end does not read");
	else if (write_out (io) < 0)
		end (io, ENC_EUNAVAIL, "the other end closed the connection");
	else
		(void) arm_write (io);
}

static int queue (struct enc_ipc_io *io, const char *text, size_t len, const struct enc_fds *fds)
{
	struct enc_ipc_out *o = calloc (1, sizeof (*o) + 4 + len);
	if (!o)
		return -ENC_ENOMEM;
	o->len = 4 + len;
	for (int i = 0; i < 4; i++)
		o->bytes[i] = (uint8_t) (len >> (24 - 8 * i));
	memcpy (o->bytes + 4, text, len);
	for (unsigned i = 0; fds && i < fds->n && i < ENC_IPC_FDS; i++) {
		int fd = fcntl (fds->fd[i], F_DUPFD_CLOEXEC, 3);
		if (fd < 0) {
			out_free (o);
			return -ENC_ENOMEM;
		}
		o->fds.fd[o->fds.n++] = fd;
	}
	*io->out_tail = o;
	io->out_tail = &o->next;
	io->out_bytes += o->len;
	return 0;
}

int enc_ipc_io_send (struct enc_ipc_io *io, const struct enc_json *json, const struct enc_fds *fds, struct enc_error *err)
{
	size_t len = 0;
	struct enc_error why;
	enc_auto_free char *text = enc_json_write (json, &len, &why);
	if (!text)
		return enc_fail (err, ENC_ENOMEM, "%s", why.text);
	if (len > ENC_IPC_MAX)
		return enc_fail (err, ENC_ELIMIT, "message of %zu bytes is too large", len);
	if (io->out_bytes > QUEUE_MAX)
		return enc_fail (err, ENC_EUNAVAIL, "the other end does not read");
	int rc = queue (io, text, len, fds);
	if (rc < 0)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if (write_out (io) < 0)
		return enc_fail (err, ENC_EUNAVAIL, "the other end closed the connection");
	(void) arm_write (io);
	return 0;
}

/* ---- life ---- */

int enc_ipc_io_init (struct enc_ipc_io *io, struct event_base *base, int fd, const struct enc_ipc_io_conf *conf, struct enc_error *err)
{
	*io = (struct enc_ipc_io){ .conf = *conf, .fd = fd, .in = ENC_BUF_SECRET (conf->max_frame + 4) };
	io->out_tail = &io->out;
	io->read = event_new (base, fd, EV_READ, on_read, io);
	io->write = event_new (base, fd, EV_WRITE, on_write, io);
	if (!io->read || !io->write || arm_read (io) < 0) {
		enc_ipc_io_done (io);
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	return 0;
}

void enc_ipc_io_done (struct enc_ipc_io *io)
{
	if (io->read)
		event_free (io->read);
	if (io->write)
		event_free (io->write);
	while (io->out) {
		struct enc_ipc_out *o = io->out;
		io->out = o->next;
		out_free (o);
	}
	enc_buf_done (&io->in);
	enc_fds_done (&io->in_fds);
	if (io->fd >= 0)
		(void) close (io->fd);
	io->read = io->write = NULL;
	io->fd = -1;
}
