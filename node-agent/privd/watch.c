/* Family watch: hears when anybody changes the rules of this host's packet filter, and says so. It can do nothing else: the socket
 * was opened before every capability was dropped. */
#include <errno.h>
#include <sys/socket.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include "base/cleanup.h"
#include "node-agent/privd/family.h"

#include "base/enc.h"

static int watch_open (const struct enc_privd_conf *conf, struct enc_error *err)
{
	struct sockaddr_nl self = { .nl_family = AF_NETLINK };
	enc_auto_close int fd = socket (AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER);
	int group = NFNLGRP_NFTABLES;

	(void)conf;
	if (fd < 0 || bind (fd, (struct sockaddr *)&self, sizeof self) < 0 ||
		setsockopt (fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) < 0)
		return enc_fail_sys (err, "watch: changes of the packet filter");
	return ENC_TAKE_FD (fd);
}

static bool watch_ready (int fd)
{
	char bytes[8192];

	/* What changed does not matter, also when there was too much of it: the fence looks itself. */
	for (;;) {
		ssize_t n = recv (fd, bytes, sizeof bytes, 0);
		if (n < 0 && errno != ENOBUFS && errno != EINTR)
			return true;
	}
}

static const int caps[] = { -1 };

const struct enc_family enc_family_watch = {
	.name = "watch",
	.caps = caps,
	.open = watch_open,
	.ready = watch_ready,
};
