/* Who is at the other end of a Unix socket, and who is who on this host. */
#ifndef ENC_BASE_PEER_H
#define ENC_BASE_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/error.h"

struct enc_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

/* SO_PEERCRED of a connected socket. */
ENC_MUST_USE int enc_peer_of (int fd, struct enc_peer *ret, struct enc_error *err);

/* Look-ups that end in ENC_ENOTFOUND; `name` is of 33 bytes at least. */
#define ENC_USER_SIZE 33
ENC_MUST_USE int enc_uid_of_user (const char *name, uid_t *ret_uid, gid_t *ret_gid, struct enc_error *err);
ENC_MUST_USE int enc_gid_of_group (const char *name, gid_t *ret_gid, struct enc_error *err);
ENC_MUST_USE int enc_user_of_uid (uid_t uid, char name[static ENC_USER_SIZE], struct enc_error *err);

/* A listening AF_UNIX stream socket: a stale one of that name is replaced (a live one is ENC_ECONFLICT), mode and owner are set
 * before it can be connected to (the folder must be trusted). Or the descriptor systemd passed by that name. -1… on failure. */
ENC_MUST_USE int enc_unix_listen (const char *path, mode_t mode, uid_t uid, gid_t gid, struct enc_error *err);
/* Connected, non-blocking, CLOEXEC. ENC_EUNAVAIL when nobody listens. */
ENC_MUST_USE int enc_unix_connect (const char *path, int64_t deadline, struct enc_error *err);
/* A listening TCP socket on a numeric address ("127.0.0.1", "::") and port; port 0 takes a free one. */
ENC_MUST_USE int enc_tcp_listen (const char *address, unsigned port, struct enc_error *err);
unsigned enc_fd_port (int fd);

#endif
