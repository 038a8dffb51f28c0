#include "controller/cli/command.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/enc.h"

static int put_value (struct enc_buf *b, const struct enc_json *v, struct enc_error *err)
{
	const char *s = enc_json_str (v);
	if (enc_json_type (v) == ENC_JSON_BOOL) {
		enc_buf_putf (b, "%s", enc_json_bool (v) ? "true" : "false");
		return 0;
	}
	if (!s) {
		enc_buf_putf (b, "%lld", (long long) enc_json_i64 (v, 0));
		return 0;
	}
	enc_auto_free char *encoded = enc_url_encode (s);
	if (!encoded)
		return enc_fail (err, ENC_ENOMEM, "no memory for the request");
	enc_buf_putf (b, "%s", encoded);
	return 0;
}

/* "/v1/enclaves/{name}" with arguments filled in; those used are taken out of `rest`. */
static int path_fill (const char *path, struct enc_json *rest, struct enc_buf *b, struct enc_error *err)
{
	for (const char *p = path; *p; p++) {
		char key[32];
		const char *end = *p == '{' ? strchr (p, '}') : NULL;
		if (!end) {
			enc_buf_put (b, p, 1);
			continue;
		}
		(void) snprintf (key, sizeof key, "%.*s", (int) (end - p - 1), p + 1);
		const struct enc_json *v = enc_json_get (rest, key);
		int rc = v ? put_value (b, v, err) : 0;
		if (rc < 0)
			return rc;
		enc_json_del (rest, key);
		p = end;
	}
	return 0;
}

static int query_fill (const struct enc_json *rest, struct enc_buf *b, struct enc_error *err)
{
	struct enc_json_iter it = { 0 };
	char separator = '?';
	while (enc_json_next (rest, &it)) {
		enc_buf_putf (b, "%c%s=", separator, it.key);
		int rc = put_value (b, it.value, err);
		if (rc < 0)
			return rc;
		separator = '&';
	}
	return 0;
}

int enc_command_call (const struct enc_session *s, const struct enc_command *c, const struct enc_json *args, struct enc_json **ret,
		      struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *rest = enc_json_copy (args);
	enc_auto_done (enc_buf_done) struct enc_buf path = ENC_BUF_INIT (8192);
	bool in_query = strcmp (c->method, "GET") == 0 || strcmp (c->method, "DELETE") == 0;
	int rc = path_fill (c->path, rest, &path, err);
	if (rc == 0 && in_query)
		rc = query_fill (rest, &path, err);
	if (rc < 0)
		return rc;
	enc_auto_free char *text = enc_buf_take_str (&path);
	if (!text)
		return enc_fail (err, ENC_ELIMIT, "the request is too long");
	return enc_session_call (s, c->method, text, in_query ? NULL : rest, ret, err);
}

int enc_cmd_later (const struct enc_session *s ENC_UNUSED, const struct enc_command *c, const struct enc_json *args ENC_UNUSED,
		   struct enc_json **ret ENC_UNUSED, struct enc_error *err)
{
	int rc = enc_fail (err, ENC_EFAILED, "%s%s%s is not served by this version", c->verb, c->sub ? " " : "", c->sub ? c->sub : "");
	return enc_error_next (err, rc, "man enclavectl, section LIMITS");
}
