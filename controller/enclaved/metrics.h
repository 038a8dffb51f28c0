/* The controller's figures for a site's monitoring, in the OpenMetrics 1.0 text format (also read by Prometheus' text parser).
 *
 * Counts, ages and durations; of nodes their names and pools, as any user of the cluster can see them. No enclave, user, job or
 * volume is named: whoever may read the figures need not be one who may know of an enclave. Alert rules, a dashboard and a
 * runbook stand on them: ops/site/monitoring, docs/runbook.md. */
#ifndef ENC_ENCLAVED_METRICS_H
#define ENC_ENCLAVED_METRICS_H

#include "controller/enclaved/ctl.h"

#define ENC_METRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* The whole text, ended by "# EOF"; the caller frees. From a fiber only: log, keys and scheduler are asked. A service that does
 * not answer is a figure, not a failure. ENC_ENOMEM, or ENC_EFAILED when the store does not answer. */
ENC_MUST_USE int enc_metrics_text (struct enc_ctl *c, char **ret, struct enc_error *err);

/* Starts the fiber that replaces conf->metrics_file every conf->metrics_every_s (for node-exporter's textfile collector); does
 * nothing when no file is configured. */
ENC_MUST_USE int enc_metrics_start (struct enc_ctl *c, struct enc_error *err);

/* One more request was refused with this HTTP status. */
void enc_metrics_refused (struct enc_ctl *c, int status);

#endif
