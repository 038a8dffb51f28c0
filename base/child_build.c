/* Building a command. The first failure stays in cmd->bad and comes out of the run, so that callers need not check each call. */
#include <stdio.h>
#include <string.h>
#include "base/child_spawn.h"
#include "base/enc.h"

enc_cmd_runner_fn *enc_cmd_runner;
void *enc_cmd_runner_arg;

void enc_cmd_fake (enc_cmd_runner_fn *runner, void *arg)
{
	enc_cmd_runner = runner;
	enc_cmd_runner_arg = arg;
}

static void keep (struct enc_cmd *cmd, int rc, const struct enc_error *err)
{
	if (rc < 0 && cmd->bad.code == 0)
		cmd->bad = *err;
}

static void refuse (struct enc_cmd *cmd, enum enc_code code, const char *text)
{
	struct enc_error err;
	keep (cmd, enc_fail (&err, code, "%s", text), &err);
}

struct enc_cmd *enc_cmd_new (const char *path)
{
	struct enc_cmd *cmd = calloc (1, sizeof (*cmd));
	if (!cmd)
		return NULL;
	cmd->in = ENC_BUF_SECRET (1024 * 1024);
	cmd->in_fd = cmd->out_fd = cmd->err_fd = -1;
	cmd->max_out = cmd->max_err = 64 * 1024;
	cmd->ms = 30000;
	cmd->path = enc_strdup (path);
	if (!path || path[0] != '/')
		refuse (cmd, ENC_EINVAL, "a command needs an absolute path");
	else if (!cmd->path)
		refuse (cmd, ENC_ENOMEM, "out of memory");
	else
		enc_cmd_arg (cmd, path);
	enc_cmd_env (cmd, "PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
	enc_cmd_env (cmd, "LANG", "C.UTF-8");
	return cmd;
}

void enc_cmd_free (struct enc_cmd *cmd)
{
	if (!cmd)
		return;
	free (cmd->path);
	free (cmd->cwd);
	enc_strs_done (&cmd->argv);
	enc_strs_done (&cmd->env);
	enc_buf_done (&cmd->in);
	free (cmd);
}

void enc_cmd_arg (struct enc_cmd *cmd, const char *arg)
{
	struct enc_error err;
	if (!cmd)
		return;
	if (!arg)
		refuse (cmd, ENC_EINVAL, "an argument of the command is missing");
	else if (cmd->argv.n >= 4096)
		refuse (cmd, ENC_ELIMIT, "too many arguments");
	else
		keep (cmd, enc_strs_add (&cmd->argv, arg, &err), &err);
}

void enc_cmd_args (struct enc_cmd *cmd, ...)
{
	va_list ap;
	const char *arg;
	va_start (ap, cmd);
	while ((arg = va_arg (ap, const char *)))
		enc_cmd_arg (cmd, arg);
	va_end (ap);
}

void enc_cmd_argf (struct enc_cmd *cmd, const char *fmt, ...)
{
	enc_auto_free char *arg = NULL;
	va_list ap;
	va_start (ap, fmt);
	int n = vasprintf (&arg, fmt, ap);
	va_end (ap);
	if (n < 0)
		arg = NULL;
	enc_cmd_arg (cmd, arg);
}

void enc_cmd_env (struct enc_cmd *cmd, const char *name, const char *value)
{
	struct enc_error err;
	if (!cmd)
		return;
	enc_auto_free char *item = enc_strf ("%s=%s", name, value ? value : "");
	if (!item || !value || !name[0] || strchr (name, '=')) {
		refuse (cmd, ENC_EINVAL, "bad environment variable");
		return;
	}
	for (size_t i = 0; i < cmd->env.n; i++) {
		size_t len = strlen (name);
		if (strncmp (cmd->env.v[i], name, len) == 0 && cmd->env.v[i][len] == '=') {
			free (cmd->env.v[i]);
			cmd->env.v[i] = ENC_TAKE (item);
			return;
		}
	}
	keep (cmd, enc_strs_add (&cmd->env, item, &err), &err);
}

void enc_cmd_stdin (struct enc_cmd *cmd, const void *data, size_t len)
{
	struct enc_error err;
	if (!cmd)
		return;
	enc_buf_put (&cmd->in, data, len);
	cmd->has_in = true;
	keep (cmd, enc_buf_check (&cmd->in, &err), &err);
}

void enc_cmd_stdin_fd (struct enc_cmd *cmd, int fd)
{
	if (cmd)
		cmd->in_fd = fd;
}

void enc_cmd_stdout_fd (struct enc_cmd *cmd, int fd)
{
	if (cmd)
		cmd->out_fd = fd;
}

void enc_cmd_stderr_fd (struct enc_cmd *cmd, int fd)
{
	if (cmd)
		cmd->err_fd = fd;
}

void enc_cmd_pass_fd (struct enc_cmd *cmd, int fd)
{
	if (!cmd)
		return;
	if (fd < 3 || cmd->pass_n == ENC_CMD_PASS)
		refuse (cmd, ENC_EINVAL, "this descriptor cannot be passed on");
	else
		cmd->pass[cmd->pass_n++] = fd;
}

void enc_cmd_capture (struct enc_cmd *cmd, size_t max_out, size_t max_err)
{
	if (!cmd)
		return;
	cmd->max_out = max_out;
	cmd->max_err = max_err;
}

void enc_cmd_deadline_ms (struct enc_cmd *cmd, int64_t ms)
{
	if (cmd)
		cmd->ms = ms > 0 ? ms : 1;
}

void enc_cmd_user (struct enc_cmd *cmd, uid_t uid, gid_t gid)
{
	if (!cmd)
		return;
	cmd->as_user = true;
	cmd->uid = uid;
	cmd->gid = gid;
}

void enc_cmd_chdir (struct enc_cmd *cmd, const char *path)
{
	if (!cmd)
		return;
	free (cmd->cwd);
	cmd->cwd = enc_strdup (path);
	if (!cmd->cwd || path[0] != '/')
		refuse (cmd, ENC_EINVAL, "a working folder needs an absolute path");
}

void enc_cmd_trust_path (struct enc_cmd *cmd)
{
	if (cmd)
		cmd->trusted = true;
}
