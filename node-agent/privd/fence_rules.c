/* One table `inet enclave`, default drop in all three hooks for IPv4, IPv6 and everything inside them. There is no general
 * "established: accept": a connection that began before the fence passes only if the fence would allow it today, which is what
 * makes old connections dead at once. The chains run before the site's own (priority -5): a drop is final, an accept is not, so
 * that the site's rules can only make the fence tighter.
 *
 * A program with CAP_NET_RAW can put frames on a device past all of this. So a second table, `netdev enclave`, lets out of each device
 * only frames to the hosts that the first one lets packets out to. It cannot know connections, so it holds the port of an open door by number.
 *
 * IPv6 needs neighbour discovery to reach even an allowed host; it is let through with hop limit 255 alone, from the link.
 * Address resolution of IPv4 is not seen by the first table; the second lets plain requests and answers of it out and no other frame. */
#include "node-agent/privd/fence_rules.h"

#include <string.h>

#include "base/enc.h"

bool enc_fence_is_self (const struct enc_doc *doc, const struct enc_doc_peer *peer)
{
	return strcmp (doc->node, peer->node) == 0;
}

int enc_fence_each_address (const struct enc_fence *fence, enc_fence_addr_fn fn, void *arg, struct enc_error *err)
{
	const struct enc_doc *doc = fence->doc;
	int rc = 0;

	if (fence->mode == ENC_FENCE_NONE)
		return 0;
	if (doc->controller4[0] && (rc = fn (doc->controller4, arg, err)) < 0)
		return rc;
	if (doc->controller6[0] && (rc = fn (doc->controller6, arg, err)) < 0)
		return rc;
	if (fence->mode != ENC_FENCE_ENCLAVE)
		return 0;
	for (size_t i = 0; i < doc->peers_n; i++) {
		const struct enc_doc_peer *p = &doc->peers[i];
		if (enc_fence_is_self (doc, p))
			continue;
		if (p->address4[0] && (rc = fn (p->address4, arg, err)) < 0)
			return rc;
		if (p->address6[0] && (rc = fn (p->address6, arg, err)) < 0)
			return rc;
	}
	return 0;
}

/* Where the addresses of one set come from. */
enum pick { PICK_ADDRESS4, PICK_ADDRESS6, PICK_OVERLAY };

static const char *picked (const struct enc_doc_peer *peer, enum pick pick)
{
	return pick == PICK_ADDRESS4 ? peer->address4 : pick == PICK_ADDRESS6 ? peer->address6 : peer->overlay;
}

/* A named set of peers' addresses; an empty one matches nothing. */
static void put_set (struct enc_buf *out, const char *name, const char *type, const struct enc_fence *f, enum pick pick)
{
	bool first = true;

	enc_buf_putf (out, "\tset %s {\n\t\ttype %s\n", name, type);
	for (size_t i = 0; f->mode == ENC_FENCE_ENCLAVE && i < f->doc->peers_n; i++) {
		const char *addr = picked (&f->doc->peers[i], pick);
		if (!addr[0] || enc_fence_is_self (f->doc, &f->doc->peers[i]))
			continue;
		enc_buf_putf (out, "%s%s", first ? "\t\telements = { " : ", ", addr);
		first = false;
	}
	enc_buf_putf (out, "%s\t}\n", first ? "" : " }\n");
}

/* The controller never opens a connection to a node, so its first packets are refused by their flags and not by tracking: what was
 * tracked is forgotten when the fence closes, and an answer that is under way to a waiting agent would else be lost with it. */
static void put_controller (struct enc_buf *out, const struct enc_doc *doc, bool in)
{
	const struct {
		const char *family, *addr;
	} rows[] = { { "ip", doc->controller4 }, { "ip6", doc->controller6 } };

	for (size_t i = 0; i < ENC_ARRAY_LEN (rows); i++) {
		if (!rows[i].addr[0])
			continue;
		if (in)
			enc_buf_putf (out, "\t\t%s saddr %s tcp sport %u tcp flags & (syn | ack) != syn accept\n",
				rows[i].family, rows[i].addr, doc->controller_port);
		else
			enc_buf_putf (out, "\t\t%s daddr %s tcp dport %u accept\n", rows[i].family, rows[i].addr,
				doc->controller_port);
	}
}

static void put_peers (struct enc_buf *out, const struct enc_doc *doc, bool in)
{
	const char *way = in ? "saddr" : "daddr";

	if (doc->overlay_port) {
		enc_buf_putf (out, "\t\tip %s @peers4 udp dport %u accept\n", way, doc->overlay_port);
		enc_buf_putf (out, "\t\tip6 %s @peers6 udp dport %u accept\n", way, doc->overlay_port);
	}
	enc_buf_putf (
		out, "\t\t%s \"%s\" ip %s @overlay accept\n", in ? "iifname" : "oifname", ENC_OVERLAY_IFACE, way);
}

static void put_door (struct enc_buf *out, const struct enc_fence *f, bool in)
{
	if (!f->door || !(f->doc->roles & ENC_ROLE_LOGIN) || f->doc->login_port == 0)
		return;
	if (in)
		enc_buf_putf (out, "\t\tiifname != \"%s\" tcp dport %u accept\n", ENC_OVERLAY_IFACE, f->doc->login_port);
	else
		enc_buf_putf (out, "\t\toifname != \"%s\" tcp sport %u ct state established accept\n", ENC_OVERLAY_IFACE,
			f->doc->login_port);
}

static void put_chain (struct enc_buf *out, const struct enc_fence *f, const char *hook)
{
	bool in = strcmp (hook, "input") == 0;

	enc_buf_putf (out, "\tchain %s {\n\t\ttype filter hook %s priority -5; policy drop;\n", hook, hook);
	if (strcmp (hook, "forward") != 0) {
		enc_buf_putf (out, "\t\t%s \"lo\" accept\n", in ? "iifname" : "oifname");
		enc_buf_putf (out, "\t\ticmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit 255 accept\n");
		put_controller (out, f->doc, in);
		if (f->mode == ENC_FENCE_ENCLAVE) {
			put_peers (out, f->doc, in);
			put_door (out, f, in);
		}
		enc_buf_putf (out, "\t\tcounter\n");
	}
	enc_buf_putf (out, "\t}\n");
}

static void put_sets (struct enc_buf *out, const struct enc_fence *f)
{
	put_set (out, "peers4", "ipv4_addr", f, PICK_ADDRESS4);
	put_set (out, "peers6", "ipv6_addr", f, PICK_ADDRESS6);
}

/* What a frame of this node may look like, as put_chain() has it for packets. Later pieces of a packet carry no port. */
static void put_frames (struct enc_buf *out, const struct enc_fence *f)
{
	bool door = f->door && (f->doc->roles & ENC_ROLE_LOGIN) && f->doc->login_port != 0;

	enc_buf_putf (out, "\t\tarp htype 1 arp ptype ip arp operation { request, reply } accept\n");
	enc_buf_putf (out, "\t\ticmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit 255 accept\n");
	put_controller (out, f->doc, false);
	if (f->mode == ENC_FENCE_ENCLAVE && f->doc->overlay_port) {
		enc_buf_putf (out, "\t\tip daddr @peers4 udp dport %u accept\n", f->doc->overlay_port);
		enc_buf_putf (out, "\t\tip daddr @peers4 ip protocol udp ip frag-off & 8191 != 0 accept\n");
		enc_buf_putf (out, "\t\tip6 daddr @peers6 udp dport %u accept\n", f->doc->overlay_port);
	}
	if (f->mode == ENC_FENCE_ENCLAVE && door)
		enc_buf_putf (out, "\t\ttcp sport %u accept\n", f->doc->login_port);
	enc_buf_putf (out, "\t\tcounter\n");
}

static void put_device_table (struct enc_buf *out, const struct enc_fence *f)
{
	if (!f->devices || f->devices->n == 0)
		return;
	enc_buf_putf (out, "table netdev %s {\n", ENC_FENCE_TABLE);
	put_sets (out, f);
	enc_buf_putf (out, "\tchain out {\n\t\ttype filter hook egress devices = { ");
	for (size_t i = 0; i < f->devices->n; i++)
		enc_buf_putf (out, "%s\"%s\"", i ? ", " : "", f->devices->v[i]);
	enc_buf_putf (out, " } priority -5; policy drop;\n");
	put_frames (out, f);
	enc_buf_putf (out, "\t}\n}\n");
}

int enc_fence_text (const struct enc_fence *f, struct enc_buf *out, struct enc_error *err)
{
	static const char *const hooks[] = { "input", "forward", "output" };
	static const char *const families[] = { "inet", "netdev" };

	/* Naming a table first makes the deletion work whether it was there or not. */
	for (size_t i = 0; i < ENC_ARRAY_LEN (families); i++)
		enc_buf_putf (out, "table %s %s {}\ndelete table %s %s\n", families[i], ENC_FENCE_TABLE, families[i], ENC_FENCE_TABLE);
	if (f->mode != ENC_FENCE_NONE) {
		enc_buf_putf (out, "table inet %s {\n", ENC_FENCE_TABLE);
		put_sets (out, f);
		put_set (out, "overlay", "ipv4_addr", f, PICK_OVERLAY);
		for (size_t i = 0; i < ENC_ARRAY_LEN (hooks); i++)
			put_chain (out, f, hooks[i]);
		enc_buf_putf (out, "}\n");
		put_device_table (out, f);
	}
	return enc_buf_check (out, err);
}
