/* The parser: RFC 8259 and nothing more lenient, building json-c values. Not json-c's own tokener, which lets the last of
 * duplicate keys win, clamps large integers and knows no line numbers. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/file.h"
#include "base/json_dom.h"
#include "base/str.h"
#include "base/enc.h"

struct place { /* one step of the JSON pointer: a key, or an index */
	const char *key;
	size_t index;
};

struct parser {
	const char *at;
	const char *end;
	unsigned line;
	unsigned depth;
	struct place path[ENC_JSON_DEPTH + 1];
	const char *want;    /* pointer whose line is asked for, or NULL */
	unsigned found_line;
	struct enc_error *err;
};

static void put_pointer (const struct parser *p, char *out, size_t size)
{
	size_t n = 0;
	out[0] = 0;
	for (unsigned i = 0; i < p->depth && n + 2 < size; i++) {
		if (!p->path[i].key) {
			int len = snprintf (out + n, size - n, "/%zu", p->path[i].index);
			n = len < 0 || n + (size_t) len >= size ? size - 1 : n + (size_t) len;
			continue;
		}
		out[n++] = '/';
		for (const char *s = p->path[i].key; *s && n + 3 < size; s++) {
			if (*s == '~' || *s == '/')
				out[n++] = '~';
			out[n++] = *s == '~' ? '0' : *s == '/' ? '1' : *s;
		}
		out[n] = 0;
	}
}

/* Always NULL, so that a failing parse function is one line. */
static struct json_object *bad (const struct parser *p, enum enc_code code, const char *what)
{
	if (p->err) {
		char pointer[sizeof (p->err->pointer)];
		put_pointer (p, pointer, sizeof (pointer));
		(void) enc_fail (p->err, code, "line %u: %s", p->line, what);
		(void) enc_error_pointer (p->err, 0, "%s", pointer);
	}
	return NULL;
}

static void skip_blanks (struct parser *p)
{
	for (; p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'); p->at++)
		if (*p->at == '\n')
			p->line++;
}

static bool take (struct parser *p, char c)
{
	if (p->at == p->end || *p->at != c)
		return false;
	p->at++;
	return true;
}

/* ---- strings ---- */

static bool hex4 (struct parser *p, uint32_t *ret)
{
	uint32_t v = 0;
	if (p->end - p->at < 4)
		return false;
	for (int i = 0; i < 4; i++) {
		char c = *p->at++;
		uint32_t digit = c >= '0' && c <= '9' ? (uint32_t) (c - '0') : (c | 32) >= 'a' && (c | 32) <= 'f' ? (uint32_t) ((c | 32) - 'a' + 10) : 16;
		if (digit == 16)
			return false;
		v = v << 4 | digit;
	}
	*ret = v;
	return true;
}

static void put_utf8 (struct enc_buf *b, uint32_t point)
{
	if (point < 0x80) {
		enc_buf_put_u8 (b, (uint8_t) point);
		return;
	}
	unsigned more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
	static const uint8_t lead[] = { 0, 0xC0, 0xE0, 0xF0 };
	enc_buf_put_u8 (b, (uint8_t) (lead[more] | point >> (6 * more)));
	while (more--)
		enc_buf_put_u8 (b, (uint8_t) (0x80 | (point >> (6 * more) & 0x3F)));
}

/* What follows a backslash; an error text, or NULL. */
static const char *escape (struct parser *p, struct enc_buf *b)
{
	static const char letter[] = "btnfr\"\\/", plain[] = "\b\t\n\f\r\"\\/";
	char c = p->at < p->end ? *p->at++ : 0;
	const char *at = c ? strchr (letter, c) : NULL;
	if (at) {
		enc_buf_put_u8 (b, (uint8_t) plain[at - letter]);
		return NULL;
	}
	uint32_t high, low;
	if (c != 'u' || !hex4 (p, &high))
		return "bad escape in a string";
	if (high == 0)
		return "NUL in a string";
	if (high >= 0xD800 && high <= 0xDFFF) {
		if (high >= 0xDC00 || !take (p, '\\') || !take (p, 'u') || !hex4 (p, &low) || low < 0xDC00 || low > 0xDFFF)
			return "half of a surrogate pair in a string";
		high = 0x10000 + ((high - 0xD800) << 10 | (low - 0xDC00));
	}
	put_utf8 (b, high);
	return NULL;
}

/* The string after its opening quote. */
static const char *string_into (struct parser *p, struct enc_buf *b)
{
	for (;;) {
		const char *from = p->at;
		while (p->at < p->end && *p->at != '"' && *p->at != '\\' && (unsigned char) *p->at >= 0x20)
			p->at++;
		size_t len = (size_t) (p->at - from);
		if (!enc_utf8_ok (from, len))
			return "a string is not UTF-8";
		enc_buf_put (b, from, len);
		if (p->at == p->end)
			return "a string does not end";
		char c = *p->at++;
		if (c == '"')
			return NULL;
		const char *why = c == '\\' ? escape (p, b) : "a control character in a string";
		if (why)
			return why;
	}
}

static char *take_string (struct parser *p)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT ((size_t) (p->end - p->at));
	const char *why = string_into (p, &b);
	if (why) {
		(void) bad (p, ENC_EINVAL, why);
		return NULL;
	}
	char *s = enc_buf_take_str (&b);
	if (!s)
		(void) bad (p, ENC_ENOMEM, "out of memory");
	return s;
}

/* ---- numbers ---- */

static bool take_digits (struct parser *p)
{
	const char *from = p->at;
	while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
		p->at++;
	return p->at > from;
}

static bool take_number (struct parser *p, bool *ret_integer)
{
	(void) take (p, '-');
	if (!take (p, '0') && !take_digits (p))
		return false;
	*ret_integer = true;
	if (take (p, '.')) {
		*ret_integer = false;
		if (!take_digits (p))
			return false;
	}
	if (take (p, 'e') || take (p, 'E')) {
		*ret_integer = false;
		if (!take (p, '+'))
			(void) take (p, '-');
		return take_digits (p);
	}
	return true;
}

static struct json_object *parse_number (struct parser *p)
{
	const char *from = p->at;
	bool integer;
	char text[64];
	if (!take_number (p, &integer))
		return bad (p, ENC_EINVAL, "not a JSON value");
	size_t len = (size_t) (p->at - from);
	if (len >= sizeof (text))
		return bad (p, ENC_EINVAL, "a number with too many digits");
	memcpy (text, from, len);
	text[len] = 0;
	struct json_object *o;
	int64_t i;
	uint64_t u;
	if (!integer) {
		double d = strtod (text, NULL);
		if (!isfinite (d))
			return bad (p, ENC_EINVAL, "a number out of range");
		o = json_object_new_double_s (d, text);
	} else if (strcmp (text, "-0") == 0) {
		o = json_object_new_int64 (0);
	} else if (enc_parse_i64 (text, INT64_MIN, INT64_MAX, &i, NULL) == 0) {
		o = json_object_new_int64 (i);
	} else if (enc_parse_u64 (text, 0, UINT64_MAX, &u, NULL) == 0) {
		o = json_object_new_uint64 (u);
	} else {
		return bad (p, ENC_EINVAL, "a number out of range");
	}
	return o ? o : bad (p, ENC_ENOMEM, "out of memory");
}

/* ---- containers ---- */

static bool parse_value (struct parser *p, struct json_object **ret);

static bool enter (struct parser *p)
{
	if (p->depth >= ENC_JSON_DEPTH) {
		(void) bad (p, ENC_ELIMIT, "nested more than 16 deep");
		return false;
	}
	p->path[p->depth++] = (struct place){ 0 };
	return true;
}

static bool parse_member (struct parser *p, struct json_object *object)
{
	skip_blanks (p);
	if (!take (p, '"'))
		return bad (p, ENC_EINVAL, "a key in quotes is missing") != NULL;
	enc_auto_free char *key = take_string (p);
	if (!key)
		return false;
	p->path[p->depth - 1].key = key;
	bool good = false;
	struct json_object *value = NULL;
	if (json_object_object_get_ex (object, key, NULL))
		(void) bad (p, ENC_EINVAL, "the same key twice");
	else {
		skip_blanks (p);
		if (!take (p, ':'))
			(void) bad (p, ENC_EINVAL, "':' is missing");
		else
			good = parse_value (p, &value);
	}
	if (good && json_object_object_add (object, key, value) < 0) {
		(void) json_object_put (value);
		(void) bad (p, ENC_ENOMEM, "out of memory");
		good = false;
	}
	p->path[p->depth - 1].key = NULL;
	return good;
}

static bool parse_item (struct parser *p, struct json_object *array)
{
	struct json_object *value = NULL;
	if (!parse_value (p, &value))
		return false;
	if (json_object_array_add (array, value) < 0) {
		(void) json_object_put (value);
		return bad (p, ENC_ENOMEM, "out of memory") != NULL;
	}
	p->path[p->depth - 1].index++;
	return true;
}

static struct json_object *parse_container (struct parser *p, bool is_object)
{
	char close = is_object ? '}' : ']';
	if (!enter (p))
		return NULL;
	struct json_object *o = is_object ? json_object_new_object () : json_object_new_array ();
	bool good = o != NULL;
	if (!o)
		(void) bad (p, ENC_ENOMEM, "out of memory");
	skip_blanks (p);
	bool done = good && take (p, close);
	while (good && !done) {
		good = is_object ? parse_member (p, o) : parse_item (p, o);
		if (!good)
			break;
		skip_blanks (p);
		done = take (p, close);
		if (!done && !take (p, ',')) {
			(void) bad (p, ENC_EINVAL, is_object ? "',' or '}' is missing" : "',' or ']' is missing");
			good = false;
		}
	}
	p->depth--;
	if (good)
		return o;
	(void) json_object_put (o);
	return NULL;
}

static bool take_word (struct parser *p, const char *word)
{
	size_t len = strlen (word);
	if ((size_t) (p->end - p->at) < len || memcmp (p->at, word, len) != 0)
		return false;
	p->at += len;
	return true;
}

static struct json_object *parse_string (struct parser *p)
{
	enc_auto_free char *s = take_string (p);
	if (!s)
		return NULL;
	struct json_object *o = json_object_new_string (s);
	return o ? o : bad (p, ENC_ENOMEM, "out of memory");
}

static void note_line (struct parser *p)
{
	char here[512];
	if (!p->want || p->found_line)
		return;
	put_pointer (p, here, sizeof (here));
	if (strcmp (here, p->want) == 0)
		p->found_line = p->line;
}

/* False on error; *ret stays NULL for JSON null. */
static bool parse_value (struct parser *p, struct json_object **ret)
{
	skip_blanks (p);
	note_line (p);
	if (take_word (p, "null"))
		return true;
	bool yes = take_word (p, "true");
	if (yes || take_word (p, "false")) {
		*ret = json_object_new_boolean (yes);
		if (!*ret)
			(void) bad (p, ENC_ENOMEM, "out of memory");
	} else if (take (p, '{')) {
		*ret = parse_container (p, true);
	} else if (take (p, '[')) {
		*ret = parse_container (p, false);
	} else if (take (p, '"')) {
		*ret = parse_string (p);
	} else {
		*ret = parse_number (p);
	}
	return *ret != NULL;
}

static struct enc_json *parse_all (struct parser *p)
{
	struct json_object *o = NULL;
	if (!parse_value (p, &o))
		return NULL;
	skip_blanks (p);
	if (p->at == p->end)
		return enc_json_wrap (o);
	(void) bad (p, ENC_EINVAL, "something follows the JSON value");
	(void) json_object_put (o);
	return NULL;
}

struct enc_json *enc_json_parse (const char *text, size_t len, size_t max, struct enc_error *err)
{
	struct parser p = { .at = text, .end = text + len, .line = 1, .err = err };
	if (len > max) {
		(void) enc_fail (err, ENC_ELIMIT, "JSON of %zu bytes, at most %zu are taken", len, max);
		return NULL;
	}
	return parse_all (&p);
}

struct enc_json *enc_json_load (const char *path, size_t max, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (max);
	if (enc_file_read (path, max, &b, err) < 0)
		return NULL;
	struct enc_json *j = enc_json_parse (b.data ? (const char *) b.data : "", b.len, max, err);
	if (!j)
		(void) enc_wrap (err, -1, "%s", path);
	return j;
}

unsigned enc_json_line (const char *text, size_t len, const char *pointer)
{
	struct parser p = { .at = text, .end = text + len, .line = 1, .want = pointer };
	enc_json_free (parse_all (&p));
	return p.found_line;
}
