#ifndef ENC_AUDITD_H
#define ENC_AUDITD_H

/* What the parts of enclave-auditd share. One event loop, no threads: while a
 * batch is made durable, requests wait in their sockets and become the next one. */
#include "base/daemon.h"
#include "base/enctime.h"
#include "base/fields.h"
#include "base/ipc_loop.h"
#include "controller/auditd/cosigned.h"
#include "controller/auditd/index.h"
#include "controller/auditd/trail.h"
#include "controller/auditd/record.h"
#include "controller/auditd/text.h"

#define AUDITD_BATCH 1024

/* Who may use the socket, by uid. The name stands in `src.name` of records. */
struct auditd_peer {
	char *name;
	char *user;
	bool append;
	bool read;
	bool cosign; /* cosignd */
	/* not from the file */
	uint32_t uid;
	uint64_t refused; /* records since the last tick */
};

struct auditd_conf {
	char *origin;
	char *state;
	char *socket;
	char *witnesses; /* file of the witness policy; NULL: none */
	uint64_t witness_max_age_s;
	uint64_t segment_bytes;
	uint64_t reserve_bytes;
	uint64_t full_bytes;
	uint64_t checkpoint_ms;
	uint64_t checkpoint_records;
	struct enc_list peers; /* struct auditd_peer */
};

/* A record in the batch that waits for the disk. */
struct auditd_pending {
	struct enc_ipc_req *req; /* NULL: our own record */
	uint64_t index;
	bool receipt;
	char *body; /* kept for a receipt */
	char time[ENC_TIME_SIZE];
};

/* A search that waits until the side index has caught up. */
struct auditd_search;

struct auditd {
	struct enc_daemon *daemon;
	struct auditd_conf *conf;
	struct event_base *base;
	struct enc_ipc_server *server;
	int listen_fd;
	struct enc_trail *log;
	struct enc_texts *texts;
	struct enc_index *index;
	struct enc_cosigned *cosigned;
	struct event *commit_event;
	struct event *tick_event;
	struct event *index_event;
	char boot[ENC_BOOT_ID_SIZE];
	struct auditd_pending pending[AUDITD_BATCH];
	size_t n_pending;
	bool urgent; /* the batch holds a record that may use reserved space */
	bool sign;   /* the batch asks for a checkpoint at once */
	bool was_full;
	uint64_t commits; /* of batches, since the start */
	struct auditd_search *searches;
	size_t n_searches;
};

/* auditd.c: opening and closing of the stores. */
int auditd_open_stores (struct auditd *a, uint64_t floor, struct enc_error *err) ENC_MUST_USE;
void auditd_close_stores (struct auditd *a);

/* batch.c */
/* Take a producer's record; it is answered after the next commit. */
int auditd_take (struct auditd *a, struct auditd_peer *peer, const struct enc_json *record, struct enc_ipc_req *req,
	bool receipt, struct enc_error *err) ENC_MUST_USE;
/* A record of our own; `data` is taken over, may be NULL. Failures are logged. */
void auditd_own (struct auditd *a, const char *action, const char *outcome, struct enc_json *data);
/* Make the batch durable and answer. May end the daemon. */
void auditd_commit (struct auditd *a);
/* Sign what is durable. */
int auditd_sign (struct auditd *a, struct enc_error *err) ENC_MUST_USE;
void auditd_note_repair (struct auditd *a);
void auditd_tick (struct auditd *a);
/* Have the newest quorum of witnesses in its file now. */
void auditd_flush (struct auditd *a);

/* ops_witness.c: what cosignd asks and brings, and what is shown of it. */
enc_ipc_handler_fn auditd_op_grown, auditd_op_cosign, auditd_op_witness;
/* The peer, if it may; else the request has been answered. */
struct auditd_peer *auditd_allowed (struct auditd *a, struct enc_ipc_req *req, unsigned rights);
enum { AUDITD_APPEND = 1, AUDITD_READ = 2, AUDITD_COSIGN = 4 };

/* ops.c */
extern const struct enc_ipc_op auditd_ops[];
/* Answer the searches whose records are indexed by now; with `err`, refuse all. */
void auditd_searches (struct auditd *a, const struct enc_error *err);
/* There is something to index. */
void auditd_index_soon (struct auditd *a);
bool auditd_admit (const struct enc_peer *peer, void *arg);

#endif
