#include "base/http_guests.h"

#include <openssl/ssl.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include "base/str.h"
#include "base/enc.h"

enum { BUCKETS = 256 };

struct guest {
	TAILQ_ENTRY (guest) next;
	struct enc_guests *all;
	struct guests *in;
	SSL *ssl;
	char name[65]; /* "" until known */
};
TAILQ_HEAD (guests, guest);

struct enc_guests {
	struct guests fresh, strangers, named[BUCKETS];
	unsigned n, fresh_n, strangers_n;
};

static struct guests *bucket (struct enc_guests *g, const char *name)
{
	unsigned h = 0;

	while (*name)
		h = h * 31 + (unsigned char) *name++;
	return &g->named[h % BUCKETS];
}

static unsigned *count_of (struct enc_guests *g, const struct guests *in)
{
	return in == &g->fresh ? &g->fresh_n : in == &g->strangers ? &g->strangers_n : NULL;
}

static void leave (struct guest *one)
{
	unsigned *n = one->in ? count_of (one->all, one->in) : NULL;

	if (one->in)
		TAILQ_REMOVE (one->in, one, next);
	if (n)
		(*n)--;
	one->in = NULL;
}

static void enter (struct guest *one, struct guests *in)
{
	unsigned *n = count_of (one->all, in);

	leave (one);
	TAILQ_INSERT_TAIL (in, one, next);
	one->in = in;
	if (n)
		(*n)++;
}

/* Its owner sees the end of the connection, as if the other side had gone. */
static void show_out (struct guest *one)
{
	int fd = SSL_get_fd (one->ssl);

	leave (one);
	if (fd >= 0)
		(void) shutdown (fd, SHUT_RDWR);
}

static void keep_to (struct guests *in, const unsigned *n, unsigned max)
{
	while (*n > max)
		show_out (TAILQ_FIRST (in));
}

/* ---- what OpenSSL tells ---- */

static int guest_index = -1;

static void on_freed (void *parent ENC_UNUSED, void *ptr, CRYPTO_EX_DATA *ad ENC_UNUSED, int index ENC_UNUSED, long argl ENC_UNUSED, void *argp ENC_UNUSED)
{
	struct guest *one = ptr;

	if (!one)
		return;
	leave (one);
	one->all->n--;
	free (one);
}

static void on_info (const SSL *ssl, int where, int ret ENC_UNUSED)
{
	struct guest *one = where & SSL_CB_HANDSHAKE_DONE ? SSL_get_ex_data (ssl, guest_index) : NULL;

	if (!one || one->in != &one->all->fresh || SSL_get0_peer_certificate (ssl))
		return;
	enter (one, &one->all->strangers);
	keep_to (&one->all->strangers, &one->all->strangers_n, ENC_GUESTS_STRANGER);
}

/* ---- what the server tells ---- */

struct enc_guests *enc_guests_new (void)
{
	struct enc_guests *g = calloc (1, sizeof *g);

	if (guest_index < 0)
		guest_index = SSL_get_ex_new_index (0, NULL, NULL, NULL, on_freed);
	if (!g || guest_index < 0) {
		free (g);
		return NULL;
	}
	TAILQ_INIT (&g->fresh);
	TAILQ_INIT (&g->strangers);
	for (size_t i = 0; i < BUCKETS; i++)
		TAILQ_INIT (&g->named[i]);
	return g;
}

void enc_guests_free (struct enc_guests *g)
{
	free (g);
}

int enc_guests_add (struct enc_guests *g, SSL *ssl, struct enc_error *err)
{
	struct guest *one = calloc (1, sizeof *one);

	if (!one || SSL_set_ex_data (ssl, guest_index, one) != 1) {
		free (one);
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	one->all = g;
	one->ssl = ssl;
	g->n++;
	SSL_set_info_callback (ssl, on_info);
	enter (one, &g->fresh);
	keep_to (&g->fresh, &g->fresh_n, ENC_GUESTS_NEW);
	return 0;
}

void enc_guests_name (struct enc_guests *g, SSL *ssl, const char *name)
{
	struct guest *one = SSL_get_ex_data (ssl, guest_index), *other, *oldest = NULL;
	struct guests *in = bucket (g, name);
	unsigned n = 0;

	if (!one || !one->in || one->name[0])
		return;
	(void) snprintf (one->name, sizeof one->name, "%s", name);
	enter (one, in);
	TAILQ_FOREACH (other, in, next) {
		if (!enc_streq (other->name, name))
			continue;
		oldest = oldest ? oldest : other;
		n++;
	}
	if (n > ENC_GUESTS_NAMED)
		show_out (oldest);
}

unsigned enc_guests_count (const struct enc_guests *g)
{
	return g->n;
}
