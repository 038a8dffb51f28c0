/* Places on the clear root file system that take people's text (logs, logins, mail, cron and at, core files, file names): covered by bounded
 * memory while roles are up. What lay there before is not touched, and is there again when the cover is gone; what was written meanwhile goes
 * with the cover. */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "base/str.h"
#include "node-agent/privd/conf.h"

/* Idempotent. Services that have a file of a covered place open are started anew, so that they write into the cover; ENC_EBUSY names a
 * process that cannot be. */
int enc_covers_up (struct enc_error *err) ENC_MUST_USE;
int enc_covers_down (const struct enc_privd_conf *conf, struct enc_error *err) ENC_MUST_USE;

/* The covers that are there. */
int enc_covers_list (struct enc_strs *ret, struct enc_error *err) ENC_MUST_USE;
