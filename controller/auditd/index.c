#include "controller/auditd/index.h"

#include "controller/auditd/sql.h"

#include "base/buf.h"
#include "base/enctime.h"
#include "base/str.h"
#include "crypto/event.h"
#include "crypto/tlog/segment.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/enc.h"

#define LAYOUT "2"

struct enc_index {
	sqlite3 *db;
	sqlite3_stmt *add;
	sqlite3_stmt *find;
	sqlite3_stmt *name; /* adds to `names` */
	char named[2][64];  /* the pair added last: most records follow one like them */
	int log_fd;
	struct enc_segment *reader; /* at `offset` of `segment`; NULL: to be opened */
	uint64_t next;	  /* index of the next record to take in */
	uint64_t segment; /* where it lies, or will lie */
	uint64_t offset;
};

/* Columns of a record: where its value stands in the body. */
static const struct {
	const char *pointer;
	const char *or_else; /* taken when the first is absent */
} columns[] = {
	{ "/class", NULL },
	{ "/action", NULL },
	{ "/outcome", NULL },
	{ "/actor/user", NULL },
	{ "/obj/user", NULL },
	{ "/actor/role", NULL },
	{ "/actor/mfa", NULL },
	{ "/actor/session", NULL },
	{ "/peer/ip", NULL },
	{ "/obj/enclave", NULL },
	{ "/obj/enclave_id", "/head/enclave" },
	{ "/obj/dataset", NULL },
	{ "/obj/job", NULL },
	{ "/obj/node", "/head/node" },
	{ "/obj/name", "/obj/volume" },
};

static const char layout_sql[] =
	"CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
	"CREATE TABLE IF NOT EXISTS rec (idx INTEGER PRIMARY KEY, seg INTEGER, at INTEGER, ms INTEGER, class TEXT, "
	"action TEXT, "
	"outcome TEXT, user TEXT, target TEXT, role TEXT, mfa INTEGER, session TEXT, ip TEXT, enclave TEXT, enclave_id "
	"TEXT, "
	"dataset TEXT, job TEXT, node TEXT, object TEXT);"
	"CREATE INDEX IF NOT EXISTS by_user ON rec (user) WHERE user IS NOT NULL;"
	"CREATE INDEX IF NOT EXISTS by_target ON rec (target) WHERE target IS NOT NULL;"
	"CREATE INDEX IF NOT EXISTS by_enclave ON rec (enclave) WHERE enclave IS NOT NULL;"
	"CREATE INDEX IF NOT EXISTS by_enclave_id ON rec (enclave_id) WHERE enclave_id IS NOT NULL;"
	"CREATE INDEX IF NOT EXISTS by_dataset ON rec (dataset) WHERE dataset IS NOT NULL;"
	"CREATE INDEX IF NOT EXISTS by_node ON rec (node) WHERE node IS NOT NULL;"
	"CREATE INDEX IF NOT EXISTS by_job ON rec (job, enclave_id) WHERE job IS NOT NULL;"
	"CREATE INDEX IF NOT EXISTS by_clean ON rec (node, enclave_id) WHERE class = 'node' AND action IN ('clean', 'return');"
	"CREATE INDEX IF NOT EXISTS by_ms ON rec (ms);"
	/* Names are used again, ids never: which id had which name, and since which record. */
	"CREATE TABLE IF NOT EXISTS names (enclave TEXT NOT NULL, enclave_id TEXT NOT NULL, first INTEGER, "
	"PRIMARY KEY (enclave, enclave_id)) WITHOUT ROWID;"
	"CREATE INDEX IF NOT EXISTS by_id ON names (enclave_id);";

/* ---- state ---- */

static uint64_t meta_u64 (sqlite3 *db, const char *key, uint64_t fallback)
{
	char sql[128];
	sqlite3_stmt *stmt = NULL;
	uint64_t value = fallback;

	(void)snprintf (sql, sizeof (sql), "SELECT value FROM meta WHERE key = '%s'", key);
	if (sqlite3_prepare_v2 (db, sql, -1, &stmt, NULL) == SQLITE_OK && sqlite3_step (stmt) == SQLITE_ROW)
		value = (uint64_t)sqlite3_column_int64 (stmt, 0);
	(void)sqlite3_finalize (stmt);
	return value;
}

static int meta_is (sqlite3 *db, const char *key, const char *value)
{
	char sql[512];
	sqlite3_stmt *stmt = NULL;
	int same = 0;

	(void)snprintf (sql, sizeof (sql), "SELECT 1 FROM meta WHERE key = '%s' AND value = '%s'", key, value);
	if (sqlite3_prepare_v2 (db, sql, -1, &stmt, NULL) == SQLITE_OK)
		same = sqlite3_step (stmt) == SQLITE_ROW;
	(void)sqlite3_finalize (stmt);
	return same;
}

static int meta_store (struct enc_index *index, struct enc_error *err)
{
	char sql[512];

	(void)snprintf (sql, sizeof (sql),
		"INSERT OR REPLACE INTO meta VALUES ('next', '%llu'), ('segment', '%llu'), ('offset', '%llu')",
		(unsigned long long)index->next, (unsigned long long)index->segment, (unsigned long long)index->offset);
	return enc_sql_exec (index->db, sql, err);
}

static int begin_anew (struct enc_index *index, const char *origin, struct enc_error *err)
{
	char sql[512];
	int rc = enc_sql_exec (index->db, "DROP TABLE IF EXISTS rec; DROP TABLE IF EXISTS names; DROP TABLE IF EXISTS meta", err);

	if (rc == 0)
		rc = enc_sql_exec (index->db, layout_sql, err);
	/* An origin is a key name: no quotes or blanks in it. */
	(void)snprintf (
		sql, sizeof (sql), "INSERT INTO meta VALUES ('layout', '" LAYOUT "'), ('origin', '%s')", origin);
	return rc < 0 ? rc : enc_sql_exec (index->db, sql, err);
}

static int open_db (
	struct enc_index *index, const char *state, const char *origin, uint64_t size, struct enc_error *err)
{
	int rc = enc_sql_open (state, "index.db", 0, &index->db, err);

	if (rc < 0)
		return rc;
	index->next = meta_u64 (index->db, "next", 0);
	index->segment = meta_u64 (index->db, "segment", 0);
	index->offset = meta_u64 (index->db, "offset", 0);
	if (!meta_is (index->db, "layout", LAYOUT) || !meta_is (index->db, "origin", origin) || index->next > size) {
		index->next = index->segment = index->offset = 0;
		if ((rc = begin_anew (index, origin, err)) < 0)
			return rc;
	}
	rc = enc_sql_prepare (index->db, "INSERT OR REPLACE INTO rec VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
		&index->add, err);
	if (rc == 0)
		rc = enc_sql_prepare (index->db, "SELECT seg, at FROM rec WHERE idx = ?", &index->find, err);
	if (rc == 0)
		rc = enc_sql_prepare (index->db, "INSERT OR IGNORE INTO names VALUES (?,?,?)", &index->name, err);
	return rc;
}

struct enc_index *enc_index_open (
	const char *state, int log_fd, const char *origin, uint64_t size, struct enc_error *err)
{
	static const char *const files[] = { "index.db", "index.db-wal", "index.db-shm" };

	/* A second try with nothing there: the index may be damaged, and nothing is lost with it. */
	for (int try = 0; try < 2; try++) {
		enc_auto (enc_index) struct enc_index *index = calloc (1, sizeof (*index));
		char path[4096];

		if (!index) {
			(void)enc_fail (err, ENC_ENOMEM, "out of memory");
			return NULL;
		}
		index->log_fd = log_fd;
		if (open_db (index, state, origin, size, err) == 0)
			return ENC_TAKE (index);
		for (size_t i = 0; i < ENC_ARRAY_LEN (files); i++)
			if (snprintf (path, sizeof (path), "%s/%s", state, files[i]) < (int)sizeof (path))
				(void)unlink (path);
	}
	return NULL;
}

static void close_reader (struct enc_index *index)
{
	enc_segment_free (ENC_TAKE (index->reader));
}

void enc_index_free (struct enc_index *index)
{
	if (!index)
		return;
	close_reader (index);
	(void)sqlite3_finalize (index->add);
	(void)sqlite3_finalize (index->find);
	(void)sqlite3_finalize (index->name);
	(void)sqlite3_close (index->db);
	free (index);
}

uint64_t enc_index_next (const struct enc_index *index)
{
	return index->next;
}

/* ---- taking in ---- */

static void bind_column (sqlite3_stmt *stmt, int at, const struct enc_json *value)
{
	const char *s = enc_json_str (value);
	enum enc_json_type type = enc_json_type (value);

	if (s)
		(void)sqlite3_bind_text (stmt, at, s, -1, SQLITE_TRANSIENT);
	else if (type == ENC_JSON_BOOL)
		(void)sqlite3_bind_int (stmt, at, enc_json_bool (value));
	else
		(void)sqlite3_bind_null (stmt, at);
}

static int add_name (struct enc_index *index, const struct enc_json *body, uint64_t idx, struct enc_error *err)
{
	const char *name = enc_json_str (enc_json_find (body, "/obj/enclave"));
	const char *id = enc_json_str (enc_json_find (body, "/obj/enclave_id"));

	if (!name || !id || (strcmp (name, index->named[0]) == 0 && strcmp (id, index->named[1]) == 0))
		return 0;
	(void)snprintf (index->named[0], sizeof (index->named[0]), "%s", name);
	(void)snprintf (index->named[1], sizeof (index->named[1]), "%s", id);
	(void)sqlite3_bind_text (index->name, 1, name, -1, SQLITE_TRANSIENT);
	(void)sqlite3_bind_text (index->name, 2, id, -1, SQLITE_TRANSIENT);
	(void)sqlite3_bind_int64 (index->name, 3, (sqlite3_int64)idx);
	return enc_sql_run (index->db, index->name, err);
}

static int add_record (struct enc_index *index, const struct enc_frame *frame, uint64_t offset, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *body =
		enc_json_parse ((const char *)frame->body, frame->len, ENC_FRAME_BODY_MAX, err);
	int64_t when = 0;
	int rc;

	if (!body)
		return -ENC_EINTEGRITY;
	if ((rc = add_name (index, body, frame->index, err)) < 0)
		return rc;
	if (enc_time_parse (enc_json_get_str (body, "ts", ""), &when, NULL) < 0)
		when = 0;
	(void)sqlite3_bind_int64 (index->add, 1, (sqlite3_int64)frame->index);
	(void)sqlite3_bind_int64 (index->add, 2, (sqlite3_int64)index->segment);
	(void)sqlite3_bind_int64 (index->add, 3, (sqlite3_int64)offset);
	(void)sqlite3_bind_int64 (index->add, 4, when / ENC_NS_MS);
	for (size_t i = 0; i < ENC_ARRAY_LEN (columns); i++) {
		const struct enc_json *value = enc_json_find (body, columns[i].pointer);

		if (!value && columns[i].or_else)
			value = enc_json_find (body, columns[i].or_else);
		bind_column (index->add, (int)i + 5, value);
	}
	return enc_sql_run (index->db, index->add, err);
}

/* Take records from the reader. Returns how many; `ret_end`: there are no more in it. */
static ssize_t take_frames (struct enc_index *index, uint64_t size, uint64_t max, int *ret_end, struct enc_error *err)
{
	enum enc_read_state state = ENC_READ_GOOD;
	struct enc_frame frame;
	uint64_t offset;
	ssize_t n = 0;
	int rc = 0;

	while (rc == 0 && index->next < size && (uint64_t)n < max &&
		(state = enc_segment_next (index->reader, &frame, &offset)) == ENC_READ_GOOD) {
		if (frame.index != index->next)
			rc = enc_fail (
				err, ENC_EINTEGRITY, "record %llu is out of place", (unsigned long long)frame.index);
		else
			rc = add_record (index, &frame, offset, err);
		if (rc == 0) {
			index->next++;
			index->offset = offset + frame.size;
			n++;
		}
	}
	*ret_end = state != ENC_READ_GOOD;
	return rc < 0 ? rc : n;
}

/* From where we stand to the end of that segment. Returns how many records; 0 only at its end. */
static ssize_t take_segment (struct enc_index *index, uint64_t size, uint64_t max, struct enc_error *err)
{
	int kept, end = 0;
	ssize_t n;

	/* A reader that was kept may have seen an end that was written behind meanwhile: only a fresh one is believed. */
	do {
		kept = index->reader != NULL;
		if (!kept && !(index->reader = enc_segment_open (index->log_fd, index->segment, index->offset, err)))
			return -ENC_ESYS;
		n = take_frames (index, size, max, &end, err);
		if (n < 0 || end || index->next >= size)
			close_reader (index);
	} while (n == 0 && end && kept);
	return n;
}

ssize_t enc_index_update (struct enc_index *index, uint64_t size, uint64_t max, struct enc_error *err)
{
	ssize_t done = 0, n = 0;
	int rc;

	if (index->next >= size)
		return 0;
	if ((rc = enc_sql_exec (index->db, "BEGIN", err)) < 0)
		return rc;
	while (index->next < size && (uint64_t)done < max) {
		n = take_segment (index, size, max - (uint64_t)done, err);
		if (n == 0 && index->offset > 0) {
			/* The end of a segment: the next one is named after the record it begins with. */
			close_reader (index);
			index->segment = index->next;
			index->offset = 0;
			continue;
		}
		if (n <= 0)
			break;
		done += n;
	}
	if ((rc = meta_store (index, err)) < 0 || (rc = enc_sql_exec (index->db, "COMMIT", err)) < 0)
		return rc;
	return done > 0 ? done : n;
}

/* A record that is not indexed yet lies behind the last one that is. Reading on is much faster than taking in all that is between. */
static int body_ahead (struct enc_index *index, uint64_t idx, struct enc_buf *ret, struct enc_error *err)
{
	uint64_t segment = index->segment, start = index->offset, next = index->next, offset;
	struct enc_frame frame;

	for (;;) {
		struct enc_segment *reader = enc_segment_open (index->log_fd, segment, start, err);

		if (!reader)
			return -ENC_ESYS;
		while (enc_segment_next (reader, &frame, &offset) == ENC_READ_GOOD && frame.index == next) {
			next++;
			if (frame.index == idx) {
				enc_buf_put (ret, frame.body, frame.len);
				enc_segment_free (reader);
				return enc_buf_check (ret, err);
			}
		}
		enc_segment_free (reader);
		if (next == segment)
			return enc_fail (err, ENC_ENOTFOUND, "no record %llu", (unsigned long long)idx);
		segment = next;
		start = 0;
	}
}

int enc_index_body (struct enc_index *index, uint64_t idx, struct enc_buf *ret, struct enc_error *err)
{
	struct enc_segment *segment;
	struct enc_frame frame;
	uint64_t first = 0, at = 0, offset;
	int found, rc = 0;

	if (idx >= index->next)
		return body_ahead (index, idx, ret, err);
	(void)sqlite3_bind_int64 (index->find, 1, (sqlite3_int64)idx);
	found = sqlite3_step (index->find) == SQLITE_ROW;
	if (found) {
		first = (uint64_t)sqlite3_column_int64 (index->find, 0);
		at = (uint64_t)sqlite3_column_int64 (index->find, 1);
	}
	(void)sqlite3_reset (index->find);
	if (!found)
		return enc_fail (err, ENC_ENOTFOUND, "no record %llu", (unsigned long long)idx);
	segment = enc_segment_open (index->log_fd, first, at, err);
	if (!segment)
		return -ENC_ESYS;
	if (enc_segment_next (segment, &frame, &offset) != ENC_READ_GOOD || frame.index != idx)
		rc = enc_fail (err, ENC_EINTEGRITY, "record %llu is not where it was", (unsigned long long)idx);
	else
		enc_buf_put (ret, frame.body, frame.len);
	enc_segment_free (segment);
	return rc < 0 ? rc : enc_buf_check (ret, err);
}

/* ---- searching ---- */

#define WHERE_MAX 2048

/* What a user did and what was done to him; every record of his jobs; and what was said of the nodes that they ran on: cleaned, and
 * given back. Both only within the same enclave: job numbers and nodes are used again. */
#define HIS_JOBS "(SELECT DISTINCT job, enclave_id FROM rec WHERE user = @user AND job IS NOT NULL)"
#define OF_USER                                                                                                        \
	"idx IN (SELECT idx FROM rec WHERE user = @user UNION ALL SELECT idx FROM rec WHERE target = @user UNION ALL "  \
	"SELECT r.idx FROM " HIS_JOBS " AS j CROSS JOIN rec AS r ON r.job = j.job AND r.enclave_id = j.enclave_id "     \
	"UNION ALL SELECT c.idx FROM (SELECT DISTINCT r.node, r.enclave_id FROM " HIS_JOBS " AS j CROSS JOIN rec AS r " \
	"ON r.job = j.job AND r.enclave_id = j.enclave_id WHERE r.node IS NOT NULL) AS n CROSS JOIN rec AS c ON "       \
	"c.node = n.node AND c.enclave_id = n.enclave_id WHERE c.class = 'node' AND c.action IN ('clean', 'return'))"

static void add_clause (char where[WHERE_MAX], const void *wanted, const char *clause)
{
	size_t used = strlen (where);

	if (wanted)
		(void)snprintf (where + used, WHERE_MAX - used, " AND %s", clause);
}

static void bind_text (sqlite3_stmt *stmt, const char *name, const char *value)
{
	int at = sqlite3_bind_parameter_index (stmt, name);

	if (at > 0 && value)
		(void)sqlite3_bind_text (stmt, at, value, -1, SQLITE_TRANSIENT);
}

static void bind_int (sqlite3_stmt *stmt, const char *name, int64_t value)
{
	int at = sqlite3_bind_parameter_index (stmt, name);

	if (at > 0)
		(void)sqlite3_bind_int64 (stmt, at, value);
}

static sqlite3_stmt *compile (struct enc_index *index, const struct enc_index_query *q, const char *select,
	const char *tail, struct enc_error *err)
{
	char where[WHERE_MAX] = "idx >= @from";
	char sql[WHERE_MAX + 512];
	sqlite3_stmt *stmt = NULL;

	add_clause (where, q->user, OF_USER);
	add_clause (where, q->enclave,
		"(enclave = @enclave OR enclave_id = @enclave OR enclave_id IN (SELECT enclave_id FROM names WHERE "
		"enclave = @enclave))");
	add_clause (where, q->dataset, "dataset = @dataset");
	add_clause (where, q->node, "node = @node");
	add_clause (where, q->action, "(class = @action OR action = @action OR class || '.' || action = @action)");
	add_clause (where, q->outcome, "outcome = @outcome");
	add_clause (where, q->since_ms ? q : NULL, "ms >= @since");
	add_clause (where, q->until_ms ? q : NULL, "ms <= @until");
	(void)snprintf (sql, sizeof (sql), "%s WHERE %s %s", select, where, tail);
	if (enc_sql_prepare (index->db, sql, &stmt, err) < 0)
		return NULL;
	bind_int (stmt, "@from", (int64_t)q->from);
	bind_int (stmt, "@limit", (int64_t)q->limit);
	bind_int (stmt, "@since", q->since_ms);
	bind_int (stmt, "@until", q->until_ms);
	bind_text (stmt, "@user", q->user);
	bind_text (stmt, "@enclave", q->enclave);
	bind_text (stmt, "@dataset", q->dataset);
	bind_text (stmt, "@node", q->node);
	bind_text (stmt, "@action", q->action);
	bind_text (stmt, "@outcome", q->outcome);
	return stmt;
}

static void add_row (struct enc_json *records, sqlite3_stmt *stmt)
{
	static const char *const names[] = { "class", "action", "outcome", "user", "role", "mfa", "session", "ip",
		"enclave", "dataset", "job", "node", "object", "target", "enclave_id" };
	struct enc_json *row = enc_json_add_object (records);
	const struct enc_event *event;

	enc_json_set_i64 (row, "index", sqlite3_column_int64 (stmt, 0));
	enc_json_set_time (row, "time", sqlite3_column_int64 (stmt, 1) * ENC_NS_MS);
	for (size_t i = 0; i < ENC_ARRAY_LEN (names); i++) {
		int at = (int)i + 2;

		if (sqlite3_column_type (stmt, at) == SQLITE_INTEGER)
			enc_json_set_bool (row, names[i], sqlite3_column_int (stmt, at) != 0);
		else
			enc_json_set_str (row, names[i], (const char *)sqlite3_column_text (stmt, at));
	}
	event = enc_event_find (enc_json_get_str (row, "class", NULL), enc_json_get_str (row, "action", NULL));
	enc_json_set_str (row, "text", event ? event->text : NULL);
}

int enc_index_search (struct enc_index *index, const struct enc_index_query *query, struct enc_json *records,
	uint64_t *ret_matched, struct enc_error *err)
{
	sqlite3_stmt *stmt = compile (index, query, "SELECT count(*) FROM rec", "", err);
	int step;

	if (!stmt)
		return -ENC_EUNAVAIL;
	if (sqlite3_step (stmt) == SQLITE_ROW)
		*ret_matched = (uint64_t)sqlite3_column_int64 (stmt, 0);
	(void)sqlite3_finalize (stmt);
	stmt = compile (index, query,
		"SELECT idx, ms, class, action, outcome, user, role, mfa, session, ip, coalesce (enclave, (SELECT n.enclave "
		"FROM names AS n WHERE n.enclave_id = rec.enclave_id LIMIT 1)), dataset, job, node, object, target, enclave_id "
		"FROM rec",
		"ORDER BY idx LIMIT @limit", err);
	if (!stmt)
		return -ENC_EUNAVAIL;
	while ((step = sqlite3_step (stmt)) == SQLITE_ROW)
		add_row (records, stmt);
	(void)sqlite3_finalize (stmt);
	return step == SQLITE_DONE ? 0 : enc_sql_fail (index->db, "search", err);
}

int enc_index_names (struct enc_index *index, const char *enclave, struct enc_json *names, struct enc_error *err)
{
	sqlite3_stmt *stmt = NULL;
	int step, rc = enc_sql_prepare (index->db,
			  "SELECT enclave, enclave_id, first FROM names WHERE enclave = @enclave OR enclave_id = @enclave ORDER BY "
			  "first", &stmt, err);

	if (rc < 0)
		return rc;
	bind_text (stmt, "@enclave", enclave);
	while ((step = sqlite3_step (stmt)) == SQLITE_ROW) {
		struct enc_json *row = enc_json_add_object (names);

		enc_json_set_str (row, "name", (const char *)sqlite3_column_text (stmt, 0));
		enc_json_set_str (row, "id", (const char *)sqlite3_column_text (stmt, 1));
		enc_json_set_i64 (row, "first", sqlite3_column_int64 (stmt, 2));
	}
	(void)sqlite3_finalize (stmt);
	return step == SQLITE_DONE ? 0 : enc_sql_fail (index->db, "search", err);
}
