/* The live table of a create or destroy: one line a row, a spinner on the one under way. Without a terminal each line comes when it is done. */
#ifndef ENC_CLI_LIVE_H
#define ENC_CLI_LIVE_H

#include "controller/cli/session.h"

struct enc_live {
	const struct enc_session *s;
	bool open_line;       /* a started row stands on the terminal without line end */
	bool going_down;
};

/* Show one event of GET /v1/operations/ID/events. */
void enc_live_event (struct enc_live *live, const struct enc_json *event);
/* End an open line. */
void enc_live_end (struct enc_live *live);

#endif
