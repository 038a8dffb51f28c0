/* What programs of this node tell for the log, and the login sessions that are open: they end with their process, whether it says so or not. */
#pragma once

#include "base/peer.h"
#include "node-agent/privd/privd.h"
#include "node-agent/proto/told.h"

struct enc_sessions;

/* Sessions that an earlier process of this boot left; those whose process is gone are told as ended. */
int enc_sessions_new (struct enc_privd *p, struct enc_error *err) ENC_MUST_USE;
void enc_sessions_free (struct enc_sessions *s);

/* Spool a record for what `peer` tells. ENC_EDENIED: not his to tell, or this node is in no enclave. */
int enc_told_take (struct enc_privd *p, const struct enc_peer *peer, const struct enc_told *told, uint64_t *ret_counter, struct enc_error *err) ENC_MUST_USE;

/* The process of a session as the unit family wants it: `u32 pid | u64 start`. ENC_ENOTFOUND when it has ended. */
int enc_session_task (struct enc_privd *p, const char *id, struct enc_buf *out, struct enc_error *err) ENC_MUST_USE;
/* Note that it was ended by order: its record says so. */
void enc_session_ordered (struct enc_privd *p, const char *id);

/* In clock ticks since boot; 0 when there is no such process. With the pid it names one process for good. */
uint64_t enc_proc_start (pid_t pid);
