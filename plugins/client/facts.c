#include "plugins/client/client.h"

#include "base/enctime.h"
#include "plugins/client/dgram.h"

#include "base/enc.h"

enum { DEADLINE_MAX_MS = 2000 };

int enc_client_facts (const struct enc_client_conf *conf, uid_t about, struct enc_facts *ret, struct enc_error *err)
{
	int64_t deadline = enc_deadline_ms (conf->deadline_ms < DEADLINE_MAX_MS ? conf->deadline_ms : DEADLINE_MAX_MS);
	enc_auto_done (enc_buf_done) struct enc_buf ask = ENC_BUF_INIT (ENC_FACTS_SIZE_MAX);
	uint8_t answer[ENC_FACTS_SIZE_MAX + 1];
	ssize_t n;
	int rc;

	if ((rc = enc_facts_ask_encode (about, &ask, err)) < 0)
		return rc;
	if ((n = enc_dgram_ask (conf->facts, "privd", conf->facts_uid, deadline, &ask, answer, sizeof answer, err)) < 0)
		return (int)n;
	rc = enc_facts_decode (answer, (size_t)n, ret, err);
	return rc < 0 ? enc_fail (err, ENC_EPROTO, "privd's answer is malformed") : 0;
}
