#include "crypto/members.h"

#include "base/str.h"
#include "crypto/wire.h"
#include "base/enc.h"

enum { VERSION = 1, UID_MIN = 1000 };

/* One line of printable ASCII that starts with a key type: it goes into authorized-keys output as it is. */
static bool key_line_ok (const char *s)
{
	size_t len = strlen (s);

	if (len < 16 || len > ENC_MEMBER_KEY_LINE_MAX)
		return false;
	if (!enc_starts (s, "ssh-") && !enc_starts (s, "ecdsa-sha2-") && !enc_starts (s, "sk-"))
		return false;
	for (; *s; s++)
		if (*s < ' ' || *s > '~')
			return false;
	return true;
}

static int bad (struct enc_error *err, size_t i, const char *what)
{
	return enc_error_pointer (err, enc_fail (err, ENC_EINVAL, "member document: member %zu: %s", i, what), "/members/%zu", i);
}

/* `before` is the member that precedes it, NULL for the first. */
static int check_member (const struct enc_member *m, const struct enc_member *before, size_t i, struct enc_error *err)
{
	if (!enc_user_name_ok (m->user))
		return bad (err, i, "bad user name");
	if (!enc_name_ok (m->role))
		return bad (err, i, "bad role");
	/* System accounts are nobody's membership: a document that named uid 0 would open the door to root. */
	if (m->uid < UID_MIN || m->gid < UID_MIN || m->uid == UINT32_MAX || m->gid == UINT32_MAX)
		return bad (err, i, "uid or gid of a system account");
	if (m->keys_n > ENC_MEMBER_KEYS_MAX)
		return bad (err, i, "too many keys");
	for (size_t k = 0; k < m->keys_n; k++)
		if (!key_line_ok (m->keys[k]))
			return bad (err, i, "bad ssh key");
	if (before && strcmp (before->user, m->user) >= 0)
		return bad (err, i, "not sorted, or there twice");
	return 0;
}

static int check_uids (const struct enc_members *m, struct enc_error *err)
{
	for (size_t i = 0; i < m->members_n; i++)
		for (size_t k = i + 1; k < m->members_n; k++)
			if (m->members[i].uid == m->members[k].uid)
				return bad (err, k, "a uid that another member has");
	return 0;
}

static int check (const struct enc_members *m, struct enc_error *err)
{
	int rc;

	if (!enc_id_ok (m->enclave_id) || !enc_name_ok (m->enclave_name))
		return enc_fail (err, ENC_EINVAL, "member document: bad enclave");
	if (m->version == 0 || m->not_after <= m->not_before)
		return enc_fail (err, ENC_EINVAL, "member document: bad version or time");
	if (m->flags & ~ENC_MEMBERS_FLAGS)
		return enc_fail (err, ENC_EINVAL, "member document: unknown flag");
	if (m->members_n > ENC_MEMBERS_MAX || m->datasets_n > ENC_MEMBER_DATASETS_MAX)
		return enc_fail (err, ENC_ELIMIT, "member document: too many members or datasets");
	for (size_t i = 0; i < m->members_n; i++)
		if ((rc = check_member (&m->members[i], i ? &m->members[i - 1] : NULL, i, err)) < 0)
			return rc;
	for (size_t i = 0; i < m->datasets_n; i++)
		if (!enc_name_ok (m->datasets[i]))
			return enc_fail (err, ENC_EINVAL, "member document: bad dataset name");
	return check_uids (m, err);
}

static void put_member (const struct enc_member *m, struct enc_buf *out)
{
	enc_wire_put_str (out, m->user, sizeof m->user - 1);
	enc_buf_put_u32 (out, m->uid);
	enc_buf_put_u32 (out, m->gid);
	enc_wire_put_str (out, m->role, sizeof m->role - 1);
	enc_buf_put_u16 (out, (uint16_t) m->keys_n);
	for (size_t k = 0; k < m->keys_n; k++)
		enc_wire_put_str (out, m->keys[k], ENC_MEMBER_KEY_LINE_MAX);
}

int enc_members_put (const struct enc_members *m, struct enc_buf *out, struct enc_error *err)
{
	int rc = check (m, err);

	if (rc < 0)
		return rc;
	enc_buf_put_u8 (out, VERSION);
	enc_wire_put_str (out, m->enclave_id, sizeof m->enclave_id - 1);
	enc_wire_put_str (out, m->enclave_name, sizeof m->enclave_name - 1);
	enc_buf_put_u64 (out, m->version);
	enc_buf_put_u64 (out, m->not_before);
	enc_buf_put_u64 (out, m->not_after);
	enc_buf_put_u8 (out, m->flags);
	enc_buf_put_u16 (out, (uint16_t) m->members_n);
	for (size_t i = 0; i < m->members_n; i++)
		put_member (&m->members[i], out);
	enc_buf_put_u16 (out, (uint16_t) m->datasets_n);
	for (size_t i = 0; i < m->datasets_n; i++)
		enc_wire_put_str (out, m->datasets[i], sizeof m->datasets[i] - 1);
	return enc_buf_check (out, err);
}

void enc_members_done (struct enc_members *m)
{
	for (size_t i = 0; i < m->members_n; i++)
		free (m->members[i].keys);
	free (m->members);
	free (m->datasets);
	*m = (struct enc_members){ 0 };
}

/* The lines of one member stand in one block: first the pointers, then the texts. */
static int get_keys (struct enc_view *v, struct enc_member *m, struct enc_error *err)
{
	size_t n = enc_wire_count (v, ENC_MEMBER_KEYS_MAX), bytes = 0;
	struct enc_view ahead = *v;

	for (size_t k = 0; k < n; k++)
		bytes += enc_wire_bytes (&ahead, ENC_MEMBER_KEY_LINE_MAX).left + 1;
	if (v->bad || ahead.bad)
		return enc_fail (err, ENC_EINVAL, "member document: cut short or malformed");
	if (n == 0)
		return 0;
	char **keys = malloc (n * sizeof *keys + bytes);
	if (!keys)
		return enc_fail (err, ENC_ENOMEM, "member document: no memory");
	char *text = (char *) (keys + n);
	for (size_t k = 0; k < n; k++) {
		keys[k] = text;
		enc_wire_str (v, text, ENC_MEMBER_KEY_LINE_MAX + 1);
		text += strlen (text) + 1;
	}
	m->keys = keys;
	m->keys_n = n;
	return 0;
}

static int get_members (struct enc_view *v, struct enc_members *m, struct enc_error *err)
{
	size_t n = enc_wire_count (v, ENC_MEMBERS_MAX);
	int rc;

	if (!(m->members = calloc (n ? n : 1, sizeof *m->members)))
		return enc_fail (err, ENC_ENOMEM, "member document: no memory");
	for (size_t i = 0; i < n; i++) {
		struct enc_member *one = &m->members[i];

		enc_wire_str (v, one->user, sizeof one->user);
		one->uid = enc_view_u32 (v);
		one->gid = enc_view_u32 (v);
		enc_wire_str (v, one->role, sizeof one->role);
		if ((rc = get_keys (v, one, err)) < 0)
			return rc;
		m->members_n = i + 1;
	}
	return 0;
}

static int get_datasets (struct enc_view *v, struct enc_members *m, struct enc_error *err)
{
	size_t n = enc_wire_count (v, ENC_MEMBER_DATASETS_MAX);

	if (!(m->datasets = calloc (n ? n : 1, sizeof *m->datasets)))
		return enc_fail (err, ENC_ENOMEM, "member document: no memory");
	for (size_t i = 0; i < n; i++)
		enc_wire_str (v, m->datasets[i], sizeof m->datasets[i]);
	m->datasets_n = n;
	return 0;
}

int enc_members_get (struct enc_view v, struct enc_members *ret, struct enc_error *err)
{
	enc_auto_done (enc_members_done) struct enc_members m = { 0 };
	int rc;

	if (enc_view_u8 (&v) != VERSION)
		return enc_fail (err, ENC_EINVAL, "a member document of an unknown version");
	enc_wire_str (&v, m.enclave_id, sizeof m.enclave_id);
	enc_wire_str (&v, m.enclave_name, sizeof m.enclave_name);
	m.version = enc_view_u64 (&v);
	m.not_before = enc_view_u64 (&v);
	m.not_after = enc_view_u64 (&v);
	m.flags = enc_view_u8 (&v);
	if ((rc = get_members (&v, &m, err)) < 0 || (rc = get_datasets (&v, &m, err)) < 0 || (rc = enc_view_end (&v, err)) < 0 ||
		(rc = check (&m, err)) < 0)
		return rc;
	*ret = m;
	m = (struct enc_members){ 0 };
	return 0;
}

int enc_members_read (struct enc_view envelope, const struct enc_sign_pub *keyd, struct enc_members *ret, struct enc_error *err)
{
	struct enc_view body;
	int rc = enc_envelope_check (envelope, ENC_ENVELOPE_MEMBERS, keyd, &body, err);

	if (rc == 0)
		rc = enc_members_get (body, ret, err);
	return enc_wrap (err, rc, "member document");
}

int enc_members_hold (const struct enc_members *m, const char *enclave_id, uint64_t version_min, uint64_t now,
	struct enc_error *err)
{
	if (!enc_streq (m->enclave_id, enclave_id))
		return enc_fail (err, ENC_EDENIED, "the member document is another enclave's");
	if (m->version < version_min)
		return enc_fail (err, ENC_EDENIED, "the member document is older than one that was seen before");
	if (now < m->not_before || now >= m->not_after)
		return enc_fail (err, ENC_EDENIED, "the member document is not in force");
	return 0;
}

const struct enc_member *enc_members_find (const struct enc_members *m, const char *user)
{
	const struct enc_member *found = NULL;

	for (size_t i = 0; i < m->members_n; i++)
		if (enc_streq (m->members[i].user, user))
			found = &m->members[i];
	return found;
}

const struct enc_member *enc_members_find_uid (const struct enc_members *m, uint32_t uid)
{
	const struct enc_member *found = NULL;

	for (size_t i = 0; i < m->members_n; i++)
		if (m->members[i].uid == uid)
			found = &m->members[i];
	return found;
}
