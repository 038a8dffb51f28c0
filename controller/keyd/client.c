#include "controller/keyd/client.h"

#include <fcntl.h>
#include <termios.h>

#include "base/enctime.h"
#include "base/ipc.h"
#include "base/str.h"
#include "crypto/kdf.h"
#include "crypto/secmem.h"
#include "crypto/secretfd.h"
#include "base/enc.h"

/* argon2id at its highest takes seconds on a small vault */
enum { DEADLINE_MS = 60000 };

int enc_keyd_client_call (const char *socket, const char *op, const struct enc_secret *passphrase, struct enc_json **ret,
	struct enc_error *err)
{
	int64_t deadline = enc_deadline_ms (DEADLINE_MS);
	enc_auto (enc_ipc) struct enc_ipc *ipc = enc_ipc_connect (socket, deadline, err);
	enc_auto (enc_json) struct enc_json *request = enc_json_object ();
	enc_auto_close int fd = -1;
	struct enc_fds fds = { .n = 0 };

	if (!ipc)
		return enc_error_next (err, -ENC_EUNAVAIL, "systemctl start enclave-keyd");
	enc_json_set_str (request, "op", op);
	if (passphrase) {
		if ((fd = enc_secret_fd (passphrase->data, passphrase->len, err)) < 0)
			return fd;
		fds = (struct enc_fds){ .fd = { fd }, .n = 1 };
	}
	return enc_ipc_call (ipc, request, &fds, deadline, ret, NULL, err);
}

int enc_passphrase_of_fd (int fd, struct enc_secret *ret, struct enc_error *err)
{
	enc_auto (enc_secmem) uint8_t *text = NULL;
	size_t len = 0;
	int rc = enc_secmem_get (ENC_PASSPHRASE_MAX + 1, &text, err);

	if (rc < 0)
		return rc;
	while (len <= ENC_PASSPHRASE_MAX) {
		ssize_t n = read (fd, text + len, 1);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return enc_fail_sys (err, "cannot read the passphrase");
		if (n == 0 || text[len] == '\n')
			break;
		len++;
	}
	if (len < ENC_PASSPHRASE_MIN || len > ENC_PASSPHRASE_MAX)
		return enc_fail (err, ENC_EUSAGE, "a passphrase has %d to %d bytes", ENC_PASSPHRASE_MIN, ENC_PASSPHRASE_MAX);
	*ret = (struct enc_secret){ ENC_TAKE (text), len };
	return 0;
}

/* One line from the terminal with echo off; the setting comes back in any case but a kill. */
static int ask_once (int tty, const char *prompt, struct enc_secret *ret, struct enc_error *err)
{
	struct termios before, quiet;

	if (tcgetattr (tty, &before) < 0)
		return enc_fail_sys (err, "cannot read from the terminal");
	quiet = before;
	quiet.c_lflag &= (tcflag_t) ~ECHO;
	if (dprintf (tty, "%s: ", prompt) < 0 || tcsetattr (tty, TCSAFLUSH, &quiet) < 0)
		return enc_fail_sys (err, "cannot switch the terminal's echo off");
	int rc = enc_passphrase_of_fd (tty, ret, err);
	(void) tcsetattr (tty, TCSAFLUSH, &before);
	(void) dprintf (tty, "\n");
	return rc;
}

int enc_passphrase_ask (const char *prompt, bool twice, struct enc_secret *ret, struct enc_error *err)
{
	enc_auto_done (enc_secret_done) struct enc_secret one = { 0 }, two = { 0 };
	enc_auto_close int tty = open ("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	int rc;

	if (tty < 0)
		return enc_error_next (err, enc_fail (err, ENC_EUSAGE, "there is no terminal to ask for the passphrase"), "--passphrase-fd N");
	if ((rc = ask_once (tty, prompt, &one, err)) < 0)
		return rc;
	if (twice && (rc = ask_once (tty, "once more", &two, err)) < 0)
		return rc;
	if (twice && (one.len != two.len || !enc_mem_equal (one.data, two.data, one.len)))
		return enc_fail (err, ENC_EUSAGE, "the two passphrases differ");
	*ret = one;
	one = (struct enc_secret){ 0 };
	return 0;
}
