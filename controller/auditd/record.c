#include "controller/auditd/record.h"

#include "base/str.h"
#include "crypto/hash.h"
#include "crypto/tlog/frame.h"

#include <string.h>

#include "base/enc.h"

/* The text goes to the side store, so that it can be erased one day and the
 * tree stays valid; the salt keeps short texts from being guessed by their hash. */
static int take_text (struct enc_json *body, struct enc_record *record, struct enc_error *err)
{
	const char *text = enc_json_get_str (body, "text", NULL);
	struct enc_span spans[2];
	struct enc_hash hash;
	char hex[ENC_HASH_HEX_SIZE];
	int rc;

	if (!text)
		return 0;
	if ((rc = enc_random (record->salt, sizeof (record->salt), err)) < 0)
		return rc;
	record->text = enc_strdup (text);
	if (!record->text)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	spans[0] = (struct enc_span){ record->salt, sizeof (record->salt) };
	spans[1] = (struct enc_span){ record->text, strlen (record->text) };
	enc_sha256_spans (spans, 2, &hash);
	enc_hash_hex (&hash, hex);
	enc_json_del (body, "text");
	enc_json_set_str (body, "text_hash", hex);
	return 0;
}

static void complete (
	const struct enc_record_source *from, uint64_t index, struct enc_json *body, struct enc_record *record)
{
	struct enc_json *src = enc_json_get (body, "src");

	if (!src)
		src = enc_json_set_object (body, "src");
	enc_json_set_str (src, "name", from->producer);
	enc_json_set_i64 (body, "v", ENC_RECORD_VERSION);
	enc_json_set_u64 (body, "idx", index);
	enc_json_set_str (body, "origin", from->origin);
	enc_json_set_str (body, "ts", enc_time_format (enc_now (), true, record->time));
	enc_json_set_str (body, "boot", from->boot);
	enc_json_set_i64 (body, "mono", enc_mono () / 1000);
	if (!enc_json_get (body, "severity"))
		enc_json_set_str (body, "severity", record->event->severity);
}

int enc_record_make (const struct enc_record_source *from, const struct enc_json *given, uint64_t index,
	struct enc_record *ret, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *body = enc_json_copy (given);
	enc_auto_done (enc_record_done) struct enc_record record = { .body = ENC_BUF_INIT (ENC_FRAME_BODY_MAX) };
	int rc;

	if (!body)
		return enc_fail (err, ENC_EINVAL, "no record");
	if ((rc = enc_event_check (body, &record.event, err)) < 0)
		return rc;
	if (record.event->flags & ENC_EVENT_INTERNAL && !from->internal)
		return enc_fail (err, ENC_EDENIED, "%s.%s is recorded by the log itself", record.event->cls,
			record.event->action);
	if ((rc = take_text (body, &record, err)) < 0)
		return rc;
	complete (from, index, body, &record);
	if ((rc = enc_json_canonical (body, &record.body, err)) < 0 || (rc = enc_buf_check (&record.body, err)) < 0)
		return enc_wrap (err, rc, "record");
	*ret = record;
	memset (&record, 0, sizeof (record));
	return 0;
}

void enc_record_done (struct enc_record *record)
{
	enc_buf_done (&record->body);
	free (record->text);
	memset (record, 0, sizeof (*record));
}
