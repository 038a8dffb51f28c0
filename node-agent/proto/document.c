/* The node document on the wire. One table per struct lists the fields in their order; encoding, decoding and checking
 * walk the same tables, so that a field cannot be written without being read and checked. After the fields,
 * `check_whole` holds the few rules between fields. A change of a table is a new version of the format
 * (docs/protocol.md section 5). */
#include "node-agent/proto/document.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#include <openssl/sha.h>

#include "base/str.h"
#include "node-agent/proto/wire.h"

#include "base/enc.h"

enum { DOC_VERSION = 1 };

enum type { T_U8 = 1, T_U32, T_U64, T_STR, T_FIXED, T_LIST };

typedef bool (*text_fn) (const char *text);

struct field {
	const char *name;
	enum type type;
	size_t offset, size;
	uint64_t max;		    /* numbers: largest value; lists: most items */
	text_fn ok;		    /* texts: how a non-empty one must look */
	bool required;		    /* texts: may not be empty */
	size_t count_offset;	    /* lists: the size_t beside them */
	const struct field *fields; /* lists: one item's */
};

static bool ip4_ok (const char *text)
{
	struct in_addr addr;
	char back[INET_ADDRSTRLEN];

	/* Only the canonical form: two spellings of one address would give one document two digests. */
	return inet_pton (AF_INET, text, &addr) == 1 && inet_ntop (AF_INET, &addr, back, sizeof back) &&
	       strcmp (text, back) == 0;
}

static bool ip6_ok (const char *text)
{
	struct in6_addr addr;
	char back[INET6_ADDRSTRLEN];

	return inet_pton (AF_INET6, text, &addr) == 1 && inet_ntop (AF_INET6, &addr, back, sizeof back) &&
	       strcmp (text, back) == 0;
}

static bool ip_ok (const char *text)
{
	return ip4_ok (text) || ip6_ok (text);
}

static int net4_split (const char *text, uint32_t *ret_net, unsigned *ret_bits)
{
	char addr[INET_ADDRSTRLEN];
	const char *slash = strchr (text, '/');
	struct in_addr net;
	uint64_t bits;

	if (!slash || (size_t)(slash - text) >= sizeof addr)
		return -ENC_EINVAL;
	memcpy (addr, text, (size_t)(slash - text));
	addr[slash - text] = '\0';
	if (!ip4_ok (addr) || enc_parse_u64 (slash + 1, 16, 30, &bits, NULL) < 0 ||
		inet_pton (AF_INET, addr, &net) != 1)
		return -ENC_EINVAL;
	*ret_net = ntohl (net.s_addr);
	*ret_bits = (unsigned)bits;
	return 0;
}

static uint32_t net4_mask (unsigned bits)
{
	return UINT32_MAX << (32 - bits);
}

static bool net4_ok (const char *text)
{
	uint32_t net;
	unsigned bits;

	return net4_split (text, &net, &bits) == 0 && (net & ~net4_mask (bits)) == 0;
}

static bool hex32_ok (const char *text)
{
	return strlen (text) == 32 && strspn (text, "0123456789abcdef") == 32;
}

/* Slurm's own rule for a cluster name, narrowed to what can stand in a file name. */
static bool cluster_ok (const char *text)
{
	return islower ((unsigned char)text[0]) &&
	       strspn (text, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen (text);
}

static bool driver_ok (const char *text)
{
	return strcmp (text, "fscrypt") == 0 || strcmp (text, "luks") == 0;
}

#define AT(s, m) .name = #m, .offset = offsetof (struct s, m), .size = sizeof (((struct s *)0)->m)
#define U8(s, m, most)                                                                                                 \
	{                                                                                                              \
		AT (s, m), .type = T_U8, .max = (most)                                                                 \
	}
#define U32(s, m, most)                                                                                                \
	{                                                                                                              \
		AT (s, m), .type = T_U32, .max = (most)                                                                \
	}
#define U64(s, m)                                                                                                      \
	{                                                                                                              \
		AT (s, m), .type = T_U64, .max = UINT64_MAX                                                            \
	}
#define TEXT(s, m, fn)                                                                                                 \
	{                                                                                                              \
		AT (s, m), .type = T_STR, .ok = (fn)                                                                   \
	}
#define MUST(s, m, fn)                                                                                                 \
	{                                                                                                              \
		AT (s, m), .type = T_STR, .ok = (fn), .required = true                                                 \
	}
#define FIXED(s, m)                                                                                                    \
	{                                                                                                              \
		AT (s, m), .type = T_FIXED                                                                             \
	}
#define LIST(s, m, n, most, t, item)                                                                                   \
	{                                                                                                              \
		AT (s, m), .type = (t), .max = (most), .count_offset = offsetof (struct s, n), .fields = (item)        \
	}

static const struct field peer_fields[] = {
	MUST (enc_doc_peer, node, enc_node_name_ok),
	U8 (enc_doc_peer, role, ENC_ROLE_LOGIN),
	TEXT (enc_doc_peer, address4, ip4_ok),
	TEXT (enc_doc_peer, address6, ip6_ok),
	TEXT (enc_doc_peer, overlay, ip4_ok),
	FIXED (enc_doc_peer, overlay_key),
	U32 (enc_doc_peer, cpus, 100000),
	U64 (enc_doc_peer, memory_mb),
	{ 0 },
};

static const struct field volume_fields[] = {
	MUST (enc_doc_volume, name, enc_name_ok),
	TEXT (enc_doc_volume, key, enc_id_ok),
	U8 (enc_doc_volume, kind, ENC_VOLUME_DATASET),
	MUST (enc_doc_volume, driver, driver_ok),
	MUST (enc_doc_volume, id, enc_id_ok),
	U64 (enc_doc_volume, size_bytes),
	U32 (enc_doc_volume, owner_gid, UINT32_MAX - 1),
	{ 0 },
};

static const struct field outsider_fields[] = {
	{ .name = "address",
		.type = T_STR,
		.offset = 0,
		.size = sizeof (((struct enc_doc *)0)->outsiders[0]),
		.ok = ip_ok,
		.required = true },
	{ 0 },
};

static const struct field doc_fields[] = {
	MUST (enc_doc, node, enc_node_name_ok),
	U64 (enc_doc, generation),
	U8 (enc_doc, pool, ENC_POOL_QUARANTINE),
	TEXT (enc_doc, enclave_id, enc_id_ok),
	TEXT (enc_doc, enclave_name, enc_name_ok),
	U64 (enc_doc, not_after),
	U8 (enc_doc, units, ENC_UNITS_DOWN),
	U8 (enc_doc, fence, ENC_FENCE_ENCLAVE),
	TEXT (enc_doc, controller4, ip4_ok),
	TEXT (enc_doc, controller6, ip6_ok),
	U32 (enc_doc, controller_port, 65535),
	U8 (enc_doc, overlay, 1),
	U32 (enc_doc, overlay_port, 65535),
	TEXT (enc_doc, overlay_net, net4_ok),
	U8 (enc_doc, clean, ENC_CLEAN_REBOOT),
	TEXT (enc_doc, clean_id, enc_id_ok),
	TEXT (enc_doc, challenge, hex32_ok),
	TEXT (enc_doc, probe_id, enc_id_ok),
	U8 (enc_doc, roles, ENC_ROLE_COMPUTE | ENC_ROLE_SCHEDULER | ENC_ROLE_LOGIN),
	TEXT (enc_doc, slurm_cluster, cluster_ok),
	U32 (enc_doc, slurmctld_port, 65535),
	U32 (enc_doc, slurmd_port, 65535),
	U32 (enc_doc, srun_port_first, 65535),
	U32 (enc_doc, srun_port_last, 65535),
	TEXT (enc_doc, munge_key, enc_id_ok),
	U8 (enc_doc, door, 1),
	U32 (enc_doc, login_port, 65535),
	LIST (enc_doc, peers, peers_n, ENC_DOC_NODES_MAX, T_LIST, peer_fields),
	LIST (enc_doc, volumes, volumes_n, ENC_DOC_VOLUMES_MAX, T_LIST, volume_fields),
	LIST (enc_doc, outsiders, outsiders_n, 8, T_LIST, outsider_fields),
	{ 0 },
};

static const struct {
	const struct field *fields;
	size_t size;
} items[] = {
	{ peer_fields, sizeof (struct enc_doc_peer) },
	{ volume_fields, sizeof (struct enc_doc_volume) },
	{ outsider_fields, sizeof (((struct enc_doc *)0)->outsiders[0]) },
};

static size_t item_size (const struct field *fields)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (items); i++)
		if (items[i].fields == fields)
			return items[i].size;
	return 0;
}

static uint64_t number_get (const struct field *f, const uint8_t *at)
{
	uint32_t v32;
	uint64_t v64;

	if (f->type == T_U8)
		return *at;
	if (f->type == T_U32) {
		memcpy (&v32, at, sizeof v32);
		return v32;
	}
	memcpy (&v64, at, sizeof v64);
	return v64;
}

static int bad (struct enc_error *err, const char *path, const struct field *f, const char *why)
{
	int rc = enc_fail (err, ENC_EINVAL, "node document: %s/%s %s", path, f->name, why);

	return enc_error_pointer (err, rc, "%s/%s", path, f->name);
}

static int check_field (const struct field *f, const uint8_t *at, const char *path, struct enc_error *err)
{
	const char *text = (const char *)at;

	if (f->type == T_FIXED || f->type == T_LIST)
		return 0;
	if (f->type != T_STR)
		return number_get (f, at) > f->max ? bad (err, path, f, "is out of range") : 0;
	if (memchr (text, 0, f->size) == NULL)
		return bad (err, path, f, "is not ended");
	if (text[0] == '\0')
		return f->required ? bad (err, path, f, "is empty") : 0;
	return f->ok (text) ? 0 : bad (err, path, f, "is malformed");
}

static void put_field (const struct field *f, const uint8_t *at, struct enc_buf *buf)
{
	if (f->type == T_U8)
		enc_buf_put_u8 (buf, *at);
	else if (f->type == T_U32)
		enc_buf_put_u32 (buf, (uint32_t)number_get (f, at));
	else if (f->type == T_U64)
		enc_buf_put_u64 (buf, number_get (f, at));
	else if (f->type == T_STR)
		enc_buf_put_str (buf, (const char *)at);
	else
		enc_buf_put_bytes (buf, at, f->size);
}

static void get_field (const struct field *f, struct enc_view *view, uint8_t *at)
{
	if (f->type == T_U8) {
		*at = enc_view_u8 (view);
	} else if (f->type == T_U32) {
		uint32_t v = enc_view_u32 (view);
		memcpy (at, &v, sizeof v);
	} else if (f->type == T_U64) {
		uint64_t v = enc_view_u64 (view);
		memcpy (at, &v, sizeof v);
	} else if (f->type == T_STR) {
		enc_view_str (view, (char *)at, f->size);
	} else {
		enc_proto_fixed (view, at, f->size);
	}
}

/* The two walks below go one level deep: an item of a list holds no list. */

static int put_item (
	const struct field *f, const uint8_t *base, const char *path, struct enc_buf *buf, struct enc_error *err)
{
	int rc;

	for (; f->name; f++) {
		if ((rc = check_field (f, base + f->offset, path, err)) < 0)
			return rc;
		put_field (f, base + f->offset, buf);
	}
	return 0;
}

static int put_list (const struct field *f, const uint8_t *base, struct enc_buf *buf, struct enc_error *err)
{
	size_t n, size = item_size (f->fields);
	char path[64];
	int rc;

	memcpy (&n, base + f->count_offset, sizeof n);
	if (n > f->max)
		return bad (err, "", f, "has too many items");
	enc_buf_put_u16 (buf, (uint16_t)n);
	for (size_t i = 0; i < n; i++) {
		(void)snprintf (path, sizeof path, "/%s/%zu", f->name, i);
		if ((rc = put_item (f->fields, base + f->offset + i * size, path, buf, err)) < 0)
			return rc;
	}
	return 0;
}

static int get_item (
	const struct field *f, uint8_t *base, const char *path, struct enc_view *view, struct enc_error *err)
{
	int rc;

	for (; f->name; f++) {
		get_field (f, view, base + f->offset);
		if (view->bad)
			return bad (err, path, f, "is cut short or too long");
		if ((rc = check_field (f, base + f->offset, path, err)) < 0)
			return rc;
	}
	return 0;
}

static int get_list (const struct field *f, uint8_t *base, struct enc_view *view, struct enc_error *err)
{
	size_t n = enc_view_u16 (view), size = item_size (f->fields);
	char path[64];
	int rc;

	if (view->bad || n > f->max)
		return bad (err, "", f, view->bad ? "is cut short" : "has too many items");
	for (size_t i = 0; i < n; i++) {
		(void)snprintf (path, sizeof path, "/%s/%zu", f->name, i);
		if ((rc = get_item (f->fields, base + f->offset + i * size, path, view, err)) < 0)
			return rc;
	}
	memcpy (base + f->count_offset, &n, sizeof n);
	return 0;
}

static bool one_role (uint8_t role)
{
	return role == ENC_ROLE_COMPUTE || role == ENC_ROLE_SCHEDULER || role == ENC_ROLE_LOGIN;
}

static int check_peers (const struct enc_doc *doc, struct enc_error *err)
{
	uint32_t net = 0, bits_net;
	unsigned bits = 0;
	struct in_addr addr;

	if (doc->overlay_net[0] && net4_split (doc->overlay_net, &net, &bits) < 0)
		return enc_fail (err, ENC_EINVAL, "node document: overlay_net is malformed");
	for (size_t i = 0; i < doc->peers_n; i++) {
		const struct enc_doc_peer *p = &doc->peers[i];
		if (!one_role (p->role))
			return enc_fail (err, ENC_EINVAL, "node document: /peers/%zu/role is not one role", i);
		if (!p->overlay[0])
			continue;
		if (inet_pton (AF_INET, p->overlay, &addr) != 1 || bits == 0)
			return enc_fail (err, ENC_EINVAL, "node document: /peers/%zu/overlay without overlay_net", i);
		bits_net = ntohl (addr.s_addr) & net4_mask (bits);
		if (bits_net != net)
			return enc_fail (err, ENC_EINVAL, "node document: /peers/%zu/overlay is not in overlay_net", i);
		for (size_t k = 0; k < i; k++)
			if (strcmp (p->node, doc->peers[k].node) == 0 ||
				strcmp (p->overlay, doc->peers[k].overlay) == 0)
				return enc_fail (err, ENC_EINVAL, "node document: /peers/%zu stands there twice", i);
	}
	return 0;
}

/* Rules between fields, each a mistake that would loosen something by being half filled in. */
static int check_whole (const struct enc_doc *doc, struct enc_error *err)
{
	bool inside = doc->enclave_id[0] != '\0';

	if (doc->generation == 0)
		return enc_fail (err, ENC_EINVAL, "node document: generation is 0");
	if (inside != (doc->enclave_name[0] != '\0'))
		return enc_fail (err, ENC_EINVAL, "node document: enclave id and name go together");
	if (doc->pool == ENC_POOL_ENCLAVE && (!inside || doc->not_after == 0))
		return enc_fail (err, ENC_EINVAL, "node document: pool enclave without enclave or end of lease");
	if (doc->fence != ENC_FENCE_NONE &&
		((!doc->controller4[0] && !doc->controller6[0]) || doc->controller_port == 0))
		return enc_fail (err, ENC_EINVAL, "node document: a fence needs the controller's address and port");
	if (doc->pool == ENC_POOL_GENERAL && (doc->fence != ENC_FENCE_NONE || doc->roles || doc->overlay || doc->door))
		return enc_fail (err, ENC_EINVAL,
			"node document: a node of the general pool has no fence, overlay, role or door");
	if ((doc->pool == ENC_POOL_AIRLOCK || doc->pool == ENC_POOL_QUARANTINE) && doc->door)
		return enc_fail (err, ENC_EINVAL, "node document: an open door outside the enclave pool");
	if (doc->overlay && (!doc->overlay_net[0] || doc->overlay_port == 0 || doc->fence != ENC_FENCE_ENCLAVE))
		return enc_fail (err, ENC_EINVAL, "node document: overlay without net, port or fence");
	if (doc->srun_port_last < doc->srun_port_first)
		return enc_fail (err, ENC_EINVAL, "node document: srun ports are the wrong way round");
	if (doc->clean != ENC_CLEAN_NONE && !doc->clean_id[0])
		return enc_fail (err, ENC_EINVAL, "node document: a clean without id");
	for (size_t i = 0; i < doc->volumes_n; i++)
		if (doc->volumes[i].kind == 0 ||
			(doc->volumes[i].kind == ENC_VOLUME_SCRATCH) != (doc->volumes[i].key[0] == '\0'))
			return enc_fail (err, ENC_EINVAL, "node document: /volumes/%zu: kind and key do not fit", i);
	return check_peers (doc, err);
}

int enc_doc_encode (const struct enc_doc *doc, struct enc_buf *buf, struct enc_error *err)
{
	const uint8_t *base = (const uint8_t *)doc;
	size_t start = buf->len;
	int rc;

	enc_buf_put_u8 (buf, DOC_VERSION);
	for (const struct field *f = doc_fields; f->name; f++) {
		if ((rc = check_field (f, base + f->offset, "", err)) < 0)
			return rc;
		if (f->type == T_LIST) {
			if ((rc = put_list (f, base, buf, err)) < 0)
				return rc;
		} else {
			put_field (f, base + f->offset, buf);
		}
	}
	if ((rc = check_whole (doc, err)) < 0)
		return rc;
	if (buf->failed == 0 && buf->len - start > ENC_DOC_SIZE_MAX)
		return enc_fail (err, ENC_ELIMIT, "node document: longer than %d bytes", ENC_DOC_SIZE_MAX);
	return enc_buf_check (buf, err);
}

static int decode_fields (struct enc_view *view, uint8_t *base, struct enc_error *err)
{
	int rc;

	for (const struct field *f = doc_fields; f->name; f++) {
		if (f->type == T_LIST) {
			if ((rc = get_list (f, base, view, err)) < 0)
				return rc;
			continue;
		}
		get_field (f, view, base + f->offset);
		if (view->bad)
			return bad (err, "", f, "is cut short or too long");
		if ((rc = check_field (f, base + f->offset, "", err)) < 0)
			return rc;
	}
	return 0;
}

int enc_doc_decode (const void *data, size_t len, struct enc_doc *ret, struct enc_error *err)
{
	struct enc_view view = enc_view_of (data, len);
	enc_auto_free struct enc_doc *doc = NULL;
	int rc;

	if (len > ENC_DOC_SIZE_MAX)
		return enc_fail (err, ENC_ELIMIT, "node document: longer than %d bytes", ENC_DOC_SIZE_MAX);
	if (enc_view_u8 (&view) != DOC_VERSION)
		return enc_fail (err, ENC_EINVAL, "node document: unknown version");
	if (!(doc = calloc (1, sizeof *doc)))
		return enc_fail (err, ENC_ENOMEM, "node document: no memory");
	if ((rc = decode_fields (&view, (uint8_t *)doc, err)) < 0)
		return rc;
	if ((rc = enc_view_end (&view, err)) < 0)
		return enc_wrap (err, rc, "node document");
	if ((rc = check_whole (doc, err)) < 0)
		return rc;
	*ret = *doc;
	return 0;
}

void enc_doc_digest (const void *data, size_t len, uint8_t ret[32])
{
	(void)SHA256 (data, len, ret);
}

const char *enc_pool_name (uint8_t pool)
{
	static const char *const names[] = { "general", "service", "airlock", "enclave", "quarantine" };

	return pool < ENC_ARRAY_LEN (names) ? names[pool] : "?";
}

const char *enc_fence_mode_name (uint8_t mode)
{
	static const char *const names[] = { "none", "airlock", "enclave" };

	return mode < ENC_ARRAY_LEN (names) ? names[mode] : "?";
}

const char *enc_role_name (uint8_t role)
{
	return role == ENC_ROLE_COMPUTE	    ? "compute"
	       : role == ENC_ROLE_SCHEDULER ? "scheduler"
	       : role == ENC_ROLE_LOGIN	    ? "login"
					    : "?";
}
