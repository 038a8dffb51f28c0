/* pam_enclave.so as the tests load it: the same source, with places that the test's environment names. */
#include <stdlib.h>

static const struct enc_client_conf *door_conf (void)
{
	static struct enc_client_conf conf;
	static char path[3][320];
	static const char *const names[] = { "members", "keyd.vkey", "privd.sock" };
	const char *dir = getenv ("ENC_TEST_STAGE");

	for (int i = 0; i < 3; i++)
		(void)snprintf (path[i], sizeof path[i], "%s/%s", dir ? dir : "/nonexistent", names[i]);
	conf = (struct enc_client_conf){ .members = path[0], .vkey = path[1], .facts = path[2], .facts_uid = getuid (), .deadline_ms = 300 };
	return &conf;
}
