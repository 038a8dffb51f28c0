/* What a stay leaves behind, as one table: how to find it and how to take it away. After the cleaner the finder looks again, and what it
 * then finds is "left": a clean has passed when that is 0 in every row. */
#pragma once

#include <stddef.h>

#include "node-agent/privd/conf.h"

struct enc_residue {
	const char *name;
	const char *path;   /* what the functions need to know; may be NULL */
	int (*find) (const struct enc_privd_conf *conf, const struct enc_residue *row, size_t *ret_n, struct enc_error *err);
	int (*clean) (const struct enc_privd_conf *conf, const struct enc_residue *row, struct enc_error *err);
};

/* Ended by name NULL, in the order in which it is cleaned: what runs first, what lies about after it. */
extern const struct enc_residue enc_residues[];
