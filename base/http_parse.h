/* The reader of HTTP answers, fed from an evbuffer; between http_client.c, http_parse.c and tests. */
#ifndef ENC_BASE_HTTP_PARSE_H
#define ENC_BASE_HTTP_PARSE_H

#include <stdbool.h>
#include "base/buf.h"

struct evbuffer;

enum enc_http_state {
	ENC_HTTP_STATUS, /* waiting for the status line */
	ENC_HTTP_HEADERS,
	ENC_HTTP_LENGTH, /* `left` bytes of body to come */
	ENC_HTTP_CHUNK_SIZE,
	ENC_HTTP_CHUNK,
	ENC_HTTP_CHUNK_END,
	ENC_HTTP_TRAILER,
	ENC_HTTP_TO_END, /* body until the connection closes */
	ENC_HTTP_DONE
};

struct enc_http_parser {
	enum enc_http_state state;
	int status;
	uint64_t left;
	bool chunked;
	bool has_length;
	bool close;       /* the connection is of no use afterwards */
	bool is_json;
	size_t header_bytes;
	struct enc_buf body; /* with the caller's maximum; a stream takes bytes out of it */
};

/* Reads what is there. 1: done, 0: more is needed, negative: ENC_EPROTO or ENC_ELIMIT. */
int enc_http_parser_feed (struct enc_http_parser *p, struct evbuffer *in, struct enc_error *err);
/* The connection closed: true if that is a proper end of the answer. */
bool enc_http_parser_eof (struct enc_http_parser *p);

#endif
