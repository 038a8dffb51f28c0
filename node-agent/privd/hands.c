#include "node-agent/privd/hands.h"

#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/enctime.h"
#include "base/log.h"

#include "base/enc.h"

enum { HANDS_MAX = 8 };

struct hand {
	struct enc_hands *hands;
	const struct enc_family *family;
	pid_t pid;
	int fd;
	struct event *readable, *deadline;
	uint8_t job;               /* under way; 0 none */
	enc_hands_done_fn *done;
	void *arg;
};

struct enc_hands {
	size_t n;
	struct hand hand[HANDS_MAX];
	struct enc_hands_events events;
	uint8_t *bytes;            /* one answer */
};

static int fork_one (struct enc_hands *h, const struct enc_family *family, const struct enc_privd_conf *conf, struct enc_error *err)
{
	struct hand *hand = &h->hand[h->n];
	int fds[2];

	if (socketpair (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return enc_fail_sys (err, "family %s", family->name);
	*hand = (struct hand){ .hands = h, .family = family, .fd = fds[0] };
	if ((hand->pid = fork ()) < 0) {
		(void)close (fds[0]);
		(void)close (fds[1]);
		return enc_fail_sys (err, "family %s", family->name);
	}
	if (hand->pid == 0) {
		/* The other families' sockets are none of this one's. */
		for (size_t i = 0; i <= h->n; i++)
			(void)close (h->hand[i].fd);
		enc_family_run (family, conf, fds[1]);
	}
	(void)close (fds[1]);
	h->n++;
	return 0;
}

struct enc_hands *enc_hands_new (const struct enc_privd_conf *conf, struct enc_error *err)
{
	enc_auto (enc_hands) struct enc_hands *h = calloc (1, sizeof *h);

	if (!h || !(h->bytes = malloc (ENC_TASK_SIZE_MAX))) {
		(void)enc_fail (err, ENC_ENOMEM, "families: no memory");
		return NULL;
	}
	for (size_t i = 0; enc_families[i] && h->n < HANDS_MAX; i++)
		if (fork_one (h, enc_families[i], conf, err) < 0)
			return NULL;
	return ENC_TAKE (h);
}

void enc_hands_free (struct enc_hands *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < h->n; i++) {
		struct hand *hand = &h->hand[i];
		if (hand->readable)
			event_free (hand->readable);
		if (hand->deadline)
			event_free (hand->deadline);
		/* The end of the socket is its sign to go. */
		if (hand->fd >= 0)
			(void)close (hand->fd);
	}
	free (h->bytes);
	free (h);
}

static struct hand *hand_for (const struct enc_hands *h, uint8_t job)
{
	for (size_t i = 0; i < h->n; i++)
		if (job < ENC_JOB_MAX && h->hand[i].family->tasks[job])
			return (struct hand *)(uintptr_t)&h->hand[i];
	return NULL;
}

static void finish (struct hand *hand, int rc, const struct enc_error *err, struct enc_view evidence)
{
	enc_hands_done_fn *done = hand->done;

	hand->job = 0;
	hand->done = NULL;
	if (hand->deadline)
		(void)evtimer_del (hand->deadline);
	if (done)
		done (rc, err, evidence, hand->arg);
}

static void hand_died (struct hand *hand)
{
	struct enc_error err = { 0 };
	bool busy = hand->job != 0;

	if (hand->fd < 0)
		return;
	(void)event_del (hand->readable);
	(void)close (hand->fd);
	hand->fd = -1;
	(void)waitpid (hand->pid, NULL, WNOHANG);
	if (busy) {
		int rc = enc_fail (&err, ENC_EFAILED, "family %s ended while it worked", hand->family->name);
		finish (hand, rc, &err, enc_view_of (NULL, 0));
	}
	hand->hands->events.died (hand->family->name, hand->hands->events.arg);
}

static void on_readable (evutil_socket_t fd, short what, void *arg)
{
	struct hand *hand = arg;
	struct enc_hands *h = hand->hands;
	struct enc_task_answer answer;
	struct enc_error err = { 0 };
	ssize_t n = recv (fd, h->bytes, ENC_TASK_SIZE_MAX, MSG_DONTWAIT);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		hand_died (hand);
		return;
	}
	if (enc_task_answer_decode (h->bytes, (size_t)n, &answer, &err) < 0 || (!answer.notice && answer.job != hand->job)) {
		enc_log_err (ENC_LOG_ERROR, &err, "family %s speaks nonsense", hand->family->name);
		(void)kill (hand->pid, SIGKILL);
		return;
	}
	if (answer.notice)
		h->events.noticed (hand->family->name, h->events.arg);
	else
		finish (hand, answer.rc, &answer.err, answer.evidence);
}

static void on_deadline (evutil_socket_t fd, short what, void *arg)
{
	struct hand *hand = arg;

	(void)fd, (void)what;
	enc_log_error ("family %s is not done in time", hand->family->name);
	(void)kill (hand->pid, SIGKILL);
}

int enc_hands_loop (struct enc_hands *h, struct event_base *base, const struct enc_hands_events *events, struct enc_error *err)
{
	h->events = *events;
	for (size_t i = 0; i < h->n; i++) {
		struct hand *hand = &h->hand[i];
		hand->readable = event_new (base, hand->fd, EV_READ | EV_PERSIST, on_readable, hand);
		hand->deadline = evtimer_new (base, on_deadline, hand);
		if (!hand->readable || !hand->deadline || event_add (hand->readable, NULL) < 0)
			return enc_fail (err, ENC_ENOMEM, "families: no memory");
	}
	return 0;
}

bool enc_hands_busy (const struct enc_hands *h, uint8_t job)
{
	const struct hand *hand = hand_for (h, job);

	return hand && hand->job != 0;
}

int enc_hands_do (struct enc_hands *h, const struct enc_task *task, int64_t ms, enc_hands_done_fn *done, void *arg, struct enc_error *err)
{
	struct hand *hand = hand_for (h, task->job);
	struct timeval limit = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
	int rc;

	if (!hand || hand->fd < 0)
		return enc_fail (err, ENC_EUNAVAIL, "no family for job %u", task->job);
	if (hand->job)
		return enc_fail (err, ENC_EBUSY, "family %s is busy", hand->family->name);
	if ((rc = enc_task_send (hand->fd, task, err)) < 0)
		return rc;
	hand->job = task->job;
	hand->done = done;
	hand->arg = arg;
	(void)evtimer_add (hand->deadline, &limit);
	return 0;
}

static int await (struct enc_hands *h, struct hand *hand, int64_t deadline, struct enc_task_answer *ret, struct enc_error *err)
{
	struct pollfd p = { .fd = hand->fd, .events = POLLIN };
	ssize_t n;
	int rc;

	for (;;) {
		if ((rc = poll (&p, 1, enc_left_ms (deadline))) == 0 || (rc < 0 && errno != EINTR)) {
			(void)kill (hand->pid, SIGKILL);
			return enc_fail (err, ENC_ETIMEOUT, "family %s is not done in time", hand->family->name);
		}
		if (rc < 0)
			continue;
		if ((n = recv (hand->fd, h->bytes, ENC_TASK_SIZE_MAX, 0)) <= 0)
			return enc_fail (err, ENC_EFAILED, "family %s ended while it worked", hand->family->name);
		if ((rc = enc_task_answer_decode (h->bytes, (size_t)n, ret, err)) < 0)
			return rc;
		if (!ret->notice)
			return 0;
	}
}

int enc_hands_wait (struct enc_hands *h, const struct enc_task *task, int64_t ms, struct enc_json **ret_evidence, struct enc_error *err)
{
	struct hand *hand = hand_for (h, task->job);
	struct enc_task_answer answer;
	int rc;

	if (!hand || hand->fd < 0)
		return enc_fail (err, ENC_EUNAVAIL, "no family for job %u", task->job);
	if ((rc = enc_task_send (hand->fd, task, err)) < 0 || (rc = await (h, hand, enc_deadline_ms (ms), &answer, err)) < 0)
		return rc;
	if (answer.rc < 0) {
		if (err)
			*err = answer.err;
		return answer.rc;
	}
	if (ret_evidence)
		*ret_evidence = enc_json_parse ((const char *)answer.evidence.at, answer.evidence.left, ENC_TASK_SIZE_MAX, NULL);
	return 0;
}
