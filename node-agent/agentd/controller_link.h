/* The agent's connection to the controller: mutual TLS 1.3, one long poll for documents and one way for reports, remade with growing pauses.
 * Before the node has a certificate: enrolment by a one-time token (docs/protocol.md section 5). */
#ifndef ENC_AGENTD_CONTROLLER_LINK_H
#define ENC_AGENTD_CONTROLLER_LINK_H

#include "base/error.h"
#include "base/json.h"

struct event_base;
struct enc_controller_link;

struct enc_controller_conf {
	const char *node;
	const char *host;      /* address or name of the controller */
	unsigned port;
	const char *ca_file;   /* the CA that the controller's certificate must be of */
	const char *state_dir; /* key, certificate and token lie here, owned by the agent */
};

struct enc_controller_events {
	/* A document arrived, or word without one; `answer` is borrowed. */
	void (*document) (const struct enc_json *answer, void *arg);
	/* A report was taken: its "events_stored" are in the log; `attested` is true if it carried an attestation. */
	void (*reported) (const struct enc_json *answer, bool attested, void *arg);
	/* The link works again after it did not: report at once. */
	void (*up) (void *arg);
	void *arg;
};

struct enc_controller_link *enc_controller_link_new (struct event_base *base, const struct enc_controller_conf *conf,
						     const struct enc_controller_events *events, struct enc_error *err) ENC_MUST_USE;
void enc_controller_link_free (struct enc_controller_link *link);

/* True once the node has a certificate and polls. */
bool enc_controller_link_enrolled (const struct enc_controller_link *link);
/* Use the token, if there is one, to get a certificate for `identity` (hex); then start polling. Safe to call again: it does nothing
 * while an enrolment is under way or done. ENC_ENOTFOUND when there is neither certificate nor token. */
int enc_controller_link_start (struct enc_controller_link *link, const char *identity, const char *boot, struct enc_error *err) ENC_MUST_USE;
/* Send a report (taken over); the newest waits while one is under way. */
void enc_controller_link_report (struct enc_controller_link *link, struct enc_json *report);

#endif
