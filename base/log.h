/* The operators' log (not the audit log). Programs log; libraries return errors. To the journal with fields when stderr is the
 * journal, else one line on stderr. Texts are made printable; the same message (by its place in the source) more than 20 times
 * within 10 s is held back and counted. */
#ifndef ENC_BASE_LOG_H
#define ENC_BASE_LOG_H

#include <stdbool.h>
#include "base/error.h"

enum enc_log_level {
	ENC_LOG_ERROR = 3, /* syslog's numbers */
	ENC_LOG_WARN = 4,
	ENC_LOG_NOTICE = 5,
	ENC_LOG_INFO = 6,
	ENC_LOG_DEBUG = 7
};

/* Name in front of lines, and the most detailed level that is shown (default INFO). */
void enc_log_open (const char *program, enum enc_log_level level);
/* In a forked child that has closed its descriptors: the journal's was one of them. */
void enc_log_reopen (void);
enum enc_log_level enc_log_level (void);
/* "error" "warn" "notice" "info" "debug"; negative for others. */
int enc_log_level_of (const char *name);
/* Tests: every line goes to `fn` instead. NULL restores. */
void enc_log_capture (void (*fn) (enum enc_log_level level, const char *line, void *arg), void *arg);

/* Fields that go beside the text: ENC_ENCLAVE=, ENC_NODE=, ENC_JOB=, ENC_STEP=. NULL members are left out. */
struct enc_log_fields {
	const char *enclave;
	const char *node;
	const char *job;
	const char *step;
};

void enc_log_at (enum enc_log_level level, const char *file, int line, const struct enc_log_fields *fields, const char *fmt, ...)
	ENC_PRINTF (5, 6);
/* "context: error text (next: …)" */
void enc_log_err_at (enum enc_log_level level, const char *file, int line, const struct enc_error *err, const char *fmt, ...)
	ENC_PRINTF (5, 6);

#define enc_log_error(...) enc_log_at (ENC_LOG_ERROR, __FILE__, __LINE__, NULL, __VA_ARGS__)
#define enc_log_warn(...) enc_log_at (ENC_LOG_WARN, __FILE__, __LINE__, NULL, __VA_ARGS__)
#define enc_log_notice(...) enc_log_at (ENC_LOG_NOTICE, __FILE__, __LINE__, NULL, __VA_ARGS__)
#define enc_log_info(...) enc_log_at (ENC_LOG_INFO, __FILE__, __LINE__, NULL, __VA_ARGS__)
#define enc_log_debug(...) enc_log_at (ENC_LOG_DEBUG, __FILE__, __LINE__, NULL, __VA_ARGS__)
#define enc_log_with(level, fields, ...) enc_log_at ((level), __FILE__, __LINE__, (fields), __VA_ARGS__)
#define enc_log_err(level, err, ...) enc_log_err_at ((level), __FILE__, __LINE__, (err), __VA_ARGS__)

#endif
