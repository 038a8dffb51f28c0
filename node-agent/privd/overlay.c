#include "node-agent/privd/overlay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <openssl/evp.h>

#include "base/child.h"
#include "base/enctime.h"
#include "base/file.h"
#include "base/str.h"
#include "crypto/secmem.h"
#include "node-agent/privd/bus.h"
#include "node-agent/privd/fence_rules.h"
#include "node-agent/privd/netlink.h"

#include "base/enc.h"

#define OVERLAY_UNIT "enclave-overlay.service"
#define OVERLAY_SOCKET "/run/wireguard/" ENC_OVERLAY_IFACE ".sock"
#define WG "/usr/bin/wg"

enum { UP_MS = 5000, MTU = 1380, KEY_SIZE = 32, CONFIG_MAX = 64 * 1024 };

/* The key of this stay; this process serves one node only. */
static uint8_t *stay_key;

static int public_of (const uint8_t *key, uint8_t ret[KEY_SIZE], struct enc_error *err)
{
	EVP_PKEY *pkey = EVP_PKEY_new_raw_private_key (EVP_PKEY_X25519, NULL, key, KEY_SIZE);
	size_t len = KEY_SIZE;
	int ok = pkey && EVP_PKEY_get_raw_public_key (pkey, ret, &len) == 1 && len == KEY_SIZE;

	EVP_PKEY_free (pkey);
	return ok ? 0 : enc_fail (err, ENC_EFAILED, "overlay: the key pair cannot be made");
}

/* After a restart of privd the interface still has the stay's key: take it from there. */
static int adopt_key (struct enc_error *err)
{
	enc_auto (enc_cmd) struct enc_cmd *cmd = enc_cmd_new (WG);
	struct enc_cmd_result result = { 0 };
	uint8_t *key = NULL;
	int rc;

	enc_cmd_args (cmd, "show", ENC_OVERLAY_IFACE, "private-key", NULL);
	rc = enc_cmd_run (cmd, &result, err);
	if (rc == 0)
		rc = enc_secmem_get (KEY_SIZE, &key, err);
	if (rc == 0 && result.out.len == 45) {
		result.out.data[44] = '\0';
		rc = enc_base64_fixed ((const char *)result.out.data, key, KEY_SIZE, err);
	} else if (rc == 0) {
		rc = enc_fail (err, ENC_ENOTFOUND, "overlay: the interface has no key");
	}
	if (result.out.data)
		enc_wipe (result.out.data, result.out.len);
	enc_cmd_result_done (&result);
	if (rc == 0)
		stay_key = ENC_TAKE (key);
	enc_secmem_free (key);
	return rc;
}

static int need_key (struct enc_error *err)
{
	if (stay_key)
		return 0;
	if (if_nametoindex (ENC_OVERLAY_IFACE) != 0 && adopt_key (NULL) == 0)
		return 0;
	return enc_secmem_random (KEY_SIZE, &stay_key, err);
}

int enc_overlay_key (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	uint8_t public[KEY_SIZE];
	enc_auto_free char *text = NULL;
	int rc;

	(void)conf;
	if (task->flags & ENC_TASK_CLOSE) {
		enc_secmem_free (ENC_TAKE (stay_key));
		return 0;
	}
	if ((rc = need_key (err)) < 0 || (rc = public_of (stay_key, public, err)) < 0)
		return rc;
	if (!(text = enc_base64 (public, sizeof public)))
		return enc_fail (err, ENC_ENOMEM, "overlay: no memory");
	enc_json_set_str (evidence, "overlay_key", text);
	return 0;
}

static bool is_zero (const uint8_t *data, size_t len)
{
	uint8_t any = 0;

	for (size_t i = 0; i < len; i++)
		any |= data[i];
	return any == 0;
}

static const char *own_overlay (const struct enc_doc *doc)
{
	for (size_t i = 0; i < doc->peers_n; i++)
		if (enc_fence_is_self (doc, &doc->peers[i]))
			return doc->peers[i].overlay;
	return "";
}

/* A greeting that nobody hears, and two that cross each other, are tried again only after 5 s. So one side of each pair greets, and not
 * before the document has more than the overlay: by then the overlay is up on all nodes. */
static bool greets (const struct enc_doc *doc, const struct enc_doc_peer *peer)
{
	return doc->volumes_n && strcmp (own_overlay (doc), peer->overlay) < 0;
}

int enc_overlay_text (const struct enc_doc *doc, const uint8_t key[32], struct enc_buf *out, struct enc_error *err)
{
	enc_buf_putf (out, "[Interface]\nListenPort = %u\nPrivateKey = ", doc->overlay_port);
	enc_put_base64 (out, key, KEY_SIZE);
	enc_buf_putf (out, "\n");
	for (size_t i = 0; i < doc->peers_n; i++) {
		const struct enc_doc_peer *p = &doc->peers[i];
		if (enc_fence_is_self (doc, p) || !p->overlay[0] || is_zero (p->overlay_key, KEY_SIZE))
			continue;
		enc_buf_putf (out, "[Peer]\nPublicKey = ");
		enc_put_base64 (out, p->overlay_key, KEY_SIZE);
		enc_buf_putf (out, "\nAllowedIPs = %s/32\n", p->overlay);
		if (greets (doc, p))
			enc_buf_putf (out, "PersistentKeepalive = 25\n");
		if (p->address4[0])
			enc_buf_putf (out, "Endpoint = %s:%u\n", p->address4, doc->overlay_port);
		else if (p->address6[0])
			enc_buf_putf (out, "Endpoint = [%s]:%u\n", p->address6, doc->overlay_port);
	}
	return enc_buf_check (out, err);
}

static int configure (const struct enc_doc *doc, struct enc_error *err)
{
	enc_auto (enc_cmd) struct enc_cmd *cmd = enc_cmd_new (WG);
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_SECRET (CONFIG_MAX);
	enc_auto_close int fd = -1;
	int rc;

	/* A memory file, for wg reads its configuration from a file and a key has no place on a disk. */
	if ((fd = memfd_create ("overlay", MFD_CLOEXEC)) < 0)
		return enc_fail_sys (err, "overlay: memory file");
	if ((rc = enc_overlay_text (doc, stay_key, &text, err)) < 0 || (rc = enc_write_all (fd, text.data, text.len, err)) < 0)
		return rc;
	enc_cmd_args (cmd, "syncconf", ENC_OVERLAY_IFACE, NULL);
	enc_cmd_argf (cmd, "/proc/self/fd/%d", fd);
	enc_cmd_pass_fd (cmd, fd);
	rc = enc_cmd_run (cmd, NULL, err);
	(void)!ftruncate (fd, 0);
	return enc_wrap (err, rc, "overlay");
}

static int make_kernel_link (struct enc_nl *nl, struct enc_error *err)
{
	struct ifinfomsg info = { .ifi_family = AF_UNSPEC };
	struct enc_nl_msg msg;
	struct nlattr *nest;

	enc_nl_begin (&msg, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &info, sizeof info);
	enc_nl_attr_str (&msg, IFLA_IFNAME, ENC_OVERLAY_IFACE);
	nest = enc_nl_nest (&msg, IFLA_LINKINFO);
	enc_nl_attr_str (&msg, IFLA_INFO_KIND, "wireguard");
	enc_nl_nest_end (&msg, nest);
	return enc_nl_talk (nl, &msg, NULL, NULL, err);
}

/* Wait for a condition that another process brings about. */
static int await (bool (*holds) (void), const char *what, struct enc_error *err)
{
	int64_t deadline = enc_deadline_ms (UP_MS);

	while (!holds ()) {
		if (enc_passed (deadline))
			return enc_error_next (err, enc_fail (err, ENC_ETIMEOUT, "overlay: %s", what), "journalctl -u " OVERLAY_UNIT);
		(void)poll (NULL, 0, 5);
	}
	return 0;
}

static bool link_is_there (void)
{
	return if_nametoindex (ENC_OVERLAY_IFACE) != 0 && access (OVERLAY_SOCKET, F_OK) == 0;
}

static bool link_is_gone (void)
{
	return if_nametoindex (ENC_OVERLAY_IFACE) == 0;
}

static int make_link (struct enc_nl *nl, struct enc_error *err)
{
	struct enc_error why = { 0 };
	int rc;

	if (if_nametoindex (ENC_OVERLAY_IFACE) != 0)
		return 0;
	if ((rc = make_kernel_link (nl, &why)) == 0)
		return 0;
	if (why.sys != EOPNOTSUPP && why.sys != ENODEV) {
		if (err)
			*err = why;
		return enc_wrap (err, rc, "overlay: make the interface");
	}
	if ((rc = enc_bus_unit (ENC_UNIT_START, OVERLAY_UNIT, UP_MS, err)) < 0)
		return rc;
	return await (link_is_there, "wireguard-go made no interface", err);
}

static int set_address (struct enc_nl *nl, const struct enc_doc *doc, struct enc_error *err)
{
	unsigned index = if_nametoindex (ENC_OVERLAY_IFACE);
	struct ifaddrmsg addr = { .ifa_family = AF_INET, .ifa_index = index };
	struct ifinfomsg info = { .ifi_family = AF_UNSPEC, .ifi_index = (int)index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };
	struct enc_nl_msg msg;
	struct in_addr in;
	uint64_t bits;
	int rc;

	for (size_t i = 0; i < doc->peers_n; i++) {
		if (!enc_fence_is_self (doc, &doc->peers[i]))
			continue;
		if (inet_pton (AF_INET, doc->peers[i].overlay, &in) != 1)
			return enc_fail (err, ENC_EINVAL, "overlay: this node has no address in it");
		if ((rc = enc_parse_u64 (strchr (doc->overlay_net, '/') + 1, 1, 32, &bits, err)) < 0)
			return rc;
		addr.ifa_prefixlen = (uint8_t)bits;
		enc_nl_begin (&msg, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &addr, sizeof addr);
		enc_nl_attr (&msg, IFA_LOCAL, &in, sizeof in);
		enc_nl_attr (&msg, IFA_ADDRESS, &in, sizeof in);
		if ((rc = enc_nl_talk (nl, &msg, NULL, NULL, err)) < 0)
			return enc_wrap (err, rc, "overlay: address");
		enc_nl_begin (&msg, RTM_NEWLINK, 0, &info, sizeof info);
		enc_nl_attr_u32 (&msg, IFLA_MTU, MTU);
		return enc_wrap (err, enc_nl_talk (nl, &msg, NULL, NULL, err), "overlay: interface up");
	}
	return enc_fail (err, ENC_EINVAL, "overlay: this node is not among its peers");
}

static int up (struct enc_nl *nl, const struct enc_doc *doc, struct enc_error *err)
{
	int rc;

	if ((rc = need_key (err)) < 0 || (rc = make_link (nl, err)) < 0 || (rc = configure (doc, err)) < 0)
		return rc;
	return set_address (nl, doc, err);
}

static int down (struct enc_nl *nl, struct enc_error *err)
{
	struct ifinfomsg info = { .ifi_family = AF_UNSPEC, .ifi_index = (int)if_nametoindex (ENC_OVERLAY_IFACE) };
	struct enc_nl_msg msg;
	int rc;

	if (info.ifi_index == 0)
		return 0;
	/* The service may run without our knowledge of how the interface was made; stopping one that does not run is nothing. */
	if ((rc = enc_bus_unit (ENC_UNIT_STOP, OVERLAY_UNIT, UP_MS, NULL)) < 0 && rc != -ENC_EFAILED && rc != -ENC_ENOTFOUND)
		(void)rc;
	if (if_nametoindex (ENC_OVERLAY_IFACE) != 0) {
		enc_nl_begin (&msg, RTM_DELLINK, 0, &info, sizeof info);
		if ((rc = enc_nl_talk (nl, &msg, NULL, NULL, err)) < 0 && !link_is_gone ())
			return enc_wrap (err, rc, "overlay: remove the interface");
	}
	return await (link_is_gone, "the interface does not go away", err);
}

int enc_overlay_apply (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err)
{
	struct enc_nl nl;
	bool want = task->doc->overlay && !(task->flags & ENC_TASK_CLOSE);
	int rc = enc_nl_open (&nl, NETLINK_ROUTE, err);

	(void)conf;
	if (rc < 0)
		return rc;
	rc = want ? up (&nl, task->doc, err) : down (&nl, err);
	enc_nl_done (&nl);
	if (rc == 0)
		enc_json_set_str (evidence, "overlay", want ? "up" : "down");
	return rc;
}
