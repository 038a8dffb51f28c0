/* One run of enclavectl: global options, the connection to the controller, and how results and errors are shown. */
#ifndef ENC_CLI_SESSION_H
#define ENC_CLI_SESSION_H

#include <stdbool.h>
#include <stdio.h>

#include "base/error.h"
#include "base/http.h"
#include "base/json.h"

#define ENC_CLI_SOCKET "/run/enclave/enclaved.sock"

struct enc_session {
	bool json;            /* --json: exactly one document on stdout, nothing on stderr */
	bool progress;        /* --progress: events as lines before it */
	bool tty, colour;
	const char *socket;   /* --socket */
	const char *url;      /* --url https://HOST:PORT, with the caller's certificate */
};

/* One call. `body` is borrowed and may be NULL; `path` is already encoded. The answer goes to `ret` (caller frees). */
int enc_session_call (const struct enc_session *s, const char *method, const char *path, const struct enc_json *body, struct enc_json **ret,
		      struct enc_error *err) ENC_MUST_USE;
/* As above, path by format; each %s argument must be encoded or a checked name. */
int enc_session_get (const struct enc_session *s, struct enc_json **ret, struct enc_error *err, const char *fmt, ...) ENC_PRINTF (4, 5) ENC_MUST_USE;

/* Print the one document of --json. */
int enc_session_document (const struct enc_session *s, const struct enc_json *document, struct enc_error *err) ENC_MUST_USE;
/* Say what failed; returns the exit status. */
int enc_session_failed (const struct enc_session *s, const struct enc_error *err);

/* Colours: NULL-safe, empty strings without a terminal. */
enum enc_colour { ENC_COLOUR_NONE, ENC_COLOUR_GOOD, ENC_COLOUR_BAD, ENC_COLOUR_WARN, ENC_COLOUR_DIM };
const char *enc_colour_on (const struct enc_session *s, enum enc_colour colour);
const char *enc_colour_off (const struct enc_session *s);

#endif
