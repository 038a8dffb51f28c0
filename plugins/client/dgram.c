#include "plugins/client/dgram.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/enctime.h"
#include "base/peer.h"

#include "base/enc.h"

enum { RETRY_MS = 5 };

static int wait_for (int fd, const char *who, short what, int64_t deadline, struct enc_error *err)
{
	struct pollfd p = { .fd = fd, .events = what };
	int rc;

	do
		rc = poll (&p, 1, enc_left_ms (deadline));
	while (rc < 0 && errno == EINTR && !enc_passed (deadline));
	if (rc < 0)
		return enc_fail_sys (err, "wait for %s", who);
	return rc > 0 ? 0 : enc_fail (err, ENC_ETIMEOUT, "%s does not answer", who);
}

static int connect_to (const char *path, const char *who, int64_t deadline, struct enc_error *err)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	enc_auto_close int fd = socket (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return enc_fail_sys (err, "make a socket");
	if (strlen (path) >= sizeof to.sun_path)
		return enc_fail (err, ENC_EINVAL, "%s is no usable socket path", path);
	memcpy (to.sun_path, path, strlen (path) + 1);
	/* EAGAIN: the listener's queue is full. A Unix socket gives no event for that. */
	while (connect (fd, (const struct sockaddr *)&to, sizeof to) < 0) {
		if (errno != EAGAIN && errno != EINTR)
			return enc_fail (err, ENC_EUNAVAIL, "%s is not there", who);
		if (enc_passed (deadline))
			return enc_fail (err, ENC_ETIMEOUT, "%s takes no connection", who);
		(void)poll (NULL, 0, RETRY_MS);
	}
	return ENC_TAKE_FD (fd);
}

static int peer_is (int fd, const char *who, uid_t uid, struct enc_error *err)
{
	struct enc_peer peer;
	int rc = enc_peer_of (fd, &peer, err);

	if (rc == 0 && uid != (uid_t)-1 && peer.uid != uid)
		rc = enc_fail (err, ENC_EINTEGRITY, "another user than root answers for %s", who);
	return rc;
}

ssize_t enc_dgram_ask (const char *path, const char *who, uid_t uid, int64_t deadline, const struct enc_buf *ask, void *answer, size_t size,
	struct enc_error *err)
{
	enc_auto_close int fd = -1;
	ssize_t n;
	int rc;

	if ((fd = rc = connect_to (path, who, deadline, err)) < 0)
		return rc;
	if ((rc = peer_is (fd, who, uid, err)) < 0 || (rc = wait_for (fd, who, POLLOUT, deadline, err)) < 0)
		return rc;
	if (send (fd, ask->data, ask->len, MSG_NOSIGNAL) < 0)
		return enc_fail (err, ENC_EUNAVAIL, "%s hung up", who);
	if (size == 0)
		return 0;
	if ((rc = wait_for (fd, who, POLLIN, deadline, err)) < 0)
		return rc;
	n = recv (fd, answer, size, 0);
	if (n <= 0)
		return enc_fail (err, ENC_EUNAVAIL, "%s hung up", who);
	return n;
}
