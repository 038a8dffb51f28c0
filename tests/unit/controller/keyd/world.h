/* A keyd without a socket, a log that signs whatever it is told, and a node with an identity: so that each check of keyd can be
 * tried alone. The log here is not auditd: it makes the receipts that auditd would, and the ones that it never would. */
#ifndef ENC_TEST_KEYD_WORLD_H
#define ENC_TEST_KEYD_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/keyd/keyd.h"
#include "crypto/attestation.h"
#include "crypto/hash.h"
#include "crypto/note.h"
#include "crypto/seal.h"

#define CXR "cxrcxrcxrcxrcxrcxrcxrcxrcx"   /* enclave ids */
#define OTHER "otherotherotherotherothero"
#define VOLUME "fbcdefghijklmnopqrstuvwxyz" /* key ids that the document of the fixture names */
#define MUNGE "dbcdefghijklmnopqrstuvwxyz"
#define STRAY "straystraystraystraystrays"
#define BOOT "000102030405060708090a0b0c0d0e0f"
#define NOW INT64_C (1800000000)
#define CALLER 4711
#define PASSPHRASE "correct horse battery"

struct world {
	char folder[512];
	struct enc_keyd_conf conf;
	struct enc_keyd_caller caller;
	struct enc_keyd k;
	struct enc_sign_key *log_key, *identity, *foreign;
	struct enc_vkey log;
	struct enc_boot_key *boot_key;
	struct enc_error err;
	struct enc_json *answer; /* of the last call */
};

extern struct world w;
extern int64_t wall, mono; /* seconds, ns */

int world_up (void **state);
int world_down (void **state);
/* init done, node n1 enrolled with a baseline and attested, lease of enclave CXR ("cxr") for a day, keys VOLUME and MUNGE made */
int world_ready (void **state);

/* Requests are built as text with ' for ". */
struct enc_json *json_of (const char *fmt, ...) ENC_PRINTF (1, 2);

/* One call as `uid`; `request` is taken over. Returns the code, the answer is in w.answer, the error in w.err. */
int call_as (uid_t uid, struct enc_json *request, const struct enc_fds *fds);
int call (struct enc_json *request);
/* init, unseal, seal as root. */
int with_passphrase (const char *op, const char *passphrase);

/* A nonce of keyd's, as hex. */
const char *nonce (void);

/* How a receipt is made; zero is the good one. */
struct receipt_faults {
	bool foreign_key;     /* signed by a stranger under the log's name */
	bool altered;         /* a byte of the record changed after signing */
	bool other_leaf;      /* the proof is for another record */
	const char *outcome;  /* instead of "intent" */
	int64_t clock_off_s;  /* of the record's time */
};
/* Add "record" and "proof" to `request` for a head given as text with ' for ". "NONCE" in it is replaced by a fresh nonce. */
void add_receipt (struct enc_json *request, const char *head, const struct receipt_faults *faults);
/* The usual: request, head, call. */
int ordered (struct enc_json *request, const char *head);

/* Texts for requests; the caller frees nothing (a small ring of buffers). */
const char *sha_hex (const void *data, size_t len);
const char *b64 (const struct enc_buf *b);

/* An attestation envelope of n1; rows are "kernel" and "privd" with these first digest bytes. */
struct attest_order {
	const char *node;       /* NULL: n1 */
	const char *boot;       /* NULL: BOOT */
	const char *challenge;  /* NULL: a fresh nonce */
	uint8_t kernel;         /* 0: 1 */
	bool foreign;           /* signed by a stranger */
};
struct enc_buf attestation (const struct attest_order *order);
int attest (const struct attest_order *order);

#endif
