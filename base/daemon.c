#include <errno.h>
#include <event2/event.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <fcntl.h>
#include "base/cleanup.h"
#include "base/daemon.h"
#include "base/enctime.h"
#include "base/file.h"
#include "base/harden.h"
#include "base/log.h"
#include "base/peer.h"
#include "base/point.h"
#include "base/enc.h"

#define CONFIG_MAX (1024 * 1024)
#define OWN_MAX 16
#define OWN_FIRST 1000

enum { OPT_CONFIG = 256, OPT_CHECK, OPT_FOREGROUND, OPT_LEVEL, OPT_SECCOMP, OPT_VERSION, OPT_HELP };

struct enc_daemon {
	const struct enc_daemon_spec *spec;
	struct event_base *base;
	const char *config;
	bool config_given;
	bool check_only;
	bool foreground;
	const char *seccomp; /* "kill" "log" "off" */
	int level;
	const char *own[OWN_MAX];
	uid_t uid;
	gid_t gid;
	struct event *signals[3];
	struct event *watchdog;
	int rc;
};

/* ---- options ---- */

static const struct option fixed[] = {
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "check-config", no_argument, NULL, OPT_CHECK },
	{ "foreground", no_argument, NULL, OPT_FOREGROUND },
	{ "log-level", required_argument, NULL, OPT_LEVEL },
	{ "seccomp", required_argument, NULL, OPT_SECCOMP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ "help", no_argument, NULL, OPT_HELP },
};

static const char *default_config (const struct enc_daemon_spec *spec)
{
	static char path[128];
	const char *name = spec->name;
	if (spec->config)
		return spec->config;
	if (strncmp (name, "enclave-", 8) == 0)
		name += 8;
	(void) snprintf (path, sizeof (path), "/etc/enclave/%s.json", name);
	return path;
}

static void print_help (const struct enc_daemon_spec *spec)
{
	printf ("%s: %s\n\n", spec->name, spec->summary);
	if (!(spec->flags & ENC_D_NO_CONFIG))
		printf ("  --config FILE      default %s\n  --check-config     print the effective configuration and exit\n", default_config (spec));
	printf ("  --foreground       log to stderr; keep the user if not started as root\n"
		"  --log-level LEVEL  error, warn, notice, info or debug\n"
		"  --seccomp MODE     kill (default), log or off: for finding out what a new library calls\n"
		"  --version\n  --help\n");
	for (const struct enc_daemon_option *o = spec->options; o && o->name; o++)
		printf ("  --%s VALUE  %s\n", o->name, o->help);
}

static size_t own_count (const struct enc_daemon_spec *spec)
{
	size_t n = 0;
	while (spec->options && spec->options[n].name && n < OWN_MAX)
		n++;
	return n;
}

/* One option; -1 = go on, else the exit status. */
static int take_option (struct enc_daemon *d, int option)
{
	switch (option) {
	case OPT_CONFIG:
		d->config = optarg;
		d->config_given = true;
		return -1;
	case OPT_CHECK:
		d->check_only = true;
		return -1;
	case OPT_FOREGROUND:
		d->foreground = true;
		return -1;
	case OPT_LEVEL:
		d->level = enc_log_level_of (optarg);
		return d->level < 0 ? 2 : -1;
	case OPT_SECCOMP:
		d->seccomp = optarg;
		return enc_streq (optarg, "kill") || enc_streq (optarg, "log") || enc_streq (optarg, "off") ? -1 : 2;
	case OPT_VERSION:
		printf ("%s %s\n", d->spec->name, ENC_VERSION);
		return 0;
	case OPT_HELP:
		print_help (d->spec);
		return 0;
	default:
		if (option < OWN_FIRST || (size_t) (option - OWN_FIRST) >= own_count (d->spec))
			return 2;
		d->own[option - OWN_FIRST] = optarg;
		return -1;
	}
}

static int parse_options (struct enc_daemon *d, int argc, char **argv)
{
	struct option all[ENC_ARRAY_LEN (fixed) + OWN_MAX + 1] = { 0 };
	memcpy (all, fixed, sizeof (fixed));
	for (size_t i = 0; i < own_count (d->spec); i++)
		all[ENC_ARRAY_LEN (fixed) + i] = (struct option){ d->spec->options[i].name, required_argument, NULL, OWN_FIRST + (int) i };
	int option;
	while ((option = getopt_long (argc, argv, "", all, NULL)) != -1) {
		int rc = take_option (d, option);
		if (rc >= 0) {
			if (rc == 2)
				fprintf (stderr, "%s: bad option, see --help\n", d->spec->name);
			return rc;
		}
	}
	if (optind < argc) {
		fprintf (stderr, "%s: %s is not an option, see --help\n", d->spec->name, argv[optind]);
		return 2;
	}
	return -1;
}

/* ---- configuration ---- */

static int load_config (struct enc_daemon *d, struct enc_error *err)
{
	const struct enc_daemon_spec *spec = d->spec;
	enc_auto_done (enc_buf_done) struct enc_buf text = ENC_BUF_INIT (CONFIG_MAX);
	if (spec->flags & ENC_D_NO_CONFIG)
		return spec->fields ? enc_fields_defaults (spec->fields, spec->conf, err) : 0;
	/* What a daemon started as root believes must be root's. A missing default file means all defaults. */
	int rc = geteuid () == 0 ? enc_file_read_trusted (d->config, CONFIG_MAX, &text, err) : enc_file_read (d->config, CONFIG_MAX, &text, err);
	if (rc == -ENC_ENOTFOUND && !d->config_given)
		enc_buf_putf (&text, "{}");
	else if (rc < 0)
		return rc;
	rc = enc_json_decode_text (spec->fields, (const char *) text.data, text.len, CONFIG_MAX, spec->conf, err);
	return enc_wrap (err, rc, "%s", d->config);
}

static int print_config (struct enc_daemon *d, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *all = d->spec->fields ? enc_json_encode (d->spec->fields, d->spec->conf) : enc_json_object ();
	for (const struct enc_field *f = d->spec->fields; f && f->type != ENC_T_END; f++)
		if (f->flags & ENC_HIDDEN)
			enc_json_del (all, f->key);
	enc_auto_free char *text = enc_json_pretty (all, err);
	if (!text)
		return -ENC_EFAILED;
	puts (text);
	return 0;
}

/* ---- rights ---- */

static int find_user (struct enc_daemon *d, struct enc_error *err)
{
	d->uid = geteuid ();
	d->gid = getegid ();
	if (!d->spec->user || d->spec->flags & (ENC_D_KEEP_ROOT | ENC_D_KEEP_USER) || geteuid () != 0)
		return 0;
	return enc_wrap (err, enc_uid_of_user (d->spec->user, &d->uid, &d->gid, err), "user %s", d->spec->user);
}

static int check_start_user (struct enc_daemon *d, struct enc_error *err)
{
	uid_t want;
	if (geteuid () == 0 || d->foreground || !d->spec->user || d->spec->flags & ENC_D_KEEP_USER)
		return d->spec->flags & ENC_D_KEEP_ROOT && geteuid () != 0 && !d->foreground ? enc_fail (err, ENC_EDENIED, "must be started as root") : 0;
	int rc = enc_uid_of_user (d->spec->user, &want, NULL, err);
	if (rc == 0 && want != geteuid ())
		rc = enc_fail (err, ENC_EDENIED, "must be started as root or as %s", d->spec->user);
	return rc;
}

static int give_up_rights (struct enc_daemon *d, struct enc_error *err)
{
	const struct enc_daemon_spec *spec = d->spec;
	int rc = enc_harden_process (err);
	bool dropped = rc == 0 && (geteuid () == 0 || spec->flags & ENC_D_KEEP_ROOT) && !(spec->flags & ENC_D_KEEP_USER);
	if (dropped && geteuid () == 0)
		rc = enc_drop_to (d->uid, d->gid, spec->caps, err);
	else if (rc == 0 && geteuid () != 0 && !spec->caps)
		rc = enc_caps_none (err); /* the unit chose the user: then it has to be without rights already */
	if (rc < 0)
		return enc_wrap (err, rc, "giving up rights");
	if (spec->flags & ENC_D_NO_SECCOMP || enc_streq (d->seccomp, "off"))
		return 0;
	unsigned flags = (spec->flags & ENC_D_CHILDREN ? ENC_SC_CHILDREN : 0U) | (spec->flags & ENC_D_NETWORK ? ENC_SC_NETWORK : 0U) |
			 (enc_streq (d->seccomp, "log") ? ENC_SC_LOG_ONLY : 0U);
	return enc_seccomp_apply (flags, spec->syscalls, err);
}

/* ---- loop ---- */

static void on_signal (evutil_socket_t number, short what ENC_UNUSED, void *arg)
{
	struct enc_daemon *d = (struct enc_daemon *) arg;
	if (number != SIGHUP)
		enc_daemon_quit (d, 0);
	else if (d->spec->reload)
		d->spec->reload (d);
}

static void on_watchdog (evutil_socket_t fd ENC_UNUSED, short what ENC_UNUSED, void *arg ENC_UNUSED)
{
	(void) sd_notify (0, "WATCHDOG=1");
}

static int on_signals (struct enc_daemon *d, struct enc_error *err)
{
	static const int numbers[] = { SIGTERM, SIGINT, SIGHUP };
	for (size_t i = 0; i < ENC_ARRAY_LEN (numbers); i++) {
		d->signals[i] = evsignal_new (d->base, numbers[i], on_signal, d);
		if (!d->signals[i] || event_add (d->signals[i], NULL) < 0)
			return enc_fail (err, ENC_ENOMEM, "no event for a signal");
	}
	return 0;
}

static int open_loop (struct enc_daemon *d, struct enc_error *err)
{
	(void) signal (SIGPIPE, SIG_IGN);
	d->base = event_base_new ();
	if (!d->base)
		return enc_fail (err, ENC_ENOMEM, "no event loop");
	int rc = on_signals (d, err);
	uint64_t usec = 0;
	if (rc < 0)
		return rc;
	if (sd_watchdog_enabled (0, &usec) <= 0)
		return 0;
	struct timeval half = { .tv_sec = (time_t) (usec / 2000000), .tv_usec = (suseconds_t) (usec / 2 % 1000000) };
	d->watchdog = event_new (d->base, -1, EV_PERSIST, on_watchdog, NULL);
	return d->watchdog && event_add (d->watchdog, &half) == 0 ? 0 : enc_fail (err, ENC_ENOMEM, "no event for the watchdog");
}

static void close_loop (struct enc_daemon *d)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (d->signals); i++)
		if (d->signals[i])
			event_free (d->signals[i]);
	if (d->watchdog)
		event_free (d->watchdog);
	if (d->base)
		event_base_free (d->base);
}

static int prepare (struct enc_daemon *d, struct enc_error *err)
{
	const struct enc_daemon_spec *spec = d->spec;
	int rc = check_start_user (d, err);
	if (rc == 0)
		rc = find_user (d, err);
	if (rc == 0)
		rc = open_loop (d, err);
	if (rc == 0 && spec->open)
		rc = spec->open (d, err);
	if (rc == 0)
		rc = give_up_rights (d, err);
	if (rc == 0 && spec->start)
		rc = spec->start (d, err);
	return rc;
}

static int run (struct enc_daemon *d, struct enc_error *err)
{
	int rc = prepare (d, err);
	if (rc == 0) {
		(void) sd_notify (0, "READY=1");
		enc_log_info ("ready");
		if (event_base_dispatch (d->base) < 0)
			rc = enc_fail (err, ENC_EFAILED, "the event loop failed");
		(void) sd_notify (0, "STOPPING=1");
		enc_log_info ("stopping");
	}
	if (d->spec->stop && d->base)
		d->spec->stop (d);
	close_loop (d);
	return rc < 0 ? rc : d->rc;
}

/* Descriptors 0 to 2 must be there, or the first file opened would be somebody's stdout. */
static void ensure_stdio (void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl (fd, F_GETFD) < 0)
			ENC_IGNORE (open ("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY));
}

int enc_daemon_main (const struct enc_daemon_spec *spec, int argc, char **argv)
{
	struct enc_error err = { 0 };
	struct enc_daemon d = { .spec = spec, .config = default_config (spec), .level = ENC_LOG_INFO, .seccomp = "kill" };
	ensure_stdio ();
	int rc = parse_options (&d, argc, argv);
	if (rc >= 0)
		return rc;
	(void) setvbuf (stderr, NULL, _IOLBF, 0);
	if (d.foreground)
		(void) unsetenv ("JOURNAL_STREAM");
	enc_log_open (spec->name, (enum enc_log_level) d.level);
	enc_point_open (spec->name, NULL);
	rc = load_config (&d, &err);
	if (rc == 0 && spec->check)
		rc = spec->check (&d, &err);
	if (rc == 0)
		rc = d.check_only ? print_config (&d, &err) : run (&d, &err);
	if (rc < 0)
		enc_log_err (ENC_LOG_ERROR, &err, "%s", d.check_only ? "configuration" : "stopped");
	if (spec->fields && spec->conf)
		enc_fields_done (spec->fields, spec->conf);
	return enc_code_exit (rc);
}

/* ---- for the owner ---- */

struct event_base *enc_daemon_base (struct enc_daemon *d)
{
	return d->base;
}

void *enc_daemon_conf (struct enc_daemon *d)
{
	return d->spec->conf;
}

void *enc_daemon_arg (struct enc_daemon *d)
{
	return d->spec->arg;
}

bool enc_daemon_foreground (struct enc_daemon *d)
{
	return d->foreground;
}

const char *enc_daemon_option (struct enc_daemon *d, const char *name)
{
	for (size_t i = 0; i < own_count (d->spec); i++)
		if (enc_streq (d->spec->options[i].name, name))
			return d->own[i];
	return NULL;
}

void enc_daemon_quit (struct enc_daemon *d, int rc)
{
	d->rc = rc;
	(void) event_base_loopbreak (d->base);
}

void enc_daemon_status (const char *fmt, ...)
{
	char text[200];
	va_list ap;
	va_start (ap, fmt);
	(void) vsnprintf (text, sizeof (text), fmt, ap);
	va_end (ap);
	(void) sd_notifyf (0, "STATUS=%s", text);
}

int enc_daemon_store_fd (const char *name, int fd, struct enc_error *err)
{
	enc_auto_free char *text = enc_strf ("FDSTORE=1\nFDNAME=%s", name);
	if (!text)
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	int rc = sd_pid_notify_with_fds (0, 0, text, &fd, 1);
	errno = -rc;
	return rc < 0 ? enc_fail_sys (err, "hand a descriptor to systemd") : 0;
}

int enc_daemon_take_fd (const char *name)
{
	char **names = NULL;
	int n = sd_listen_fds_with_names (0, &names), found = -1;
	static unsigned taken; /* one bit each: systemd passes few */
	for (int i = 0; i < n; i++) {
		if (found < 0 && i < 32 && !(taken & 1U << i) && enc_streq (names[i], name)) {
			found = SD_LISTEN_FDS_START + i;
			taken |= 1U << i;
			(void) fcntl (found, F_SETFD, FD_CLOEXEC);
		}
		free (names[i]);
	}
	free (names);
	return found;
}
