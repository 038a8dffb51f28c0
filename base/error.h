/* Errors: one small enum, one caller-owned box of text. No heap, no thread-locals.
 *
 * A function that can fail returns 0 or a negative `enum enc_code` and takes a `struct enc_error *err` as its last
 * parameter, which may be NULL. On failure the box is filled and the function's other outputs are untouched.
 * Texts hold ids and names only: never patient data, secrets or file contents. */
#ifndef ENC_BASE_ERROR_H
#define ENC_BASE_ERROR_H

#include <stdarg.h>

#define ENC_MUST_USE __attribute__ ((warn_unused_result))
/* Drop a result that must be used, on purpose (gcc does not take a cast to void for that). */
#define ENC_IGNORE(call)                                                                                               \
	do {                                                                                                           \
		__typeof__ (call) enc_ignored_ = (call);                                                               \
		(void) enc_ignored_;                                                                                   \
	} while (0)
#define ENC_PRINTF(fmt, args) __attribute__ ((format (printf, fmt, args)))
#define ENC_UNUSED __attribute__ ((unused))

/* 0 to 8 are the exit codes of every program; those after 8 are finer inside and fold onto them. */
enum enc_code {
	ENC_OK = 0,
	ENC_EFAILED = 1,    /* it did not work */
	ENC_EUSAGE = 2,     /* the caller asked wrongly */
	ENC_EDENIED = 3,    /* policy or role says no */
	ENC_ENOTFOUND = 4,  /* not there, or not yours: the same answer */
	ENC_EBUSY = 5,      /* held by another; retry later */
	ENC_ETIMEOUT = 6,   /* a deadline passed */
	ENC_EINTEGRITY = 7, /* a signature, hash or proof does not hold: never retry, alert */
	ENC_EUNAVAIL = 8,   /* log or key service is not reachable */
	ENC_EINVAL = 9,     /* malformed input: as EUSAGE, and the box names the place in `pointer` */
	ENC_ECONFLICT = 10, /* the name or state is taken: as EBUSY, a retry does not help */
	ENC_ENOMEM = 11,    /* as EFAILED */
	ENC_ESYS = 12,      /* a system call failed, errno in `sys`: as EFAILED */
	ENC_EPROTO = 13,    /* the peer said nonsense: as EFAILED */
	ENC_ELIMIT = 14,    /* input larger than its bound: as EUSAGE */
	ENC_ECANCELED = 15, /* given up on request: as EFAILED */
	ENC_CODE_COUNT
};

struct enc_error {
	int code;          /* enum enc_code, 0 = empty */
	int sys;           /* errno, 0 = none */
	char text[256];    /* what went wrong, one line; a text cut short ends in '+' */
	char next[160];    /* advice: the next command to try; may be empty */
	char object[64];   /* what it is about: node, volume, enclave; may be empty */
	char step[24];     /* row of the life table; may be empty */
	char pointer[96];  /* JSON pointer of the bad member; may be empty */
};

/* Fill the box and return -code. errno is kept. A second enc_fail() replaces the first. */
int enc_fail (struct enc_error *err, enum enc_code code, const char *fmt, ...) ENC_PRINTF (3, 4);

/* The same with code chosen from errno (ENOENT not found, EACCES/EPERM denied, EEXIST conflict, EBUSY busy, ETIMEDOUT timeout,
 * ENOMEM, else ENC_ESYS); ": strerror" is added and `sys` set. */
int enc_fail_sys (struct enc_error *err, const char *fmt, ...) ENC_PRINTF (2, 3);

/* Put "context: " before the text that is there; returns `rc`. Does nothing when rc is 0. */
int enc_wrap (struct enc_error *err, int rc, const char *fmt, ...) ENC_PRINTF (3, 4);

/* Add details; each returns `rc`, so that they nest around enc_fail():
 * return enc_error_next (err, enc_fail (err, ENC_EBUSY, "…"), "enclavectl show %s", name); */
int enc_error_next (struct enc_error *err, int rc, const char *fmt, ...) ENC_PRINTF (3, 4);
int enc_error_object (struct enc_error *err, int rc, const char *fmt, ...) ENC_PRINTF (3, 4);
int enc_error_step (struct enc_error *err, int rc, const char *step);
int enc_error_pointer (struct enc_error *err, int rc, const char *fmt, ...) ENC_PRINTF (3, 4);

/* Empty the box. */
void enc_error_clear (struct enc_error *err);

/* The public name ("failed" "usage" "denied" "not_found" "busy" "conflict" "timeout" "integrity" "unavailable"), exit status and
 * HTTP status of a code; they take positive and negative values, unknown ones are "failed". Code 0: "ok", 0, 200. */
const char *enc_code_name (int code);
int enc_code_exit (int code);
int enc_code_http (int code);
/* The code of a public name, ENC_EFAILED for an unknown one. */
enum enc_code enc_code_of_name (const char *name);

#endif
