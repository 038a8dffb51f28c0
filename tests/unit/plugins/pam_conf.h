/* pam_enclave.so as the tests load it: the same source, with places that the test's environment names. */
#include <stdlib.h>

static const struct enc_client_conf *door_conf (void)
{
	static struct enc_client_conf conf;
	static char path[5][320];
	static const char *const names[] = { "members", "keyd.vkey", "privd.sock", "log.vkey", "agent.sock" };
	const char *dir = getenv ("ENC_TEST_STAGE");

	for (int i = 0; i < 5; i++)
		(void)snprintf (path[i], sizeof path[i], "%s/%s", dir ? dir : "/nonexistent", names[i]);
	conf = (struct enc_client_conf){ .members = path[0], .vkey = path[1], .facts = path[2], .log_vkey = path[3], .agent = path[4],
		.facts_uid = getuid (), .deadline_ms = 300, .receipt_ms = 1000 };
	return &conf;
}
