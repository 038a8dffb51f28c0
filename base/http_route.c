#include <stdio.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/http_route.h"
#include "base/str.h"
#include "base/enc.h"

static bool plain (char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
}

char *enc_url_encode (const char *s)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (SIZE_MAX / 8);
	for (; *s; s++) {
		if (plain (*s))
			enc_buf_put_u8 (&b, (uint8_t) *s);
		else
			enc_buf_putf (&b, "%%%02X", (unsigned char) *s);
	}
	return enc_buf_take_str (&b);
}

static int hex_of (char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

char *enc_url_decode (const char *s, size_t len)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (len + 1);
	for (size_t i = 0; i < len; i++) {
		int c = (unsigned char) s[i];
		if (s[i] == '%') {
			int high = len - i > 2 ? hex_of (s[i + 1]) : -1;
			int low = high >= 0 ? hex_of (s[i + 2]) : -1;
			if (low < 0)
				return NULL;
			c = high << 4 | low;
			i += 2;
		}
		if (c == 0)
			return NULL;
		enc_buf_put_u8 (&b, (uint8_t) c);
	}
	char *out = enc_buf_take_str (&b);
	if (out && enc_utf8_ok (out, strlen (out)))
		return out;
	free (out);
	return NULL;
}

void enc_route_clear (char *captures[ENC_HTTP_CAPTURES])
{
	for (unsigned i = 0; i < ENC_HTTP_CAPTURES; i++) {
		free (captures[i]);
		captures[i] = NULL;
	}
}

static bool capture (const char *at, size_t len, char **ret)
{
	char *s = len ? enc_url_decode (at, len) : NULL;
	if (!s || strchr (s, '/') || strcmp (s, ".") == 0 || strcmp (s, "..") == 0 || !enc_text_ok (s)) {
		free (s);
		return false;
	}
	*ret = s;
	return true;
}

bool enc_route_match (const char *pattern, const char *path, char *captures[ENC_HTTP_CAPTURES])
{
	unsigned n = 0;
	while (*pattern == '/' && *path == '/') {
		const char *pattern_end = strchrnul (pattern + 1, '/'), *path_end = strchrnul (path + 1, '/');
		size_t pattern_len = (size_t) (pattern_end - pattern - 1), len = (size_t) (path_end - path - 1);
		bool wild = pattern_len == 2 && pattern[1] == '{';
		bool fits = wild ? n < ENC_HTTP_CAPTURES && capture (path + 1, len, &captures[n++])
				 : pattern_len == len && memcmp (pattern + 1, path + 1, len) == 0;
		if (!fits)
			break;
		pattern = pattern_end;
		path = path_end;
	}
	if (*pattern == 0 && *path == 0)
		return true;
	enc_route_clear (captures);
	return false;
}

bool enc_url_query_ok (const char *query)
{
	enc_auto_free char *plain_text = enc_url_decode (query, strlen (query));
	return plain_text && enc_text_ok (plain_text);
}
