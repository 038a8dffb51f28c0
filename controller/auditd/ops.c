/* The operations of auditd's socket. Formats: docs/protocol.md, section 2. */
#include "controller/auditd/auditd.h"

#include "base/file.h"
#include "base/str.h"
#include "crypto/tlog/frame.h"
#include "crypto/tlog/proof.h"
#include "crypto/tlog/segment.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/enc.h"

#define READ_MAX (256u * 1024)
#define SEARCH_MAX 1000
#define SEARCHES_MAX 64
#define SEARCH_NOW 512 /* records that are indexed on the spot for a search */

static struct auditd_peer *peer_of (struct auditd *a, uid_t uid)
{
	struct auditd_peer *peers = a->conf->peers.v;

	for (size_t i = 0; i < a->conf->peers.n; i++)
		if (peers[i].uid == uid)
			return &peers[i];
	return NULL;
}

bool auditd_admit (const struct enc_peer *peer, void *arg)
{
	return peer_of (arg, peer->uid) != NULL;
}

static void fail (struct enc_ipc_req *req, const struct enc_error *err)
{
	enc_ipc_reply_error (req, err);
}

/* May the caller do this at all? Answers if not. */
struct auditd_peer *auditd_allowed (struct auditd *a, struct enc_ipc_req *req, unsigned rights)
{
	struct auditd_peer *peer = peer_of (a, enc_ipc_req_peer (req)->uid);
	unsigned has = peer ? (peer->append ? AUDITD_APPEND : 0) | (peer->read ? AUDITD_READ : 0) | (peer->cosign ? AUDITD_COSIGN : 0) : 0;
	struct enc_error err = { 0 };

	if (!(has & rights))
		(void)enc_fail (&err, ENC_EDENIED, "not allowed to %s", enc_ipc_req_op (req));
	else if (!a->log)
		(void)enc_fail (&err, ENC_EUNAVAIL, "the log is closed");
	else
		return peer;
	fail (req, &err);
	return NULL;
}

/* ---- append ---- */

struct append {
	char *op;
	struct enc_json *record;
	bool receipt;
};
static const struct enc_field append_fields[] = { ENC_FIELD (struct append, op, "op", ENC_T_STR),
	ENC_FIELD (struct append, record, "record", ENC_T_JSON, .flags = ENC_REQUIRED),
	ENC_FIELD (struct append, receipt, "receipt", ENC_T_BOOL), ENC_FIELD_END };

static void op_append (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds, void *arg)
{
	struct auditd *a = arg;
	struct auditd_peer *peer = auditd_allowed (a, req, AUDITD_APPEND);
	struct append in = { 0 };
	struct enc_error err = { 0 };
	int rc;

	(void)fds;
	if (!peer)
		return;
	rc = enc_json_decode (append_fields, body, &in, &err);
	if (rc < 0)
		peer->refused++;
	else
		rc = auditd_take (a, peer, in.record, req, in.receipt, &err);
	if (rc < 0)
		fail (req, &err);
	enc_fields_done (append_fields, &in);
}

/* ---- receipt, text, head ---- */

struct by_index {
	char *op;
	uint64_t index;
};
static const struct enc_field by_index_fields[] = { ENC_FIELD (struct by_index, op, "op", ENC_T_STR),
	ENC_FIELD (struct by_index, index, "index", ENC_T_U64, .flags = ENC_REQUIRED, .max = (uint64_t)1 << 53),
	ENC_FIELD_END };

static int get_index (const struct enc_json *body, uint64_t *ret, struct enc_error *err)
{
	struct by_index in = { 0 };
	int rc = enc_json_decode (by_index_fields, body, &in, err);

	*ret = in.index;
	enc_fields_done (by_index_fields, &in);
	return rc;
}

static int make_receipt (struct auditd *a, uint64_t index, struct enc_json *out, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf record = ENC_BUF_INIT (ENC_FRAME_BODY_MAX + 1);
	enc_auto_free char *text = NULL;
	const struct enc_cosigned_head *cosigned;
	char proof[ENC_PROOF_TEXT_MAX];
	ssize_t n;
	int rc;

	auditd_commit (a);
	if (!a->log)
		return enc_fail (err, ENC_EUNAVAIL, "the log is closed");
	if (index >= enc_trail_size (a->log))
		return enc_fail (err, ENC_ENOTFOUND, "no record %llu", (unsigned long long)index);
	if (index >= enc_trail_signed (a->log)->head.size && (rc = auditd_sign (a, err)) < 0)
		return rc;
	/* With the witnesses' word, where they have given it. */
	cosigned = enc_cosigned_last (a->cosigned);
	if (cosigned && index < cosigned->head.size)
		n = enc_trail_prove_in (a->log, index, &cosigned->head, cosigned->text, cosigned->len, proof, err);
	else
		n = enc_trail_prove (a->log, index, proof, err);
	if (n < 0)
		return (int)n;
	if ((rc = enc_index_body (a->index, index, &record, err)) < 0)
		return rc;
	text = enc_buf_take_str (&record);
	enc_json_set_u64 (out, "index", index);
	enc_json_set_str (out, "record", text);
	enc_json_set_str (out, "proof", proof);
	return text ? 0 : enc_fail (err, ENC_ENOMEM, "out of memory");
}

static void finish (struct enc_ipc_req *req, int rc, struct enc_json *out, const struct enc_error *err)
{
	if (rc < 0) {
		enc_json_free (out);
		fail (req, err);
	} else {
		enc_ipc_reply (req, out);
	}
}

static void op_receipt (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds, void *arg)
{
	struct auditd *a = arg;
	struct enc_error err = { 0 };
	struct enc_json *out;
	uint64_t index = 0;
	int rc;

	(void)fds;
	if (!auditd_allowed (a, req, AUDITD_APPEND | AUDITD_READ))
		return;
	out = enc_json_object ();
	rc = get_index (body, &index, &err);
	if (rc == 0)
		rc = make_receipt (a, index, out, &err);
	finish (req, rc, out, &err);
}

static void op_text (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds, void *arg)
{
	struct auditd *a = arg;
	struct enc_error err = { 0 };
	enc_auto_free char *text = NULL;
	enc_auto_free char *b64 = NULL;
	uint8_t salt[ENC_RECORD_SALT];
	struct enc_json *out;
	uint64_t index = 0;
	int rc;

	(void)fds;
	if (!auditd_allowed (a, req, AUDITD_READ))
		return;
	out = enc_json_object ();
	rc = get_index (body, &index, &err);
	if (rc == 0)
		rc = enc_texts_get (a->texts, index, &text, salt, &err);
	if (rc == 0) {
		b64 = enc_base64 (salt, sizeof (salt));
		enc_json_set_str (out, "text", text);
		enc_json_set_str (out, "salt", b64);
	}
	finish (req, rc, out, &err);
}

static void put_head (struct auditd *a, struct enc_json *out)
{
	const struct enc_trail_signed *last = enc_trail_signed (a->log);
	char root[ENC_HASH_B64_SIZE];

	enc_hash_b64 (&last->head.root, root);
	enc_json_set_str (out, "origin", enc_trail_origin (a->log));
	enc_json_set_u64 (out, "size", last->head.size);
	enc_json_set_str (out, "root", root);
}

static void op_head (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds, void *arg)
{
	struct auditd *a = arg;
	const struct enc_trail_signed *last;
	char vkey[ENC_VKEY_TEXT_MAX];
	struct enc_json *out;

	(void)fds;
	(void)body;
	if (!auditd_allowed (a, req, AUDITD_APPEND | AUDITD_READ | AUDITD_COSIGN))
		return;
	last = enc_trail_signed (a->log);
	out = enc_json_object ();
	put_head (a, out);
	enc_json_set_str (out, "checkpoint", last->text);
	if (last->at != 0)
		enc_json_set_double (out, "age_s", (double)(enc_now () - last->at) / 1e9);
	else
		enc_json_set_null (out, "age_s");
	enc_json_set_u64 (out, "records", enc_trail_size (a->log));
	enc_json_set_bool (out, "full", enc_trail_is_full (a->log));
	enc_cosigned_gave (a->cosigned, &last->head);
	enc_cosigned_put (a->cosigned, out);
	enc_cosigned_alarm (a->cosigned, out);
	enc_vkey_format (enc_trail_vkey (a->log), vkey);
	enc_json_set_str (out, "vkey", vkey);
	enc_ipc_reply (req, out);
}

/* ---- search ---- */

struct search {
	char *op, *user, *enclave, *dataset, *node, *action, *outcome, *since, *until;
	uint64_t from, limit;
};
static const struct enc_field search_fields[] = { ENC_FIELD (struct search, op, "op", ENC_T_STR),
	ENC_FIELD (struct search, user, "user", ENC_T_STR, .max = 64),
	ENC_FIELD (struct search, enclave, "enclave", ENC_T_STR, .max = 64),
	ENC_FIELD (struct search, dataset, "dataset", ENC_T_STR, .max = 64),
	ENC_FIELD (struct search, node, "node", ENC_T_STR, .max = 64),
	ENC_FIELD (struct search, action, "action", ENC_T_STR, .max = 64),
	ENC_FIELD (struct search, outcome, "outcome", ENC_T_STR, .max = 16),
	ENC_FIELD (struct search, since, "since", ENC_T_STR, .max = 40),
	ENC_FIELD (struct search, until, "until", ENC_T_STR, .max = 40),
	ENC_FIELD (struct search, from, "from", ENC_T_U64, .max = (uint64_t)1 << 53),
	ENC_FIELD (struct search, limit, "limit", ENC_T_U64, .max = SEARCH_MAX, .dflt = "100"), ENC_FIELD_END };

/* A time, or a day: its first moment for `since`, its last for `until`. */
static int parse_when (const char *text, bool end, int64_t *ret_ms, struct enc_error *err)
{
	char day[ENC_TIME_SIZE];
	int64_t ns = 0;
	int rc;

	if (!text)
		return 0;
	(void)snprintf (day, sizeof (day), "%.10sT00:00:00Z", text);
	rc = end ? enc_date_parse (text, &ns, err) : enc_time_parse (strlen (text) == 10 ? day : text, &ns, err);
	*ret_ms = ns / ENC_NS_MS;
	return rc;
}

/* Texts of people stand beside the log; show them where they are still there. */
static void put_texts (struct auditd *a, struct enc_json *records)
{
	uint8_t salt[ENC_RECORD_SALT];

	for (size_t i = 0; i < enc_json_len (records); i++) {
		struct enc_json *row = enc_json_at (records, i);
		enc_auto_free char *text = NULL;

		if (enc_texts_get (a->texts, enc_json_get_u64 (row, "index", 0), &text, salt, NULL) == 0)
			enc_json_set_str (row, "text", text);
	}
}

static int search (struct auditd *a, const struct search *in, struct enc_json *out, struct enc_error *err)
{
	struct enc_index_query query = { .user = in->user,
		.enclave = in->enclave,
		.dataset = in->dataset,
		.node = in->node,
		.action = in->action,
		.outcome = in->outcome,
		.from = in->from,
		.limit = in->limit };
	struct enc_json *records;
	uint64_t matched = 0;
	int rc;

	if ((rc = parse_when (in->since, false, &query.since_ms, err)) < 0)
		return enc_error_pointer (err, rc, "/since");
	if ((rc = parse_when (in->until, true, &query.until_ms, err)) < 0)
		return enc_error_pointer (err, rc, "/until");
	put_head (a, out);
	enc_cosigned_put (a->cosigned, out);
	records = enc_json_set_array (out, "records");
	if ((rc = enc_index_search (a->index, &query, records, &matched, err)) < 0)
		return rc;
	if (in->enclave && (rc = enc_index_names (a->index, in->enclave, enc_json_set_array (out, "enclaves"), err)) < 0)
		return rc;
	put_texts (a, records);
	/* Records that came while it waited may be signed already and not looked at. */
	enc_json_set_u64 (out, "searched", enc_index_next (a->index));
	enc_json_set_u64 (out, "matched", matched);
	enc_json_set_bool (out, "complete", matched == enc_json_len (records));
	return 0;
}

struct auditd_search {
	struct auditd_search *next;
	struct enc_ipc_req *req;
	struct search in;
	uint64_t size; /* of the log when it was asked */
};

static void end_search (struct auditd *a, struct auditd_search *s, const struct enc_error *why)
{
	struct enc_json *out = enc_json_object ();
	struct enc_error err = { 0 };
	int rc = why ? -why->code : auditd_sign (a, &err);

	/* The answer names a signed head that covers all it shows. */
	if (rc == 0)
		rc = search (a, &s->in, out, &err);
	finish (s->req, rc, out, why ? why : &err);
	enc_fields_done (search_fields, &s->in);
	free (s);
	a->n_searches--;
}

void auditd_searches (struct auditd *a, const struct enc_error *err)
{
	struct auditd_search **at = &a->searches;

	while (*at) {
		struct auditd_search *s = *at;

		if (!err && enc_index_next (a->index) < s->size && !enc_trail_is_full (a->log)) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		end_search (a, s, err);
	}
}

/* Others' records are not kept waiting while the index catches up with a burst: the search waits. */
static int ask (struct auditd *a, struct auditd_search *s, struct enc_error *err)
{
	struct auditd_search **at = &a->searches;

	auditd_commit (a);
	if (!a->log)
		return enc_fail (err, ENC_EUNAVAIL, "the log is closed");
	if (a->n_searches == SEARCHES_MAX)
		return enc_fail (err, ENC_EBUSY, "too many searches wait for the side index");
	s->size = enc_trail_size (a->log);
	while (*at)
		at = &(*at)->next;
	*at = s;
	a->n_searches++;
	if (enc_index_next (a->index) + SEARCH_NOW >= s->size && !enc_trail_is_full (a->log) &&
		enc_index_update (a->index, s->size, SEARCH_NOW, err) < 0)
		enc_error_clear (err);
	auditd_searches (a, NULL);
	auditd_index_soon (a);
	return 0;
}

static void op_search (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds, void *arg)
{
	struct auditd *a = arg;
	struct auditd_search *s;
	struct enc_error err = { 0 };
	int rc;

	(void)fds;
	if (!auditd_allowed (a, req, AUDITD_READ))
		return;
	s = calloc (1, sizeof (*s));
	rc = s ? enc_json_decode (search_fields, body, &s->in, &err) : enc_fail (&err, ENC_ENOMEM, "out of memory");
	if (rc == 0) {
		s->req = req;
		rc = ask (a, s, &err);
	}
	if (rc == 0)
		return;
	fail (req, &err);
	if (s)
		enc_fields_done (search_fields, &s->in);
	free (s);
}

/* ---- the files themselves ---- */

static void add_file (struct auditd *a, struct enc_json *files, const char *name)
{
	struct enc_json *file;
	struct stat st;

	if (fstatat (enc_trail_dirfd (a->log), name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG (st.st_mode))
		return;
	file = enc_json_add_object (files);
	enc_json_set_str (file, "name", name);
	enc_json_set_u64 (file, "size", (uint64_t)st.st_size);
}

/* `cosigned` and `checkpoints` come first, and are to be copied first: the
 * segments then hold at least what they cover. */
static void op_files (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds, void *arg)
{
	struct auditd *a = arg;
	struct enc_segment_list list = { 0 };
	struct enc_error err = { 0 };
	struct enc_json *out, *files;
	char name[ENC_SEGMENT_NAME_SIZE];
	int rc;

	(void)fds;
	(void)body;
	if (!auditd_allowed (a, req, AUDITD_READ))
		return;
	auditd_flush (a);
	out = enc_json_object ();
	files = enc_json_set_array (out, "files");
	add_file (a, files, "cosigned");
	add_file (a, files, "checkpoints");
	rc = enc_segment_list_read (enc_trail_dirfd (a->log), &list, &err);
	for (size_t i = 0; rc == 0 && i < list.n; i++) {
		enc_segment_name (list.first[i], name);
		add_file (a, files, name);
	}
	enc_segment_list_done (&list);
	finish (req, rc, out, &err);
}

struct read_in {
	char *op, *file;
	uint64_t offset, length;
};
static const struct enc_field read_fields[] = { ENC_FIELD (struct read_in, op, "op", ENC_T_STR),
	ENC_FIELD (struct read_in, file, "file", ENC_T_STR, .flags = ENC_REQUIRED, .max = 64),
	ENC_FIELD (struct read_in, offset, "offset", ENC_T_U64, .max = (uint64_t)1 << 53),
	ENC_FIELD (struct read_in, length, "length", ENC_T_U64, .max = READ_MAX, .dflt = "262144"), ENC_FIELD_END };

/* Only what the log is made of can be named: no key, no side store. */
static bool file_ok (const char *name)
{
	uint64_t first;

	if (enc_segment_parse (name, &first) == 0 || strcmp (name, "checkpoints") == 0 ||
		strcmp (name, "cosigned") == 0 || strcmp (name, "checkpoint") == 0)
		return true;
	return strncmp (name, "tile/", 5) == 0 && strspn (name + 5, "0123456789x/.p") == strlen (name + 5) &&
	       !strstr (name, "..");
}

static int read_part (struct auditd *a, const struct read_in *in, struct enc_json *out, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf data = ENC_BUF_INIT (READ_MAX);
	enc_auto_free char *b64 = NULL;
	enc_auto_close int fd = -1;
	struct stat st;
	uint8_t *room;
	ssize_t n = 0;

	if (!file_ok (in->file))
		return enc_error_pointer (err, enc_fail (err, ENC_ENOTFOUND, "no such file of the log"), "/file");
	fd = enc_open_beneath (enc_trail_dirfd (a->log), in->file, O_RDONLY | O_NONBLOCK, 0, err);
	if (fd < 0)
		return fd;
	if (fstat (fd, &st) < 0 || !S_ISREG (st.st_mode))
		return enc_fail (err, ENC_ENOTFOUND, "no such file of the log");
	room = enc_buf_grow (&data, in->length);
	if (in->length > 0 && (!room || (n = pread (fd, room, in->length, (off_t)in->offset)) < 0))
		return enc_fail_sys (err, "cannot read %s", in->file);
	b64 = enc_base64 (data.data, (size_t)n);
	enc_json_set_str (out, "data", b64);
	enc_json_set_u64 (out, "size", (uint64_t)st.st_size);
	return b64 ? 0 : enc_fail (err, ENC_ENOMEM, "out of memory");
}

static void op_read (struct enc_ipc_req *req, const struct enc_json *body, struct enc_fds *fds, void *arg)
{
	struct auditd *a = arg;
	struct read_in in = { 0 };
	struct enc_error err = { 0 };
	struct enc_json *out;
	int rc;

	(void)fds;
	if (!auditd_allowed (a, req, AUDITD_READ))
		return;
	out = enc_json_object ();
	rc = enc_json_decode (read_fields, body, &in, &err);
	if (rc == 0)
		rc = read_part (a, &in, out, &err);
	finish (req, rc, out, &err);
	enc_fields_done (read_fields, &in);
}

const struct enc_ipc_op auditd_ops[] = { { "append", op_append, 0 }, { "receipt", op_receipt, 0 },
	{ "head", op_head, 0 }, { "search", op_search, 0 }, { "text", op_text, 0 }, { "files", op_files, 0 },
	{ "read", op_read, 0 }, { "consistency", auditd_op_grown, 0 }, { "cosign", auditd_op_cosign, 0 },
	{ "witness", auditd_op_witness, 0 }, { NULL, NULL, 0 } };
