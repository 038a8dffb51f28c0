/* Orders that run for a while: the answer is 202 with an operation, whose events are followed by long polls until it ends. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "controller/cli/command.h"
#include "controller/cli/live.h"
#include "base/enc.h"

static const char *left_note;

/* Ctrl-C leaves the order running, and says so: only calls that are safe in a handler. */
static void on_interrupt (int sig ENC_UNUSED)
{
	ssize_t n ENC_UNUSED;
	if (left_note)
		n = write (STDERR_FILENO, left_note, strlen (left_note));
	_exit (130);
}

static void interrupt_arm (char *note)
{
	struct sigaction sa = { .sa_handler = on_interrupt };
	left_note = note;
	(void) sigaction (SIGINT, &sa, NULL);
}

static int follow (const struct enc_session *s, const char *id, struct enc_json **ret_operation, struct enc_error *err)
{
	struct enc_live live = { .s = s };
	uint64_t after = 0;
	int rc = 0;
	while (rc == 0) {
		enc_auto (enc_json) struct enc_json *answer = NULL;
		rc = enc_session_get (s, &answer, err, "/v1/operations/%s/events?after=%llu", id, (unsigned long long) after);
		if (rc < 0)
			break;
		const struct enc_json *events = enc_json_get (answer, "events");
		for (size_t i = 0; i < enc_json_len (events); i++)
			enc_live_event (&live, enc_json_at (events, i));
		after = enc_json_get_u64 (answer, "last", after);
		if (enc_json_get_bool (answer, "done", false)) {
			*ret_operation = ENC_TAKE (answer);
			break;
		}
	}
	enc_live_end (&live);
	return rc;
}

/* The document of a failure: the error, and how far the steps and nodes came. */
static struct enc_json *failure_of (const struct enc_json *operation)
{
	static const char *const keys[] = { "error", "steps", "nodes" };
	struct enc_json *out = enc_json_object ();
	for (size_t i = 0; i < ENC_ARRAY_LEN (keys); i++)
		if (enc_json_get (operation, keys[i]))
			enc_json_set (out, keys[i], enc_json_copy (enc_json_get (operation, keys[i])));
	return out;
}

int enc_command_follow (const struct enc_session *s, const char *method, const char *path, const struct enc_json *body, bool wait,
			const char *left_running, struct enc_json **ret, struct enc_error *err)
{
	enc_auto (enc_json) struct enc_json *order = NULL, *operation = NULL;
	int rc = enc_session_call (s, method, path, body, &order, err);
	const char *id = enc_json_get_str (order, "operation", NULL);
	if (rc < 0)
		return rc;
	if (!wait || !id) {
		*ret = ENC_TAKE (order);
		return 0;
	}
	enc_auto_free char *note = enc_strf ("\n%s goes on without you. See: enclavectl watch %s\n", left_running, left_running);
	interrupt_arm (note);
	rc = follow (s, id, &operation, err);
	left_note = NULL;
	if (rc < 0)
		return rc;
	if (enc_json_type (enc_json_get (operation, "error")) == ENC_JSON_OBJECT) {
		*ret = s->json ? failure_of (operation) : NULL;
		rc = enc_json_to_error (operation, err);
		return rc < 0 ? rc : enc_fail (err, ENC_EFAILED, "the operation failed");
	}
	*ret = enc_json_copy (enc_json_get (operation, "result"));
	return 0;
}
