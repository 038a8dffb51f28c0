#ifndef ENC_AUDITD_TEXT_H
#define ENC_AUDITD_TEXT_H

#include "base/cleanup.h"
#include "base/error.h"
#include "controller/auditd/record.h"

/* The detachable side store: free texts with their salts, by record index. A
 * text can be erased later; the record keeps only its hash. */

struct enc_texts;

/* Open or make STATE/text.db and drop what stands at `size` or beyond: texts of
 * records that a crash has taken. */
struct enc_texts *enc_texts_open (const char *state, uint64_t size, struct enc_error *err) ENC_MUST_USE;
void enc_texts_free (struct enc_texts *texts);
ENC_DEFINE_AUTO (enc_texts, struct enc_texts, enc_texts_free);

/* Texts of a batch: put, then one durable commit, or all dropped. */
int enc_texts_put (
	struct enc_texts *texts, uint64_t index, const struct enc_record *record, struct enc_error *err) ENC_MUST_USE;
int enc_texts_commit (struct enc_texts *texts, struct enc_error *err) ENC_MUST_USE;
void enc_texts_drop (struct enc_texts *texts, uint64_t size);

/* ENC_ENOTFOUND when there is none. The caller frees the text. */
int enc_texts_get (struct enc_texts *texts, uint64_t index, char **ret_text, uint8_t salt[static ENC_RECORD_SALT],
	struct enc_error *err) ENC_MUST_USE;

#endif
