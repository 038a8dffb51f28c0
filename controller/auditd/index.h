#ifndef ENC_AUDITD_INDEX_H
#define ENC_AUDITD_INDEX_H

#include "base/cleanup.h"
#include "base/error.h"
#include "base/json.h"

/* The side index: a table made from the segment files and from nothing else, for
 * finding records. It is thin, may be thrown away at any time, and no proof ever
 * rests on it. */

struct enc_index;

/* Open or make STATE/index.db over the segments in the folder `log_fd`. An index
 * of another log, or one that knows more records than there are, is made anew. */
struct enc_index *enc_index_open (
	const char *state, int log_fd, const char *origin, uint64_t size, struct enc_error *err) ENC_MUST_USE;
void enc_index_free (struct enc_index *index);
ENC_DEFINE_AUTO (enc_index, struct enc_index, enc_index_free);

/* Take in at most `max` of the records before `size`. Returns how many. */
ssize_t enc_index_update (struct enc_index *index, uint64_t size, uint64_t max, struct enc_error *err) ENC_MUST_USE;
uint64_t enc_index_next (const struct enc_index *index);

/* The stored bytes of a record, indexed or not yet. ENC_ENOTFOUND if there is none. */
struct enc_buf;
int enc_index_body (struct enc_index *index, uint64_t idx, struct enc_buf *ret, struct enc_error *err) ENC_MUST_USE;

struct enc_index_query {
	const char *user;    /* who did it, or to whom, and what belongs to his jobs; NULL: any; likewise below */
	const char *enclave; /* name or id; a name finds all that carry one of its ids */
	const char *dataset;
	const char *node;
	const char *action; /* "class", "class.action" or "action" */
	const char *outcome;
	int64_t since_ms; /* wall; 0: any */
	int64_t until_ms;
	uint64_t from; /* first index */
	uint64_t limit;
};

/* Add the records found to `records`, oldest first, and set how many there are
 * in all. */
int enc_index_search (struct enc_index *index, const struct enc_index_query *query, struct enc_json *records,
	uint64_t *ret_matched, struct enc_error *err) ENC_MUST_USE;

/* The enclaves that a name or id stands for, oldest first: {"name","id","first"}, `first` being the record that first named it so. */
int enc_index_names (
	struct enc_index *index, const char *enclave, struct enc_json *names, struct enc_error *err) ENC_MUST_USE;

#endif
