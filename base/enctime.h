/* Time. Wall times are nanoseconds since 1970 UTC, deadlines are nanoseconds of CLOCK_BOOTTIME (runs on through suspend). */
#ifndef ENC_BASE_ENCTIME_H
#define ENC_BASE_ENCTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

#define ENC_NS_S INT64_C (1000000000)
#define ENC_NS_MS INT64_C (1000000)
#define ENC_FOREVER INT64_MAX

int64_t enc_now (void);      /* wall clock, ns */
int64_t enc_now_s (void);    /* wall clock, whole seconds */
int64_t enc_mono (void);     /* boot clock, ns */

/* A deadline `ms` from now; left in ms, rounded up, 0 when passed, capped at INT_MAX. */
int64_t enc_deadline_ms (int64_t ms);
int enc_left_ms (int64_t deadline);
bool enc_passed (int64_t deadline);

/* This boot's id, "8f2e…-…" 36 characters. */
#define ENC_BOOT_ID_SIZE 37
ENC_MUST_USE int enc_boot_id (char out[static ENC_BOOT_ID_SIZE], struct enc_error *err);

/* RFC 3339 in UTC with Z: "2026-12-01T04:50:00Z"; with milliseconds if `ms`. Returns `out`. */
#define ENC_TIME_SIZE 32
const char *enc_time_format (int64_t wall_ns, bool ms, char out[static ENC_TIME_SIZE]);
/* Exactly that form, upper-case T and Z, 0 to 9 digits of fraction; years 1970 to 9999. ENC_EINVAL else. */
ENC_MUST_USE int enc_time_parse (const char *s, int64_t *ret_wall_ns, struct enc_error *err);
/* Also "2026-12-01" for the end of that day in UTC: dates people type. */
ENC_MUST_USE int enc_date_parse (const char *s, int64_t *ret_wall_ns, struct enc_error *err);

/* For people: "0.3 s", "6.2 s", "41 s", "41 min", "3 h 20 min", "13 d 23 h". Returns `out`. */
#define ENC_SPAN_SIZE 32
const char *enc_span_format (int64_t ns, char out[static ENC_SPAN_SIZE]);

#endif
