/* Talking to the service manager over its own socket (/run/systemd/private), so that neither the message bus nor any program is
 * needed. Root only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <stddef.h>

#include "base/error.h"

enum enc_unit_act { ENC_UNIT_START, ENC_UNIT_STOP, ENC_UNIT_RESTART };

/* Ask for a job on a unit and wait for its end, at most `ms`. Stopping a unit that is not loaded is success. ENC_EFAILED when the
 * job ends otherwise than "done", ENC_ETIMEOUT. */
int enc_bus_unit (enum enc_unit_act act, const char *unit, int64_t ms, struct enc_error *err) ENC_MUST_USE;

/* ActiveState of a unit ("active", "inactive", "failed" …) into `ret`; "inactive" for one that is not loaded. */
int enc_bus_unit_state (const char *unit, char *ret, size_t size, struct enc_error *err) ENC_MUST_USE;

/* Forget failures and start limits of a unit, so that earlier trouble does not count against a start that is ordered now. */
void enc_bus_forgive (const char *unit);

/* Read unit files again after a change. */
int enc_bus_reload (struct enc_error *err) ENC_MUST_USE;

/* Send a signal to all processes of a unit; a unit that is not loaded is success. */
int enc_bus_kill (const char *unit, int signal, struct enc_error *err) ENC_MUST_USE;

/* The control group of a unit below the hierarchy, "" when it has none. */
int enc_bus_unit_cgroup (const char *unit, char *ret, size_t size, struct enc_error *err) ENC_MUST_USE;
