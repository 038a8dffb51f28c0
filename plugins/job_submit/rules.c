#include "plugins/job_submit/rules.h"

#include <stddef.h>
#include <string.h>

#include "base/cleanup.h"
#include "plugins/job_submit/text.h"

#include "base/enc.h"

#define WORD(member) offsetof (struct enc_job_text, member)

static const struct { size_t offset; const char *what, *option; } paths[] = {
	{ WORD (std_out), "output", "--output=/enclave/home/%u/%x-%j.out" },
	{ WORD (std_err), "error", "--error=/enclave/home/%u/%x-%j.err" },
	{ WORD (std_in), "input", "--input=/enclave/home/%u/FILE" },
	{ WORD (work_dir), "working folder", "--chdir=/enclave/home/$USER" },
};

static const struct { size_t offset; const char *what; } words[] = {
	{ WORD (name), "name" }, { WORD (comment), "comment" }, { WORD (wckey), "wckey" }, { WORD (account), "account" }, { WORD (admin_comment), "comment" },
};

static const struct { size_t offset; const char *what; } absent[] = {
	{ WORD (mail_user), "mail" }, { WORD (burst_buffer), "a burst buffer" }, { WORD (container), "a container bundle" },
	{ WORD (clusters), "another cluster" }, { WORD (x11_cookie), "X11" },
};

static const char *word_at (const struct enc_job_text *job, size_t offset)
{
	return *(const char *const *)((const char *)job + offset);
}

static int check_paths (const struct enc_job_text *job, struct enc_error *err)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (paths); i++) {
		const char *path = word_at (job, paths[i].offset);
		if (path && path[0] && !enc_path_inside (path))
			return enc_error_next (err, enc_fail (err, ENC_EDENIED, "the job's %s lies outside the enclave's storage", paths[i].what), "%s", paths[i].option);
	}
	return 0;
}

static int check_words (const struct enc_job_text *job, struct enc_error *err)
{
	for (size_t i = 0; i < ENC_ARRAY_LEN (words); i++) {
		const char *text = word_at (job, words[i].offset);
		if (text && enc_text_identifies (text))
			return enc_error_next (err, enc_fail (err, ENC_EDENIED, "the job's %s looks like a record number or a date, and others can see it", words[i].what),
				"give the job a %s without long numbers, such as cxr-train-3", words[i].what);
	}
	return 0;
}

static int check_absent (const struct enc_job_text *job, struct enc_error *err)
{
	const char *what = job->mail ? "mail" : job->reboot ? "a reboot" : job->x11 ? "X11" : NULL;

	for (size_t i = 0; !what && i < ENC_ARRAY_LEN (absent); i++) {
		const char *text = word_at (job, absent[i].offset);
		what = text && text[0] ? absent[i].what : NULL;
	}
	return what ? enc_error_next (err, enc_fail (err, ENC_EDENIED, "there is no such thing in an enclave: %s", what), "submit without it") : 0;
}

int enc_job_rules (const struct enc_job_text *job, struct enc_error *err)
{
	int rc;

	if (job->partition && strcmp (job->partition, ENC_PARTITION) != 0)
		return enc_error_next (err, enc_fail (err, ENC_EDENIED, "jobs of an enclave run in its partition alone"), "--partition=" ENC_PARTITION);
	if ((rc = check_paths (job, err)) < 0 || (rc = check_words (job, err)) < 0)
		return rc;
	return check_absent (job, err);
}

int enc_job_same_owner (uid_t owner, uid_t to, bool new_proof, struct enc_error *err)
{
	if (to != (uid_t)-1 && to != owner)
		return enc_fail (err, ENC_EDENIED, "a job cannot be given to somebody else");
	if (new_proof)
		return enc_fail (err, ENC_EDENIED, "what the plugin said of a job cannot be changed");
	return 0;
}
