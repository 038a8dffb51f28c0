/* Messages between the main process and a family. Both ends are this program in the same boot, so there is no version; bounds are
 * checked all the same, for a family may have been taken over. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "crypto/secmem.h"
#include "node-agent/privd/family.h"

#include "base/enc.h"

enum { KEYS_SIZE_MAX = ENC_TASK_KEYS_MAX * (32 + ENC_TASK_KEY_MAX) };

int enc_task_encode (const struct enc_task *task, struct enc_buf *buf, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf doc = ENC_BUF_INIT (ENC_DOC_SIZE_MAX);
	int rc;

	if (task->doc && (rc = enc_doc_encode (task->doc, &doc, err)) < 0)
		return rc;
	enc_buf_put_u8 (buf, task->job);
	enc_buf_put_u8 (buf, task->flags);
	enc_buf_put_u8 (buf, (uint8_t)task->keys_n);
	enc_buf_put_bytes (buf, doc.data, doc.len);
	enc_buf_put_bytes (buf, task->extra.at, task->extra.left);
	return enc_buf_check (buf, err);
}

int enc_task_decode (const void *data, size_t len, struct enc_doc *doc, struct enc_task *ret, struct enc_error *err)
{
	struct enc_view view = enc_view_of (data, len), bytes;
	struct enc_task task = { .fd = -1 };
	int rc;

	task.job = enc_view_u8 (&view);
	task.flags = enc_view_u8 (&view);
	task.keys_n = enc_view_u8 (&view);
	bytes = enc_view_bytes (&view, ENC_DOC_SIZE_MAX);
	task.extra = enc_view_bytes (&view, ENC_TASK_SIZE_MAX);
	if ((rc = enc_view_end (&view, err)) < 0)
		return enc_wrap (err, rc, "task");
	if (task.job == 0 || task.job >= ENC_JOB_MAX || task.keys_n > ENC_TASK_KEYS_MAX)
		return enc_fail (err, ENC_EINVAL, "task: unknown job or too many keys");
	if (bytes.left > 0) {
		if ((rc = enc_doc_decode (bytes.at, bytes.left, doc, err)) < 0)
			return rc;
		task.doc = doc;
	}
	*ret = task;
	return 0;
}

int enc_task_answer_decode (const void *data, size_t len, struct enc_task_answer *ret, struct enc_error *err)
{
	struct enc_view view = enc_view_of (data, len);
	struct enc_task_answer answer = { 0 };
	int rc;

	answer.notice = enc_view_u8 (&view) != 0;
	answer.job = enc_view_u8 (&view);
	answer.rc = -(int)enc_view_u16 (&view);
	enc_view_str (&view, answer.err.text, sizeof answer.err.text);
	enc_view_str (&view, answer.err.next, sizeof answer.err.next);
	answer.evidence = enc_view_bytes (&view, ENC_TASK_SIZE_MAX);
	if ((rc = enc_view_end (&view, err)) < 0)
		return enc_wrap (err, rc, "answer of a family");
	answer.err.code = -answer.rc;
	*ret = answer;
	return 0;
}

static int send_keys (int fd, const struct enc_task *task, struct enc_error *err)
{
	enc_auto (enc_secmem) uint8_t *bytes = NULL;
	size_t at = 0;
	int rc = enc_secmem_get (KEYS_SIZE_MAX, &bytes, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < task->keys_n; i++) {
		const struct enc_task_key *k = &task->keys[i];
		if (k->len > ENC_TASK_KEY_MAX)
			return enc_fail (err, ENC_ELIMIT, "key %s is too long", k->id);
		memcpy (bytes + at, k->id, sizeof k->id);
		bytes[at + 28] = (uint8_t)k->len;
		bytes[at + 29] = (uint8_t)(k->len >> 8);
		memcpy (bytes + at + 32, k->data, k->len);
		at += 32 + k->len;
	}
	if (send (fd, bytes, at, MSG_NOSIGNAL) != (ssize_t)at)
		return enc_fail_sys (err, "hand over keys");
	return 0;
}

static ssize_t send_with_fd (int fd, const struct enc_buf *buf, int pass)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE (sizeof (int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = buf->data, .iov_len = buf->len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (pass >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof control.space;
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN (sizeof (int));
		memcpy (CMSG_DATA (&control.head), &pass, sizeof pass);
	}
	return sendmsg (fd, &msg, MSG_NOSIGNAL);
}

int enc_task_send (int fd, const struct enc_task *task, struct enc_error *err)
{
	enc_auto_done (enc_buf_done) struct enc_buf buf = ENC_BUF_INIT (ENC_TASK_SIZE_MAX);
	int rc = enc_task_encode (task, &buf, err);

	if (rc < 0)
		return rc;
	if (send_with_fd (fd, &buf, task->fd) != (ssize_t)buf.len)
		return enc_fail_sys (err, "hand over a task");
	return task->keys_n > 0 ? send_keys (fd, task, err) : 0;
}

const struct enc_task_key *enc_task_key_find (const struct enc_task *task, const char *id)
{
	for (size_t i = 0; i < task->keys_n; i++)
		if (strcmp (task->keys[i].id, id) == 0)
			return &task->keys[i];
	return NULL;
}
