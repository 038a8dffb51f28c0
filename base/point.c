#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/file.h"
#include "base/point.h"
#include "base/str.h"
#include "base/enc.h"

#ifdef ENC_POINTS

enum act { ACT_KILL, ACT_FAIL, ACT_STALL };
static const char *const act_names[] = { "kill", "fail", "stall", NULL };

struct point {
	char name[64];
	enum act act;
	uint64_t nth; /* acts at this pass and after */
	uint64_t passes;
};

/* Read once, before anything else runs; NULL nearly always. */
static struct point *points;
static size_t point_count;

static bool parse_line (char *line, struct point *p)
{
	char act[8], nth[8];
	int n = sscanf (line, "%63s %7s %7s", p->name, act, nth);
	p->nth = 1;
	if (n < 2 || (n == 3 && enc_parse_u64 (nth, 1, 1000000, &p->nth, NULL) < 0))
		return false;
	for (int i = 0; act_names[i]; i++)
		if (enc_streq (act_names[i], act)) {
			p->act = (enum act) i;
			return true;
		}
	return false;
}

static void parse_list (char *text)
{
	char *save = NULL;
	for (char *line = strtok_r (text, "\n", &save); line; line = strtok_r (NULL, "\n", &save)) {
		struct point p = { 0 };
		if (line[0] == '#' || !parse_line (line, &p))
			continue;
		struct point *more = realloc (points, (point_count + 1) * sizeof (*points));
		if (!more)
			return;
		points = more;
		points[point_count++] = p;
	}
}

void enc_point_open (const char *process, const char *folder)
{
	struct enc_error err;
	enc_auto_free char *path = enc_strf ("%s/%s", folder ? folder : "/run/enclave/points", process);
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (65536);
	free (points);
	points = NULL;
	point_count = 0;
	if (!path || access (path, F_OK) < 0)
		return;
	if (enc_file_read_trusted (path, 65536, &b, &err) < 0) {
		(void) fprintf (stderr, "%s: fault points ignored: %s\n", process, err.text);
		return;
	}
	enc_auto_free char *text = enc_buf_take_str (&b);
	if (text)
		parse_list (text);
	(void) fprintf (stderr, "%s: %zu fault points armed\n", process, point_count);
}

int enc_point (const char *name, struct enc_error *err)
{
	if (!points)
		return 0;
	for (size_t i = 0; i < point_count; i++) {
		struct point *p = &points[i];
		if (strcmp (p->name, name) != 0 || ++p->passes < p->nth)
			continue;
		/* A test that arms several points learns from the journal which one it was. */
		(void) fprintf (stderr, "fault point %s: %s\n", name, act_names[p->act]);
		if (p->act == ACT_FAIL)
			return enc_fail (err, ENC_EFAILED, "fault point %s", name);
		if (p->act == ACT_KILL)
			(void) kill (getpid (), SIGKILL);
		for (;;)
			(void) pause ();
	}
	return 0;
}

#endif
