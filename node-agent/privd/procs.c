#include "node-agent/privd/procs.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/file.h"
#include "base/str.h"

#include "base/enc.h"

enum { STATUS_MAX = 16384 };

static bool read_proc (pid_t pid, const char *name, struct enc_buf *text)
{
	char path[64];

	enc_buf_clear (text);
	(void)snprintf (path, sizeof path, "/proc/%d/%s", pid, name);
	if (enc_file_read (path, STATUS_MAX, text, NULL) < 0)
		return false;
	enc_buf_put_u8 (text, 0);
	return enc_buf_check (text, NULL) == 0;
}

static void read_status (char *text, struct enc_proc *p)
{
	const char *line;
	unsigned uid;
	int ppid;

	if ((line = strstr (text, "\nPPid:")) && sscanf (line + 6, "%d", &ppid) == 1)
		p->ppid = ppid;
	if ((line = strstr (text, "\nUid:")) && sscanf (line + 5, "%u", &uid) == 1)
		p->uid = uid;
	p->kernel = strstr (text, "\nVmSize:") == NULL;
	if (sscanf (text, "Name:\t%15[^\n]", p->comm) != 1)
		p->comm[0] = '\0';
}

/* The line of the service manager: "N:name=systemd:PATH" beside version 1 hierarchies, else "0::PATH". */
static void read_cgroup (const char *text, struct enc_proc *p)
{
	const char *line = strstr (text, ":name=systemd:");
	size_t len;

	if (line)
		line += strlen (":name=systemd:");
	else if ((line = strstr (text, "0::")))
		line += 3;
	if (!line)
		return;
	len = strcspn (line, "\n");
	if (len < sizeof p->cgroup)
		memcpy (p->cgroup, line, len);
}

uint32_t enc_proc_login (pid_t pid)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (32);
	char path[64];
	uint64_t id;

	(void)snprintf (path, sizeof path, "/proc/%d/sessionid", pid);
	if (enc_file_read (path, 31, &text, NULL) < 0)
		return UINT32_MAX;
	enc_buf_put_u8 (&text, 0);
	return enc_buf_check (&text, NULL) == 0 && enc_parse_u64 ((char *)text.data, 1, UINT32_MAX, &id, NULL) == 0 ? (uint32_t)id : UINT32_MAX;
}

static bool read_one (pid_t pid, struct enc_proc *p)
{
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (STATUS_MAX + 1);

	memset (p, 0, sizeof *p);
	p->pid = pid;
	p->uid = (uid_t)-1;
	if (!read_proc (pid, "status", &text))
		return false;
	/* A zombie has no memory either; its parent will see to it. */
	if (strstr ((char *)text.data, "\nState:\tZ"))
		return false;
	read_status ((char *)text.data, p);
	p->login = enc_proc_login (pid);
	if (read_proc (pid, "cgroup", &text))
		read_cgroup ((char *)text.data, p);
	return true;
}

int enc_procs_each (enc_proc_fn fn, void *arg, struct enc_error *err)
{
	DIR *dir = opendir ("/proc");
	const struct dirent *entry;
	struct enc_proc proc;
	uint64_t pid;
	int rc = 0;

	if (!dir)
		return enc_fail_sys (err, "/proc");
	while (rc >= 0 && (entry = readdir (dir)))
		if (enc_parse_u64 (entry->d_name, 1, INT32_MAX, &pid, NULL) == 0 && (pid_t)pid != getpid () && read_one ((pid_t)pid, &proc))
			rc = fn (&proc, arg);
	(void)closedir (dir);
	return rc < 0 ? rc : 0;
}

struct hunt {
	enc_proc_match_fn match;
	const void *arg;
	size_t n;
	bool kill;
	char last[64];
};

static int hunt_one (const struct enc_proc *p, void *arg)
{
	struct hunt *h = arg;

	if (!h->match (p, h->arg))
		return 0;
	h->n++;
	(void)snprintf (h->last, sizeof h->last, "process %d (%s)", p->pid, p->comm);
	if (h->kill)
		(void)kill (p->pid, SIGKILL);
	return 0;
}

size_t enc_procs_count (enc_proc_match_fn match, const void *arg)
{
	struct hunt h = { .match = match, .arg = arg };

	return enc_procs_each (hunt_one, &h, NULL) < 0 ? SIZE_MAX : h.n;
}

int enc_procs_kill (enc_proc_match_fn match, const void *arg, int ms, size_t *ret_n, struct enc_error *err)
{
	int64_t deadline = enc_deadline_ms (ms);
	bool first = true;
	int rc;

	for (;;) {
		struct hunt h = { .match = match, .arg = arg, .kill = true };
		if ((rc = enc_procs_each (hunt_one, &h, err)) < 0)
			return rc;
		if (first && ret_n)
			*ret_n = h.n;
		first = false;
		if (h.n == 0)
			return 0;
		if (enc_passed (deadline))
			return enc_fail (err, ENC_ETIMEOUT, "%s does not end", h.last);
		(void)poll (NULL, 0, 5);
	}
}
