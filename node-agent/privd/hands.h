/* The main process's side of the families: fork them all, give each one task at a time, hear their answers. */
#pragma once

#include "base/cleanup.h"
#include "node-agent/privd/family.h"

struct event_base;
struct enc_hands;

struct enc_hands_events {
	void (*died) (const char *family, void *arg);    /* a family's process ended; it cannot be replaced in this process */
	void (*noticed) (const char *family, void *arg); /* a word of its watched descriptor */
	void *arg;
};

/* Fork all families; before anything is dropped. */
struct enc_hands *enc_hands_new (const struct enc_privd_conf *conf, struct enc_error *err) ENC_MUST_USE;
void enc_hands_free (struct enc_hands *h);
ENC_DEFINE_AUTO (enc_hands, struct enc_hands, enc_hands_free);

/* From now on answers come from this loop. */
int enc_hands_loop (struct enc_hands *h, struct event_base *base, const struct enc_hands_events *events, struct enc_error *err) ENC_MUST_USE;

/* rc and err of the task; `evidence` (JSON text, borrowed) may be empty. */
typedef void enc_hands_done_fn (int rc, const struct enc_error *err, struct enc_view evidence, void *arg);

/* Give a task to the family that has its job. ENC_EBUSY while that one has another. At the deadline the family is killed. */
int enc_hands_do (struct enc_hands *h, const struct enc_task *task, int64_t ms, enc_hands_done_fn *done, void *arg, struct enc_error *err) ENC_MUST_USE;
bool enc_hands_busy (const struct enc_hands *h, uint8_t job);

/* The same without a loop, for the start. `ret_evidence` may be NULL, else a parsed object or NULL. */
int enc_hands_wait (struct enc_hands *h, const struct enc_task *task, int64_t ms, struct enc_json **ret_evidence, struct enc_error *err) ENC_MUST_USE;
