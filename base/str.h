/* Text: formatting, strict parsing, the names of contracts, ids, encodings. */
#ifndef ENC_BASE_STR_H
#define ENC_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/error.h"

/* printf to the heap; NULL when memory is short. The caller frees. */
char *enc_strf (const char *fmt, ...) ENC_PRINTF (1, 2) ENC_MUST_USE;
/* strdup that takes NULL (gives NULL). */
char *enc_strdup (const char *s) ENC_MUST_USE;
/* Copy with bounds; ENC_ELIMIT and an empty `out` if it does not fit. */
ENC_MUST_USE int enc_str_copy (char *out, size_t size, const char *s, struct enc_error *err);
/* NULL-safe equality: NULL equals only NULL. Not constant time. */
bool enc_streq (const char *a, const char *b);
bool enc_starts (const char *s, const char *prefix);
bool enc_ends (const char *s, const char *suffix);
/* Constant-time comparison of secrets and MACs of equal length. */
bool enc_mem_equal (const void *a, const void *b, size_t len);
/* Overwrite memory in a way the compiler keeps. */
void enc_wipe (void *p, size_t len);

/* Decimal digits only (no sign, blank or leading zero but "0" itself), min..max inclusive; ENC_EINVAL else. */
ENC_MUST_USE int enc_parse_u64 (const char *s, uint64_t min, uint64_t max, uint64_t *ret, struct enc_error *err);
ENC_MUST_USE int enc_parse_i64 (const char *s, int64_t min, int64_t max, int64_t *ret, struct enc_error *err);
/* "14d" "2h" "30m" "10s", also summed "1d12h", or plain "0"; into seconds, at most 100 years. */
ENC_MUST_USE int enc_parse_duration (const char *s, uint64_t *ret_s, struct enc_error *err);
/* "100G": number with optional K M G T P (powers of 1024) and optional "iB" or "B"; into bytes. */
ENC_MUST_USE int enc_parse_size (const char *s, uint64_t *ret_bytes, struct enc_error *err);

/* Enclave, volume, dataset, recipe: [a-z][a-z0-9-]{0,30}, no '-' at the end. */
bool enc_name_ok (const char *s);
/* Slurm host names: letters, digits, '-', '.', '_'; first a letter or digit, last not '-' or '.'; at most 63 characters. */
bool enc_node_name_ok (const char *s);
/* [a-z_][a-z0-9_-]{0,31} */
bool enc_user_name_ok (const char *s);

#define ENC_ID_LEN 26
#define ENC_ID_SIZE 27
/* A fresh random id: 26 characters of lower-case base32 (130 bits). ENC_ESYS if the kernel has no randomness to give. */
ENC_MUST_USE int enc_id_new (char out[static ENC_ID_SIZE], struct enc_error *err);
bool enc_id_ok (const char *s);
/* Fill with bytes of the kernel's generator. For nonces and ids; key material comes from crypto. */
ENC_MUST_USE int enc_random (void *out, size_t len, struct enc_error *err);

/* Encodings put into `b` (which remembers failures). Decoders are strict: exact alphabet, canonical padding (base64 wants it,
 * base32 has none), no blanks; ENC_EINVAL, `out` is then as before. base32 is RFC 4648 in lower case. */
void enc_put_hex (struct enc_buf *b, const void *data, size_t len);
void enc_put_base64 (struct enc_buf *b, const void *data, size_t len);
void enc_put_base32 (struct enc_buf *b, const void *data, size_t len);
ENC_MUST_USE int enc_get_hex (const char *s, size_t len, struct enc_buf *out, struct enc_error *err);
ENC_MUST_USE int enc_get_base64 (const char *s, size_t len, struct enc_buf *out, struct enc_error *err);
ENC_MUST_USE int enc_get_base32 (const char *s, size_t len, struct enc_buf *out, struct enc_error *err);
/* Fixed size: `out` gets exactly `size` bytes or is untouched. Heap results (caller frees, NULL = no memory). */
ENC_MUST_USE int enc_hex_fixed (const char *s, void *out, size_t size, struct enc_error *err);
ENC_MUST_USE int enc_base64_fixed (const char *s, void *out, size_t size, struct enc_error *err);
char *enc_hex (const void *data, size_t len) ENC_MUST_USE;
char *enc_base64 (const void *data, size_t len) ENC_MUST_USE;

bool enc_utf8_ok (const char *s, size_t len);
/* True if the text is UTF-8 without control characters, line ends, bidirectional or other invisible format code points. */
bool enc_text_ok (const char *s);
/* `s` made safe for a terminal: what enc_text_ok() would refuse is shown as \uXXXX (or \xXX for bytes that are not UTF-8).
 * Heap, caller frees; NULL when memory is short. */
char *enc_text_printable (const char *s) ENC_MUST_USE;

/* A list of owned strings. Zero is empty; v[n] is NULL once anything was added. */
struct enc_strs {
	char **v;
	size_t n;
};
ENC_MUST_USE int enc_strs_add (struct enc_strs *l, const char *s, struct enc_error *err);
ENC_MUST_USE int enc_strs_copy (struct enc_strs *to, const struct enc_strs *from, struct enc_error *err);
bool enc_strs_has (const struct enc_strs *l, const char *s);
/* Remove the first equal string; true if there was one. */
bool enc_strs_remove (struct enc_strs *l, const char *s);
void enc_strs_sort (struct enc_strs *l);
/* "a,b,c"; heap. */
char *enc_strs_join (const struct enc_strs *l, const char *between) ENC_MUST_USE;
/* Split at one character; empty parts are ENC_EINVAL; at most `max` parts. */
ENC_MUST_USE int enc_strs_split (struct enc_strs *l, const char *s, char at, size_t max, struct enc_error *err);
void enc_strs_done (struct enc_strs *l);

#endif
