/* The life of a family's process: open, drop, prove, filter, then one task after the other until the main process is gone. */
#include "node-agent/privd/family.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/harden.h"
#include "base/log.h"
#include "crypto/secmem.h"

#include "base/enc.h"

enum { KEYS_SIZE_MAX = ENC_TASK_KEYS_MAX * (32 + ENC_TASK_KEY_MAX) };

struct loop {
	const struct enc_family *family;
	const struct enc_privd_conf *conf;
	int fd, watched;
	uint8_t *bytes;      /* one task */
	struct enc_doc *doc;
};

static void answer (struct loop *l, bool notice, uint8_t job, int rc, const struct enc_error *why, const struct enc_json *evidence)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (ENC_TASK_SIZE_MAX);
	enc_auto_free char *text = evidence ? enc_json_write (evidence, NULL, NULL) : NULL;

	enc_buf_put_u8 (&buf, notice);
	enc_buf_put_u8 (&buf, job);
	enc_buf_put_u16 (&buf, (uint16_t)-rc);
	enc_buf_put_str (&buf, why->text);
	enc_buf_put_str (&buf, why->next);
	enc_buf_put_bytes (&buf, text ? text : "", text ? strlen (text) : 0);
	if (enc_buf_check (&buf, NULL) < 0 || send (l->fd, buf.data, buf.len, MSG_NOSIGNAL) < 0)
		_exit (1);
}

/* Read the keys' message into locked memory; the task's keys then borrow from it. */
static int take_keys (struct loop *l, struct enc_task *task, uint8_t **ret, struct enc_error *err)
{
	uint8_t *bytes = NULL;
	ssize_t n;
	size_t at = 0;
	int rc = enc_secmem_get (KEYS_SIZE_MAX, &bytes, err);

	if (rc < 0)
		return rc;
	*ret = bytes;
	if ((n = recv (l->fd, bytes, KEYS_SIZE_MAX, 0)) < 0)
		return enc_fail_sys (err, "receive keys");
	for (size_t i = 0; i < task->keys_n; i++) {
		struct enc_task_key *k = &task->keys[i];
		if (at + 32 > (size_t)n)
			return enc_fail (err, ENC_EINVAL, "keys are cut short");
		memcpy (k->id, bytes + at, sizeof k->id);
		k->id[sizeof k->id - 1] = '\0';
		k->len = (size_t)bytes[at + 28] | (size_t)bytes[at + 29] << 8;
		k->data = bytes + at + 32;
		at += 32 + k->len;
		if (k->len > ENC_TASK_KEY_MAX || at > (size_t)n)
			return enc_fail (err, ENC_EINVAL, "keys are cut short");
	}
	return 0;
}

static void one_task (struct loop *l, size_t len, int fd)
{
	enc_auto (enc_json) struct enc_json *evidence = enc_json_object ();
	enc_auto (enc_secmem) uint8_t *keys = NULL;
	struct enc_task task = { 0 };
	struct enc_error why = { 0 };
	int rc = enc_task_decode (l->bytes, len, l->doc, &task, &why);

	if (rc == 0 && task.keys_n > 0)
		rc = take_keys (l, &task, &keys, &why);
	task.fd = fd;
	if (rc == 0 && !l->family->tasks[task.job])
		rc = enc_fail (&why, ENC_EINVAL, "family %s has no job %u", l->family->name, task.job);
	if (rc == 0)
		rc = l->family->tasks[task.job](l->conf, &task, evidence, &why);
	answer (l, false, task.job, rc, &why, evidence);
}

static ssize_t receive (struct loop *l, int *ret_fd)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE (sizeof (int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = l->bytes, .iov_len = ENC_TASK_SIZE_MAX };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space };
	ssize_t n = recvmsg (l->fd, &msg, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR (&msg) : NULL;

	*ret_fd = -1;
	if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN (sizeof (int)))
		memcpy (ret_fd, CMSG_DATA (c), sizeof (int));
	return n;
}

static void serve (struct loop *l)
{
	struct pollfd fds[2] = { { .fd = l->fd, .events = POLLIN }, { .fd = l->watched, .events = POLLIN } };
	struct enc_error none = { 0 };

	for (;;) {
		if (poll (fds, l->watched >= 0 ? 2 : 1, -1) < 0 && errno != EINTR)
			_exit (1);
		if (l->watched >= 0 && fds[1].revents && l->family->ready (l->watched))
			answer (l, true, 0, 0, &none, NULL);
		if (fds[0].revents) {
			enc_auto_close int fd = -1;
			ssize_t n = receive (l, &fd);
			if (n == 0 || (n < 0 && errno != EINTR))
				_exit (0); /* the main process is gone */
			if (n > 0)
				one_task (l, (size_t)n, fd);
		}
	}
}

static int prepare (struct loop *l, struct enc_error *err)
{
	const struct enc_family *f = l->family;
	int rc;

	if (f->secmem && (rc = enc_secmem_init (f->secmem, err)) < 0)
		return rc;
	if (f->open && (l->watched = f->open (l->conf, err)) < -1)
		return l->watched;
	if ((rc = enc_harden_process (err)) < 0 || (rc = enc_drop_to (0, 0, f->caps, err)) < 0)
		return rc;
	(void)umask (022); /* each file says its own mode */
	return f->no_seccomp ? 0 : enc_seccomp_apply (f->seccomp, f->syscalls, err);
}

void enc_family_run (const struct enc_family *family, const struct enc_privd_conf *conf, int fd)
{
	struct loop l = { .family = family, .conf = conf, .fd = fd, .watched = -1 };
	struct enc_error err = { 0 };
	char name[16];

	(void)snprintf (name, sizeof name, "privd-%s", family->name);
	(void)prctl (PR_SET_NAME, name);
	(void)signal (SIGPIPE, SIG_IGN);
	l.bytes = malloc (ENC_TASK_SIZE_MAX);
	l.doc = malloc (sizeof *l.doc);
	if (!l.bytes || !l.doc || prepare (&l, &err) < 0) {
		enc_log_err (ENC_LOG_ERROR, &err, "family %s cannot start", family->name);
		_exit (1);
	}
	serve (&l);
	_exit (0);
}
