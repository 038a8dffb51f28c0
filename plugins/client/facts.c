/* One question to privd and one answer, each a datagram on a connection of its own. */
#include "plugins/client/client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/enctime.h"
#include "base/peer.h"

#include "base/enc.h"

enum { DEADLINE_MAX_MS = 2000, RETRY_MS = 5 };

static int wait_for (int fd, short what, int64_t deadline, struct enc_error *err)
{
	struct pollfd p = { .fd = fd, .events = what };
	int rc;

	do
		rc = poll (&p, 1, enc_left_ms (deadline));
	while (rc < 0 && errno == EINTR && !enc_passed (deadline));
	if (rc < 0)
		return enc_fail_sys (err, "wait for privd");
	return rc > 0 ? 0 : enc_fail (err, ENC_ETIMEOUT, "privd does not answer");
}

static int connect_to (const char *path, int64_t deadline, struct enc_error *err)
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
			return enc_fail (err, ENC_EUNAVAIL, "privd is not there");
		if (enc_passed (deadline))
			return enc_fail (err, ENC_ETIMEOUT, "privd takes no connection");
		(void)poll (NULL, 0, RETRY_MS);
	}
	return ENC_TAKE_FD (fd);
}

static int peer_is (int fd, uid_t uid, struct enc_error *err)
{
	struct enc_peer peer;
	int rc = enc_peer_of (fd, &peer, err);

	if (rc == 0 && peer.uid != uid)
		rc = enc_fail (err, ENC_EINTEGRITY, "another user than root answers for privd");
	return rc;
}

int enc_client_facts (const struct enc_client_conf *conf, uid_t about, struct enc_facts *ret, struct enc_error *err)
{
	int64_t deadline = enc_deadline_ms (conf->deadline_ms < DEADLINE_MAX_MS ? conf->deadline_ms : DEADLINE_MAX_MS);
	enc_auto_done (enc_buf_done) struct enc_buf ask = ENC_BUF_INIT (ENC_FACTS_SIZE_MAX);
	uint8_t answer[ENC_FACTS_SIZE_MAX + 1];
	enc_auto_close int fd = -1;
	ssize_t n;
	int rc;

	if ((rc = enc_facts_ask_encode (about, &ask, err)) < 0 || (fd = rc = connect_to (conf->facts, deadline, err)) < 0)
		return rc;
	if ((rc = peer_is (fd, conf->facts_uid, err)) < 0 || (rc = wait_for (fd, POLLOUT, deadline, err)) < 0)
		return rc;
	if (send (fd, ask.data, ask.len, MSG_NOSIGNAL) < 0)
		return enc_fail (err, ENC_EUNAVAIL, "privd hung up");
	if ((rc = wait_for (fd, POLLIN, deadline, err)) < 0)
		return rc;
	if ((n = recv (fd, answer, sizeof answer, 0)) <= 0)
		return enc_fail (err, ENC_EUNAVAIL, "privd hung up");
	rc = enc_facts_decode (answer, (size_t)n, ret, err);
	return rc < 0 ? enc_fail (err, ENC_EPROTO, "privd's answer is malformed") : 0;
}
