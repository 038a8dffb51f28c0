/* What the tests of crypto/ share: cmocka, an arena, vectors, and the fixed Ed25519 key of seed 0, 1, 2 … 31.
 * The vectors in tests/data/crypto were made by an independent implementation of docs/protocol.md. */
#ifndef ENC_TEST_CRYPTO_H
#define ENC_TEST_CRYPTO_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "crypto/secmem.h"

#define ID_K "kkkkkkkkkkkkkkkkkkkkkkkkkk"
#define ID_E "eeeeeeeeeeeeeeeeeeeeeeeeee"
#define ID_F "ffffffffffffffffffffffffff"

static inline int arena_up (void **state)
{
	(void) state;
	return enc_secmem_init (256 * 1024, NULL);
}

static inline int arena_down (void **state)
{
	(void) state;
	size_t left = enc_secmem_used ();
	enc_secmem_done ();
	return left == 0 ? 0 : -1; /* a test that leaks a secret fails its group */
}

/* The bytes of a vector file of hex digits. */
static inline void vector (const char *name, struct enc_buf *out)
{
	struct enc_buf text = ENC_BUF_INIT (65536);
	char *path = enc_strf ("%s/tests/data/crypto/%s", ENC_SOURCE_DIR, name);

	assert_int_equal (enc_file_read (path, 65536, &text, NULL), 0);
	assert_int_equal (enc_get_hex ((const char *) text.data, text.len - 1, out, NULL), 0);
	enc_buf_done (&text);
	free (path);
}

static inline void count_up (uint8_t *out, size_t n, unsigned from)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t) (from + i);
}

#endif
