#include "controller/cli/live.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/str.h"
#include "base/enc.h"

static const struct mark {
	const char *outcome, *sign;
	enum enc_colour colour;
} marks[] = {
	{ "ok", "✓", ENC_COLOUR_GOOD },     { "undone", "✓", ENC_COLOUR_GOOD }, { "failed", "✗", ENC_COLOUR_BAD },
	{ "skipped", "·", ENC_COLOUR_DIM }, { "waiting", "…", ENC_COLOUR_WARN },
};

void enc_live_end (struct enc_live *live)
{
	if (live->open_line)
		(void) printf ("\r\033[K");
	live->open_line = false;
	(void) fflush (stdout);
}

static void line (struct enc_live *live, const struct mark *m, const struct enc_json *event)
{
	char span[ENC_SPAN_SIZE];
	enc_auto_free char *text = enc_text_printable (enc_json_get_str (event, "text", "") ?: "");
	double seconds = enc_json_double (enc_json_get (event, "seconds"), 0);
	const char *node = enc_json_get_str (event, "node", NULL);
	(void) printf (" %s%s%s %-12s %6s  %s%s%s\n", enc_colour_on (live->s, m->colour), m->sign, enc_colour_off (live->s),
		       enc_json_get_str (event, "step", "?"), enc_span_format ((int64_t) (seconds * (double) ENC_NS_S), span), node ? node : "",
		       node && text && text[0] ? ": " : "", text ? text : "");
}

void enc_live_event (struct enc_live *live, const struct enc_json *event)
{
	const char *outcome = enc_json_get_str (event, "outcome", "");
	if (live->s->progress) {
		enc_auto_free char *text = enc_json_write (event, NULL, NULL);
		(void) printf ("%s\n", text ? text : "{}");
		(void) fflush (stdout);
		return;
	}
	if (live->s->json)
		return;
	bool undoing = strcmp (outcome, "undoing") == 0;
	if (strcmp (outcome, "started") == 0 || undoing) {
		if (undoing && !live->going_down) {
			enc_live_end (live);
			live->going_down = true;
		}
		if (live->s->tty) {
			(void) printf ("\r\033[K %s…%s %-12s", enc_colour_on (live->s, ENC_COLOUR_DIM), enc_colour_off (live->s),
				       enc_json_get_str (event, "step", "?"));
			live->open_line = true;
			(void) fflush (stdout);
		}
		return;
	}
	for (size_t i = 0; i < ENC_ARRAY_LEN (marks); i++)
		if (strcmp (outcome, marks[i].outcome) == 0) {
			enc_live_end (live);
			line (live, &marks[i], event);
			(void) fflush (stdout);
			return;
		}
}
