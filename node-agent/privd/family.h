/* Verb families: one child process each, forked before privd drops anything, with its own capabilities and seccomp filter.
 * The main process decides and holds keys; a family does the work of its jobs, one at a time, and answers.
 *
 * Socketpair SOCK_SEQPACKET: a task is one message (no secrets), its keys a second one right behind it, the answer a third. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/buf.h"
#include "base/json.h"
#include "node-agent/privd/conf.h"
#include "node-agent/proto/document.h"

enum enc_job {
	ENC_JOB_FENCE = 1,      /* apply the document's fence; flag DOOR opens the login port */
	ENC_JOB_FENCE_CHECK,    /* is it in force? put back if not */
	ENC_JOB_OVERLAY,        /* up or down as the document says */
	ENC_JOB_OVERLAY_KEY,    /* make a key pair for this stay if there is none; evidence {"overlay_key"} */
	ENC_JOB_VOLUMES,        /* open what the document lists, close the rest; flag CLOSE closes all */
	ENC_JOB_UNITS,          /* the site's units as the document says */
	ENC_JOB_ROLES,          /* roles as the document says; flag CLOSE takes all down */
	ENC_JOB_ACCOUNTS,       /* members' accounts and homes from `extra` (body of a member document) */
	ENC_JOB_DOOR,           /* flag DOOR opens */
	ENC_JOB_CLEAN,
	ENC_JOB_MEASURE,
	ENC_JOB_PROBE,
	ENC_JOB_SESSION,        /* end the login session of the process in `extra` (u32 pid | u64 start) */
	ENC_JOB_AGENT,          /* start the agent; its end of the socketpair goes along */
	ENC_JOB_MAX,
};

/* REST: of a SESSION, `extra` is a list of u32, the audit sessions whose processes shall go */
enum { ENC_TASK_DOOR = 1, ENC_TASK_CLOSE = 2, ENC_TASK_REST = 4, ENC_RESTS_MAX = 16 };

enum {
	ENC_TASK_SIZE_MAX = 160 * 1024,
	ENC_TASK_KEYS_MAX = 33,  /* volumes and the munge key */
	ENC_TASK_KEY_MAX = 1024, /* bytes of one key */
};

struct enc_task_key {
	char id[27];
	size_t len;
	const uint8_t *data; /* locked memory */
};

struct enc_task {
	uint8_t job;          /* enum enc_job */
	uint8_t flags;
	const struct enc_doc *doc; /* NULL: none */
	size_t keys_n;
	struct enc_task_key keys[ENC_TASK_KEYS_MAX];
	struct enc_view extra;
	int fd;               /* ENC_JOB_AGENT only, else -1 */
};

/* Do one task. `evidence` is an object to be filled. */
typedef int (*enc_task_fn) (const struct enc_privd_conf *conf, const struct enc_task *task, struct enc_json *evidence, struct enc_error *err);

struct enc_family {
	const char *name;
	const int *caps;               /* ended by -1 */
	unsigned seccomp;              /* flags of enc_seccomp_apply() */
	const char *const *syscalls;   /* more of them, NULL-ended */
	bool no_seccomp;               /* for the parent of the agent, which brings its own filter */
	size_t secmem;                 /* bytes of locked memory */
	/* Before anything is dropped; may be NULL. Returns a descriptor that the loop watches, -1 for none. */
	int (*open) (const struct enc_privd_conf *conf, struct enc_error *err);
	/* The watched descriptor is readable: returns true if the main process shall hear of it. */
	bool (*ready) (int fd);
	enc_task_fn tasks[ENC_JOB_MAX]; /* NULL: not this family's */
};

/* The families of this program, NULL-ended, in the order in which they are forked. */
extern const struct enc_family *const enc_families[];

/* Run a family in this (forked) process on its socket; never returns. */
_Noreturn void enc_family_run (const struct enc_family *family, const struct enc_privd_conf *conf, int fd);

/* Encoding of a task without its keys, and of an answer. */
int enc_task_encode (const struct enc_task *task, struct enc_buf *buf, struct enc_error *err) ENC_MUST_USE;
/* `doc` is filled when the task has one, and `ret->doc` then points to it. */
int enc_task_decode (const void *data, size_t len, struct enc_doc *doc, struct enc_task *ret, struct enc_error *err) ENC_MUST_USE;

/* An answer, or with `notice` a word of the watched descriptor. */
struct enc_task_answer {
	bool notice;
	uint8_t job;
	int rc;
	struct enc_error err;
	struct enc_view evidence; /* JSON text */
};
int enc_task_answer_decode (const void *data, size_t len, struct enc_task_answer *ret, struct enc_error *err) ENC_MUST_USE;

/* Send a task with its keys; the keys' message is built in locked memory and wiped. */
int enc_task_send (int fd, const struct enc_task *task, struct enc_error *err) ENC_MUST_USE;

/* The key of that id, or NULL. */
const struct enc_task_key *enc_task_key_find (const struct enc_task *task, const char *id);
