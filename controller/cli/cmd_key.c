/* `key init|unseal|seal|status` as root on the vault, straight to keyd: a passphrase never passes the controller. Elsewhere `key status` asks
 * the controller. */
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "controller/cli/command.h"
#include "controller/keyd/client.h"
#include "crypto/secmem.h"
#include "base/enc.h"

enum { ARENA = 256 * 1024 };

static int passphrase_get (bool twice, struct enc_secret *ret, struct enc_error *err)
{
	int rc = enc_secmem_init (ARENA, err);
	if (rc < 0)
		return rc;
	return isatty (STDIN_FILENO) == 1 ? enc_passphrase_ask ("Passphrase of the root key: ", twice, ret, err) : enc_passphrase_of_fd (STDIN_FILENO, ret, err);
}

int enc_cmd_key (const struct enc_session *s, const struct enc_command *c, const struct enc_json *args, struct enc_json **ret,
		 struct enc_error *err)
{
	struct enc_secret passphrase = { 0 };
	bool init = strcmp (c->sub, "init") == 0, unseal = strcmp (c->sub, "unseal") == 0;
	if (strcmp (c->sub, "status") == 0 && access (ENC_KEYD_SOCKET, W_OK) < 0)
		return enc_command_call (s, c, args, ret, err);
	int rc = init || unseal ? passphrase_get (init, &passphrase, err) : 0;
	if (rc == 0)
		rc = enc_keyd_client_call (ENC_KEYD_SOCKET, c->sub, init || unseal ? &passphrase : NULL, ret, err);
	enc_secret_done (&passphrase);
	return rc;
}
