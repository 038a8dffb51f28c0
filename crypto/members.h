/* The member document (docs/protocol.md section 6): who may do what in one enclave, until when. Signed by keyd, wire body of an
 * envelope of type 2, at /run/enclave/members on every node of the enclave.
 *
 * The reader runs inside sshd, slurmctld and slurmstepd: no threads, no globals, no JSON, two allocations per member, bounded. */
#ifndef ENC_CRYPTO_MEMBERS_H
#define ENC_CRYPTO_MEMBERS_H

#include "base/cleanup.h"
#include "crypto/envelope.h"

enum {
	ENC_MEMBERS_MAX = 1000,
	ENC_MEMBER_KEYS_MAX = 16,
	ENC_MEMBER_KEY_LINE_MAX = 1024, /* bytes of one public key line, without line end */
	ENC_MEMBER_DATASETS_MAX = 256,
	ENC_MEMBERS_SECOND_FACTOR = 1,  /* flag */
	ENC_MEMBERS_FLAGS = 1,          /* all that are known */
};

struct enc_member {
	char user[33];
	uint32_t uid;
	uint32_t gid;
	char role[33];
	size_t keys_n;
	char **keys;       /* ssh public key lines, keys_n of them */
};

struct enc_members {
	char enclave_id[27];
	char enclave_name[32];
	uint64_t version;      /* rises with every document of this enclave */
	uint64_t not_before;   /* Unix seconds */
	uint64_t not_after;
	uint8_t flags;
	size_t members_n;
	struct enc_member *members; /* sorted by user, no two of one user or uid */
	size_t datasets_n;
	char (*datasets)[32];
};

/* Append the wire body: what enclaved sends to keyd, and keyd signs after reading it back. ENC_EINVAL names the member. */
ENC_MUST_USE int enc_members_put (const struct enc_members *m, struct enc_buf *out, struct enc_error *err);
/* Read a body. The same checks as on writing. Free with enc_members_done(); on failure `ret` is untouched. */
ENC_MUST_USE int enc_members_get (struct enc_view body, struct enc_members *ret, struct enc_error *err);
void enc_members_done (struct enc_members *m);

/* Signature, then body. */
ENC_MUST_USE int enc_members_read (struct enc_view envelope, const struct enc_sign_pub *keyd, struct enc_members *ret,
	struct enc_error *err);

/* Is this document the one to decide from: that enclave's, not older than `version_min`, and in force at `now` (Unix seconds)?
 * ENC_EDENIED says what is wrong. */
ENC_MUST_USE int enc_members_hold (const struct enc_members *m, const char *enclave_id, uint64_t version_min, uint64_t now,
	struct enc_error *err);

/* NULL when there is none. The whole list is walked in any case, so that the time does not tell. */
const struct enc_member *enc_members_find (const struct enc_members *m, const char *user);
const struct enc_member *enc_members_find_uid (const struct enc_members *m, uint32_t uid);

#endif
