/* One line per event, to the journal's native socket when stderr is the journal, else to stderr. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "base/enctime.h"
#include "base/log.h"
#include "base/str.h"
#include "base/enc.h"

#define BURST 20
#define WINDOW (10 * ENC_NS_S)
#define PLACES 256
#define JOURNAL "/run/systemd/journal/socket"

/* Per place in the source: how often within the window. Places share a slot by hash; that only makes them quieter together. */
static struct place {
	int64_t since;
	unsigned count;
	unsigned held;
} places[PLACES];

static struct {
	char program[32];
	enum enc_log_level level;
	int journal; /* descriptor, -1 = stderr; 0 = not opened */
	void (*capture) (enum enc_log_level level, const char *line, void *arg);
	void *arg;
} state = { .program = "enclave", .level = ENC_LOG_INFO, .journal = -1 };

static const char *const level_names[] = { [ENC_LOG_ERROR] = "error", [ENC_LOG_WARN] = "warn", [ENC_LOG_NOTICE] = "notice",
					   [ENC_LOG_INFO] = "info", [ENC_LOG_DEBUG] = "debug" };

/* systemd sets JOURNAL_STREAM to device:inode of stderr when that is the journal. */
static bool stderr_is_journal (void)
{
	const char *stream = getenv ("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;
	return stream && sscanf (stream, "%llu:%llu", &dev, &ino) == 2 && fstat (STDERR_FILENO, &st) == 0 && st.st_dev == dev &&
	       st.st_ino == ino;
}

void enc_log_open (const char *program, enum enc_log_level level)
{
	(void) snprintf (state.program, sizeof (state.program), "%s", program);
	state.level = level;
	if (state.journal >= 0 || !stderr_is_journal ())
		return;
	int fd = socket (AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un to = { .sun_family = AF_UNIX, .sun_path = JOURNAL };
	if (fd >= 0 && connect (fd, (const struct sockaddr *) &to, sizeof (to)) < 0) {
		(void) close (fd);
		fd = -1;
	}
	state.journal = fd;
}

void enc_log_reopen (void)
{
	state.journal = -1;
	enc_log_open (state.program, state.level);
}

enum enc_log_level enc_log_level (void)
{
	return state.level;
}

int enc_log_level_of (const char *name)
{
	for (int i = ENC_LOG_ERROR; i <= ENC_LOG_DEBUG; i++)
		if (enc_streq (level_names[i], name))
			return i;
	return -ENC_EINVAL;
}

void enc_log_capture (void (*fn) (enum enc_log_level level, const char *line, void *arg), void *arg)
{
	state.capture = fn;
	state.arg = arg;
}

/* False if this line is to be held back; *ret_held: how many were, to be told now. */
static bool may_pass (const char *file, int line, unsigned *ret_held)
{
	size_t hash = (size_t) line * 31;
	for (const char *s = file; *s; s++)
		hash = hash * 33 + (unsigned char) *s;
	struct place *p = &places[hash % PLACES];
	int64_t now = enc_mono ();
	*ret_held = 0;
	if (now - p->since > WINDOW) {
		*ret_held = p->held;
		*p = (struct place){ .since = now };
	}
	if (p->count++ < BURST)
		return true;
	p->held++;
	return false;
}

static void put_field (struct enc_buf *b, const char *name, const char *value)
{
	if (value && enc_text_ok (value))
		enc_buf_putf (b, "%s=%s\n", name, value);
}

static void emit (enum enc_log_level level, const char *file, int line, const struct enc_log_fields *fields, const char *text)
{
	if (state.capture) {
		state.capture (level, text, state.arg);
		return;
	}
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (8192);
	if (state.journal >= 0) {
		enc_buf_putf (&b, "MESSAGE=%s\nPRIORITY=%d\nSYSLOG_IDENTIFIER=%s\nCODE_FILE=%s\nCODE_LINE=%d\n", text, (int) level,
			      state.program, file, line);
		if (fields) {
			put_field (&b, "ENC_ENCLAVE", fields->enclave);
			put_field (&b, "ENC_NODE", fields->node);
			put_field (&b, "ENC_JOB", fields->job);
			put_field (&b, "ENC_STEP", fields->step);
		}
		if (b.data && send (state.journal, b.data, b.len, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
			return;
		enc_buf_clear (&b);
	}
	enc_buf_putf (&b, "%s: %s: %s\n", state.program, level_names[level], text);
	if (b.data)
		ENC_IGNORE (write (STDERR_FILENO, b.data, b.len));
}

static void log_text (enum enc_log_level level, const char *file, int line, const struct enc_log_fields *fields, char *text)
{
	unsigned held;
	if (!may_pass (file, line, &held))
		return;
	if (held) {
		char note[96];
		(void) snprintf (note, sizeof (note), "%u lines like the next were held back", held);
		emit (level, file, line, fields, note);
	}
	enc_auto_free char *safe = enc_text_printable (text);
	if (safe)
		emit (level, file, line, fields, safe);
}

void enc_log_at (enum enc_log_level level, const char *file, int line, const struct enc_log_fields *fields, const char *fmt, ...)
{
	int saved = errno;
	if (level <= state.level) {
		char text[1024];
		va_list ap;
		va_start (ap, fmt);
		(void) vsnprintf (text, sizeof (text), fmt, ap);
		va_end (ap);
		log_text (level, file, line, fields, text);
	}
	errno = saved;
}

void enc_log_err_at (enum enc_log_level level, const char *file, int line, const struct enc_error *err, const char *fmt, ...)
{
	int saved = errno;
	if (level <= state.level) {
		char context[512], text[1024];
		va_list ap;
		va_start (ap, fmt);
		(void) vsnprintf (context, sizeof (context), fmt, ap);
		va_end (ap);
		(void) snprintf (text, sizeof (text), "%s: %s%s%s%s", context, err->text, err->next[0] ? " (next: " : "", err->next,
				 err->next[0] ? ")" : "");
		struct enc_log_fields fields = { .step = err->step[0] ? err->step : NULL };
		log_text (level, file, line, &fields, text);
	}
	errno = saved;
}
