/* One order is under way at a time: privd is single-minded on purpose, and the areas of a document depend on each other.
 * An order whose deadline passes ends the link: an answer that comes later could be taken for another order's. */
#include "node-agent/agentd/privd_link.h"

#include <event2/bufferevent.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <string.h>
#include <sys/queue.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/enc.h"

enum { LINK_QUEUE_MAX = 32 };

struct pending {
	STAILQ_ENTRY (pending) next;
	struct enc_buf message;
	uint64_t request;
	uint8_t verb;
	int64_t timeout_ms;
	enc_privd_done_fn *done;
	void *arg;
};

struct enc_privd_link {
	struct bufferevent *bev;
	struct event *timer;
	void (*gone) (void *arg);
	void *arg;
	uint64_t next_request;
	unsigned waiting;
	bool busy, dead;
	STAILQ_HEAD (pending_list, pending) queue;
};

static void pending_free (struct pending *p)
{
	enc_buf_done (&p->message);
	free (p);
}

static struct pending *queue_pop (struct enc_privd_link *link)
{
	struct pending *p = STAILQ_FIRST (&link->queue);
	if (p) {
		STAILQ_REMOVE_HEAD (&link->queue, next);
		link->waiting--;
	}
	return p;
}

static void link_next (struct enc_privd_link *link)
{
	struct pending *p = STAILQ_FIRST (&link->queue);
	if (link->busy || link->dead || !p)
		return;
	struct timeval tv = { .tv_sec = p->timeout_ms / 1000, .tv_usec = p->timeout_ms % 1000 * 1000 };
	link->busy = true;
	bufferevent_write (link->bev, p->message.data, p->message.len);
	evtimer_add (link->timer, &tv);
}

/* End of the link: everything that waits is told, then the owner. */
static void link_end (struct enc_privd_link *link, enum enc_code code, const char *why)
{
	if (link->dead)
		return;
	link->dead = true;
	evtimer_del (link->timer);
	bufferevent_disable (link->bev, EV_READ | EV_WRITE);
	struct enc_error err = { 0 };
	int rc = enc_fail (&err, code, "%s", why);
	for (struct pending *p = queue_pop (link); p; p = queue_pop (link)) {
		p->done (rc, NULL, &err, p->arg);
		pending_free (p);
	}
	link->gone (link->arg);
}

static void link_timeout (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg)
{
	link_end (arg, ENC_ETIMEOUT, "privd did not answer in time");
}

static void link_answer (struct enc_privd_link *link, const uint8_t *body, size_t len)
{
	struct enc_error err = { 0 };
	struct enc_answer answer;
	struct pending *p = STAILQ_FIRST (&link->queue);
	int rc = enc_answer_decode (body, len, &answer, &err);
	if (rc < 0 || !p || !link->busy || answer.request != p->request || answer.verb != p->verb) {
		link_end (link, ENC_EPROTO, "privd sent an answer that fits no order");
		return;
	}
	evtimer_del (link->timer);
	link->busy = false;
	(void) queue_pop (link);
	if (answer.code) {
		rc = enc_fail (&err, answer.code, "%s", answer.text);
		(void) enc_error_next (&err, rc, "%s", answer.next);
	}
	p->done (rc, &answer, rc < 0 ? &err : NULL, p->arg);
	pending_free (p);
	link_next (link);
}

static void link_read (struct bufferevent *bev, void *arg)
{
	struct enc_privd_link *link = arg;
	struct evbuffer *in = bufferevent_get_input (bev);
	while (!link->dead && evbuffer_get_length (in) >= 4) {
		uint8_t head[4];
		size_t len;
		evbuffer_copyout (in, head, sizeof head);
		if (enc_order_length (head, &len, NULL) < 0) {
			link_end (link, ENC_EPROTO, "privd sent a message of impossible length");
			return;
		}
		if (evbuffer_get_length (in) < 4 + len)
			return;
		enc_auto_free uint8_t *body = malloc (len);
		if (!body) {
			link_end (link, ENC_ENOMEM, "no memory for an answer of privd");
			return;
		}
		evbuffer_drain (in, 4);
		evbuffer_remove (in, body, len);
		link_answer (link, body, len);
	}
}

static void link_event (struct bufferevent *bev ENC_UNUSED, short what, void *arg)
{
	if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
		link_end (arg, ENC_EUNAVAIL, "privd closed the connection");
}

struct enc_privd_link *enc_privd_link_new (struct event_base *base, int fd, void (*gone) (void *arg), void *arg, struct enc_error *err)
{
	struct enc_privd_link *link = calloc (1, sizeof *link);
	if (!link) {
		close (fd);
		(void) enc_fail (err, ENC_ENOMEM, "no memory for the link to privd");
		return NULL;
	}
	STAILQ_INIT (&link->queue);
	link->gone = gone;
	link->arg = arg;
	link->next_request = 1;
	evutil_make_socket_nonblocking (fd);
	link->bev = bufferevent_socket_new (base, fd, BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
	link->timer = evtimer_new (base, link_timeout, link);
	if (!link->bev || !link->timer) {
		if (!link->bev)
			close (fd);
		enc_privd_link_free (link);
		(void) enc_fail (err, ENC_ENOMEM, "no memory for the link to privd");
		return NULL;
	}
	bufferevent_setcb (link->bev, link_read, NULL, link_event, link);
	bufferevent_enable (link->bev, EV_READ | EV_WRITE);
	return link;
}

void enc_privd_link_free (struct enc_privd_link *link)
{
	if (!link)
		return;
	for (struct pending *p = queue_pop (link); p; p = queue_pop (link))
		pending_free (p);
	if (link->timer)
		event_free (link->timer);
	if (link->bev)
		bufferevent_free (link->bev);
	free (link);
}

int enc_privd_link_order (struct enc_privd_link *link, struct enc_order *order, int64_t timeout_ms, enc_privd_done_fn *done, void *arg,
			  struct enc_error *err)
{
	if (link->dead)
		return enc_fail (err, ENC_EUNAVAIL, "privd is gone");
	if (link->waiting >= LINK_QUEUE_MAX)
		return enc_fail (err, ENC_EBUSY, "too many orders wait for privd");
	struct pending *p = calloc (1, sizeof *p);
	if (!p)
		return enc_fail (err, ENC_ENOMEM, "no memory for an order");
	order->request = link->next_request++;
	*p = (struct pending){ .message = ENC_BUF_INIT (ENC_ORDER_SIZE_MAX + 4), .request = order->request, .verb = order->verb,
			       .timeout_ms = timeout_ms, .done = done, .arg = arg };
	int rc = enc_order_encode (order, &p->message, err);
	if (rc < 0) {
		pending_free (p);
		return rc;
	}
	STAILQ_INSERT_TAIL (&link->queue, p, next);
	link->waiting++;
	link_next (link);
	return 0;
}
