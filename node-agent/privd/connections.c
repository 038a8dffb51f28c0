/* The rules alone stop every packet; this makes both ends notice. Kernels without SOCK_DESTROY are fine: the sockets then starve. */
#include "node-agent/privd/connections.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <linux/inet_diag.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/sock_diag.h>

#include "base/cleanup.h"
#include "node-agent/privd/netlink.h"

#include "base/enc.h"

enum { SOCKETS_MAX = 200000, LISTENING = 10 /* TCP_LISTEN */ };

struct found {
	const struct enc_fence *fence;
	struct enc_buf list; /* struct inet_diag_msg each */
};

/* An address of either family in IPv6 form, so that mapped ones compare equal. */
struct addr {
	uint8_t b[16];
};

static struct addr addr_of_words (uint8_t family, const uint32_t words[4])
{
	struct addr a = { .b = { [10] = 0xff, [11] = 0xff } };

	if (family == AF_INET)
		memcpy (a.b + 12, words, 4);
	else
		memcpy (a.b, words, 16);
	return a;
}

static bool addr_is (const struct addr *a, const char *text)
{
	struct addr b = { .b = { [10] = 0xff, [11] = 0xff } };

	if (!text[0] || inet_pton (strchr (text, ':') ? AF_INET6 : AF_INET, text, strchr (text, ':') ? b.b : b.b + 12) != 1)
		return false;
	return memcmp (a->b, b.b, 16) == 0;
}

static bool addr_is_own (const struct addr *a)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff }, zero[16] = { 0 }, one[16] = { [15] = 1 };

	if (memcmp (a->b, mapped, 12) == 0)
		return a->b[12] == 127 || memcmp (a->b + 12, zero, 4) == 0;
	return memcmp (a->b, zero, 16) == 0 || memcmp (a->b, one, 16) == 0;
}

static bool is_allowed (const struct enc_fence *f, const struct inet_diag_msg *d)
{
	const struct enc_doc *doc = f->doc;
	struct addr to = addr_of_words (d->idiag_family, d->id.idiag_dst);
	unsigned sport = ntohs (d->id.idiag_sport), dport = ntohs (d->id.idiag_dport);

	if (addr_is_own (&to))
		return true;
	if (dport == doc->controller_port && (addr_is (&to, doc->controller4) || addr_is (&to, doc->controller6)))
		return true;
	if (f->mode != ENC_FENCE_ENCLAVE)
		return false;
	if (f->door && (doc->roles & ENC_ROLE_LOGIN) && sport == doc->login_port)
		return true;
	for (size_t i = 0; i < doc->peers_n; i++) {
		const struct enc_doc_peer *p = &doc->peers[i];
		if (addr_is (&to, p->overlay))
			return true;
		if (dport == doc->overlay_port && (addr_is (&to, p->address4) || addr_is (&to, p->address6)))
			return true;
	}
	return false;
}

static int collect (const struct nlmsghdr *m, void *arg, struct enc_error *err)
{
	struct found *found = arg;
	const struct inet_diag_msg *d = NLMSG_DATA (m);

	if (m->nlmsg_type != SOCK_DIAG_BY_FAMILY || m->nlmsg_len < NLMSG_LENGTH (sizeof *d))
		return 0;
	if (d->idiag_state != LISTENING && !is_allowed (found->fence, d))
		enc_buf_put (&found->list, d, sizeof *d);
	return enc_buf_check (&found->list, err);
}

static void request (struct enc_nl_msg *msg, uint16_t type, uint16_t flags, uint8_t family, uint8_t protocol, const struct inet_diag_msg *d)
{
	struct inet_diag_req_v2 req = { .sdiag_family = family, .sdiag_protocol = protocol, .idiag_states = UINT32_MAX };

	if (d)
		req.id = d->id;
	enc_nl_begin (msg, type, flags, &req, sizeof req);
}

static int cut_kind (struct enc_nl *nl, const struct enc_fence *fence, uint8_t family, uint8_t protocol, size_t *n, struct enc_error *err)
{
	struct found found = { .fence = fence, .list = ENC_BUF_INIT (SOCKETS_MAX * sizeof (struct inet_diag_msg)) };
	struct enc_error why = { 0 };
	struct enc_nl_msg msg;
	int rc;

	request (&msg, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, family, protocol, NULL);
	rc = enc_nl_talk (nl, &msg, collect, &found, &why);
	for (size_t i = 0; rc == 0 && i < found.list.len / sizeof (struct inet_diag_msg); i++) {
		const struct inet_diag_msg *d = (const struct inet_diag_msg *)(const void *)found.list.data + i;
		request (&msg, SOCK_DESTROY, 0, family, protocol, d);
		if (enc_nl_talk (nl, &msg, NULL, NULL, &why) == 0)
			(*n)++;
	}
	enc_buf_done (&found.list);
	/* A kernel without this module answers ENOENT, one without the call EOPNOTSUPP. */
	if (rc < 0 && why.sys != ENOENT && why.sys != EOPNOTSUPP) {
		if (err)
			*err = why;
		return rc;
	}
	return 0;
}

static int flush_tracking (struct enc_error *err)
{
	struct nfgenmsg g = { .nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0 };
	struct enc_nl_msg msg;
	struct enc_nl nl;
	int rc = enc_nl_open (&nl, NETLINK_NETFILTER, err);

	if (rc < 0)
		return rc;
	enc_nl_begin (&msg, (NFNL_SUBSYS_CTNETLINK << 8) | IPCTNL_MSG_CT_DELETE, 0, &g, sizeof g);
	rc = enc_nl_talk (&nl, &msg, NULL, NULL, err);
	enc_nl_done (&nl);
	return enc_wrap (err, rc, "forget tracked connections");
}

int enc_connections_cut (const struct enc_fence *fence, size_t *ret_n, struct enc_error *err)
{
	static const struct {
		uint8_t family, protocol;
	} kinds[] = { { AF_INET, IPPROTO_TCP }, { AF_INET6, IPPROTO_TCP }, { AF_INET, IPPROTO_UDP }, { AF_INET6, IPPROTO_UDP } };
	struct enc_nl nl;
	int rc = flush_tracking (err);

	*ret_n = 0;
	if (rc < 0 || (rc = enc_nl_open (&nl, NETLINK_SOCK_DIAG, err)) < 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < ENC_ARRAY_LEN (kinds); i++)
		rc = cut_kind (&nl, fence, kinds[i].family, kinds[i].protocol, ret_n, err);
	enc_nl_done (&nl);
	return rc;
}
