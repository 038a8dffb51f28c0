/* keyd for the command line: `enclavectl key init|unseal|seal|status`, run as root on the vault. */
#ifndef ENC_KEYD_CLIENT_H
#define ENC_KEYD_CLIENT_H

#include "base/json.h"
#include "crypto/wrap.h"

#define ENC_KEYD_SOCKET "/run/enclave/keyd.sock"

/* One op without a receipt. `passphrase` (NULL for none) travels by descriptor, never in JSON. `ret` is the answer, to be freed by
 * the caller. ENC_EUNAVAIL when keyd does not run. */
ENC_MUST_USE int enc_keyd_client_call (const char *socket, const char *op, const struct enc_secret *passphrase, struct enc_json **ret,
	struct enc_error *err);

/* A passphrase into secmem (enc_secmem_init() first; free with enc_secret_done()).
 * From the terminal, without echo, asked twice when `twice`: ENC_EUSAGE when there is no terminal or the two differ. */
ENC_MUST_USE int enc_passphrase_ask (const char *prompt, bool twice, struct enc_secret *ret, struct enc_error *err);
/* From a descriptor up to its end or the first line end: for `--passphrase-fd N` and pipes. */
ENC_MUST_USE int enc_passphrase_of_fd (int fd, struct enc_secret *ret, struct enc_error *err);

#endif
