/* pam_enclave.so: the door, inside the sshd of an enclave's login node. Key and second factor are other modules' business.
 *
 *   account   a member by the signed document, while the door is open, in a node that privd calls the enclave's; anything else,
 *             and anything that cannot be told, is PAM_PERM_DENIED. A stranger and an unknown user cannot be told apart.
 *   session   the same question again (a session may begin long after the login), and one line in the system's log at each end
 *
 * No state, no arguments, no output to the terminal but why a member is kept waiting. */
#include <pwd.h>
#include <string.h>
#include <syslog.h>

#include <security/pam_ext.h>
#include <security/pam_modules.h>

#include "plugins/client/client.h"

#include "base/enc.h"

#ifdef ENC_PAM_TEST_CONF
#include ENC_PAM_TEST_CONF
#else
#define door_conf() (&enc_client_conf)
#endif

enum { PASSWD_MAX = 16384 };

/* The uid that the session would have; (uid_t)-1 for a user whom this host does not know. */
static uid_t uid_of (const char *user)
{
	enc_auto_free char *space = malloc (PASSWD_MAX);
	struct passwd pw, *found = NULL;

	if (space && getpwnam_r (user, &pw, space, PASSWD_MAX, &found) == 0 && found)
		return found->pw_uid;
	return (uid_t)-1;
}

static int may_enter (const char *user, struct enc_error *err)
{
	struct enc_client_view view;
	uid_t uid = uid_of (user);
	int rc = enc_client_open (door_conf (), &view, err);

	if (rc < 0)
		return -ENC_EUNAVAIL; /* nobody is told what is wrong with the node */
	rc = enc_client_judge (&view, ENC_ACT_ENTER, user, uid, NULL, err);
	enc_client_close (&view);
	return rc;
}

static int ask (pam_handle_t *pamh, int flags)
{
	struct enc_error err = { 0 };
	const char *user = NULL;
	int rc;

	if (pam_get_user (pamh, &user, NULL) != PAM_SUCCESS || !user || !user[0])
		return PAM_PERM_DENIED;
	if ((rc = may_enter (user, &err)) == 0)
		return PAM_SUCCESS;
	pam_syslog (pamh, LOG_NOTICE, "refused: %s", err.text);
	/* Only a member whom the door keeps out is told why; a stranger is refused like somebody who does not exist. */
	if (rc == -ENC_EDENIED && !(flags & PAM_SILENT))
		(void)pam_error (pamh, "enclave: %s", err.text);
	return PAM_PERM_DENIED;
}

int pam_sm_acct_mgmt (pam_handle_t *pamh, int flags, int argc, const char **argv)
{
	(void)argc;
	(void)argv;
	return ask (pamh, flags);
}

int pam_sm_open_session (pam_handle_t *pamh, int flags, int argc, const char **argv)
{
	(void)argc;
	(void)argv;
	if (ask (pamh, flags) != PAM_SUCCESS)
		return PAM_SESSION_ERR;
	pam_syslog (pamh, LOG_INFO, "session opened");
	return PAM_SUCCESS;
}

int pam_sm_close_session (pam_handle_t *pamh, int flags, int argc, const char **argv)
{
	(void)flags;
	(void)argc;
	(void)argv;
	pam_syslog (pamh, LOG_INFO, "session closed");
	return PAM_SUCCESS;
}
