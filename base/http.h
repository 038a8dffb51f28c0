/* HTTP/1.1 with JSON bodies in the event loop: a server on evhttp, and a client of our own. Library enc_loop.
 *
 * Over a Unix socket the peer is known by SO_PEERCRED, over TLS by its certificate. The caller makes the SSL_CTX (crypto/tls) with
 * its demands on the peer; base never looks into certificates. */
#ifndef ENC_BASE_HTTP_H
#define ENC_BASE_HTTP_H

#include "base/json.h"
#include "base/peer.h"

struct event_base;
struct ssl_ctx_st; /* SSL_CTX */
struct ssl_st;     /* SSL */

/* ---- server ---- */

#define ENC_HTTP_BODY_MAX (64 * 1024)
#define ENC_HTTP_HEADER_MAX (16 * 1024)
#define ENC_HTTP_CAPTURES 4

struct enc_http_server;
struct enc_http_req; /* valid until answered or ended, also when the peer has gone meanwhile */

typedef void enc_http_handler_fn (struct enc_http_req *req, void *arg);

enum {
	ENC_HTTP_BODY = 1,    /* a JSON body is required (without the flag a body is refused) */
	ENC_HTTP_BODY_OPT = 2,/* a JSON body is allowed */
	ENC_HTTP_BIG = 4,     /* a body up to 1 MiB */
	ENC_HTTP_RAW = 8,     /* the body is not JSON: enc_http_body_text() has it */
	ENC_HTTP_USER1 = 256, /* flags from here on are the owner's: role classes and the like */
};
struct enc_http_route {
	const char *method;   /* "GET" "POST" "PUT" "DELETE" "PATCH" */
	const char *path;     /* "/v1/enclaves/{}/members/{}": {} takes one segment, percent-decoded */
	enc_http_handler_fn *handler;
	unsigned flags;
	const void *data;     /* the owner's, e.g. the right this route needs */
};
/* Called before every handler (authentication, rights); answers by itself and returns false to refuse. May be NULL. */
typedef bool enc_http_gate_fn (struct enc_http_req *req, void *arg);
typedef void enc_http_log_fn (struct enc_http_req *req, int status, void *arg);

struct enc_http_conf {
	const struct enc_http_route *routes; /* ended by method NULL */
	enc_http_gate_fn *gate;
	enc_http_log_fn *log;  /* after each answer; may be NULL */
	void *arg;
	unsigned idle_s;       /* silence between and within requests; long polls are not silence; 0: 60 */
};

struct enc_http_server *enc_http_server_new (struct event_base *base, const struct enc_http_conf *conf, struct enc_error *err) ENC_MUST_USE;
void enc_http_server_free (struct enc_http_server *s);
/* Add a listening socket (taken over, also on failure); several are fine. `tls` NULL: plain, for Unix sockets. A reference to `tls`
 * is kept. */
ENC_MUST_USE int enc_http_server_listen (struct enc_http_server *s, int fd, struct ssl_ctx_st *tls, struct enc_error *err);

const struct enc_http_route *enc_http_route (const struct enc_http_req *req);
const char *enc_http_method (const struct enc_http_req *req);
const char *enc_http_path (const struct enc_http_req *req);               /* as sent, without the query */
const char *enc_http_capture (const struct enc_http_req *req, unsigned i); /* NULL if there is none */
const char *enc_http_query (const struct enc_http_req *req, const char *key); /* decoded, NULL if absent; the first of doubles */
const char *enc_http_header (const struct enc_http_req *req, const char *name);
const struct enc_json *enc_http_body (const struct enc_http_req *req);     /* NULL if there was none */
const char *enc_http_body_text (const struct enc_http_req *req, size_t *ret_len); /* the same, as it came */
/* Peer of a Unix socket, NULL on TLS. TLS session, NULL on Unix: the certificate is SSL_get0_peer_certificate() of it. */
const struct enc_peer *enc_http_peer (const struct enc_http_req *req);
struct ssl_st *enc_http_tls (const struct enc_http_req *req);
const char *enc_http_remote (const struct enc_http_req *req); /* "unix" or the address */
/* Over TLS: who the owner found this connection to be. Each name has a few of them, the oldest goes first (http_guests.h). */
void enc_http_known (struct enc_http_req *req, const char *name);
/* One pointer per request for the owner (who the gate found), freed by `free_fn` at the end. */
void enc_http_set_user (struct enc_http_req *req, void *user, void (*free_fn) (void *));
void *enc_http_user (const struct enc_http_req *req);
/* Tell a long poll that its peer has gone (from the loop, at most once); it must still end the request. Without this a lost peer is
 * noticed only when the answer is written. A peer that shuts down its sending half counts as gone. */
void enc_http_on_gone (struct enc_http_req *req, void (*gone) (struct enc_http_req *req, void *arg), void *arg);
bool enc_http_gone (const struct enc_http_req *req);

/* Each ends the request. `body` is taken over. Safe when the peer has gone. */
void enc_http_reply (struct enc_http_req *req, int status, struct enc_json *body);
void enc_http_reply_error (struct enc_http_req *req, const struct enc_error *err); /* status from the code */
void enc_http_reply_text (struct enc_http_req *req, int status, const char *type, const void *body, size_t len);
/* Extra header of the answer, before it. */
void enc_http_add_header (struct enc_http_req *req, const char *name, const char *value);
/* A stream of JSON lines (chunked): start, any number of lines, end. A line after the peer has gone is dropped. */
void enc_http_stream_start (struct enc_http_req *req, int status);
void enc_http_stream_line (struct enc_http_req *req, const struct enc_json *line);
void enc_http_stream_end (struct enc_http_req *req);

/* ---- client ---- */

/* One connection, kept alive and remade when lost; one request at a time, others queue. */
struct enc_http_client;
struct enc_http_client_conf {
	const char *unix_path;      /* either this */
	const char *host;           /* or host and port: an address or a name (resolved at connect) */
	unsigned port;
	struct ssl_ctx_st *tls;     /* for host; a reference is kept. The server's name is checked against tls_name */
	const char *tls_name;       /* NULL: host */
	const char *tls_sni;        /* the name asked for, where it differs from the certificate's; NULL: tls_name */
	unsigned connect_ms;        /* 0: 10000 */
	size_t max_body;            /* 0: 1 MiB */
};
struct enc_http_client *enc_http_client_new (struct event_base *base, const struct enc_http_client_conf *conf, struct enc_error *err) ENC_MUST_USE;
/* Pending calls end with ENC_ECANCELED, from within. */
void enc_http_client_free (struct enc_http_client *c);

/* `body`: parsed JSON, NULL if the answer had none or was a stream; an error document has been turned into rc and `err`. `status`
 * and `text` are there also with a status from 300 up; `answer` itself is NULL when none came. */
struct enc_http_answer {
	int status;
	const struct enc_json *body;
	const char *text;
	size_t len;
};
typedef void enc_http_done_fn (int rc, const struct enc_http_answer *answer, const struct enc_error *err, void *arg);
/* A line of a stream as it arrives; return false to give the request up. */
typedef bool enc_http_line_fn (const struct enc_json *line, void *arg);

struct enc_http_call {
	const char *method;
	const char *path;               /* with query, already encoded: see enc_url_encode */
	const struct enc_json *body;    /* NULL: none; written at the call */
	const char *text;               /* a body that is not JSON (text/plain), instead of `body`; copied at the call */
	size_t text_len;
	int64_t timeout_ms;             /* from the call to the last byte; 0: 30 s */
	enc_http_line_fn *line;         /* non-NULL: the answer of status 200 is a stream of JSON lines */
	enc_http_done_fn *done;
	void *arg;
};
/* The callback comes exactly once, never from within this call. A request is sent again only if it is a GET and nothing of an answer
 * had come. A negative code without a callback if memory is short. */
ENC_MUST_USE int enc_http_client_call (struct enc_http_client *c, const struct enc_http_call *call, struct enc_error *err);

/* For tools: one call run to its end on a loop of its own. `ret` (may be NULL) gets the body, the caller frees; `line` and `arg` as
 * above or NULL. An error document fills `err`, and its code is returned. */
ENC_MUST_USE int enc_http_once (const struct enc_http_client_conf *conf, const struct enc_http_call *call, struct enc_json **ret,
				struct enc_error *err);

/* Percent-encode one path segment or query value; heap. */
char *enc_url_encode (const char *s) ENC_MUST_USE;
/* Decode in place of a copy; NULL on bad escapes, NUL or bytes that are not UTF-8. */
char *enc_url_decode (const char *s, size_t len) ENC_MUST_USE;

#endif
