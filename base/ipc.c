/* Frames and calls without an event loop. All sockets are non-blocking; poll() with what is left of the deadline stands before
 * each read and write. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include "base/enctime.h"
#include "base/ipc.h"
#include "base/ipc_io.h"
#include "base/peer.h"
#include "base/enc.h"

struct enc_ipc {
	int fd;
	bool dead; /* out of step after a failure */
};

void enc_fds_done (struct enc_fds *fds)
{
	if (!fds)
		return;
	for (unsigned i = 0; i < fds->n && i < ENC_IPC_FDS; i++)
		if (fds->fd[i] >= 0)
			(void) close (fds->fd[i]);
	fds->n = 0;
}

static int wait_for (int fd, short events, int64_t deadline, struct enc_error *err)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		int n = poll (&p, 1, enc_left_ms (deadline));
		if (n > 0)
			return 0;
		if (n == 0)
			return enc_fail (err, ENC_ETIMEOUT, "no answer in time");
		if (errno != EINTR)
			return enc_fail_sys (err, "poll");
	}
}

static bool again (void)
{
	return errno == EAGAIN || errno == EINTR;
}

/* ---- send ---- */

/* sendmsg once; descriptors go with the first byte only. */
ssize_t enc_ipc_send_some (int fd, const uint8_t *at, size_t len, const struct enc_fds *fds)
{
	struct iovec iov = { .iov_base = (void *) (uintptr_t) at, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	union {
		char space[CMSG_SPACE (sizeof (int) * ENC_IPC_FDS)];
		struct cmsghdr align;
	} control;
	if (fds && fds->n) {
		memset (&control, 0, sizeof (control));
		msg.msg_control = control.space;
		msg.msg_controllen = CMSG_SPACE (sizeof (int) * fds->n);
		struct cmsghdr *c = CMSG_FIRSTHDR (&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN (sizeof (int) * fds->n);
		memcpy (CMSG_DATA (c), fds->fd, sizeof (int) * fds->n);
	}
	return sendmsg (fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int send_bytes (int fd, const uint8_t *at, size_t len, const struct enc_fds *fds, int64_t deadline, struct enc_error *err)
{
	while (len) {
		ssize_t n = enc_ipc_send_some (fd, at, len, fds);
		if (n < 0 && again ()) {
			int rc = wait_for (fd, POLLOUT, deadline, err);
			if (rc < 0)
				return rc;
			continue;
		}
		if (n < 0)
			return enc_fail_sys (err, "send");
		at += n;
		len -= (size_t) n;
		fds = NULL;
	}
	return 0;
}

int enc_frame_send (int fd, const void *body, size_t len, const struct enc_fds *fds, int64_t deadline, struct enc_error *err)
{
	if (len > ENC_IPC_MAX || (fds && fds->n > ENC_IPC_FDS))
		return enc_fail (err, ENC_ELIMIT, "message of %zu bytes is too large", len);
	uint8_t head[4] = { (uint8_t) (len >> 24), (uint8_t) (len >> 16), (uint8_t) (len >> 8), (uint8_t) len };
	int rc = send_bytes (fd, head, sizeof (head), fds, deadline, err);
	return rc < 0 ? rc : send_bytes (fd, (const uint8_t *) body, len, NULL, deadline, err);
}

/* ---- receive ---- */

/* Descriptors of one message into `fds`; too many, or any where none are wanted, are closed and refused. */
static int take_fds (struct msghdr *msg, struct enc_fds *fds)
{
	bool refused = (msg->msg_flags & MSG_CTRUNC) != 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR (msg); c; c = CMSG_NXTHDR (msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN (0)) / sizeof (int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy (&fd, CMSG_DATA (c) + i * sizeof (int), sizeof (int));
			if (fds && fds->n < ENC_IPC_FDS) {
				fds->fd[fds->n++] = fd;
			} else {
				(void) close (fd);
				refused = true;
			}
		}
	}
	return refused ? -1 : 0;
}

ssize_t enc_ipc_recv_some (int fd, uint8_t *at, size_t len, struct enc_fds *fds)
{
	struct iovec iov = { .iov_base = at, .iov_len = len };
	union {
		char space[CMSG_SPACE (sizeof (int) * ENC_IPC_FDS)];
		struct cmsghdr align;
	} control;
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof (control.space) };
	ssize_t n = recvmsg (fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n >= 0 && take_fds (&msg, fds) < 0) {
		errno = EPROTO;
		return -1;
	}
	return n;
}

static int recv_bytes (int fd, uint8_t *at, size_t len, struct enc_fds *fds, int64_t deadline, struct enc_error *err)
{
	while (len) {
		ssize_t n = enc_ipc_recv_some (fd, at, len, fds);
		if (n < 0 && again ()) {
			int rc = wait_for (fd, POLLIN, deadline, err);
			if (rc < 0)
				return rc;
			continue;
		}
		if (n < 0)
			return errno == EPROTO ? enc_fail (err, ENC_EPROTO, "descriptors that were not asked for") : enc_fail_sys (err, "receive");
		if (n == 0)
			return enc_fail (err, ENC_EUNAVAIL, "the other end closed the connection");
		at += n;
		len -= (size_t) n;
	}
	return 0;
}

int enc_frame_recv (int fd, size_t max, struct enc_buf *body, struct enc_fds *fds, int64_t deadline, struct enc_error *err)
{
	uint8_t head[4];
	int rc = recv_bytes (fd, head, sizeof (head), fds, deadline, err);
	if (rc < 0)
		return rc;
	size_t len = (size_t) head[0] << 24 | (size_t) head[1] << 16 | (size_t) head[2] << 8 | head[3];
	if (len > max || len > ENC_IPC_MAX)
		return enc_fail (err, ENC_EPROTO, "a message of %zu bytes was announced, at most %zu are taken", len, max);
	uint8_t *at = enc_buf_grow (body, len);
	if (!at)
		return enc_buf_check (body, err);
	rc = recv_bytes (fd, at, len, fds, deadline, err);
	if (rc < 0)
		body->len -= len;
	return rc;
}

/* ---- calls ---- */

struct enc_ipc *enc_ipc_of_fd (int fd, struct enc_error *err)
{
	enc_auto_close int owned = fd;
	int flags = fcntl (fd, F_GETFL);
	struct enc_ipc *ipc = calloc (1, sizeof (*ipc));
	if (!ipc) {
		(void) enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	if (flags < 0 || fcntl (fd, F_SETFL, flags | O_NONBLOCK) < 0) {
		(void) enc_fail_sys (err, "socket");
		free (ipc);
		return NULL;
	}
	ipc->fd = ENC_TAKE_FD (owned);
	return ipc;
}

struct enc_ipc *enc_ipc_connect (const char *path, int64_t deadline, struct enc_error *err)
{
	int fd = enc_unix_connect (path, deadline, err);
	return fd < 0 ? NULL : enc_ipc_of_fd (fd, err);
}

void enc_ipc_free (struct enc_ipc *ipc)
{
	if (!ipc)
		return;
	(void) close (ipc->fd);
	free (ipc);
}

int enc_ipc_fd (const struct enc_ipc *ipc)
{
	return ipc->fd;
}

static int exchange (struct enc_ipc *ipc, const struct enc_json *request, const struct enc_fds *fds, int64_t deadline,
		     struct enc_json **ret, struct enc_fds *ret_fds, struct enc_error *err)
{
	size_t len = 0;
	enc_auto_free char *text = enc_json_write (request, &len, err);
	if (!text)
		return -ENC_ENOMEM;
	int rc = enc_frame_send (ipc->fd, text, len, fds, deadline, err);
	if (rc < 0)
		return rc;
	enc_auto_done (enc_buf_done) struct enc_buf body = ENC_BUF_INIT (ENC_IPC_MAX);
	rc = enc_frame_recv (ipc->fd, ENC_IPC_MAX, &body, ret_fds, deadline, err);
	if (rc < 0)
		return rc;
	*ret = enc_json_parse ((const char *) body.data, body.len, ENC_IPC_MAX, NULL);
	if (enc_json_type (*ret) != ENC_JSON_OBJECT) {
		enc_json_free (*ret);
		return enc_fail (err, ENC_EPROTO, "the answer is no JSON object");
	}
	return 0;
}

int enc_ipc_call (struct enc_ipc *ipc, const struct enc_json *request, const struct enc_fds *fds, int64_t deadline,
		  struct enc_json **ret, struct enc_fds *ret_fds, struct enc_error *err)
{
	struct enc_fds got = { 0 };
	struct enc_json *answer = NULL;
	if (ipc->dead)
		return enc_fail (err, ENC_EUNAVAIL, "the connection failed before");
	int rc = exchange (ipc, request, fds, deadline, &answer, ret_fds ? &got : NULL, err);
	if (rc < 0) {
		ipc->dead = true;
		enc_fds_done (&got);
		return rc;
	}
	rc = enc_json_to_error (answer, err);
	if (rc < 0 || !ret)
		enc_json_free (answer);
	else
		*ret = answer;
	if (rc < 0)
		enc_fds_done (&got);
	else if (ret_fds)
		*ret_fds = got;
	return rc;
}

int enc_ipc_once (const char *path, const struct enc_json *request, int64_t deadline, struct enc_json **ret, struct enc_error *err)
{
	struct enc_error local;
	err = err ? err : &local;
	enc_auto (enc_ipc) struct enc_ipc *ipc = enc_ipc_connect (path, deadline, err);
	if (!ipc)
		return -err->code;
	return enc_ipc_call (ipc, request, NULL, deadline, ret, NULL, err);
}
