/* The decoders of base: the first byte picks one. What is taken must survive its own round trip. */
#include <event2/buffer.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/hostlist.h"
#include "base/http_parse.h"
#include "base/http_route.h"
#include "base/json.h"
#include "base/str.h"
#include "base/enc.h"

#define MAX 65536

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

static void fuzz_json (const char *text, size_t len)
{
	enc_auto (enc_json) struct enc_json *j = enc_json_parse (text, len, MAX, NULL);
	if (!j)
		return;
	enc_auto_free char *again = enc_json_write (j, NULL, NULL);
	enc_auto (enc_json) struct enc_json *k = again ? enc_json_parse (again, strlen (again), 8 * MAX, NULL) : NULL;
	if (!k || !enc_json_equal (j, k))
		abort ();
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (8 * MAX);
	if (enc_json_canonical (j, &b, NULL) < 0)
		return;
	enc_auto (enc_json) struct enc_json *c = enc_json_parse_canonical ((const char *) b.data, b.len, 8 * MAX, NULL);
	if (!c || !enc_json_equal (j, c))
		abort ();
}

static void fuzz_hostlist (const char *text)
{
	enc_auto_done (enc_strs_done) struct enc_strs hosts = { 0 }, back = { 0 };
	if (enc_hostlist_expand (text, 100, &hosts, NULL) < 0)
		return;
	enc_auto_free char *short_form = enc_hostlist_compress (&hosts);
	if (!short_form || enc_hostlist_expand (short_form, 100, &back, NULL) < 0 || back.n != hosts.n)
		abort ();
}

static void fuzz_http (const uint8_t *data, size_t size)
{
	struct enc_http_parser p = { .body = ENC_BUF_INIT (MAX) };
	struct evbuffer *in = evbuffer_new ();
	if (in && evbuffer_add (in, data, size) == 0)
		ENC_IGNORE (enc_http_parser_feed (&p, in, NULL));
	if (in)
		evbuffer_free (in);
	enc_buf_done (&p.body);
}

static void fuzz_text (const char *text, size_t len)
{
	enc_auto_free char *shown = enc_text_printable (text);
	if (!shown || !enc_text_ok (shown))
		abort ();
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (MAX), again = ENC_BUF_INIT (2 * MAX);
	if (enc_get_base64 (text, len, &b, NULL) < 0)
		return;
	enc_put_base64 (&again, b.data, b.len);
	if (again.len != len || (len && memcmp (again.data, text, len) != 0))
		abort ();
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
	if (size == 0 || size > MAX)
		return 0;
	enc_auto_free char *text = strndup ((const char *) data + 1, size - 1);
	if (!text)
		return 0;
	switch (data[0]) {
	case 'j':
		fuzz_json ((const char *) data + 1, size - 1);
		break;
	case 'h':
		fuzz_hostlist (text);
		break;
	case 'a':
		fuzz_http (data + 1, size - 1);
		break;
	default:
		fuzz_text (text, strlen (text));
	}
	return 0;
}
