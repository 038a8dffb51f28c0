/* Between child*.c alone: a command as built, and a child that runs. */
#ifndef ENC_BASE_CHILD_SPAWN_H
#define ENC_BASE_CHILD_SPAWN_H

#include "base/child.h"
#include "base/str.h"

#define ENC_CMD_PASS 8

struct enc_cmd {
	char *path;
	struct enc_strs argv;
	struct enc_strs env;
	struct enc_buf in;
	bool has_in;
	int in_fd;  /* -1: none; the caller's */
	int out_fd; /* -1: captured */
	int err_fd;
	int pass[ENC_CMD_PASS];
	unsigned pass_n;
	size_t max_out;
	size_t max_err;
	int64_t ms;
	bool as_user;
	uid_t uid;
	gid_t gid;
	char *cwd;
	bool trusted;
	struct enc_error bad; /* first failure while building */
};

struct enc_child {
	pid_t pid;
	int pidfd;
	int out; /* our ends, non-blocking, -1 = closed or not captured */
	int err;
	int64_t started;
	int64_t deadline;
};

extern enc_cmd_runner_fn *enc_cmd_runner;
extern void *enc_cmd_runner_arg;

/* Start it; the child has exec'ed when this returns 0. */
ENC_MUST_USE int enc_child_spawn (struct enc_cmd *cmd, struct enc_child *ret, struct enc_error *err);
/* Read what is there, without waiting. */
void enc_child_drain (struct enc_child *c, struct enc_cmd_result *r);
void enc_child_kill (const struct enc_child *c);
/* After the pidfd became readable (or after a kill): end the group, drain, reap, close. */
void enc_child_reap (struct enc_child *c, struct enc_cmd_result *r);
/* What the run means: 0, ENC_ETIMEOUT or ENC_EFAILED with text. */
int enc_child_verdict (const struct enc_cmd *cmd, const struct enc_cmd_result *r, bool any_status, struct enc_error *err);
void enc_cmd_result_init (const struct enc_cmd *cmd, struct enc_cmd_result *r);

#endif
