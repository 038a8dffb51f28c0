/* Ending connections that the fence no longer allows. */
#pragma once

#include "node-agent/privd/fence_rules.h"

/* Forget all tracked connections of this network namespace, and abort every TCP and connected UDP socket whose other end the fence
 * does not let through, so that programs see the end at once instead of waiting. `ret_n` counts aborted sockets. */
int enc_connections_cut (const struct enc_fence *fence, size_t *ret_n, struct enc_error *err) ENC_MUST_USE;
