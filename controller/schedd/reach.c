/* See reach.h. */
#include "controller/schedd/reach.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/enc.h"

enum { PORT_DEFAULT = 6817 };

/* The value of `key` on this line (any case, blanks around '='), up to the next blank or comment; NULL if the line is about something else. */
static const char *value_of (const char *line, const char *key, size_t *ret_len)
{
	size_t len = strlen (key);

	line += strspn (line, " \t");
	if (strncasecmp (line, key, len) != 0)
		return NULL;
	line += len + strspn (line + len, " \t");
	if (*line != '=')
		return NULL;
	line++;
	line += strspn (line, " \t");
	*ret_len = strcspn (line, " \t\r\n#");
	return *ret_len ? line : NULL;
}

/* "name" or "name(address)": the address counts. */
static int add_host (struct enc_reach *r, const char *value, size_t len, struct enc_error *err)
{
	const char *open = memchr (value, '(', len);
	char host[256];

	if (open && value[len - 1] == ')') {
		len = len - (size_t) (open - value) - 2;
		value = open + 1;
	}
	if (len == 0 || len >= sizeof host || r->hosts.n >= ENC_REACH_HOSTS_MAX)
		return 0;
	memcpy (host, value, len);
	host[len] = '\0';
	return enc_strs_add (&r->hosts, host, err);
}

static void set_port (struct enc_reach *r, const char *value, size_t len)
{
	char text[16];
	char *dash;
	uint64_t first, last;

	if (len >= sizeof text)
		return;
	memcpy (text, value, len);
	text[len] = '\0';
	if ((dash = strchr (text, '-')))
		*dash = '\0';
	if (enc_parse_u64 (text, 1, 65535, &first, NULL) < 0)
		return;
	last = first;
	if (dash && enc_parse_u64 (dash + 1, first, 65535, &last, NULL) < 0)
		return;
	r->port_first = (unsigned) first;
	r->port_last = (unsigned) last;
}

int enc_reach_parse (const char *text, struct enc_reach *ret, struct enc_error *err)
{
	static const char *const keys[] = { "SlurmctldHost", "ControlAddr", "ControlMachine" };
	struct enc_reach r = { .port_first = PORT_DEFAULT, .port_last = PORT_DEFAULT };
	int rc = 0;

	for (const char *line = text; rc == 0 && *line; line += strcspn (line, "\n"), line += *line == '\n') {
		const char *value;
		size_t len;

		if ((value = value_of (line, "SlurmctldPort", &len)))
			set_port (&r, value, len);
		for (size_t i = 0; rc == 0 && i < ENC_ARRAY_LEN (keys); i++)
			if ((value = value_of (line, keys[i], &len)))
				rc = add_host (&r, value, len, err);
	}
	if (rc < 0) {
		enc_reach_done (&r);
		return rc;
	}
	*ret = r;
	return 0;
}

void enc_reach_done (struct enc_reach *reach)
{
	enc_strs_done (&reach->hosts);
}

static bool connects (const struct addrinfo *to, int64_t deadline)
{
	enc_auto_close int fd = socket (to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int failed = 0;
	socklen_t size = sizeof failed;

	if (fd < 0)
		return false;
	if (connect (fd, to->ai_addr, to->ai_addrlen) == 0)
		return true;
	if (errno != EINPROGRESS || poll (&p, 1, enc_left_ms (deadline)) <= 0)
		return false;
	return getsockopt (fd, SOL_SOCKET, SO_ERROR, &failed, &size) == 0 && failed == 0;
}

bool enc_reach_any (const struct enc_reach *reach, int ms)
{
	int64_t deadline = enc_deadline_ms (ms);
	bool reached = reach->hosts.n == 0;

	for (size_t i = 0; !reached && i < reach->hosts.n; i++) {
		struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
		char port[8];

		(void) snprintf (port, sizeof port, "%u", reach->port_first);
		if (getaddrinfo (reach->hosts.v[i], port, &hints, &found) != 0)
			continue;
		for (const struct addrinfo *a = found; a && !reached; a = a->ai_next)
			reached = connects (a, deadline);
		freeaddrinfo (found);
	}
	return reached;
}
