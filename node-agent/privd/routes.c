/* Routes are read and written as the kernel's own messages: what cannot be understood is still put back as it was. Ours carry a
 * protocol number of their own. */
#include "node-agent/privd/routes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <string.h>
#include <unistd.h>
#include <linux/rtnetlink.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "node-agent/privd/netlink.h"

#include "base/enc.h"

enum { RTPROT_ENCLAVE = 242, SAVE_MAX = 4 * 1024 * 1024, ROUTES_MAX = 20000 };

/* A dump: whole messages, one after the other, each padded. */
struct dump {
	struct enc_buf messages;
	unsigned overlay; /* its interface number, 0 none */
};

static uint32_t attr_u32 (const struct nlmsghdr *m, uint16_t type)
{
	size_t len = 0;
	const void *at = enc_nl_find (m, sizeof (struct rtmsg), type, &len);
	uint32_t v = 0;

	if (at && len == sizeof v)
		memcpy (&v, at, sizeof v);
	return v;
}

/* Link-local and multicast routes of IPv6 stay: without them no neighbour answers. */
static bool is_link_local (const struct nlmsghdr *m, const struct rtmsg *r)
{
	size_t len = 0;
	const uint8_t *dst = enc_nl_find (m, sizeof *r, RTA_DST, &len);

	return r->rtm_family == AF_INET6 && dst && len == 16 && (dst[0] == 0xff || (dst[0] == 0xfe && (dst[1] & 0xc0) == 0x80));
}

static int collect (const struct nlmsghdr *m, void *arg, struct enc_error *err)
{
	struct dump *dump = arg;
	const struct rtmsg *r = NLMSG_DATA (m);
	unsigned oif = attr_u32 (m, RTA_OIF);
	char name[IF_NAMESIZE];

	(void)err;
	if (m->nlmsg_type != RTM_NEWROUTE || r->rtm_table != RT_TABLE_MAIN || (r->rtm_flags & RTM_F_CLONED))
		return 0;
	if (r->rtm_type != RTN_UNICAST || is_link_local (m, r) || (oif && oif == dump->overlay))
		return 0;
	if (oif && if_indextoname (oif, name) && strcmp (name, "lo") == 0)
		return 0;
	enc_buf_put (&dump->messages, m, m->nlmsg_len);
	while (dump->messages.failed == 0 && dump->messages.len % NLMSG_ALIGNTO != 0)
		enc_buf_put_u8 (&dump->messages, 0);
	return 0;
}

static int dump_routes (struct enc_nl *nl, struct dump *dump, struct enc_error *err)
{
	static const uint8_t families[] = { AF_INET, AF_INET6 };
	struct enc_nl_msg msg;
	int rc;

	dump->overlay = if_nametoindex (ENC_OVERLAY_IFACE);
	for (size_t i = 0; i < sizeof families; i++) {
		struct rtmsg r = { .rtm_family = families[i] };
		enc_nl_begin (&msg, RTM_GETROUTE, NLM_F_DUMP, &r, sizeof r);
		if ((rc = enc_nl_talk (nl, &msg, collect, dump, err)) < 0)
			return enc_wrap (err, rc, "read routes");
	}
	return enc_buf_check (&dump->messages, err);
}

/* Walk whole messages; NULL ends. Sizes are checked, for they may come from a file. */
static const struct nlmsghdr *next_message (const struct enc_buf *messages, size_t *at)
{
	const struct nlmsghdr *m;

	if (*at + NLMSG_HDRLEN + sizeof (struct rtmsg) > messages->len)
		return NULL;
	m = (const void *)(messages->data + *at);
	if (m->nlmsg_len < NLMSG_HDRLEN + sizeof (struct rtmsg) || *at + m->nlmsg_len > messages->len)
		return NULL;
	*at += NLMSG_ALIGN (m->nlmsg_len);
	return m;
}

static bool is_ours (const struct nlmsghdr *m)
{
	return ((const struct rtmsg *)NLMSG_DATA (m))->rtm_protocol == RTPROT_ENCLAVE;
}

/* Send a saved route again, as an addition or a removal. Already there, or already gone, is success. */
static int replay (struct enc_nl *nl, const struct nlmsghdr *m, uint16_t type, struct enc_error *err)
{
	struct enc_nl_msg msg = { 0 };
	struct enc_error why = { 0 };
	struct rtmsg *r;
	int rc;

	if (m->nlmsg_len > sizeof msg.bytes)
		return enc_fail (err, ENC_ELIMIT, "a route of %u bytes", m->nlmsg_len);
	memcpy (msg.bytes, m, m->nlmsg_len);
	msg.head.nlmsg_type = type;
	msg.head.nlmsg_flags = NLM_F_REQUEST | (type == RTM_NEWROUTE ? NLM_F_CREATE | NLM_F_APPEND : 0);
	r = NLMSG_DATA (&msg.head);
	r->rtm_flags &= RTNH_F_ONLINK;
	rc = enc_nl_talk (nl, &msg, NULL, NULL, &why);
	if (rc < 0 && (why.sys == EEXIST || why.sys == ESRCH || why.sys == ENOENT))
		return 0;
	if (rc < 0 && err)
		*err = why;
	return rc;
}

static int delete_routes (struct enc_nl *nl, bool ours, struct enc_error *err)
{
	struct dump dump = { .messages = ENC_BUF_INIT (SAVE_MAX) };
	const struct nlmsghdr *m;
	size_t at = 0;
	int rc = dump_routes (nl, &dump, err);

	while (rc == 0 && (m = next_message (&dump.messages, &at)))
		if (is_ours (m) == ours)
			rc = replay (nl, m, RTM_DELROUTE, err);
	enc_buf_done (&dump.messages);
	return rc;
}

static int restore_routes (struct enc_nl *nl, const char *save, bool *ret_any, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf saved = ENC_BUF_INIT (SAVE_MAX);
	const struct nlmsghdr *m;
	int rc;

	*ret_any = access (save, F_OK) == 0;
	if (!*ret_any)
		return 0;
	if ((rc = enc_file_read (save, SAVE_MAX, &saved, err)) < 0)
		return rc;
	/* Twice: routes through a gateway need the connected ones first, and the kernel lists them in its own order. */
	for (int pass = 0; pass < 2; pass++)
		for (size_t at = 0; (m = next_message (&saved, &at));)
			if ((rc = replay (nl, m, RTM_NEWROUTE, pass == 1 ? err : NULL)) < 0 && pass == 1)
				return enc_wrap (err, rc, "put a route back");
	return 0;
}

static int save_routes (struct enc_nl *nl, const char *save, struct enc_error *err)
{
	struct dump dump = { .messages = ENC_BUF_INIT (SAVE_MAX) };
	struct enc_file_attr attr = ENC_FILE_ATTR (0600);
	int rc = dump_routes (nl, &dump, err);

	if (rc == 0)
		rc = enc_file_write (save, dump.messages.data, dump.messages.len, &attr, err);
	enc_buf_done (&dump.messages);
	return rc;
}

/* The way to one host, as the kernel would go today. */
struct way {
	uint8_t family;
	size_t len;
	uint8_t dst[16], gateway[16], source[16];
	bool has_gateway, has_source;
	uint32_t oif;
};

struct ways {
	struct enc_nl *nl;
	struct enc_buf list; /* struct way each */
};

static int read_way (const struct nlmsghdr *m, void *arg, struct enc_error *err)
{
	struct way *way = arg;
	const void *at;
	size_t len = 0;

	(void)err;
	way->oif = attr_u32 (m, RTA_OIF);
	if ((at = enc_nl_find (m, sizeof (struct rtmsg), RTA_GATEWAY, &len)) && len == way->len) {
		memcpy (way->gateway, at, len);
		way->has_gateway = true;
	}
	if ((at = enc_nl_find (m, sizeof (struct rtmsg), RTA_PREFSRC, &len)) && len == way->len) {
		memcpy (way->source, at, len);
		way->has_source = true;
	}
	return 0;
}

static int find_way (const char *addr, void *arg, struct enc_error *err)
{
	struct ways *ways = arg;
	struct way way = { .family = strchr (addr, ':') ? AF_INET6 : AF_INET };
	struct enc_nl_msg msg;
	struct rtmsg r = { .rtm_family = way.family };

	way.len = way.family == AF_INET ? 4 : 16;
	r.rtm_dst_len = (uint8_t)(way.len * 8);
	if (inet_pton (way.family, addr, way.dst) != 1)
		return enc_fail (err, ENC_EINVAL, "fence: bad address %s", addr);
	enc_nl_begin (&msg, RTM_GETROUTE, 0, &r, sizeof r);
	enc_nl_attr (&msg, RTA_DST, way.dst, way.len);
	/* A host without a way (IPv6 not in use here) simply gets no route. */
	if (enc_nl_talk (ways->nl, &msg, read_way, &way, NULL) < 0 || way.oif == 0)
		return 0;
	enc_buf_put (&ways->list, &way, sizeof way);
	return enc_buf_check (&ways->list, err);
}

static int add_way (struct enc_nl *nl, const struct way *way, struct enc_error *err)
{
	struct enc_nl_msg msg;
	struct rtmsg r = { .rtm_family = way->family,
		.rtm_dst_len = (uint8_t)(way->len * 8),
		.rtm_table = RT_TABLE_MAIN,
		.rtm_protocol = RTPROT_ENCLAVE,
		.rtm_scope = way->has_gateway ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK,
		.rtm_type = RTN_UNICAST };

	if (way->has_gateway)
		r.rtm_flags = RTNH_F_ONLINK;
	enc_nl_begin (&msg, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &r, sizeof r);
	enc_nl_attr (&msg, RTA_DST, way->dst, way->len);
	enc_nl_attr_u32 (&msg, RTA_OIF, way->oif);
	if (way->has_gateway)
		enc_nl_attr (&msg, RTA_GATEWAY, way->gateway, way->len);
	if (way->has_source)
		enc_nl_attr (&msg, RTA_PREFSRC, way->source, way->len);
	return enc_nl_talk (nl, &msg, NULL, NULL, err);
}

static int close_with (struct enc_nl *nl, const struct enc_fence *fence, const char *save, struct enc_error *err)
{
	struct ways ways = { .nl = nl, .list = ENC_BUF_INIT (ROUTES_MAX * sizeof (struct way)) };
	bool saved;
	/* The rules are in force already, so the site's routes may stand again while the ways are looked up. */
	int rc = restore_routes (nl, save, &saved, err);

	if (rc == 0)
		rc = delete_routes (nl, true, err);
	if (rc == 0 && !saved)
		rc = save_routes (nl, save, err);
	if (rc == 0)
		rc = enc_fence_each_address (fence, find_way, &ways, err);
	if (rc == 0)
		rc = delete_routes (nl, false, err);
	for (size_t i = 0; rc == 0 && i < ways.list.len / sizeof (struct way); i++)
		rc = enc_wrap (err, add_way (nl, (const struct way *)(const void *)ways.list.data + i, err), "add a host route");
	enc_buf_done (&ways.list);
	return rc;
}

int enc_routes_close (const struct enc_fence *fence, const char *save, struct enc_error *err)
{
	struct enc_nl nl;
	int rc = enc_nl_open (&nl, NETLINK_ROUTE, err);

	if (rc < 0)
		return rc;
	rc = close_with (&nl, fence, save, err);
	enc_nl_done (&nl);
	return rc;
}

int enc_routes_open (const char *save, struct enc_error *err)
{
	struct enc_nl nl;
	bool any;
	int rc = enc_nl_open (&nl, NETLINK_ROUTE, err);

	if (rc < 0)
		return rc;
	if ((rc = restore_routes (&nl, save, &any, err)) == 0)
		rc = delete_routes (&nl, true, err);
	if (rc == 0 && any && unlink (save) < 0 && errno != ENOENT)
		rc = enc_fail_sys (err, "%s", save);
	enc_nl_done (&nl);
	return rc;
}

int enc_routes_count (size_t *ret_ours, size_t *ret_foreign, struct enc_error *err)
{
	struct dump dump = { .messages = ENC_BUF_INIT (SAVE_MAX) };
	const struct nlmsghdr *m;
	struct enc_nl nl;
	size_t at = 0, n[2] = { 0 };
	int rc = enc_nl_open (&nl, NETLINK_ROUTE, err);

	if (rc < 0)
		return rc;
	if ((rc = dump_routes (&nl, &dump, err)) == 0) {
		while ((m = next_message (&dump.messages, &at)))
			n[is_ours (m)]++;
		*ret_foreign = n[false];
		*ret_ours = n[true];
	}
	enc_buf_done (&dump.messages);
	enc_nl_done (&nl);
	return rc;
}

int enc_routes_foreign (size_t *ret, struct enc_error *err)
{
	size_t ours;

	return enc_routes_count (&ours, ret, err);
}
