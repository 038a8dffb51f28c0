/* The site's side of a node: units, mounts and files that go out of the way while the node is held (row "detach").
 *
 * /etc/enclave/units.json, root's:
 *   {"units":["slurmd.service","munge.service"],        in the order in which they stop; the reverse to start
 *    "leftovers":["slurmstepd"],                        names of processes that survive their unit and are killed
 *    "unmount":["/home"],                               general file systems; mounted again by their unit or fstab
 *    "hide":["/root/.ssh/authorized_keys"]}             files that read as empty meanwhile: standing root access
 * A missing file means nothing to do. */
#pragma once

#include "node-agent/privd/conf.h"

struct enc_site {
	struct enc_strs units, leftovers, unmount, hide;
};

int enc_site_load (const struct enc_privd_conf *conf, struct enc_site *ret, struct enc_error *err) ENC_MUST_USE;
void enc_site_done (struct enc_site *site);

/* Both are idempotent. While down, drop-ins in /run keep the units from being started by anybody. */
int enc_site_down (const struct enc_privd_conf *conf, struct enc_error *err) ENC_MUST_USE;
int enc_site_up (const struct enc_privd_conf *conf, struct enc_error *err) ENC_MUST_USE;

/* At the start of a boot: the condition that keeps the units down, and an end to those that came up before it. */
int enc_site_hold (const struct enc_privd_conf *conf, struct enc_error *err) ENC_MUST_USE;
