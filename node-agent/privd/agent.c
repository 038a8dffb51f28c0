/* The agent: started through the launcher with one end of a socketpair, started again when it ends. It may be taken over at any time:
 * what it says is bounded, decoded strictly, and judged by gate.c. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/enctime.h"
#include "base/log.h"
#include "node-agent/privd/privd.h"

#include "base/enc.h"

enum { ALIVE_MS = 15000, RESTART_MIN_MS = 200, RESTART_MAX_MS = 10000, STEADY_MS = 30000 };

struct enc_agent_link {
	struct enc_privd *privd;
	struct bufferevent *bev;
	struct event *restart;
	int64_t started, seen;  /* boot clock; 0 never */
	int delay_ms;
	bool busy;              /* an order is under way */
	uint64_t life;          /* counts agents, so that none gets the answer to another's order */
};

struct ask {
	struct enc_agent_link *link;
	uint64_t life;
};

static void start (struct enc_agent_link *a);

static void again (struct enc_agent_link *a)
{
	struct timeval tv;

	a->delay_ms = a->started && enc_mono () - a->started > STEADY_MS * ENC_NS_MS ? RESTART_MIN_MS : a->delay_ms * 2;
	if (a->delay_ms > RESTART_MAX_MS)
		a->delay_ms = RESTART_MAX_MS;
	tv = (struct timeval){ .tv_sec = a->delay_ms / 1000, .tv_usec = a->delay_ms % 1000 * 1000 };
	(void)evtimer_add (a->restart, &tv);
}

static void gone (struct enc_agent_link *a)
{
	if (a->bev)
		bufferevent_free (a->bev);
	a->bev = NULL;
	a->seen = 0;
	again (a);
}

static void answered (const struct enc_order *order, int rc, const struct enc_error *err, const struct enc_json *evidence, void *arg)
{
	enc_auto_done (enc_buf_done) struct enc_buf out = ENC_BUF_INIT (ENC_ORDER_SIZE_MAX + 4);
	struct enc_answer answer = { .verb = order->verb, .request = order->request, .code = (uint16_t)-rc };
	enc_auto_free char *text = NULL;
	enc_auto_free struct ask *ask = arg;
	struct enc_agent_link *a = ask->link;
	size_t len = 0;

	if (!a->bev || ask->life != a->life)
		return; /* it went away meanwhile */
	a->busy = false;
	a->seen = enc_mono ();
	if (rc < 0) {
		(void)!enc_str_copy (answer.text, sizeof answer.text, err->text, NULL);
		(void)!enc_str_copy (answer.next, sizeof answer.next, err->next, NULL);
	}
	if (evidence)
		text = enc_json_write (evidence, &len, NULL);
	if (text && len <= ENC_ORDER_BYTES_MAX)
		answer.evidence = enc_view_of (text, len);
	if (enc_answer_encode (&answer, &out, NULL) < 0 || bufferevent_write (a->bev, out.data, out.len) < 0)
		gone (a);
	else
		bufferevent_enable (a->bev, EV_READ);
}

static void refuse (struct enc_agent_link *a, const struct enc_error *err)
{
	enc_log_err (ENC_LOG_ERROR, err, "the agent speaks nonsense; it is started again");
	gone (a);
}

static void on_read (struct bufferevent *bev, void *arg)
{
	struct enc_agent_link *a = arg;
	struct evbuffer *in = bufferevent_get_input (bev);
	struct enc_error err = { 0 };
	struct enc_order order;
	uint8_t head[4];
	size_t len;

	if (a->busy || evbuffer_copyout (in, head, sizeof head) < (ssize_t)sizeof head)
		return;
	if (enc_order_length (head, &len, &err) < 0) {
		refuse (a, &err);
		return;
	}
	if (evbuffer_get_length (in) < 4 + len)
		return;
	enc_auto_free uint8_t *body = malloc (len);
	struct ask *ask = malloc (sizeof *ask);
	if (!body || !ask) {
		free (ask);
		gone (a);
		return;
	}
	*ask = (struct ask){ a, a->life };
	(void)evbuffer_drain (in, 4);
	(void)evbuffer_remove (in, body, len);
	if (enc_order_decode (body, len, &order, &err) < 0) {
		free (ask);
		refuse (a, &err);
		return;
	}
	a->busy = true;
	a->seen = enc_mono ();
	/* One order at a time: what follows waits in the socket. */
	bufferevent_disable (bev, EV_READ);
	enc_runner_order (a->privd->runner, &order, answered, ask);
	if (!a->busy && a->bev && evbuffer_get_length (bufferevent_get_input (a->bev)) >= 4)
		bufferevent_trigger (a->bev, EV_READ, BEV_OPT_DEFER_CALLBACKS);
}

static void on_event (struct bufferevent *bev, short what, void *arg)
{
	(void)bev;
	if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) {
		enc_log_warn ("the agent ended");
		gone (arg);
	}
}

static void started (int rc, const struct enc_error *err, struct enc_view evidence, void *arg)
{
	(void)evidence, (void)arg;
	if (rc < 0)
		enc_log_err (ENC_LOG_ERROR, err, "the agent is not started");
}

static void start (struct enc_agent_link *a)
{
	struct enc_task task = { .job = ENC_JOB_AGENT, .fd = -1 };
	struct enc_error err = { 0 };
	int fds[2];

	/* Before a node is enrolled there is no agent to run. */
	if (access (a->privd->conf.agent, X_OK) < 0 || access (a->privd->conf.agent_config, F_OK) < 0) {
		again (a);
		return;
	}
	if (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
		again (a);
		return;
	}
	task.fd = fds[1];
	a->started = enc_mono ();
	if (enc_hands_do (a->privd->hands, &task, 5000, started, a, &err) < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "the agent is not started");
	(void)close (fds[1]);
	(void)evutil_make_socket_nonblocking (fds[0]);
	a->busy = false;
	a->life++;
	a->bev = bufferevent_socket_new (a->privd->base, fds[0], BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
	if (!a->bev) {
		(void)close (fds[0]);
		again (a);
		return;
	}
	bufferevent_setcb (a->bev, on_read, NULL, on_event, a);
	bufferevent_setwatermark (a->bev, EV_READ, 0, 2 * ENC_ORDER_SIZE_MAX);
	bufferevent_enable (a->bev, EV_READ | EV_WRITE);
}

static void on_restart (evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	start (arg);
}

int enc_agent_link_new (struct enc_privd *p, struct enc_error *err)
{
	struct enc_agent_link *a = calloc (1, sizeof *a);

	if (!a || !(a->restart = evtimer_new (p->base, on_restart, a))) {
		free (a);
		return enc_fail (err, ENC_ENOMEM, "agent: no memory");
	}
	a->privd = p;
	a->delay_ms = RESTART_MIN_MS;
	p->agent = a;
	start (a);
	return 0;
}

void enc_agent_link_free (struct enc_agent_link *a)
{
	if (!a)
		return;
	if (a->bev)
		bufferevent_free (a->bev);
	event_free (a->restart);
	free (a);
}

bool enc_agent_link_alive (const struct enc_agent_link *a)
{
	return a && a->bev && a->seen && (a->busy || enc_mono () - a->seen < ALIVE_MS * ENC_NS_MS);
}
