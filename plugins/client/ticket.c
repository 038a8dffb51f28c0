#include "plugins/client/ticket.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/str.h"

#include "base/enc.h"

enum { TICKET_MAX = 128, FIELDS = 4 };

static const char *job_name (uint32_t job, char ret[static 16])
{
	(void)snprintf (ret, 16, "%u", job);
	return ret;
}

/* A folder that may not be there yet; root's alone. */
static int open_folder (const char *path, struct enc_error *err)
{
	if (mkdir (path, 0700) < 0 && errno != EEXIST)
		return enc_fail_sys (err, "%s", path);
	return enc_open_dir (path, err);
}

static int open_job (const char *base, uint32_t job, struct enc_error *err)
{
	const struct enc_file_attr attr = ENC_FILE_ATTR (0700);
	enc_auto_close int jobs = open_folder (base, err);
	char name[16];
	int rc;

	if (jobs < 0)
		return jobs;
	if ((rc = enc_mkdir_at (jobs, job_name (job, name), &attr, err)) < 0)
		return rc;
	return enc_open_beneath (jobs, name, O_RDONLY | O_DIRECTORY, 0, err);
}

int enc_ticket_write (const struct enc_client_conf *conf, uint32_t job, const char *name, const struct enc_ticket *t,
	struct enc_error *err)
{
	const struct enc_file_attr attr = ENC_FILE_ATTR (0600);
	enc_auto_close int dir = open_job (conf->jobs, job, err);
	char text[TICKET_MAX];

	if (dir < 0)
		return enc_wrap (err, dir, "job %u", job);
	(void)snprintf (text, sizeof text, "%s %s %llu %u", t->version, t->enclave_id, (unsigned long long)t->generation, (unsigned)t->uid);
	return enc_file_write_at (dir, name, text, strlen (text), &attr, err);
}

static int parse (char *text, struct enc_ticket *ret, struct enc_error *err)
{
	struct enc_ticket t = { 0 };
	char *word[FIELDS], *rest = text;
	uint64_t uid;

	for (size_t i = 0; i < FIELDS; i++)
		if (!(word[i] = strsep (&rest, " ")))
			return enc_fail (err, ENC_EINVAL, "a ticket is cut short");
	if (rest || enc_str_copy (t.version, sizeof t.version, word[0], err) < 0 || enc_str_copy (t.enclave_id, sizeof t.enclave_id, word[1], err) < 0)
		return enc_fail (err, ENC_EINVAL, "a ticket is malformed");
	if (enc_parse_u64 (word[2], 1, UINT64_MAX, &t.generation, err) < 0 || enc_parse_u64 (word[3], 0, UINT32_MAX, &uid, err) < 0)
		return -ENC_EINVAL;
	t.uid = (uid_t)uid;
	*ret = t;
	return 0;
}

int enc_ticket_check (const struct enc_client_conf *conf, uint32_t job, const char *name, const struct enc_ticket *want,
	struct enc_error *err)
{
	enc_auto_free char *path = enc_strf ("%s/%u/%s", conf->jobs, job, name);
	enc_auto_done (enc_buf_done) struct enc_buf file = ENC_BUF_INIT (TICKET_MAX);
	enc_auto_free char *text = NULL;
	struct enc_ticket t;

	if (!path)
		return enc_fail (err, ENC_ENOMEM, "ticket: no memory");
	if (enc_file_read_trusted (path, TICKET_MAX - 1, &file, err) < 0 || !(text = enc_buf_take_str (&file)))
		return enc_fail (err, ENC_EDENIED, "job %u did not pass the enclave's %s on this node", job, name);
	if (parse (text, &t, err) < 0 || strcmp (t.enclave_id, want->enclave_id) != 0 || t.uid != want->uid || t.generation > want->generation)
		return enc_fail (err, ENC_EDENIED, "job %u passed the %s of another enclave, user or time", job, name);
	if (strcmp (t.version, want->version) != 0)
		return enc_fail (err, ENC_EDENIED, "the enclave's %s on this node is of version %s, and this of %s", name, t.version, want->version);
	return 0;
}

int enc_job_places_make (const struct enc_client_conf *conf, uint32_t job, uid_t uid, gid_t gid, bool memory, struct enc_error *err)
{
	const struct enc_file_attr theirs = { .mode = 0700, .uid = uid, .gid = gid }, ours = ENC_FILE_ATTR (0700);
	enc_auto_free char *base = enc_strf ("%s/.jobs", conf->scratch), *shm = enc_strf ("%s/%u/shm", conf->jobs, job);
	enc_auto_close int scratch = -1, dir = -1;
	char name[16], options[64];
	int rc;

	if (!base || !shm)
		return enc_fail (err, ENC_ENOMEM, "job %u: no memory", job);
	if ((scratch = open_folder (base, err)) < 0 || (dir = open_job (conf->jobs, job, err)) < 0)
		return enc_wrap (err, scratch < 0 ? scratch : dir, "job %u: private folders", job);
	if ((rc = enc_mkdir_at (scratch, job_name (job, name), &theirs, err)) < 0 || (rc = enc_mkdir_at (dir, "shm", &ours, err)) < 0)
		return rc;
	if (!memory)
		return 0;
	(void)snprintf (options, sizeof options, "mode=0700,uid=%u,gid=%u,size=50%%", (unsigned)uid, (unsigned)gid);
	(void)umount2 (shm, MNT_DETACH | UMOUNT_NOFOLLOW);
	if (mount ("enclave-shm", shm, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options) < 0)
		return enc_fail_sys (err, "job %u: private memory", job);
	return 0;
}

int enc_job_places_remove (const struct enc_client_conf *conf, uint32_t job, struct enc_error *err)
{
	enc_auto_free char *base = enc_strf ("%s/.jobs", conf->scratch), *shm = enc_strf ("%s/%u/shm", conf->jobs, job);
	enc_auto_close int scratch = -1, jobs = -1;
	char name[16];
	int rc = 0;

	if (!base || !shm)
		return enc_fail (err, ENC_ENOMEM, "job %u: no memory", job);
	(void)job_name (job, name);
	(void)umount2 (shm, MNT_DETACH | UMOUNT_NOFOLLOW);
	if (access (base, F_OK) == 0 && (scratch = enc_open_dir (base, err)) >= 0)
		rc = enc_remove_tree (scratch, name, (uid_t)-1, NULL, err);
	if (rc == 0 && access (conf->jobs, F_OK) == 0 && (jobs = enc_open_dir (conf->jobs, err)) >= 0)
		rc = enc_remove_tree (jobs, name, (uid_t)-1, NULL, err);
	return enc_wrap (err, rc, "job %u", job);
}

void enc_job_proof_format (const struct enc_client_view *view, char ret[static ENC_PROOF_SIZE])
{
	(void)snprintf (ret, ENC_PROOF_SIZE, "%s %s %llu", ENC_PLUGIN_VERSION, view->members.enclave_id, (unsigned long long)view->members.version);
}

int enc_job_proof_check (const struct enc_client_view *view, const char *proof, bool fresh, struct enc_error *err)
{
	char copy[ENC_PROOF_SIZE], *rest = copy, *version, *id;
	uint64_t seen, now = view->members.version;

	if (!proof || enc_str_copy (copy, sizeof copy, proof, err) < 0)
		return enc_fail (err, ENC_EDENIED, "this job does not come through the enclave's plugin");
	version = strsep (&rest, " ");
	id = strsep (&rest, " ");
	if (!id || !rest || strcmp (id, view->members.enclave_id) != 0 || enc_parse_u64 (rest, 1, UINT64_MAX, &seen, err) < 0)
		return enc_fail (err, ENC_EDENIED, "this job does not come through the plugin of this enclave");
	if (strcmp (version, ENC_PLUGIN_VERSION) != 0)
		return enc_fail (err, ENC_EDENIED, "the plugin that sent this job is of version %s, this one of %s", version, ENC_PLUGIN_VERSION);
	if (fresh && (seen > now ? seen - now : now - seen) > 1)
		return enc_fail (err, ENC_EDENIED, "the members of the enclave changed since this job was sent");
	return 0;
}
