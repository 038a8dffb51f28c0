/* What keyd remembers: /var/lib/enclave-key/keys.db (SQLite). Only wraps, public things and facts; a key never stands here in clear.
 * Deleted rows are overwritten (secure_delete), every change is durable before its answer goes out. */
#ifndef ENC_KEYD_STORE_H
#define ENC_KEYD_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "crypto/cert.h"
#include "crypto/grant.h"
#include "crypto/seal.h"

struct enc_keystore;

/* Open or make `folder`/keys.db. ENC_EINTEGRITY if it is damaged or of a newer version. */
ENC_MUST_USE int enc_keystore_open (const char *folder, struct enc_keystore **ret, struct enc_error *err);
void enc_keystore_free (struct enc_keystore *s);
ENC_DEFINE_AUTO (enc_keystore, struct enc_keystore, enc_keystore_free);

/* Changes between begin and commit happen all or none. enc_keystore_end() rolls back what was not committed; it may always be
 * called. One at a time. */
ENC_MUST_USE int enc_keystore_begin (struct enc_keystore *s, struct enc_error *err);
ENC_MUST_USE int enc_keystore_commit (struct enc_keystore *s, struct enc_error *err);
void enc_keystore_end (struct enc_keystore *s);

/* Finders return ENC_ENOTFOUND without a text when there is no such row; buffers are appended to. */

/* Single values: "kdf" "root" "sign" "ca" "ca_pem" "vkey" "clock". */
ENC_MUST_USE int enc_keystore_value (struct enc_keystore *s, const char *name, struct enc_buf *ret, struct enc_error *err);
ENC_MUST_USE int enc_keystore_set_value (struct enc_keystore *s, const char *name, const struct enc_buf *value, struct enc_error *err);

struct enc_lease_row {
	char enclave[ENC_ID_SIZE];
	char name[32];
	uint64_t not_after;        /* Unix seconds */
	bool ended;                /* for good */
	uint64_t members_version;  /* newest member document signed; 0 none */
	uint8_t members_hash[32];
};
ENC_MUST_USE int enc_keystore_lease (struct enc_keystore *s, const char *enclave, struct enc_lease_row *ret, struct enc_error *err);
ENC_MUST_USE int enc_keystore_set_lease (struct enc_keystore *s, const struct enc_lease_row *row, struct enc_error *err);

/* An enclave's key-encrypting key, wrapped by the root key. */
ENC_MUST_USE int enc_keystore_kek (struct enc_keystore *s, const char *enclave, struct enc_buf *ret, struct enc_error *err);
ENC_MUST_USE int enc_keystore_set_kek (struct enc_keystore *s, const char *enclave, const struct enc_buf *wrap, struct enc_error *err);
/* Forget it if no key of that enclave is left: what it wrapped anywhere else is then lost too. */
ENC_MUST_USE int enc_keystore_drop_kek (struct enc_keystore *s, const char *enclave, struct enc_error *err);

enum enc_key_state { ENC_KEY_LIVE, ENC_KEY_LOCKED, ENC_KEY_DESTROYED };

struct enc_key_row {
	char id[ENC_ID_SIZE];
	char enclave[ENC_ID_SIZE];
	char purpose[16];
	uint32_t version;
	uint32_t bytes;
	enum enc_key_state state;
	struct enc_buf wrap;   /* empty once destroyed */
};
void enc_key_row_done (struct enc_key_row *row);
ENC_MUST_USE int enc_keystore_key (struct enc_keystore *s, const char *id, struct enc_key_row *ret, struct enc_error *err);
ENC_MUST_USE int enc_keystore_set_key (struct enc_keystore *s, const struct enc_key_row *row, struct enc_error *err);

struct enc_node_row {
	char node[ENC_NODE_SIZE];
	uint8_t identity[32];                 /* Ed25519 public key of privd */
	char serial[ENC_CERT_SERIAL_HEX];     /* of the one certificate that counts */
	struct enc_buf baseline;              /* rows as on the wire; empty: none yet */
	uint8_t boot[ENC_BOOT_SIZE];          /* boot and generation of the newest grant */
	uint64_t generation;
};
void enc_node_row_done (struct enc_node_row *row);
ENC_MUST_USE int enc_keystore_node (struct enc_keystore *s, const char *node, struct enc_node_row *ret, struct enc_error *err);
ENC_MUST_USE int enc_keystore_set_node (struct enc_keystore *s, const struct enc_node_row *row, struct enc_error *err);

/* The newest attestation of a node. */
struct enc_attest_record {
	char node[ENC_NODE_SIZE];
	uint8_t boot[ENC_BOOT_SIZE];
	uint8_t boot_key[ENC_SEAL_POINT];
	uint64_t time;          /* keyd's clock when it was checked */
	struct enc_buf rows;    /* as on the wire */
};
void enc_attest_record_done (struct enc_attest_record *row);
ENC_MUST_USE int enc_keystore_attest (struct enc_keystore *s, const char *node, struct enc_attest_record *ret, struct enc_error *err);
ENC_MUST_USE int enc_keystore_set_attest (struct enc_keystore *s, const struct enc_attest_record *row, struct enc_error *err);
ENC_MUST_USE int enc_keystore_drop_attest (struct enc_keystore *s, const char *node, struct enc_error *err);

#endif
