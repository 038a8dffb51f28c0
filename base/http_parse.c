/* Strict: HTTP/1.1, bounded header, either Content-Length or chunked and never both, no folding. */
#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/http.h"
#include "base/http_parse.h"
#include "base/str.h"
#include "base/enc.h"

static int nonsense (struct enc_error *err, const char *what)
{
	return enc_fail (err, ENC_EPROTO, "bad HTTP answer: %s", what);
}

/* A line into *ret (heap): 1, not there yet: 0. */
static int take_line (struct enc_http_parser *p, struct evbuffer *in, char **ret, struct enc_error *err)
{
	size_t len = 0;
	char *line = evbuffer_readln (in, &len, EVBUFFER_EOL_CRLF);
	if (!line)
		return evbuffer_get_length (in) > ENC_HTTP_HEADER_MAX ? nonsense (err, "a line that does not end") : 0;
	p->header_bytes += len + 2;
	if (p->header_bytes > ENC_HTTP_HEADER_MAX || strlen (line) != len) {
		free (line);
		return nonsense (err, "its head is too long or has NUL");
	}
	*ret = line;
	return 1;
}

static int take_status (struct enc_http_parser *p, const char *line, struct enc_error *err)
{
	/* "HTTP/1.1 200 OK" */
	if (strncmp (line, "HTTP/1.1 ", 9) != 0 || strlen (line) < 12 || (line[12] && line[12] != ' '))
		return nonsense (err, "its first line");
	char code[4] = { line[9], line[10], line[11], 0 };
	uint64_t status;
	if (enc_parse_u64 (code, 200, 599, &status, NULL) < 0)
		return nonsense (err, "its status");
	p->status = (int) status;
	p->state = ENC_HTTP_HEADERS;
	return 1;
}

static int take_header (struct enc_http_parser *p, char *line, struct enc_error *err)
{
	char *colon = strchr (line, ':');
	if (!colon || colon == line || line[0] == ' ' || line[0] == '\t')
		return nonsense (err, "a header line");
	*colon = 0;
	const char *value = colon + 1;
	value += strspn (value, " \t");
	if (strcasecmp (line, "Content-Length") == 0) {
		if (p->has_length || enc_parse_u64 (value, 0, UINT32_MAX, &p->left, NULL) < 0)
			return nonsense (err, "its length");
		p->has_length = true;
	} else if (strcasecmp (line, "Transfer-Encoding") == 0) {
		if (p->chunked || strcasecmp (value, "chunked") != 0)
			return nonsense (err, "its encoding");
		p->chunked = true;
	} else if (strcasecmp (line, "Connection") == 0) {
		p->close |= strcasecmp (value, "close") == 0;
	} else if (strcasecmp (line, "Content-Type") == 0) {
		p->is_json = strncasecmp (value, "application/json", 16) == 0;
	}
	return 1;
}

static int end_headers (struct enc_http_parser *p, struct enc_error *err)
{
	if (p->chunked && p->has_length)
		return nonsense (err, "both a length and chunks");
	if (p->status == 204 || p->status == 304 || (p->has_length && p->left == 0))
		p->state = ENC_HTTP_DONE;
	else if (p->chunked)
		p->state = ENC_HTTP_CHUNK_SIZE;
	else if (p->has_length)
		p->state = ENC_HTTP_LENGTH;
	else
		p->state = ENC_HTTP_TO_END;
	p->close |= p->state == ENC_HTTP_TO_END;
	return 1;
}

static int take_chunk_size (struct enc_http_parser *p, char *line, struct enc_error *err)
{
	line[strcspn (line, "; \t")] = 0;
	size_t len = strlen (line);
	if (len == 0 || len > 8 || strspn (line, "0123456789abcdefABCDEF") != len)
		return nonsense (err, "the size of a chunk");
	p->left = strtoull (line, NULL, 16);
	p->state = p->left ? ENC_HTTP_CHUNK : ENC_HTTP_TRAILER;
	p->header_bytes = 0;
	return 1;
}

static int take_line_for (struct enc_http_parser *p, struct evbuffer *in, struct enc_error *err)
{
	enc_auto_free char *line = NULL;
	int rc = take_line (p, in, &line, err);
	if (rc <= 0)
		return rc;
	switch (p->state) {
	case ENC_HTTP_STATUS:
		return take_status (p, line, err);
	case ENC_HTTP_HEADERS:
		return line[0] ? take_header (p, line, err) : end_headers (p, err);
	case ENC_HTTP_CHUNK_SIZE:
		return take_chunk_size (p, line, err);
	case ENC_HTTP_CHUNK_END:
		p->state = ENC_HTTP_CHUNK_SIZE;
		return line[0] ? nonsense (err, "a chunk that is longer than it said") : 1;
	case ENC_HTTP_TRAILER:
		if (!line[0])
			p->state = ENC_HTTP_DONE;
		return 1;
	case ENC_HTTP_LENGTH:
	case ENC_HTTP_CHUNK:
	case ENC_HTTP_TO_END:
	case ENC_HTTP_DONE:
		break;
	}
	return nonsense (err, "a line where none belongs");
}

static int take_body (struct enc_http_parser *p, struct evbuffer *in, struct enc_error *err)
{
	size_t have = evbuffer_get_length (in);
	if (have == 0)
		return 0;
	if (p->state != ENC_HTTP_TO_END && have > p->left)
		have = (size_t) p->left;
	uint8_t *at = enc_buf_grow (&p->body, have);
	if (!at)
		return enc_wrap (err, enc_buf_check (&p->body, err), "HTTP answer");
	if (evbuffer_remove (in, at, have) != (int) have)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	if (p->state == ENC_HTTP_TO_END)
		return 1;
	p->left -= have;
	if (p->left == 0)
		p->state = p->state == ENC_HTTP_CHUNK ? ENC_HTTP_CHUNK_END : ENC_HTTP_DONE;
	return 1;
}

int enc_http_parser_feed (struct enc_http_parser *p, struct evbuffer *in, struct enc_error *err)
{
	while (p->state != ENC_HTTP_DONE) {
		bool body = p->state == ENC_HTTP_LENGTH || p->state == ENC_HTTP_CHUNK || p->state == ENC_HTTP_TO_END;
		int rc = body ? take_body (p, in, err) : take_line_for (p, in, err);
		if (rc <= 0)
			return rc;
	}
	return 1;
}

bool enc_http_parser_eof (struct enc_http_parser *p)
{
	if (p->state != ENC_HTTP_TO_END)
		return false;
	p->state = ENC_HTTP_DONE;
	return true;
}
