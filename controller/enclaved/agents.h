/* The agents' side: TLS 1.3 with client certificates, one long poll for documents, reports, enrolment by one-time token. */
#ifndef ENC_ENCLAVED_AGENTS_H
#define ENC_ENCLAVED_AGENTS_H

#include "controller/enclaved/ctl.h"

/* Have a server certificate (keyd's, made when there is none yet), then listen; as a fiber, trying until the key service answers. */
ENC_MUST_USE int enc_agents_start (struct enc_ctl *c, struct enc_error *err);
/* SHA-256 of the CA certificate in hex, for "node enroll": what an agent compares. ENC_EUNAVAIL while there is no CA yet. */
ENC_MUST_USE int enc_agents_ca_sha256 (struct enc_ctl *c, char ret[65], struct enc_error *err);

/* report.c: store what a node reported and put its events into the log. `ret_stored` is the counter up to which they are. */
ENC_MUST_USE int enc_report_take (struct enc_ctl *c, const char *node, const char *remote, const struct enc_json *report, int64_t *ret_stored,
				  struct enc_error *err);
/* enroll.c: a token for a certificate; from a fiber. */
ENC_MUST_USE int enc_enroll (struct enc_ctl *c, const struct enc_json *body, struct enc_json **ret, struct enc_error *err);
/* enroll.c: the controller's own certificate, written to the configured files; from a fiber. */
ENC_MUST_USE int enc_enroll_self (struct enc_ctl *c, struct enc_error *err);
/* enroll.c: take a node's baseline if it has none; starts a fiber. Called at each report. */
void enc_baseline_want (struct enc_ctl *c, const char *node);
/* A new one-time token (hex), of which only the hash is stored. */
ENC_MUST_USE int enc_token_new (struct enc_ctl *c, const char *node, const char *pool, char ret[65], int64_t *ret_expires, struct enc_error *err);

#endif
