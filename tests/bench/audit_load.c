/* Load for enclave-auditd: `audit_load SOCKET WRITERS WINDOW SECONDS [RATE]` forks
 * that many writers, each keeping WINDOW appends unanswered, and prints how many
 * were acknowledged and how long the slowest one in a hundred took. With RATE they
 * send so many a second together, each when its turn comes and the last one is
 * answered; the time counts from the turn, so that a queue cannot hide itself. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/enc.h"

#define WINDOW_MAX 1024
#define VIA_MAX 60u
#define BUCKETS 100000 /* of 10 us */

struct total {
	uint64_t acks;
	uint64_t refused;
	uint32_t bucket[BUCKETS];
};

static uint64_t now_us (void)
{
	struct timespec ts;

	(void)clock_gettime (CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static int connect_to (const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket (AF_UNIX, SOCK_STREAM, 0);

	(void)snprintf (addr.sun_path, sizeof (addr.sun_path), "%s", path);
	if (fd < 0 || connect (fd, (struct sockaddr *)&addr, sizeof (addr)) < 0) {
		perror (path);
		_exit (1);
	}
	return fd;
}

static const char via[VIA_MAX + 1] = "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwx";

static size_t make_request (char *out, size_t size)
{
	int n = snprintf (out + 4, size - 4,
		"{\"op\":\"append\",\"record\":{\"class\":\"file\",\"action\":\"access\",\"outcome\":\"ok\",\"actor\":{\"user\":\"res1\"},"
		"\"obj\":{\"node\":\"n1\",\"path_hmac\":\"%064d\"},\"via\":\"%.*s\",\"data\":{\"mode\":\"read\",\"count\":%d}}}",
		(int)getpid (), 1 + rand () % (int)VIA_MAX, via, rand () % 1000);

	for (int i = 0; i < 4; i++)
		out[i] = (char)(n >> (24 - 8 * i));
	return (size_t)n + 4;
}

static void write_all (int fd, const char *p, size_t len)
{
	while (len > 0) {
		ssize_t n = write (fd, p, len);

		if (n <= 0)
			_exit (1);
		p += n;
		len -= (size_t)n;
	}
}

/* Read whole answers; returns how many came. */
static unsigned read_answers (int fd, struct total *total, uint64_t *sent, uint64_t *oldest)
{
	static char buf[1 << 16];
	static size_t have;
	ssize_t n = read (fd, buf + have, sizeof (buf) - have);
	size_t at = 0;
	unsigned count = 0;

	if (n <= 0)
		_exit (1);
	have += (size_t)n;
	while (have - at >= 4) {
		size_t len = (size_t)(uint8_t)buf[at] << 24 | (size_t)(uint8_t)buf[at + 1] << 16 | (size_t)(uint8_t)buf[at + 2] << 8 |
			     (uint8_t)buf[at + 3];
		uint64_t took;

		if (have - at < 4 + len)
			break;
		took = (now_us () - sent[(*oldest)++ % WINDOW_MAX]) / 10;
		if (memmem (buf + at + 4, len, "\"error\"", 7))
			__atomic_add_fetch (&total->refused, 1, __ATOMIC_RELAXED);
		else
			__atomic_add_fetch (&total->acks, 1, __ATOMIC_RELAXED);
		__atomic_add_fetch (&total->bucket[took < BUCKETS ? took : BUCKETS - 1], 1, __ATOMIC_RELAXED);
		at += 4 + len;
		count++;
	}
	memmove (buf, buf + at, have - at);
	have -= at;
	return count;
}

static void writer (const char *path, unsigned window, double seconds, struct total *total)
{
	static uint64_t sent[WINDOW_MAX];
	char request[2048];
	char batch[WINDOW_MAX * 512];
	int fd = connect_to (path);
	uint64_t end = now_us () + (uint64_t)(seconds * 1e6);
	uint64_t next = 0, oldest = 0;
	unsigned room = window;

	srand ((unsigned)getpid ());
	while (now_us () < end) {
		size_t used = 0;

		for (; room > 0; room--) {
			size_t len = make_request (request, sizeof (request));

			memcpy (batch + used, request, len);
			used += len;
			sent[next++ % WINDOW_MAX] = now_us ();
		}
		write_all (fd, batch, used);
		room += read_answers (fd, total, sent, &oldest);
	}
	_exit (0);
}

/* One at a time, by the clock. */
static void paced (const char *path, double per_s, double seconds, struct total *total)
{
	static uint64_t sent[WINDOW_MAX];
	char request[2048];
	int fd = connect_to (path);
	uint64_t gap = (uint64_t)(1e6 / per_s), start = now_us (), end = start + (uint64_t)(seconds * 1e6), turn;
	uint64_t oldest = 0, next = 0;

	srand ((unsigned)getpid ());
	for (turn = start + (uint64_t)rand () % gap; turn < end; turn += gap) {
		uint64_t now = now_us ();
		size_t len = make_request (request, sizeof (request));

		if (turn > now)
			(void)usleep ((useconds_t)(turn - now));
		sent[next++ % WINDOW_MAX] = turn;
		write_all (fd, request, len);
		while (read_answers (fd, total, sent, &oldest) == 0)
			;
	}
	_exit (0);
}

int main (int argc, char **argv)
{
	unsigned writers = argc >= 5 ? (unsigned)strtoul (argv[2], NULL, 10) : 0;
	unsigned window = argc >= 5 ? (unsigned)strtoul (argv[3], NULL, 10) : 0;
	double seconds = argc >= 5 ? strtod (argv[4], NULL) : 0;
	double rate = argc == 6 ? strtod (argv[5], NULL) : 0;
	struct total *total = mmap (NULL, sizeof (*total), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t seen = 0, p99 = 0;

	if (writers == 0 || window == 0 || window > WINDOW_MAX || total == MAP_FAILED) {
		(void)fprintf (stderr, "usage: audit_load SOCKET WRITERS WINDOW SECONDS [RATE]\n");
		return 2;
	}
	for (unsigned i = 0; i < writers; i++)
		if (fork () == 0) {
			if (rate > 0)
				paced (argv[1], rate / writers, seconds, total);
			writer (argv[1], window, seconds, total);
		}
	while (wait (NULL) > 0)
		;
	while (p99 < BUCKETS - 1 && seen + total->bucket[p99] < (total->acks + total->refused) * 99 / 100)
		seen += total->bucket[p99++];
	(void)printf ("{\"append_per_s\":%.0f,\"refused\":%llu,\"ack_p99_ms\":%.2f}\n", (double)total->acks / seconds,
		(unsigned long long)total->refused, (double)p99 / 100);
	return 0;
}
