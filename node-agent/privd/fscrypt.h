/* fscrypt, policy version 2: AES-256-XTS for contents, AES-256-CTS for names. Keys live in the kernel, by super block. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { ENC_FSCRYPT_ID = 16, ENC_FSCRYPT_KEY_MIN = 32, ENC_FSCRYPT_KEY_MAX = 64 };

enum enc_fscrypt_key { ENC_FSCRYPT_ABSENT, ENC_FSCRYPT_PRESENT, ENC_FSCRYPT_INCOMPLETE };

/* Give a key to the file system of `fd`; its id (computed by the kernel) comes back. Adding it twice is nothing. */
int enc_fscrypt_add (int fd, const uint8_t *key, size_t len, uint8_t ret_id[ENC_FSCRYPT_ID], struct enc_error *err) ENC_MUST_USE;

/* Take the key away, for all users. ENC_EBUSY while files are open: it is locked for new opens, and a repetition finishes. */
int enc_fscrypt_remove (int fd, const uint8_t id[ENC_FSCRYPT_ID], struct enc_error *err) ENC_MUST_USE;

int enc_fscrypt_status (int fd, const uint8_t id[ENC_FSCRYPT_ID], enum enc_fscrypt_key *ret, struct enc_error *err) ENC_MUST_USE;

/* Encrypt the empty directory `fd` under that key; the same policy again is nothing. ENC_ECONFLICT under another key. */
int enc_fscrypt_protect (int fd, const uint8_t id[ENC_FSCRYPT_ID], struct enc_error *err) ENC_MUST_USE;

/* Read the policy back: ENC_ENOTFOUND if there is none, ENC_EINTEGRITY if it is not AES-256 of version 2. */
int enc_fscrypt_policy (int fd, uint8_t ret_id[ENC_FSCRYPT_ID], struct enc_error *err) ENC_MUST_USE;
