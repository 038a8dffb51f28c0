/* The decision: one table of conditions, each with the acts that it is for. */
#include "plugins/client/client.h"

#include <string.h>

#include "base/enc.h"

struct condition {
	unsigned acts;
	bool (*holds) (const struct enc_facts *facts);
	enum enc_code code;
	const char *text, *next;
};

static bool is_open (const struct enc_facts *f) { return f->door; }
static bool is_alive (const struct enc_facts *f) { return f->agent_alive; }
static bool has_volumes (const struct enc_facts *f) { return f->volumes_open > 0; }
static bool has_generation (const struct enc_facts *f) { return f->generation > 0; }

static const struct condition conditions[] = {
	{ ENC_ACT_ENTER, is_open, ENC_EDENIED, "the enclave's door is shut", "enclavectl show tells why and until when" },
	{ ENC_ACT_ENTER | ENC_ACT_SUBMIT | ENC_ACT_RUN, is_alive, ENC_EUNAVAIL, "the agent of this node does not answer its keeper",
		"try again in a minute; then tell the enclave's admin" },
	{ ENC_ACT_RUN, has_volumes, ENC_EDENIED, "the encrypted volumes are not open on this node", "try again in a minute; then tell the enclave's admin" },
	{ ENC_ACT_RUN, has_generation, ENC_EDENIED, "this node has no order to be in an enclave", "tell the enclave's admin" },
};

int enc_client_stranger (struct enc_error *err)
{
	return enc_error_next (err, enc_fail (err, ENC_ENOTFOUND, "no such enclave, or not yours"), "ask the enclave's owner to add you");
}

static const struct enc_member *member_of (const struct enc_members *members, const char *user, uid_t uid)
{
	/* Both are walked in any case, so that the time does not tell which of them failed. */
	const struct enc_member *by_uid = enc_members_find_uid (members, uid);
	const struct enc_member *by_name = user ? enc_members_find (members, user) : by_uid;

	return by_uid == by_name ? by_uid : NULL;
}

int enc_client_judge (const struct enc_client_view *view, enum enc_client_act act, const char *user, uid_t uid,
	const struct enc_member **ret, struct enc_error *err)
{
	const struct enc_member *member = member_of (&view->members, user, uid);
	const struct condition *wrong = NULL;

	for (size_t i = ENC_ARRAY_LEN (conditions); i-- > 0;)
		if ((conditions[i].acts & (unsigned)act) && !conditions[i].holds (&view->facts))
			wrong = &conditions[i];
	if (!member)
		return enc_client_stranger (err);
	if (wrong)
		return enc_error_next (err, enc_fail (err, wrong->code, "%s", wrong->text), "%s", wrong->next);
	if (ret)
		*ret = member;
	return 0;
}
