/* Who sits at a TLS server, so that nobody can take all of its places: the oldest of a kind goes when there are too many of that kind.
 * Three kinds: those of whom nothing is known yet, those that came without a certificate, and those with a name. */
#ifndef ENC_BASE_HTTP_GUESTS_H
#define ENC_BASE_HTTP_GUESTS_H

#include "base/error.h"

enum {
	ENC_GUESTS_NEW = 4096,   /* handshake under way, or no request let in yet */
	ENC_GUESTS_STRANGER = 64,/* without a certificate: they may send bodies of up to 1 MiB */
	ENC_GUESTS_NAMED = 16,   /* of each name */
};

struct ssl_st; /* SSL */
struct enc_guests;

struct enc_guests *enc_guests_new (void);
/* After all of its connections are gone. */
void enc_guests_free (struct enc_guests *g);
/* A connection just accepted; it leaves by itself when `ssl` is freed. */
ENC_MUST_USE int enc_guests_add (struct enc_guests *g, struct ssl_st *ssl, struct enc_error *err);
/* The connection is of `name` (who the owner found it to be) from now on. */
void enc_guests_name (struct enc_guests *g, struct ssl_st *ssl, const char *name);
unsigned enc_guests_count (const struct enc_guests *g);

#endif
