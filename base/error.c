#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/enc.h"

static const struct code_row {
	enum enc_code code;
	const char *name;
	int exit;
	int http;
} codes[] = {
	{ ENC_OK, "ok", 0, 200 },
	{ ENC_EFAILED, "failed", 1, 500 },
	{ ENC_EUSAGE, "usage", 2, 400 },
	{ ENC_EDENIED, "denied", 3, 403 },
	{ ENC_ENOTFOUND, "not_found", 4, 404 },
	{ ENC_EBUSY, "busy", 5, 409 },
	{ ENC_ETIMEOUT, "timeout", 6, 504 },
	{ ENC_EINTEGRITY, "integrity", 7, 422 },
	{ ENC_EUNAVAIL, "unavailable", 8, 503 },
	{ ENC_EINVAL, "usage", 2, 400 },
	{ ENC_ECONFLICT, "conflict", 5, 409 },
	{ ENC_ENOMEM, "failed", 1, 500 },
	{ ENC_ESYS, "failed", 1, 500 },
	{ ENC_EPROTO, "failed", 1, 500 },
	{ ENC_ELIMIT, "usage", 2, 400 },
	{ ENC_ECANCELED, "failed", 1, 500 },
};
_Static_assert (sizeof (codes) / sizeof (codes[0]) == ENC_CODE_COUNT, "one row per code");

static const struct errno_row {
	int sys;
	enum enc_code code;
} errnos[] = {
	{ ENOENT, ENC_ENOTFOUND },   { ESRCH, ENC_ENOTFOUND },     { EACCES, ENC_EDENIED },   { EPERM, ENC_EDENIED },
	{ EEXIST, ENC_ECONFLICT },   { EBUSY, ENC_EBUSY },         { EAGAIN, ENC_EBUSY },     { ETIMEDOUT, ENC_ETIMEOUT },
	{ ENOMEM, ENC_ENOMEM },      { ECONNREFUSED, ENC_EUNAVAIL }, { ECONNRESET, ENC_EUNAVAIL }, { EPIPE, ENC_EUNAVAIL },
	{ ECANCELED, ENC_ECANCELED },
};

static const struct code_row *row_of (int code)
{
	if (code < 0)
		code = -code;
	return code >= 0 && code < ENC_CODE_COUNT ? &codes[code] : &codes[ENC_EFAILED];
}

const char *enc_code_name (int code)
{
	return row_of (code)->name;
}

int enc_code_exit (int code)
{
	return row_of (code)->exit;
}

int enc_code_http (int code)
{
	return row_of (code)->http;
}

enum enc_code enc_code_of_name (const char *name)
{
	if (!name)
		return ENC_EFAILED;
	for (size_t i = 1; i < ENC_CODE_COUNT; i++)
		if (strcmp (codes[i].name, name) == 0)
			return codes[i].code;
	return ENC_EFAILED;
}

/* A cut text ends in '+', so that nobody takes it for the whole; the cut never splits a UTF-8 sequence. */
static void put_text (char *out, size_t size, const char *fmt, va_list ap)
{
	int n = vsnprintf (out, size, fmt, ap);
	if (n < 0) {
		out[0] = 0;
		return;
	}
	if ((size_t) n < size)
		return;
	size_t end = size - 2;
	while (end > 0 && ((unsigned char) out[end] & 0xC0) == 0x80)
		end--;
	out[end] = '+';
	out[end + 1] = 0;
}

static void fill (struct enc_error *err, enum enc_code code, int sys, const char *fmt, va_list ap)
{
	memset (err, 0, sizeof (*err));
	err->code = (int) code;
	err->sys = sys;
	put_text (err->text, sizeof (err->text), fmt, ap);
}

int enc_fail (struct enc_error *err, enum enc_code code, const char *fmt, ...)
{
	int saved = errno;
	if (code <= ENC_OK || code >= ENC_CODE_COUNT)
		code = ENC_EFAILED;
	if (err) {
		/* The arguments may point into the box itself. */
		struct enc_error fresh;
		va_list ap;
		va_start (ap, fmt);
		fill (&fresh, code, 0, fmt, ap);
		va_end (ap);
		*err = fresh;
	}
	errno = saved;
	return -(int) code;
}

static enum enc_code code_of_errno (int sys)
{
	for (size_t i = 0; i < sizeof (errnos) / sizeof (errnos[0]); i++)
		if (errnos[i].sys == sys)
			return errnos[i].code;
	return ENC_ESYS;
}

static void append (char *text, size_t size, const char *fmt, ...) ENC_PRINTF (3, 4);
static void append (char *text, size_t size, const char *fmt, ...)
{
	size_t len = strnlen (text, size - 1);
	if (len + 2 >= size)
		return;
	va_list ap;
	va_start (ap, fmt);
	put_text (text + len, size - len, fmt, ap);
	va_end (ap);
}

int enc_fail_sys (struct enc_error *err, const char *fmt, ...)
{
	int saved = errno;
	enum enc_code code = code_of_errno (saved);
	if (err) {
		struct enc_error fresh;
		va_list ap;
		va_start (ap, fmt);
		fill (&fresh, code, saved, fmt, ap);
		va_end (ap);
		char reason[96] = "";
		append (fresh.text, sizeof (fresh.text), ": %s", strerror_r (saved, reason, sizeof (reason)));
		*err = fresh;
	}
	errno = saved;
	return -(int) code;
}

int enc_wrap (struct enc_error *err, int rc, const char *fmt, ...)
{
	if (!err || rc == 0)
		return rc;
	int saved = errno;
	char text[sizeof (err->text)];
	va_list ap;
	va_start (ap, fmt);
	put_text (text, sizeof (text), fmt, ap);
	va_end (ap);
	if (err->code == 0)
		err->code = rc < 0 ? -rc : rc;
	if (err->text[0])
		append (text, sizeof (text), ": %s", err->text);
	memcpy (err->text, text, sizeof (text));
	errno = saved;
	return rc;
}

#define DETAIL(field)                                                                                                  \
	do {                                                                                                           \
		if (err) {                                                                                             \
			char fresh[sizeof (err->field)];                                                               \
			va_list ap;                                                                                    \
			va_start (ap, fmt);                                                                            \
			put_text (fresh, sizeof (fresh), fmt, ap);                                                     \
			va_end (ap);                                                                                   \
			memcpy (err->field, fresh, sizeof (fresh));                                                    \
		}                                                                                                      \
	} while (0)

int enc_error_next (struct enc_error *err, int rc, const char *fmt, ...)
{
	DETAIL (next);
	return rc;
}

int enc_error_object (struct enc_error *err, int rc, const char *fmt, ...)
{
	DETAIL (object);
	return rc;
}

int enc_error_pointer (struct enc_error *err, int rc, const char *fmt, ...)
{
	DETAIL (pointer);
	return rc;
}

int enc_error_step (struct enc_error *err, int rc, const char *step)
{
	if (err)
		(void) snprintf (err->step, sizeof (err->step), "%s", step ? step : "");
	return rc;
}

void enc_error_clear (struct enc_error *err)
{
	if (err)
		memset (err, 0, sizeof (*err));
}
