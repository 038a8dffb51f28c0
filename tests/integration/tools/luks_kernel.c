/* The luks driver against a kernel that has dm-crypt: runs as root in a lab host that is a virtual machine (test_luks.py), through
 * the real family volume with its real system call filter. Its folders lie below /t, which must be a fresh tmpfs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <libcryptsetup.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "base/child.h"
#include "base/enctime.h"
#include "base/file.h"
#include "base/harden.h"
#include "base/point.h"
#include "crypto/secmem.h"
#include "node-agent/privd/dm.h"
#include "node-agent/privd/luks.h"
#include "node-agent/privd/mounts.h"
#include "node-agent/privd/volume_driver.h"

#include "base/enc.h"

#define VOLUME_ID "abcdefghijklmnopqrstuvwxyz"
#define NAME "enclave-" VOLUME_ID
#define IMAGE "/t/disk/scratch-" VOLUME_ID "/image"
#define POINTS "/t/points"

enum { SIZE = 32 * 1024 * 1024, ARENA = 262144 };

extern const struct enc_family enc_family_volume;

static char node[] = "n1", disk[] = "/t/disk", shared[] = "/t/shared", root[] = "/t/enclave", run_dir[] = "/t/run";
static const struct enc_privd_conf conf = { .node = node, .disk = disk, .shared = shared, .root = root, .run_dir = run_dir };
static struct enc_doc doc;

static void scratch (size_t n, uint64_t size)
{
	memset (&doc, 0, sizeof doc);
	doc.volumes_n = n;
	for (size_t i = 0; i < n; i++) {
		struct enc_doc_volume *v = &doc.volumes[i];
		*v = (struct enc_doc_volume){ .kind = ENC_VOLUME_SCRATCH, .size_bytes = size, .driver = "luks", .id = VOLUME_ID };
		(void)snprintf (v->name, sizeof v->name, "scratch%c", (char)('a' + i));
		v->id[0] = (char)('a' + i);
	}
}

/* As the family does it: in a process of its own, with its filter, until the end. Returns the negative code, or the signal. */
static int task (uint8_t flags, const char *point, char *text, size_t size)
{
	const struct enc_task t = { .job = ENC_JOB_VOLUMES, .flags = flags, .doc = &doc, .fd = -1 };
	struct enc_error err = { 0 };
	int status, pair[2], rc;

	assert_int_equal (pipe2 (pair, O_CLOEXEC), 0);
	pid_t pid = fork ();
	if (pid == 0) {
		if (point) {
			struct enc_file_attr attr = ENC_FILE_ATTR (0600);
			ENC_IGNORE (enc_file_write (POINTS "/luks", point, strlen (point), &attr, NULL));
			enc_point_open ("luks", POINTS);
		}
		rc = enc_secmem_init (ARENA, &err);
		if (rc == 0)
			rc = enc_harden_process (&err);
		(void)umask (022);
		if (rc == 0)
			rc = enc_seccomp_apply (enc_family_volume.seccomp, enc_family_volume.syscalls, &err);
		if (rc == 0) {
			struct enc_json *evidence = enc_json_object ();
			rc = enc_family_volume.tasks[ENC_JOB_VOLUMES](&conf, &t, evidence, &err);
			if (rc == 0)
				(void)snprintf (err.text, sizeof err.text, "%s", enc_json_write (evidence, NULL, NULL));
		}
		ENC_IGNORE (write (pair[1], err.text, sizeof err.text));
		_exit (-rc);
	}
	(void)close (pair[1]);
	memset (err.text, 0, sizeof err.text);
	ENC_IGNORE (read (pair[0], err.text, sizeof err.text));
	(void)close (pair[0]);
	assert_int_equal (waitpid (pid, &status, 0), pid);
	if (text)
		(void)snprintf (text, size, "%s", err.text);
	if (WIFSIGNALED (status))
		return WTERMSIG (status);
	if (WEXITSTATUS (status))
		print_message ("# %s\n", err.text);
	return -WEXITSTATUS (status);
}

static size_t count (const char *path, const char *begin)
{
	DIR *dir = opendir (path);
	const struct dirent *e;
	size_t n = 0;

	while (dir && (e = readdir (dir)))
		n += strncmp (e->d_name, begin, strlen (begin)) == 0;
	if (dir)
		(void)closedir (dir);
	return n;
}

static size_t loops (void)
{
	size_t n = 0;

	for (int i = 0; i < 32; i++) {
		char path[64];
		(void)snprintf (path, sizeof path, "/sys/block/loop%d/loop/backing_file", i);
		n += access (path, F_OK) == 0;
	}
	return n;
}

/* Loop devices let go a moment after their last user. */
static void nothing_is_open (void)
{
	for (int i = 0; i < 100 && loops () > 0; i++)
		(void)usleep (20000);
	assert_int_equal (loops (), 0);
	assert_int_equal (count ("/sys/block", "dm-"), 0);
	assert_int_equal (count ("/dev/mapper", "enclave"), 0);
	assert_int_equal (count (disk, "scratch-"), 0);
	assert_false (enc_mount_is ("/t/enclave/scratch"));
	assert_false (enc_mount_is ("/var/tmp"));
}

static void scratch_is_encrypted_of_its_size_and_the_image_shows_nothing (void **state)
{
	static const char canary[] = "canary: a patient's name";
	struct enc_buf bytes = ENC_BUF_INIT (SIZE + 1);
	struct enc_dm_crypt t = { 0 };
	struct statvfs fs;
	struct stat st;
	char text[256];

	(void)state;
	scratch (1, SIZE);
	assert_int_equal (task (0, NULL, text, sizeof text), 0);
	assert_non_null (strstr (text, "\"luks\""));
	assert_non_null (strstr (text, "512"));
	assert_int_equal (enc_dm_crypt_read (NAME, &t, NULL), 0);
	assert_int_equal (enc_dm_crypt_check (&t, SIZE, NULL), 0);
	assert_true (t.key_in_keyring);
	assert_int_equal (statvfs ("/t/enclave/scratch", &fs), 0);
	assert_true (fs.f_blocks * fs.f_frsize <= SIZE && fs.f_blocks * fs.f_frsize > SIZE / 2);
	assert_int_equal (fs.f_flag & (ST_NOSUID | ST_NODEV), ST_NOSUID | ST_NODEV);
	assert_int_equal (enc_file_write ("/t/enclave/scratch/note", canary, sizeof canary, &ENC_FILE_ATTR (0600), NULL), 0);
	sync ();
	assert_int_equal (stat (IMAGE, &st), 0);
	assert_int_equal (st.st_size, SIZE);
	assert_int_equal (enc_file_read (IMAGE, SIZE, &bytes, NULL), 0);
	assert_null (memmem (bytes.data, bytes.len, canary, sizeof canary - 1));
	enc_buf_done (&bytes);
	/* Again is nothing to do, and what is there stays. */
	assert_int_equal (task (0, NULL, NULL, 0), 0);
	assert_int_equal (access ("/t/enclave/scratch/note", F_OK), 0);
	/* More than its size does not fit. */
	int fd = open ("/t/enclave/scratch/big", O_WRONLY | O_CREAT, 0600);
	assert_int_equal (fallocate (fd, 0, 0, SIZE), -1);
	assert_int_equal (errno, ENOSPC);
	(void)close (fd);
	assert_int_equal (task (ENC_TASK_CLOSE, NULL, NULL, 0), 0);
	nothing_is_open ();
}

static void a_kill_between_any_two_steps_leaves_nothing_open (void **state)
{
	static const char *const up[] = { "image", "loaded", "active", "mkfs", "mounted" }, *const down[] = { "unmounted", "closed" };
	char point[64];

	(void)state;
	scratch (1, SIZE);
	for (size_t i = 0; i < ENC_ARRAY_LEN (up); i++) {
		(void)snprintf (point, sizeof point, "privd.luks.%s kill\n", up[i]);
		assert_int_equal (task (0, point, NULL, 0), SIGKILL);
		assert_int_equal (task (ENC_TASK_CLOSE, NULL, NULL, 0), 0);
		nothing_is_open ();
		assert_int_equal (task (0, point, NULL, 0), SIGKILL);
		assert_int_equal (task (0, NULL, NULL, 0), 0); /* or it goes on from there */
		assert_int_equal (task (ENC_TASK_CLOSE, NULL, NULL, 0), 0);
		nothing_is_open ();
	}
	for (size_t i = 0; i < ENC_ARRAY_LEN (down); i++) {
		(void)snprintf (point, sizeof point, "privd.luks.%s kill\n", down[i]);
		assert_int_equal (task (0, NULL, NULL, 0), 0);
		assert_int_equal (task (ENC_TASK_CLOSE, point, NULL, 0), SIGKILL);
		assert_int_equal (task (ENC_TASK_CLOSE, NULL, NULL, 0), 0);
		nothing_is_open ();
	}
}

static void a_step_that_fails_leaves_nothing_open (void **state)
{
	static const char *const steps[] = { "image", "loaded", "active", "mkfs", "mounted" };
	char point[64];

	(void)state;
	scratch (1, SIZE);
	for (size_t i = 0; i < ENC_ARRAY_LEN (steps); i++) {
		(void)snprintf (point, sizeof point, "privd.luks.%s fail\n", steps[i]);
		assert_int_equal (task (0, point, NULL, 0), -ENC_EFAILED);
		nothing_is_open ();
	}
}

static void a_disk_that_is_too_full_is_said_and_leaves_nothing (void **state)
{
	char text[256];

	(void)state;
	scratch (1, UINT64_C (1) << 34);
	assert_int_equal (task (0, NULL, text, sizeof text), -ENC_EFAILED);
	assert_non_null (strstr (text, "no room for 17179869184 bytes"));
	nothing_is_open ();
}

static void a_project_volume_is_refused (void **state)
{
	(void)state;
	scratch (1, SIZE);
	doc.volumes[0].kind = ENC_VOLUME_PROJECT;
	assert_int_equal (task (0, NULL, NULL, 0), -ENC_EUSAGE);
	nothing_is_open ();
}

static void a_volume_in_use_is_not_closed_and_a_second_try_finishes (void **state)
{
	char text[256];

	(void)state;
	scratch (1, SIZE);
	assert_int_equal (task (0, NULL, NULL, 0), 0);
	int fd = open ("/t/enclave/scratch/held", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal (task (ENC_TASK_CLOSE, NULL, text, sizeof text), -ENC_EBUSY);
	assert_true (enc_dm_is (NAME));
	(void)close (fd);
	assert_int_equal (task (ENC_TASK_CLOSE, NULL, NULL, 0), 0);
	nothing_is_open ();
}

/* ---- a device by itself ---- */

static uint8_t bytes[64] = { 1, 2, 3 }, others[64] = { 3, 2, 1 };
static const struct enc_volume_key key = { bytes, sizeof bytes }, wrong_key = { others, sizeof others };
static const struct enc_luks alone = { VOLUME_ID, "/t/alone", SIZE, 1 };

static void make_alone (struct enc_buf *header)
{
	int fd = open (alone.image, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_int_equal (ftruncate (fd, SIZE), 0);
	(void)close (fd);
	assert_int_equal (enc_luks_format (&alone, &key, header, NULL), 0);
}

static void edited_header_wrong_key_and_busy_device_open_nothing (void **state)
{
	struct enc_buf header = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);
	struct enc_luks older = alone;

	(void)state;
	make_alone (&header);
	older.version = 2;
	assert_int_equal (enc_luks_open (&older, &key, header.data, header.len, NULL), -ENC_EINTEGRITY);
	assert_int_equal (enc_luks_open (&alone, &wrong_key, header.data, header.len, NULL), -ENC_EINTEGRITY);
	assert_int_equal (enc_luks_open (&alone, &key, header.data, header.len - 1, NULL), -ENC_EINTEGRITY);
	header.data[300] ^= 1;
	assert_int_equal (enc_luks_open (&alone, &key, header.data, header.len, NULL), -ENC_EINTEGRITY);
	header.data[300] ^= 1;
	nothing_is_open ();
	assert_int_equal (enc_luks_open (&alone, &key, header.data, header.len, NULL), 0);
	assert_int_equal (enc_luks_open (&alone, &key, header.data, header.len, NULL), -ENC_EBUSY);
	assert_int_equal (enc_luks_close (VOLUME_ID, NULL), 0);
	assert_int_equal (enc_luks_close (VOLUME_ID, NULL), 0);
	nothing_is_open ();
	enc_buf_done (&header);
}

/* What is written through one opening is read through the next: the detached header is enough. */
static void what_was_written_is_there_at_the_next_opening (void **state)
{
	struct enc_buf header = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);
	char back[16] = "";

	(void)state;
	make_alone (&header);
	for (int round = 0; round < 2; round++) {
		assert_int_equal (enc_luks_open (&alone, &key, header.data, header.len, NULL), 0);
		int fd = open ("/dev/mapper/" NAME, O_RDWR | O_CLOEXEC);
		assert_true (fd >= 0);
		if (round == 0)
			assert_int_equal (pwrite (fd, "it is here", 11, 8192), 11);
		assert_int_equal (pread (fd, back, 11, 8192), 11);
		(void)fsync (fd);
		(void)close (fd);
		assert_string_equal (back, "it is here");
		assert_int_equal (enc_luks_close (VOLUME_ID, NULL), 0);
	}
	enc_buf_done (&header);
}

/* Somebody has put another device under our name: without encryption, with a short key, with small sectors. */
static void a_foreign_device_under_our_name_is_refused (void **state)
{
	static const struct {
		const char *cipher, *mode;
		size_t key_len;
		uint32_t sector, flags;
		const char *why;
	} cases[] = {
		{ "cipher_null", "ecb", 32, 4096, 0, "cipher_null" },
		{ "aes", "xts-plain64", 32, 4096, 0, "256 bits" },
		{ "aes", "xts-plain64", 64, 512, 0, "sectors of 512" },
		{ "aes", "cbc-plain64", 32, 4096, 0, "aes-cbc" },
		{ "aes", "xts-plain64", 64, 4096, CRYPT_ACTIVATE_ALLOW_DISCARDS, "options" },
		{ "aes", "xts-plain64", 64, 4096, 0, NULL },
	};
	struct enc_buf header = ENC_BUF_INIT (ENC_VOLUME_HEADER_MAX);

	(void)state;
	make_alone (&header);
	for (size_t i = 0; i < ENC_ARRAY_LEN (cases); i++) {
		struct crypt_params_plain plain = { .sector_size = cases[i].sector };
		struct crypt_device *cd = NULL;
		struct enc_error err = { 0 };
		assert_int_equal (crypt_init (&cd, alone.image), 0);
		assert_int_equal (crypt_format (cd, CRYPT_PLAIN, cases[i].cipher, cases[i].mode, NULL, NULL, cases[i].key_len, &plain), 0);
		assert_int_equal (crypt_activate_by_volume_key (cd, NAME, (const char *)bytes, cases[i].key_len, cases[i].flags), 0);
		assert_int_equal (enc_luks_verify (&alone, &err), cases[i].why ? -ENC_EINTEGRITY : 0);
		if (cases[i].why && !strstr (err.text, cases[i].why))
			fail_msg ("\"%s\" does not say \"%s\"", err.text, cases[i].why);
		crypt_free (cd);
		assert_int_equal (enc_luks_close (VOLUME_ID, NULL), 0);
	}
	enc_buf_done (&header);
}

static int arena (void **state)
{
	(void)state;
	return enc_secmem_init (ARENA, NULL);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (scratch_is_encrypted_of_its_size_and_the_image_shows_nothing),
		cmocka_unit_test (a_kill_between_any_two_steps_leaves_nothing_open),
		cmocka_unit_test (a_step_that_fails_leaves_nothing_open),
		cmocka_unit_test (a_disk_that_is_too_full_is_said_and_leaves_nothing),
		cmocka_unit_test (a_project_volume_is_refused),
		cmocka_unit_test (a_volume_in_use_is_not_closed_and_a_second_try_finishes),
		cmocka_unit_test (edited_header_wrong_key_and_busy_device_open_nothing),
		cmocka_unit_test (what_was_written_is_there_at_the_next_opening),
		cmocka_unit_test (a_foreign_device_under_our_name_is_refused),
	};

	(void)setvbuf (stdout, NULL, _IOLBF, 0);
	return cmocka_run_group_tests (tests, arena, NULL);
}
