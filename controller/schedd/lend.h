/* What the site lends: /etc/enclave/lendable, owned by root. Pure: parses and decides, no Slurm in it.
 *
 * One entry a line, '#' starts a comment:
 *
 *   n[1-16]                                           host list; several lines add up
 *   general never below 4 schedulable nodes           the floor; 1 when the line is absent
 *
 * A node that is not listed is never touched, whoever asks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"

struct enc_lend {
	struct enc_strs nodes;
	unsigned floor;
};

/* What the decision needs to know of one node of the general cluster. */
struct enc_lend_node {
	const char *name;
	bool schedulable; /* takes new general jobs: up, answering, not drained, not held by a reservation of ours */
};

/* ENC_EINVAL names the line. `ret` is untouched on failure. */
int enc_lend_parse (const char *text, struct enc_lend *ret, struct enc_error *err) ENC_MUST_USE;

/* Read the file; it and all folders above it must be root's and closed to others. ENC_ENOTFOUND when it is absent: nothing is lent. */
int enc_lend_load (const char *path, struct enc_lend *ret, struct enc_error *err) ENC_MUST_USE;
void enc_lend_done (struct enc_lend *lend);

/* May `want` be taken out of the general pool, whose nodes are `nodes` (sorted by name)?
 * ENC_ENOTFOUND: Slurm has no such node; ENC_EDENIED: not listed; ENC_EBUSY: fewer schedulable nodes than the floor would be left. */
int enc_lend_check (const struct enc_lend *lend, const struct enc_lend_node *nodes, size_t n, const struct enc_strs *want,
		    struct enc_error *err) ENC_MUST_USE;

/* Is every one of `want` known and listed? For acts that take nothing away. Codes as above. */
int enc_lend_listed (const struct enc_lend *lend, const struct enc_lend_node *nodes, size_t n, const struct enc_strs *want,
		     struct enc_error *err) ENC_MUST_USE;
