#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/file.h"
#include "base/peer.h"
#include "base/str.h"
#include "base/enc.h"

int enc_peer_of (int fd, struct enc_peer *ret, struct enc_error *err)
{
	struct ucred cred;
	socklen_t len = sizeof (cred);
	if (getsockopt (fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return enc_fail_sys (err, "who is at the other end of the socket");
	*ret = (struct enc_peer){ .pid = cred.pid, .uid = cred.uid, .gid = cred.gid };
	return 0;
}

/* ---- users ---- */

#define PW_BUF 16384

int enc_uid_of_user (const char *name, uid_t *ret_uid, gid_t *ret_gid, struct enc_error *err)
{
	char space[PW_BUF];
	struct passwd pw, *found = NULL;
	int rc = enc_user_name_ok (name) ? getpwnam_r (name, &pw, space, sizeof (space), &found) : 0;
	if (!found)
		return enc_fail (err, rc ? ENC_EFAILED : ENC_ENOTFOUND, "no user of that name on this host");
	*ret_uid = pw.pw_uid;
	if (ret_gid)
		*ret_gid = pw.pw_gid;
	return 0;
}

int enc_gid_of_group (const char *name, gid_t *ret_gid, struct enc_error *err)
{
	char space[PW_BUF];
	struct group gr, *found = NULL;
	int rc = enc_user_name_ok (name) ? getgrnam_r (name, &gr, space, sizeof (space), &found) : 0;
	if (!found)
		return enc_fail (err, rc ? ENC_EFAILED : ENC_ENOTFOUND, "no group of that name on this host");
	*ret_gid = gr.gr_gid;
	return 0;
}

int enc_user_of_uid (uid_t uid, char name[static ENC_USER_SIZE], struct enc_error *err)
{
	char space[PW_BUF];
	struct passwd pw, *found = NULL;
	int rc = getpwuid_r (uid, &pw, space, sizeof (space), &found);
	if (!found || !enc_user_name_ok (pw.pw_name))
		return enc_fail (err, rc ? ENC_EFAILED : ENC_ENOTFOUND, "uid %u has no user name on this host", (unsigned) uid);
	return enc_str_copy (name, ENC_USER_SIZE, pw.pw_name, err);
}

/* ---- Unix sockets ---- */

static int address_of (const char *path, struct sockaddr_un *ret, struct enc_error *err)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (path[0] != '/' || strlen (path) >= sizeof (ret->sun_path))
		return enc_fail (err, ENC_EINVAL, "%s is no usable socket path", path);
	memcpy (ret->sun_path, path, strlen (path) + 1);
	return 0;
}

static int stream_socket (int domain, struct enc_error *err)
{
	int fd = socket (domain, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return fd >= 0 ? fd : enc_fail_sys (err, "make a socket");
}

/* 0 = made within the deadline. EAGAIN of a Unix socket: the listener's queue is full, try again. */
static int connect_until (int fd, const struct sockaddr *to, socklen_t len, int64_t deadline)
{
	while (connect (fd, to, len) < 0) {
		if (errno != EAGAIN && errno != EINTR && errno != EINPROGRESS)
			return -1;
		if (enc_passed (deadline)) {
			errno = ETIMEDOUT;
			return -1;
		}
		(void) poll (NULL, 0, 5);
	}
	return 0;
}

int enc_unix_connect (const char *path, int64_t deadline, struct enc_error *err)
{
	struct sockaddr_un to;
	int rc = address_of (path, &to, err);
	if (rc < 0)
		return rc;
	enc_auto_close int fd = stream_socket (AF_UNIX, err);
	if (fd < 0)
		return fd;
	if (connect_until (fd, (const struct sockaddr *) &to, sizeof (to), deadline) < 0) {
		if (errno == ENOENT || errno == ECONNREFUSED)
			return enc_fail (err, ENC_EUNAVAIL, "nobody listens on %s", path);
		return enc_fail_sys (err, "connect to %s", path);
	}
	return ENC_TAKE_FD (fd);
}

/* Only a socket that nobody listens on is taken away. */
static int remove_stale (const char *path, const struct sockaddr_un *at, struct enc_error *err)
{
	struct stat st;
	if (lstat (path, &st) < 0)
		return errno == ENOENT ? 0 : enc_fail_sys (err, "stat %s", path);
	if (!S_ISSOCK (st.st_mode))
		return enc_fail (err, ENC_ECONFLICT, "%s is there and is no socket", path);
	enc_auto_close int probe = stream_socket (AF_UNIX, err);
	if (probe < 0)
		return probe;
	if (connect (probe, (const struct sockaddr *) at, sizeof (*at)) == 0 || errno == EAGAIN)
		return enc_fail (err, ENC_ECONFLICT, "another process listens on %s", path);
	if (unlink (path) < 0 && errno != ENOENT)
		return enc_fail_sys (err, "remove the stale %s", path);
	return 0;
}

int enc_unix_listen (const char *path, mode_t mode, uid_t uid, gid_t gid, struct enc_error *err)
{
	struct sockaddr_un at;
	int rc = address_of (path, &at, err);
	if (rc == 0)
		rc = remove_stale (path, &at, err);
	if (rc < 0)
		return rc;
	enc_auto_close int fd = stream_socket (AF_UNIX, err);
	if (fd < 0)
		return fd;
	/* Mode 0 until owner and mode are set: nobody connects to a socket that is not ready, root apart. */
	mode_t old = umask (0777);
	int bound = bind (fd, (const struct sockaddr *) &at, sizeof (at));
	(void) umask (old);
	if (bound < 0)
		return enc_fail_sys (err, "listen on %s", path);
	bool owner = uid != (uid_t) -1 || gid != (gid_t) -1;
	if ((owner && lchown (path, uid, gid) < 0) || chmod (path, mode) < 0 || listen (fd, 128) < 0) {
		rc = enc_fail_sys (err, "listen on %s", path);
		(void) unlink (path);
		return rc;
	}
	return ENC_TAKE_FD (fd);
}

/* ---- TCP ---- */

int enc_tcp_listen (const char *address, unsigned port, struct enc_error *err)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons ((uint16_t) port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons ((uint16_t) port) };
	bool is4 = inet_pton (AF_INET, address, &v4.sin_addr) == 1;
	if (port > 65535 || (!is4 && inet_pton (AF_INET6, address, &v6.sin6_addr) != 1))
		return enc_fail (err, ENC_EINVAL, "%s port %u is no address to listen on", address, port);
	enc_auto_close int fd = stream_socket (is4 ? AF_INET : AF_INET6, err);
	if (fd < 0)
		return fd;
	int one = 1;
	(void) setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof (one));
	const struct sockaddr *at = is4 ? (const struct sockaddr *) &v4 : (const struct sockaddr *) &v6;
	if (bind (fd, at, is4 ? sizeof (v4) : sizeof (v6)) < 0 || listen (fd, 512) < 0)
		return enc_fail_sys (err, "listen on %s port %u", address, port);
	return ENC_TAKE_FD (fd);
}

unsigned enc_fd_port (int fd)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof (at);
	if (getsockname (fd, (struct sockaddr *) &at, &len) < 0)
		return 0;
	if (at.ss_family == AF_INET)
		return ntohs (((const struct sockaddr_in *) (const void *) &at)->sin_port);
	return at.ss_family == AF_INET6 ? ntohs (((const struct sockaddr_in6 *) (const void *) &at)->sin6_port) : 0;
}
