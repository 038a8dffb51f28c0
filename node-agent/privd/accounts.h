/* Members as this node's users: extrausers files, homes, login keys; and the site's own users out of sight while roles are up. */
#pragma once

#include "base/buf.h"
#include "crypto/members.h"
#include "node-agent/privd/conf.h"
#include "node-agent/proto/document.h"

/* Texts of passwd, group and shadow for the members. Pure. */
int enc_accounts_passwd (const struct enc_privd_conf *conf, const struct enc_members *m, struct enc_buf *out, struct enc_error *err) ENC_MUST_USE;
int enc_accounts_group (const struct enc_members *m, uint32_t owner_gid, struct enc_buf *out, struct enc_error *err) ENC_MUST_USE;
int enc_accounts_shadow (const struct enc_members *m, struct enc_buf *out, struct enc_error *err) ENC_MUST_USE;

/* Lines of /etc/passwd or /etc/group whose id is a system's. Pure. */
int enc_accounts_system_lines (const char *text, uint64_t uid_min, struct enc_buf *out, struct enc_error *err) ENC_MUST_USE;

/* Write all of it. Members that were there and are no more lose every process on this node; `ret_ended` counts those members. */
int enc_accounts_apply (const struct enc_privd_conf *conf, const struct enc_doc *doc, const struct enc_members *m, size_t *ret_ended, struct enc_error *err) ENC_MUST_USE;

/* End the sessions of all members (their whole slice), not their batch jobs. */
int enc_accounts_end_sessions (struct enc_error *err) ENC_MUST_USE;

/* End one login session: everything in the unit of the process that began it. `start` (told.h) keeps a later process of that number safe. */
int enc_accounts_end_session (pid_t pid, uint64_t start, struct enc_error *err) ENC_MUST_USE;

/* End what login sessions that are over have left: processes of users with one of these audit sessions. */
int enc_accounts_end_rest (const uint32_t *logins, size_t n, struct enc_error *err) ENC_MUST_USE;

/* Take everything away again. */
int enc_accounts_remove (const struct enc_privd_conf *conf, struct enc_error *err) ENC_MUST_USE;
