/* Volumes of one node: where everything is mounted. */
#pragma once

#include "node-agent/privd/family.h"

/* Where a directory inside a volume appears. */
struct enc_volume_place {
	const char *inside;  /* below the volume */
	const char *target;  /* absolute; NULL: below conf->root, named as `inside` */
	unsigned mode;
};

/* Places of each kind, ended by inside NULL. */
const struct enc_volume_place *enc_volume_places (uint8_t kind);
