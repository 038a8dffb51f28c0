#include "node-agent/privd/spool.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"

#include "base/enc.h"

enum { SPOOL_BYTES = 1024 * 1024 };

static uint64_t counter_of (const struct enc_json *event)
{
	return enc_json_get_u64 (event, "counter", 0);
}

int enc_spool_open (struct enc_spool *spool, const struct enc_privd_conf *conf, struct enc_error *err)
{
	size_t n;

	memset (spool, 0, sizeof *spool);
	if (!(spool->path = enc_strf ("%s/events", conf->run_dir)))
		return enc_fail (err, ENC_ENOMEM, "events: no memory");
	if (access (spool->path, F_OK) == 0)
		spool->events = enc_json_load (spool->path, SPOOL_BYTES, NULL);
	if (enc_json_type (spool->events) != ENC_JSON_ARRAY) {
		enc_json_free (spool->events);
		spool->events = enc_json_array ();
	}
	n = enc_json_len (spool->events);
	spool->counter = n ? counter_of (enc_json_at (spool->events, n - 1)) : 0;
	return spool->events ? 0 : enc_fail (err, ENC_ENOMEM, "events: no memory");
}

void enc_spool_done (struct enc_spool *spool)
{
	enc_json_free (spool->events);
	free (spool->path);
	memset (spool, 0, sizeof *spool);
}

static void store (const struct enc_spool *spool)
{
	struct enc_file_attr attr = ENC_FILE_ATTR (0600);
	struct enc_error err = { 0 };
	size_t len;
	enc_auto_free char *text = enc_json_write (spool->events, &len, &err);

	if (!text || enc_file_write (spool->path, text, len, &attr, &err) < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "events are not written");
}

/* Keep the last `keep` events, or those after `counter`. */
static void trim (struct enc_spool *spool, size_t keep, uint64_t counter)
{
	size_t n = enc_json_len (spool->events);
	struct enc_json *kept = enc_json_array ();

	for (size_t i = 0; i < n; i++) {
		struct enc_json *event = enc_json_at (spool->events, i);
		if (i + keep >= n && counter_of (event) > counter)
			enc_json_add (kept, enc_json_copy (event));
	}
	enc_json_free (spool->events);
	spool->events = kept;
}

uint64_t enc_spool_put (struct enc_spool *spool, struct enc_json *event)
{
	if (enc_json_len (spool->events) >= ENC_SPOOL_MAX)
		trim (spool, ENC_SPOOL_MAX - 1, 0);
	enc_json_set_u64 (event, "counter", ++spool->counter);
	enc_json_set_time (event, "time", enc_now ());
	enc_json_add (spool->events, event);
	store (spool);
	return spool->counter;
}

void enc_spool_add (struct enc_spool *spool, const char *class, const char *action, const char *outcome, struct enc_json *obj, struct enc_json *data)
{
	struct enc_json *event = enc_json_object ();

	enc_json_set_str (event, "class", class);
	enc_json_set_str (event, "action", action);
	enc_json_set_str (event, "outcome", outcome);
	enc_json_set (event, "obj", obj ? obj : enc_json_object ());
	enc_json_set (event, "data", data ? data : enc_json_object ());
	(void)enc_spool_put (spool, event);
}

void enc_spool_forget (struct enc_spool *spool, uint64_t counter)
{
	const struct enc_json *first = enc_json_at (spool->events, 0);

	if (!first || counter_of (first) > counter)
		return;
	trim (spool, SIZE_MAX / 2, counter);
	store (spool);
}
