/* pam_enclave.so: the door, inside the sshd of an enclave's login node. Key and second factor are other modules' business.
 *
 *   auth      only where another module has refused (`refused=WHY`): puts that on record, and refuses
 *   account   a member by the signed document, while the door is open, in a node that privd calls the enclave's; anything else,
 *             and anything that cannot be told, is PAM_PERM_DENIED. A stranger and an unknown user cannot be told apart.
 *   session   the same question again (a session may begin long after the login), then the record: no session begins before this
 *             module holds the log's signature under it. Its end is told to privd, which also sees it when nobody tells
 *
 * Each outcome is a record: exact in there, byte-alike outside. No state but the session's id, no output to the terminal but why a
 * member is kept waiting. */
#include <arpa/inet.h>
#include <linux/tcp.h>
#include <pwd.h>
#include <string.h>
#include <sys/socket.h>
#include <syslog.h>

#include <security/pam_ext.h>
#include <security/pam_modules.h>

#include "base/str.h"
#include "plugins/client/tell.h"

#include "base/enc.h"

#ifdef ENC_PAM_TEST_CONF
#include ENC_PAM_TEST_CONF
#else
#define door_conf() (&enc_client_conf)
#endif

enum { PASSWD_MAX = 16384, FDS_MAX = 64 };

static const char session_data[] = "enclave_session";

/* The uid that the session would have; (uid_t)-1 for a user whom this host does not know. */
static uid_t uid_of (const char *user)
{
	enc_auto_free char *space = malloc (PASSWD_MAX);
	struct passwd pw, *found = NULL;

	if (space && getpwnam_r (user, &pw, space, PASSWD_MAX, &found) == 0 && found)
		return found->pw_uid;
	return (uid_t)-1;
}

/* `ret` gets the user's name if he is a member, and stays empty for everybody else; `ret_enclave` (27 bytes, may be NULL) the id. */
static int may_enter (const char *user, char ret[static 33], char *ret_enclave, struct enc_error *err)
{
	struct enc_client_view view;
	uid_t uid = uid_of (user);
	int rc = enc_client_open (door_conf (), &view, err);

	if (rc < 0)
		return -ENC_EUNAVAIL; /* nobody is told what is wrong with the node */
	rc = enc_client_judge (&view, ENC_ACT_ENTER, user, uid, NULL, err);
	if (rc != -ENC_ENOTFOUND)
		(void)!enc_str_copy (ret, 33, user, NULL);
	if (ret_enclave)
		memcpy (ret_enclave, view.facts.enclave_id, sizeof view.facts.enclave_id);
	enc_client_close (&view);
	return rc;
}

/* ---- what is told ---- */

/* sshd lists what was passed, a method a line. */
static void set_factor (pam_handle_t *pamh, struct enc_told *t)
{
	const char *info = pam_getenv (pamh, "SSH_AUTH_INFO_0");

	if (info)
		(void)snprintf (t->factor, sizeof t->factor, "%s%s", strstr (info, "publickey") ? "publickey" : "no-key",
			strstr (info, "keyboard-interactive") ? "+code" : "");
}

static void set_source (pam_handle_t *pamh, struct enc_told *t)
{
	const void *host = NULL;
	struct in6_addr any;

	if (pam_get_item (pamh, PAM_RHOST, &host) == PAM_SUCCESS && host && (inet_pton (AF_INET, host, &any) == 1 || inet_pton (AF_INET6, host, &any) == 1))
		(void)!enc_str_copy (t->source, sizeof t->source, host, NULL);
}

static int tell (pam_handle_t *pamh, struct enc_told *t, struct enc_error *err)
{
	int rc;

	/* At the account stage sshd's list does not have the last method yet. */
	if (t->kind != ENC_TOLD_LOGIN)
		set_factor (pamh, t);
	set_source (pamh, t);
	if ((rc = enc_client_tell (door_conf (), t, NULL, err)) < 0)
		pam_syslog (pamh, LOG_WARNING, "not told for the log: %s", err->text);
	return rc;
}

static void tell_outcome (pam_handle_t *pamh, uint8_t kind, const char *member, const char *reason)
{
	struct enc_told t = { .kind = kind };
	struct enc_error err = { 0 };

	(void)snprintf (t.user, sizeof t.user, "%s", member);
	(void)snprintf (t.reason, sizeof t.reason, "%.127s", reason);
	(void)tell (pamh, &t, &err);
}

/* ---- the question ---- */

struct answer {
	char member[33], enclave_id[27];
};

static int ask (pam_handle_t *pamh, int flags, struct answer *ret)
{
	struct enc_error err = { 0 };
	const char *user = NULL;
	int rc;

	if (pam_get_user (pamh, &user, NULL) != PAM_SUCCESS || !user || !user[0])
		return PAM_PERM_DENIED;
	if ((rc = may_enter (user, ret->member, ret->enclave_id, &err)) == 0)
		return PAM_SUCCESS;
	pam_syslog (pamh, LOG_NOTICE, "refused: %s", err.text);
	tell_outcome (pamh, ENC_TOLD_LOGIN_FAILED, ret->member, err.text);
	/* Only a member whom the door keeps out is told why; a stranger is refused like somebody who does not exist. */
	if (rc == -ENC_EDENIED && !(flags & PAM_SILENT))
		(void)pam_error (pamh, "enclave: %s", err.text);
	return PAM_PERM_DENIED;
}

int pam_sm_authenticate (pam_handle_t *pamh, int flags, int argc, const char **argv)
{
	static const char option[] = "refused=";
	char member[33] = "", reason[64] = "refused by another module";
	struct enc_error err = { 0 };
	const char *user = NULL;

	(void)flags;
	for (int i = 0; i < argc; i++)
		if (strncmp (argv[i], option, sizeof option - 1) == 0)
			(void)snprintf (reason, sizeof reason, "%s is wrong", argv[i] + sizeof option - 1);
	if (pam_get_user (pamh, &user, NULL) == PAM_SUCCESS && user && user[0])
		(void)may_enter (user, member, NULL, &err);
	tell_outcome (pamh, ENC_TOLD_LOGIN_FAILED, member, reason);
	return PAM_AUTH_ERR;
}

int pam_sm_setcred (pam_handle_t *pamh, int flags, int argc, const char **argv)
{
	(void)pamh, (void)flags, (void)argc, (void)argv;
	return PAM_IGNORE;
}

int pam_sm_acct_mgmt (pam_handle_t *pamh, int flags, int argc, const char **argv)
{
	struct answer found = { 0 };
	int rc = ask (pamh, flags, &found);

	(void)argc, (void)argv;
	if (rc == PAM_SUCCESS)
		tell_outcome (pamh, ENC_TOLD_LOGIN, found.member, "");
	return rc;
}

/* ---- sessions ---- */

static void forget (pam_handle_t *pamh, void *data, int status)
{
	(void)pamh, (void)status;
	free (data);
}

static void tell_end (pam_handle_t *pamh, const char *session, const char *reason)
{
	struct enc_told t = { .kind = ENC_TOLD_SESSION_END };
	struct enc_error err = { 0 };

	(void)!enc_str_copy (t.session, sizeof t.session, session, NULL);
	(void)snprintf (t.reason, sizeof t.reason, "%.127s", reason);
	/* What went over the connection: an upper bound of what was carried out on a screen. It is one of sshd's first descriptors. */
	for (int fd = 0; fd < FDS_MAX; fd++) {
		struct tcp_info info = { 0 };
		socklen_t len = sizeof info;

		if (getsockopt (fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_bytes_acked > t.bytes_out) {
			t.bytes_in = info.tcpi_bytes_received;
			t.bytes_out = info.tcpi_bytes_acked;
		}
	}
	(void)tell (pamh, &t, &err);
}

/* No record, no session. */
static int record_session (pam_handle_t *pamh, const struct answer *who, const char *session, struct enc_error *err)
{
	struct enc_told t = { .kind = ENC_TOLD_SESSION_START };
	int rc;

	memcpy (t.session, session, sizeof t.session);
	memcpy (t.user, who->member, sizeof t.user);
	if ((rc = tell (pamh, &t, err)) < 0)
		return rc;
	if ((rc = enc_client_receipt (door_conf (), session, who->enclave_id, err)) < 0)
		tell_end (pamh, session, "the log does not answer for it");
	return rc;
}

int pam_sm_open_session (pam_handle_t *pamh, int flags, int argc, const char **argv)
{
	enc_auto_free char *session = calloc (1, ENC_ID_SIZE);
	struct enc_error err = { 0 };
	struct answer found = { 0 };
	int rc;

	(void)argc, (void)argv;
	if (!session || ask (pamh, flags, &found) != PAM_SUCCESS)
		return PAM_SESSION_ERR;
	if ((rc = enc_id_new (session, &err)) < 0 || (rc = record_session (pamh, &found, session, &err)) < 0) {
		pam_syslog (pamh, LOG_ERR, "refused: no record, no session: %s", err.text);
		if (!(flags & PAM_SILENT))
			(void)pam_error (pamh, "enclave: the audit log cannot be reached, so nobody is let in; next: tell the enclave's admin");
		return PAM_SESSION_ERR;
	}
	pam_syslog (pamh, LOG_INFO, "session opened");
	if (pam_set_data (pamh, session_data, session, forget) == PAM_SUCCESS)
		session = NULL; /* libpam's now */
	return PAM_SUCCESS;
}

int pam_sm_close_session (pam_handle_t *pamh, int flags, int argc, const char **argv)
{
	const void *session = NULL;

	(void)flags, (void)argc, (void)argv;
	if (pam_get_data (pamh, session_data, &session) == PAM_SUCCESS && session)
		tell_end (pamh, session, "");
	pam_syslog (pamh, LOG_INFO, "session closed");
	return PAM_SUCCESS;
}
