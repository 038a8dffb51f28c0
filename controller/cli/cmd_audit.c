/* The auditor's commands. `audit verify` trusts neither the controller nor the vault: it fetches the raw files and checks them here, with the
 * log's key from this machine. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/file.h"
#include "base/str.h"
#include "controller/cli/command.h"
#include "controller/cli/csv.h"
#include "crypto/receipt.h"
#include "crypto/tlog/verify.h"
#include "base/enc.h"

#define LOG_VKEY "/etc/enclave/log.vkey"
#define WITNESSES "/etc/enclave/witnesses"

enum { CHUNK = 256 * 1024, PROOF_MAX = 128 * 1024, TAIL_MAX_S = 10, WITNESS_MAX_S = 3600, TAIL_PAUSE_MS = 500 };

int enc_cli_vkey (const struct enc_json *args, struct enc_vkey *ret, struct enc_error *err)
{
	const char *path = enc_json_get_str (args, "vkey", LOG_VKEY);
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (4096);
	int rc = enc_file_read (path, 4096, &text, err);
	if (rc == 0)
		rc = enc_vkey_parse ((const char *) text.data, text.len, ret, err);
	return rc < 0 ? enc_error_next (err, rc, "copy the log's key from the vault by hand, or name it with --vkey FILE") : 0;
}

/* The witnesses that this machine asks for: the file of --policy, or the site's. NULL with an empty error: none. */
static struct enc_tlog_policy *policy_load (const struct enc_json *args, struct enc_error *err)
{
	const char *path = enc_json_get_str (args, "policy", NULL);
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (ENC_POLICY_MAX);
	int rc = enc_file_read (path ? path : WITNESSES, ENC_POLICY_MAX, &text, err);
	if (rc == -ENC_ENOTFOUND && !path)
		enc_error_clear (err);
	return rc < 0 ? NULL : enc_tlog_policy_parse ((const char *) text.data, text.len, err);
}

/* ---- verify ---- */

static int fetch_file (const struct enc_session *s, int dir, const char *name, uint64_t size, struct enc_error *err)
{
	enc_auto_close int fd = openat (dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return enc_fail_sys (err, "cannot keep a copy of %s", name);
	for (uint64_t offset = 0; offset < size;) {
		enc_auto (enc_json) struct enc_json *answer = NULL;
		enc_auto_done (enc_buf_done) struct enc_buf data = ENC_BUF_INIT (CHUNK);
		int rc = enc_session_get (s, &answer, err, "/v1/audit/read?file=%s&offset=%llu&length=%d", name, (unsigned long long) offset, CHUNK);
		const char *text = enc_json_get_str (answer, "data", "");
		if (rc == 0)
			rc = enc_get_base64 (text, strlen (text), &data, err);
		if (rc == 0 && data.len == 0)
			rc = enc_fail (err, ENC_EINTEGRITY, "%s is shorter than the log says", name);
		if (rc == 0)
			rc = enc_write_all (fd, data.data, data.len, err);
		if (rc < 0)
			return rc;
		offset += data.len;
	}
	return 0;
}

static bool file_name_ok (const char *name)
{
	return name && name[0] != '.' && strlen (name) < 64 && strspn (name, "abcdefghijklmnopqrstuvwxyz0123456789-._") == strlen (name);
}

/* A consistent copy: sizes are taken first, what is appended meanwhile is left for the next time. */
static int fetch_log (const struct enc_session *s, const struct enc_json *files, const char *folder, struct enc_error *err)
{
	enc_auto_close int dir = open (folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = dir < 0 ? enc_fail_sys (err, "cannot open %s", folder) : 0;
	for (size_t i = 0; rc == 0 && i < enc_json_len (files); i++) {
		const char *name = enc_json_get_str (enc_json_at (files, i), "name", NULL);
		if (!file_name_ok (name))
			return enc_fail (err, ENC_EINTEGRITY, "the log lists a file with an impossible name");
		rc = fetch_file (s, dir, name, enc_json_get_u64 (enc_json_at (files, i), "size", 0), err);
	}
	return rc;
}

static int remove_entry (const char *path, const struct stat *st ENC_UNUSED, int type ENC_UNUSED, struct FTW *at ENC_UNUSED)
{
	return remove (path);
}

int enc_cmd_audit_verify (const struct enc_session *s, const struct enc_command *c ENC_UNUSED, const struct enc_json *args,
			  struct enc_json **ret, struct enc_error *err)
{
	struct enc_vkey vkey;
	struct enc_verify_report report;
	enc_auto (enc_tlog_policy) struct enc_tlog_policy *policy = policy_load (args, err);
	enc_auto (enc_json) struct enc_json *list = NULL;
	char folder[] = "/tmp/enclave-verify-XXXXXX", text[ENC_VERIFY_JSON_MAX];
	int rc = err->code ? -err->code : enc_cli_vkey (args, &vkey, err);
	if (rc < 0 || (rc = enc_session_get (s, &list, err, "/v1/audit/files")) < 0)
		return rc;
	if (!mkdtemp (folder))
		return enc_fail_sys (err, "cannot make a folder for a copy of the log");
	rc = fetch_log (s, enc_json_get (list, "files"), folder, err);
	struct enc_verify_conf conf = { .folder = folder, .vkey = &vkey, .policy = policy,
		.witness_max_s = enc_json_get_u64 (args, "witness_age", WITNESS_MAX_S), .tail_max_s = TAIL_MAX_S, .now = enc_now () };
	if (rc == 0)
		enc_logverify (&conf, &report);
	(void) nftw (folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	if (rc < 0)
		return rc;
	enc_verify_json (&conf, &report, text);
	*ret = enc_json_parse (text, strlen (text), sizeof text, err);
	if (!*ret)
		return -ENC_EFAILED;
	switch (enc_verify_result_exit (report.result)) {
	case ENC_OK:
		return 0;
	case ENC_EUNAVAIL:
		return enc_fail (err, ENC_EUNAVAIL, "the log could not be read");
	default:
		return enc_fail (err, ENC_EINTEGRITY, "the log is %s", enc_verify_result_name (report.result));
	}
}

int enc_view_verify (const struct enc_session *s, const struct enc_json *answer, struct enc_error *err ENC_UNUSED)
{
	const char *result = enc_json_get_str (answer, "result", "?");
	const struct enc_json *bad = enc_json_get (answer, "first_bad");
	bool good = strcmp (result, "complete") == 0;
	if (good)
		(void) printf ("%sComplete and unaltered%s: %lld records, %lld checkpoints, newest %lld s old. Root %s\n",
			       enc_colour_on (s, ENC_COLOUR_GOOD), enc_colour_off (s), (long long) enc_json_get_i64 (answer, "size", 0),
			       (long long) enc_json_get_i64 (answer, "checkpoints", 0), (long long) enc_json_get_i64 (answer, "newest_s", 0),
			       enc_json_get_str (answer, "root", "?"));
	if (good && enc_json_get_i64 (enc_json_get (answer, "witnesses"), "required", 0) == 0)
		(void) printf ("No witness was asked: keep the head, and see that the next one continues it (enclavectl audit consistency)\n");
	else if (good)
		(void) printf ("%lld records cosigned by %lld witnesses, %lld s ago\n", (long long) enc_json_get_i64 (enc_json_get (answer, "witnesses"), "size", 0),
			       (long long) enc_json_get_i64 (enc_json_get (answer, "witnesses"), "cosigned", 0),
			       (long long) enc_json_get_i64 (enc_json_get (answer, "witnesses"), "age_s", 0));
	else
		(void) printf ("%sNOT in order: %s%s; first at record %lld (%s, byte %lld): %s\n", enc_colour_on (s, ENC_COLOUR_BAD), result,
			       enc_colour_off (s), (long long) enc_json_get_i64 (bad, "index", -1), enc_json_get_str (bad, "file", "?"),
			       (long long) enc_json_get_i64 (bad, "offset", -1), enc_json_get_str (bad, "why", "?"));
	return 0;
}

/* ---- proofs ---- */

int enc_cmd_audit_proof (const struct enc_session *s ENC_UNUSED, const struct enc_command *c ENC_UNUSED, const struct enc_json *args,
			 struct enc_json **ret, struct enc_error *err)
{
	struct enc_vkey vkey;
	struct enc_receipt receipt;
	enc_auto_done (enc_buf_done) struct enc_buf proof = ENC_BUF_INIT (PROOF_MAX), record = ENC_BUF_INIT (PROOF_MAX);
	int rc = enc_cli_vkey (args, &vkey, err);
	if (rc < 0 || (rc = enc_file_read (enc_json_get_str (args, "proof", ""), PROOF_MAX, &proof, err)) < 0 ||
	    (rc = enc_file_read (enc_json_get_str (args, "record", ""), PROOF_MAX, &record, err)) < 0)
		return rc;
	while (record.len && record.data[record.len - 1] == '\n')
		record.len--;
	rc = enc_receipt_check ((const char *) proof.data, proof.len, (const char *) record.data, record.len, &vkey, &receipt, err);
	if (rc < 0)
		return rc;
	*ret = enc_json_object ();
	enc_json_set_str (*ret, "result", "complete");
	enc_json_set_u64 (*ret, "index", receipt.index);
	enc_json_set_u64 (*ret, "size", receipt.head.size);
	return 0;
}

/* ---- search, tail, export ---- */

static const struct enc_column record_columns[] = {
	{ "TIME (UTC)", "/time", ENC_COLUMN_TEXT },  { "WHO", "/user", ENC_COLUMN_TEXT },       { "CLASS", "/class", ENC_COLUMN_TEXT },
	{ "WHAT", "/action", ENC_COLUMN_TEXT },      { "OBJECT", "/object", ENC_COLUMN_TEXT }, { "WHOM", "/target", ENC_COLUMN_TEXT },  { "ENCLAVE", "/enclave", ENC_COLUMN_TEXT },
	{ "NODE", "/node", ENC_COLUMN_TEXT },        { "OUTCOME", "/outcome", ENC_COLUMN_TEXT }, { "RECORD", "/index", ENC_COLUMN_TEXT },
	{ .kind = ENC_COLUMN_END },
};

int enc_view_search (const struct enc_session *s ENC_UNUSED, const struct enc_json *answer, struct enc_error *err)
{
	int rc = enc_table_print (record_columns, enc_json_get (answer, "records"), err);
	if (rc == 0)
		(void) printf ("%zu of %lld records%s. Log of %lld, root %s\n", enc_json_len (enc_json_get (answer, "records")),
			       (long long) enc_json_get_i64 (answer, "matched", 0), enc_json_get_bool (answer, "complete", false) ? "" : " (more follow)",
			       (long long) enc_json_get_i64 (answer, "size", 0), enc_json_get_str (answer, "root", "?"));
	return rc;
}

static int lines_print (const struct enc_json *records, struct enc_error *err)
{
	for (size_t i = 0; i < enc_json_len (records); i++) {
		enc_auto_free char *text = enc_json_write (enc_json_at (records, i), NULL, err);
		if (!text)
			return -ENC_EFAILED;
		(void) printf ("%s\n", text);
	}
	return 0;
}

enum { CSV_LINE_MAX = 64 * 1024 };

static int csv_print (const struct enc_json *records, struct enc_error *err)
{
	for (size_t i = 0; i < enc_json_len (records); i++) {
		enc_auto_done (enc_buf_done) struct enc_buf line = ENC_BUF_INIT (CSV_LINE_MAX);
		enc_csv_record (&line, enc_json_at (records, i));
		int rc = enc_buf_check (&line, err);
		if (rc < 0)
			return rc;
		(void) fwrite (line.data, 1, line.len, stdout);
	}
	return 0;
}

static int page_print (const struct enc_session *s, const struct enc_command *c, bool csv, const struct enc_json *records, struct enc_error *err)
{
	if (csv)
		return csv_print (records, err);
	if (s->json || strcmp (c->sub, "export") == 0)
		return lines_print (records, err);
	return enc_json_len (records) ? enc_table_print (record_columns, records, err) : 0;
}

/* Page through all that match from `from`; `next` is set behind the last record seen. It ends with the log as the first answer found it: each
 * page read is a record too, and whoever followed his own would never end. */
static int pages (const struct enc_session *s, const struct enc_command *c, bool csv, struct enc_json *filter, uint64_t *next, struct enc_error *err)
{
	uint64_t end = UINT64_MAX;
	for (;;) {
		enc_auto (enc_json) struct enc_json *answer = NULL;
		enc_json_set_u64 (filter, "from", *next);
		int rc = enc_command_call (s, c, filter, &answer, err);
		const struct enc_json *records = enc_json_get (answer, "records");
		size_t n = enc_json_len (records);
		if (rc < 0 || (rc = page_print (s, c, csv, records, err)) < 0)
			return rc;
		(void) fflush (stdout);
		if (end == UINT64_MAX)
			end = enc_json_get_u64 (answer, "size", 0);
		if (!n)
			return 0;
		*next = enc_json_get_u64 (enc_json_at (records, n - 1), "index", *next) + 1;
		if (*next >= end)
			return 0;
	}
}

int enc_cmd_audit_export (const struct enc_session *s, const struct enc_command *c, const struct enc_json *args, struct enc_json **ret ENC_UNUSED,
			  struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *filter = enc_json_copy (args);
	bool csv = strcmp (enc_json_get_str (args, "format", "jsonl"), "csv") == 0;
	uint64_t next = enc_json_get_u64 (args, "from", 0);
	enc_json_del (filter, "format");
	if (csv) {
		enc_auto_done (enc_buf_done) struct enc_buf head = ENC_BUF_INIT (CSV_LINE_MAX);
		enc_csv_header (&head);
		(void) fwrite (head.data, 1, head.len, stdout);
	}
	return pages (s, c, csv, filter, &next, err);
}

int enc_cmd_audit_tail (const struct enc_session *s, const struct enc_command *c, const struct enc_json *args, struct enc_json **ret ENC_UNUSED,
			struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *filter = enc_json_copy (args), *head = NULL;
	int rc = enc_session_get (s, &head, err, "/v1/audit/head");
	uint64_t next = enc_json_get_u64 (args, "from", enc_json_get_u64 (head, "size", 0));
	while (rc == 0) {
		rc = pages (s, c, false, filter, &next, err);
		const struct timespec pause = { .tv_nsec = TAIL_PAUSE_MS * ENC_NS_MS };
		(void) nanosleep (&pause, NULL);
	}
	return rc;
}
