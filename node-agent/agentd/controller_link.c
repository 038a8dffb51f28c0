/* Two clients on one identity: the long poll, and reports beside it. Whatever fails is tried again after a pause that doubles from
 * 0.1 s to 5 s with jitter, so that a controller that comes back is not met by all nodes at once. */
#include "node-agent/agentd/controller_link.h"

#include <event2/event.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/http.h"
#include "base/log.h"
#include "base/str.h"
#include "crypto/tls.h"
#include "node-agent/agentd/identity.h"
#include "base/enc.h"

enum { PAUSE_MIN_MS = 100, PAUSE_MAX_MS = 5000, POLL_TIMEOUT_MS = 40000, REPORT_TIMEOUT_MS = 10000, ENROL_TIMEOUT_MS = 20000 };

struct enc_controller_link {
	struct event_base *base;
	struct enc_controller_conf conf;
	struct enc_controller_events events;
	struct enc_http_client *poll, *report, *enrol;
	struct event *retry;
	unsigned pause_ms;
	bool down, enrolling, reporting, attested;
	uint64_t generation;             /* of the last document that was handed on */
	struct enc_json *next_report;
	char identity[65], boot[33];
};

static void poll_next (struct enc_controller_link *link);

/* ---- pauses ---- */

static void pause_start (struct enc_controller_link *link)
{
	uint16_t jitter = 0;
	if (enc_random (&jitter, sizeof jitter, NULL) < 0)
		jitter = UINT16_MAX / 2;
	link->pause_ms = link->pause_ms ? link->pause_ms * 2 : PAUSE_MIN_MS;
	if (link->pause_ms > PAUSE_MAX_MS)
		link->pause_ms = PAUSE_MAX_MS;
	unsigned ms = link->pause_ms / 2 + jitter % (link->pause_ms / 2 + 1);
	struct timeval tv = { .tv_sec = ms / 1000, .tv_usec = (suseconds_t) (ms % 1000) * 1000 };
	evtimer_add (link->retry, &tv);
}

static void pause_end (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg)
{
	struct enc_controller_link *link = arg;
	struct enc_error err = { 0 };
	if (link->poll)
		poll_next (link);
	else if (enc_controller_link_start (link, link->identity, link->boot, &err) < 0)
		pause_start (link);
}

static void link_went (struct enc_controller_link *link, bool down, const struct enc_error *err)
{
	if (down && !link->down)
		enc_log_err (ENC_LOG_WARN, err, "controller %s:%u", link->conf.host, link->conf.port);
	bool was = link->down;
	link->down = down;
	if (!down) {
		link->pause_ms = 0;
		if (was) {
			enc_log_notice ("controller %s:%u answers again", link->conf.host, link->conf.port);
			link->events.up (link->events.arg);
		}
	}
}

/* ---- the long poll ---- */

static void poll_done (int rc, const struct enc_http_answer *answer, const struct enc_error *err, void *arg)
{
	struct enc_controller_link *link = arg;
	if (rc == -ENC_ECANCELED)
		return;
	if (rc < 0) {
		link_went (link, true, err);
		pause_start (link);
		return;
	}
	link_went (link, false, NULL);
	if (answer->status == 200 && answer->body) {
		link->generation = enc_json_get_u64 (answer->body, "generation", link->generation);
		link->events.document (answer->body, link->events.arg);
	}
	poll_next (link);
}

static void poll_next (struct enc_controller_link *link)
{
	char path[64];
	(void) snprintf (path, sizeof path, "/v1/agent/document?after=%llu", (unsigned long long) link->generation);
	struct enc_http_call call = { .method = "GET", .path = path, .timeout_ms = POLL_TIMEOUT_MS, .done = poll_done, .arg = link };
	if (enc_http_client_call (link->poll, &call, NULL) < 0)
		pause_start (link);
}

/* ---- reports ---- */

static void report_done (int rc, const struct enc_http_answer *answer, const struct enc_error *err, void *arg)
{
	struct enc_controller_link *link = arg;
	if (rc == -ENC_ECANCELED)
		return;
	link->reporting = false;
	if (rc < 0)
		enc_log_err (ENC_LOG_INFO, err, "report");
	else
		link->events.reported (answer->body, link->attested, link->events.arg);
	if (link->next_report)
		enc_controller_link_report (link, ENC_TAKE (link->next_report));
}

void enc_controller_link_report (struct enc_controller_link *link, struct enc_json *report)
{
	enc_auto (enc_json) struct enc_json *body = report;
	if (!link->report || !body)
		return;
	if (link->reporting) {
		enc_json_free (link->next_report);
		link->next_report = ENC_TAKE (body);
		return;
	}
	link->attested = enc_json_str (enc_json_get (body, "attestation")) != NULL;
	struct enc_http_call call = { .method = "POST", .path = "/v1/agent/report", .body = body, .timeout_ms = REPORT_TIMEOUT_MS,
				      .done = report_done, .arg = link };
	link->reporting = enc_http_client_call (link->report, &call, NULL) == 0;
}

/* ---- clients and enrolment ---- */

static struct enc_http_client *client_new (struct enc_controller_link *link, bool with_certificate, struct enc_error *err)
{
	SSL_CTX *tls = enc_identity_tls (link->conf.state_dir, link->conf.ca_file, with_certificate, err);
	if (!tls)
		return NULL;
	struct enc_http_client_conf conf = { .host = link->conf.host, .port = link->conf.port, .tls = tls, .tls_name = ENC_CERT_SERVICE,
					     .tls_sni = with_certificate ? NULL : ENC_TLS_ENROL };
	struct enc_http_client *client = enc_http_client_new (link->base, &conf, err);
	SSL_CTX_free (tls);
	return client;
}

static int polling_start (struct enc_controller_link *link, struct enc_error *err)
{
	link->poll = client_new (link, true, err);
	link->report = link->poll ? client_new (link, true, err) : NULL;
	if (!link->report) {
		enc_http_client_free (link->poll);
		link->poll = NULL;
		return -ENC_EFAILED;
	}
	poll_next (link);
	link->events.up (link->events.arg);
	return 0;
}

static void enrol_done (int rc, const struct enc_http_answer *answer, const struct enc_error *why, void *arg)
{
	struct enc_controller_link *link = arg;
	struct enc_error err = { 0 };
	if (rc == -ENC_ECANCELED)
		return;
	link->enrolling = false;
	if (rc < 0)
		err = *why;
	else
		rc = enc_identity_store (link->conf.state_dir, enc_json_get_str (answer->body, "certificate", ""), &err);
	if (rc < 0 && enc_code_exit (rc) == ENC_EDENIED) { /* a spent token never gets better */
		enc_log_err (ENC_LOG_ERROR, &err, "enrolment of %s was refused", link->conf.node);
		(void) enc_identity_drop_token (link->conf.state_dir, NULL);
		return;
	}
	if (rc < 0 || (rc = polling_start (link, &err)) < 0) {
		enc_log_err (ENC_LOG_WARN, &err, "enrolment of %s", link->conf.node);
		pause_start (link);
		return;
	}
	enc_log_notice ("%s is enrolled", link->conf.node);
}

static int enrol_start (struct enc_controller_link *link, struct enc_error *err)
{
	enc_auto_free char *token = enc_identity_token (link->conf.state_dir, err);
	enc_auto_free char *csr = token ? enc_identity_csr (link->conf.state_dir, link->conf.node, err) : NULL;
	if (!csr)
		return err && err->code ? -err->code : -ENC_EFAILED;
	if (!link->enrol && !(link->enrol = client_new (link, false, err)))
		return -ENC_EFAILED;
	enc_auto (enc_json) struct enc_json *body = enc_json_object ();
	enc_json_set_str (body, "node", link->conf.node);
	enc_json_set_str (body, "token", token);
	enc_json_set_str (body, "csr", csr);
	enc_json_set_str (body, "identity", link->identity);
	enc_json_set_str (body, "boot", link->boot);
	struct enc_http_call call = { .method = "POST", .path = "/v1/agent/enroll", .body = body, .timeout_ms = ENROL_TIMEOUT_MS,
				      .done = enrol_done, .arg = link };
	int rc = enc_http_client_call (link->enrol, &call, err);
	link->enrolling = rc == 0;
	return rc;
}

int enc_controller_link_start (struct enc_controller_link *link, const char *identity, const char *boot, struct enc_error *err)
{
	if (link->poll || link->enrolling)
		return 0;
	(void) snprintf (link->identity, sizeof link->identity, "%.64s", identity);
	(void) snprintf (link->boot, sizeof link->boot, "%.32s", boot);
	if (enc_identity_has_certificate (link->conf.state_dir))
		return polling_start (link, err);
	return enrol_start (link, err);
}

bool enc_controller_link_enrolled (const struct enc_controller_link *link)
{
	return link->poll != NULL;
}

struct enc_controller_link *enc_controller_link_new (struct event_base *base, const struct enc_controller_conf *conf,
						     const struct enc_controller_events *events, struct enc_error *err)
{
	struct enc_controller_link *link = calloc (1, sizeof *link);
	if (!link || !(link->retry = evtimer_new (base, pause_end, link))) {
		free (link);
		(void) enc_fail (err, ENC_ENOMEM, "no memory for the link to the controller");
		return NULL;
	}
	link->base = base;
	link->conf = *conf;
	link->events = *events;
	return link;
}

void enc_controller_link_free (struct enc_controller_link *link)
{
	if (!link)
		return;
	enc_http_client_free (link->poll);
	enc_http_client_free (link->report);
	enc_http_client_free (link->enrol);
	enc_json_free (link->next_report);
	event_free (link->retry);
	free (link);
}
