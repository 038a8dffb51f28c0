#include "node-agent/privd/netlink.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/cleanup.h"

#include "base/enc.h"

enum { NL_DEADLINE_S = 5, NL_READ = 32768 };

int enc_nl_open (struct enc_nl *nl, int protocol, struct enc_error *err)
{
	struct sockaddr_nl self = { .nl_family = AF_NETLINK };
	struct timeval limit = { .tv_sec = NL_DEADLINE_S };

	*nl = (struct enc_nl){ .fd = socket (AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol) };
	if (nl->fd < 0)
		return enc_fail_sys (err, "netlink %d", protocol);
	if (bind (nl->fd, (struct sockaddr *)&self, sizeof self) < 0 ||
		setsockopt (nl->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0) {
		int rc = enc_fail_sys (err, "netlink %d", protocol);
		enc_nl_done (nl);
		return rc;
	}
	return 0;
}

void enc_nl_done (struct enc_nl *nl)
{
	enc_cleanup_close (&nl->fd);
	nl->fd = -1;
}

static void *grow (struct enc_nl_msg *msg, size_t len)
{
	size_t at = NLMSG_ALIGN (msg->head.nlmsg_len), room = NLMSG_ALIGN (len);

	if (at + room > sizeof msg->bytes) {
		msg->full = true;
		return NULL;
	}
	memset (msg->bytes + at, 0, room);
	msg->head.nlmsg_len = (uint32_t)(at + len);
	return msg->bytes + at;
}

void enc_nl_begin (struct enc_nl_msg *msg, uint16_t type, uint16_t flags, const void *body, size_t len)
{
	void *at;

	memset (&msg->head, 0, sizeof msg->head);
	msg->full = false;
	msg->head.nlmsg_len = NLMSG_HDRLEN;
	msg->head.nlmsg_type = type;
	msg->head.nlmsg_flags = (uint16_t)(flags | NLM_F_REQUEST);
	if ((at = grow (msg, len)))
		memcpy (at, body, len);
}

void enc_nl_attr (struct enc_nl_msg *msg, uint16_t type, const void *data, size_t len)
{
	uint8_t *at = grow (msg, NLA_HDRLEN + len);
	struct nlattr head = { .nla_len = (uint16_t)(NLA_HDRLEN + len), .nla_type = type };

	if (!at)
		return;
	memcpy (at, &head, sizeof head);
	if (len > 0)
		memcpy (at + NLA_HDRLEN, data, len);
}

void enc_nl_attr_u32 (struct enc_nl_msg *msg, uint16_t type, uint32_t value)
{
	enc_nl_attr (msg, type, &value, sizeof value);
}

void enc_nl_attr_str (struct enc_nl_msg *msg, uint16_t type, const char *text)
{
	enc_nl_attr (msg, type, text, strlen (text) + 1);
}

struct nlattr *enc_nl_nest (struct enc_nl_msg *msg, uint16_t type)
{
	size_t at = NLMSG_ALIGN (msg->head.nlmsg_len);

	enc_nl_attr (msg, type, NULL, 0);
	return msg->full ? NULL : (struct nlattr *)(void *)(msg->bytes + at);
}

void enc_nl_nest_end (struct enc_nl_msg *msg, struct nlattr *nest)
{
	if (nest && !msg->full)
		nest->nla_len = (uint16_t)(msg->bytes + msg->head.nlmsg_len - (uint8_t *)nest);
}

static int one_message (const struct nlmsghdr *m, enc_nl_fn fn, void *arg, bool *done, struct enc_error *err)
{
	if (m->nlmsg_type == NLMSG_DONE) {
		*done = true;
		return 0;
	}
	if (m->nlmsg_type == NLMSG_ERROR) {
		const struct nlmsgerr *e = NLMSG_DATA (m);
		*done = true;
		errno = -e->error;
		return e->error ? enc_fail_sys (err, "netlink: the kernel refused") : 0;
	}
	return fn ? fn (m, arg, err) : 0;
}

int enc_nl_talk (struct enc_nl *nl, struct enc_nl_msg *msg, enc_nl_fn fn, void *arg, struct enc_error *err)
{
	enc_auto_free uint8_t *bytes = malloc (NL_READ);
	bool done = false;
	int rc = 0;

	if (!bytes || msg->full)
		return enc_fail (err, ENC_ENOMEM, "netlink: message too long");
	msg->head.nlmsg_seq = ++nl->seq;
	msg->head.nlmsg_flags |= NLM_F_ACK;
	if (send (nl->fd, msg->bytes, msg->head.nlmsg_len, 0) < 0)
		return enc_fail_sys (err, "netlink: send");
	while (!done) {
		ssize_t n = recv (nl->fd, bytes, NL_READ, 0);
		if (n < 0)
			return enc_fail_sys (err, "netlink: receive");
		unsigned left = (unsigned)n;
		for (const struct nlmsghdr *m = (const void *)bytes; NLMSG_OK (m, left) && !done; m = NLMSG_NEXT (m, left)) {
			if (m->nlmsg_seq != nl->seq)
				continue;
			int one = one_message (m, fn, arg, &done, err);
			/* The answer is read to its end even after a failure, so that the socket stays usable. */
			if (one < 0 && rc == 0)
				rc = one;
		}
	}
	return rc;
}

const void *enc_nl_find (const struct nlmsghdr *msg, size_t header, uint16_t type, size_t *ret_len)
{
	size_t at = NLMSG_HDRLEN + NLMSG_ALIGN (header);

	while (at + NLA_HDRLEN <= msg->nlmsg_len) {
		struct nlattr a;
		memcpy (&a, (const uint8_t *)msg + at, sizeof a);
		if (a.nla_len < NLA_HDRLEN || at + a.nla_len > msg->nlmsg_len)
			return NULL;
		if ((a.nla_type & NLA_TYPE_MASK) == type) {
			*ret_len = a.nla_len - NLA_HDRLEN;
			return (const uint8_t *)msg + at + NLA_HDRLEN;
		}
		at += NLA_ALIGN (a.nla_len);
	}
	return NULL;
}
