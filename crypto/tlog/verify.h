#ifndef ENC_CRYPTO_TLOG_VERIFY_H
#define ENC_CRYPTO_TLOG_VERIFY_H

#include "base/error.h"
#include "crypto/checkpoint.h"
#include "crypto/tlog/policy.h"

/* Verify a copy of a whole log in one pass: frames, order, canonical form, every
 * checkpoint's signature and root, and what lies beyond the last one. Needs the
 * folder, the log's key and nothing else of ours. */

enum enc_verify_result {
	ENC_VERIFY_COMPLETE,
	ENC_VERIFY_ALTERED,    /* something is not what was signed */
	ENC_VERIFY_INCOMPLETE, /* something that was signed is not there */
	ENC_VERIFY_UNSIGNED,   /* no seal at all, or records that have waited too long for one; or without the witnesses that the
				* policy asks for */
	ENC_VERIFY_UNREADABLE  /* cannot tell */
};
const char *enc_verify_result_name (enum enc_verify_result result);
/* Exit status: 0, 7, 7, 7, 8. */
int enc_verify_result_exit (enum enc_verify_result result);

/* A head that the auditor has seen earlier, or got from elsewhere: the log must
 * contain it. `why` is said when it does not. */
struct enc_verify_seen {
	const char *text;
	size_t len;
};

struct enc_verify_conf {
	const char *folder;
	const struct enc_vkey *vkey;
	const struct enc_verify_seen *seen;
	size_t n_seen;
	const struct enc_tlog_policy *policy; /* which witnesses must have cosigned; NULL: none is asked */
	uint64_t witness_max_s; /* a quorum must have vouched within this before `now` */
	uint64_t tail_max_s; /* records without a checkpoint may be this old; 10 is sensible */
	int64_t now;	     /* wall clock, ns */
};

struct enc_verify_report {
	enum enc_verify_result result;
	struct enc_tree_head head; /* the last one that was signed and holds */
	uint64_t checkpoints;
	uint64_t records;	   /* good ones in order, signed or not */
	uint64_t unsigned_records; /* after the last checkpoint */
	uint64_t unsigned_age_s;   /* of the oldest of them */
	int torn;		   /* a write that was never finished follows them */
	struct enc_tree_head cosigned; /* the last one that a quorum of the policy cosigned; size 0: none */
	struct enc_tlog_quorum quorum; /* of it */
	uint64_t witness_age_s;	       /* since then; meaningless when it has none */
	int64_t newest;		   /* time of the last signed record, wall ns; 0 unknown */
	int has_bad;
	struct {
		uint64_t index;
		uint64_t offset;
		char file[40];
		char why[120];
	} bad; /* the first thing that is wrong */
};

void enc_logverify (const struct enc_verify_conf *conf, struct enc_verify_report *ret);

/* The report as one JSON object of `audit verify`, without a newline. */
#define ENC_VERIFY_JSON_MAX 1024
void enc_verify_json (const struct enc_verify_conf *conf, const struct enc_verify_report *report,
	char out[static ENC_VERIFY_JSON_MAX]);

#endif
