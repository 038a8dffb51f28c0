#include <errno.h>
#include <sys/mount.h>
#include "tests/unit/base/test.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/enc.h"

static struct enc_error err;
static int top = -1;

static int open_top (void **state ENC_UNUSED)
{
	top = enc_open_dir (test_folder (), NULL);
	return top >= 0 ? 0 : -1;
}

static void put (const char *name, const char *text)
{
	int fd = openat (top, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	assert_true (fd >= 0);
	ok (enc_write_all (fd, text, strlen (text), &err));
	close (fd);
}

T (reading_is_bounded)
{
	put ("a", "0123456789");
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (100);
	ok (enc_file_read_at (top, "a", 10, &b, &err));
	assert_int_equal (b.len, 10);
	fails (enc_file_read_at (top, "a", 9, &b, &err), ENC_ELIMIT);
	assert_int_equal (b.len, 10);
	fails (enc_file_read_at (top, "none", 9, &b, &err), ENC_ENOTFOUND);
	assert_int_equal (mkfifoat (top, "fifo", 0600), 0);
	fails (enc_file_read_at (top, "fifo", 9, &b, &err), ENC_EINVAL);
	fails (enc_file_read (test_folder (), 9, &b, &err), ENC_EINVAL);
	char line[5];
	fails (enc_file_read_line ("/proc/sys/kernel/ostype", line, 5, &err), ENC_ELIMIT);
}

T (nothing_is_opened_outside_or_through_links)
{
	assert_int_equal (symlinkat ("/etc/hostname", top, "link"), 0);
	assert_int_equal (mkdirat (top, "d", 0700), 0);
	assert_int_equal (symlinkat ("d", top, "dlink"), 0);
	put ("d/f", "x");
	fails (enc_open_beneath (top, "link", O_RDONLY, 0, &err), ENC_EDENIED);
	fails (enc_open_beneath (top, "../x", O_RDONLY, 0, &err), ENC_EDENIED);
	fails (enc_open_beneath (top, "/etc/hostname", O_RDONLY, 0, &err), ENC_EDENIED);
	fails (enc_open_beneath (top, "dlink/f", O_RDONLY, 0, &err), ENC_EDENIED);
	int fd = enc_open_beneath (top, "d/f", O_RDONLY, 0, &err);
	assert_true (fd >= 0);
	close (fd);
}

T (a_write_replaces_the_whole_file_with_its_mode)
{
	struct enc_file_attr attr = ENC_FILE_ATTR (0640);
	ok (enc_file_write_at (top, "w", "one", 3, &attr, &err));
	ok (enc_file_write_at (top, "w", "two!", 4, &attr, &err));
	struct stat st;
	assert_int_equal (fstatat (top, "w", &st, 0), 0);
	assert_int_equal (st.st_mode & 07777, 0640);
	assert_int_equal (st.st_size, 4);
	fails (enc_file_create_at (top, "w", "x", 1, &attr, &err), ENC_ECONFLICT);
	fails (enc_file_write_at (top, "../w", "x", 1, &attr, &err), ENC_EINVAL);
	char *path = enc_strf ("%s/w2", test_folder ());
	ok (enc_file_write (path, "p", 1, &attr, &err));
	free (path);
	struct enc_strs names = { 0 };
	ok (enc_dir_list (top, 100, &names, &err));
	for (size_t i = 0; i < names.n; i++)
		assert_false (enc_ends (names.v[i], ".new"));
	enc_strs_done (&names);
}

T (what_others_can_write_is_not_trusted)
{
	put ("t", "x");
	char *path = enc_strf ("%s/t", test_folder ());
	enc_auto_done (enc_buf_done) struct enc_buf b = ENC_BUF_INIT (100);
	ok (enc_path_trusted (path, &err));
	ok (enc_file_read_trusted (path, 10, &b, &err));
	assert_int_equal (fchmodat (top, "t", 0664, 0), 0);
	fails (enc_path_trusted (path, &err), ENC_EDENIED);
	assert_int_equal (fchmodat (top, "t", 0644, 0), 0);
	assert_int_equal (fchmod (top, 0777), 0);
	fails (enc_file_read_trusted (path, 10, &b, &err), ENC_EDENIED);
	assert_int_equal (fchmod (top, 0700), 0);
	fails (enc_path_trusted ("/tmp", &err), ENC_EDENIED);
	fails (enc_path_trusted ("relative", &err), ENC_EINVAL);
	int fd = openat (top, "t", O_RDONLY);
	fails (enc_fd_trusted (fd, geteuid (), true, &err), ENC_EDENIED);
	assert_int_equal (fchmod (fd, 0600), 0);
	ok (enc_fd_trusted (fd, geteuid (), true, &err));
	close (fd);
	free (path);
}

T (a_tree_goes_and_its_links_targets_stay)
{
	put ("keep", "kept");
	assert_int_equal (mkdirat (top, "tree", 0700), 0);
	assert_int_equal (mkdirat (top, "outside", 0700), 0);
	put ("outside/f", "kept");
	put ("tree/f", "12345");
	assert_int_equal (symlinkat ("../outside", top, "tree/out"), 0);
	assert_int_equal (symlinkat ("../keep", top, "tree/k"), 0);
	assert_int_equal (mkfifoat (top, "tree/p", 0600), 0);
	struct enc_remove_stats stats = { 0 };
	ok (enc_remove_tree (top, "tree", (uid_t) -1, &stats, &err));
	assert_int_equal (stats.files, 4);
	assert_int_equal (stats.bytes, 5);
	assert_int_equal (faccessat (top, "outside/f", F_OK, 0), 0);
	assert_int_equal (faccessat (top, "keep", F_OK, 0), 0);
	assert_int_equal (faccessat (top, "tree", F_OK, 0), -1);
	ok (enc_remove_tree (top, "tree", (uid_t) -1, &stats, &err));
	assert_int_equal (symlinkat ("outside", top, "l"), 0);
	ok (enc_remove_tree (top, "l", (uid_t) -1, &stats, &err));
	assert_int_equal (faccessat (top, "outside/f", F_OK, 0), 0);
}

T (depth_does_not_protect_a_tree)
{
	int fd = dup (top);
	for (int i = 0; i < 3000; i++) {
		assert_int_equal (mkdirat (fd, "deep", 0700), 0);
		int next = openat (fd, "deep", O_RDONLY | O_DIRECTORY);
		assert_true (next >= 0);
		close (fd);
		fd = next;
	}
	close (fd);
	struct enc_remove_stats stats = { 0 };
	ok (enc_remove_tree (top, "deep", (uid_t) -1, &stats, &err));
	assert_int_equal (stats.folders, 3000);
}

T (only_the_named_users_files_go)
{
	if (geteuid () != 0)
		skip ();
	assert_int_equal (mkdirat (top, "shared", 0777), 0);
	put ("shared/mine", "1");
	put ("shared/his", "22");
	assert_int_equal (fchownat (top, "shared/his", 4242, 4242, 0), 0);
	struct enc_remove_stats stats = { 0 };
	ok (enc_remove_tree (top, "shared", 4242, &stats, &err));
	assert_int_equal (stats.files, 1);
	assert_int_equal (faccessat (top, "shared/mine", F_OK, 0), 0);
	assert_int_equal (faccessat (top, "shared/his", F_OK, 0), -1);
}

T (a_mount_point_is_left_and_reported)
{
	char *path = enc_strf ("%s/m/inside", test_folder ());
	char *from = enc_strf ("%s/from", test_folder ());
	assert_int_equal (mkdirat (top, "m", 0700), 0);
	assert_int_equal (mkdirat (top, "m/inside", 0700), 0);
	assert_int_equal (mkdirat (top, "from", 0700), 0);
	put ("from/f", "kept");
	bool mounted = mount (from, path, NULL, MS_BIND, NULL) == 0;
	if (mounted) {
		struct enc_remove_stats stats = { 0 };
		fails (enc_remove_tree (top, "m", (uid_t) -1, &stats, &err), ENC_EBUSY);
		assert_int_equal (stats.foreign, 1);
		assert_int_equal (faccessat (top, "from/f", F_OK, 0), 0);
		assert_int_equal (umount2 (path, MNT_DETACH), 0);
	}
	free (path);
	free (from);
	if (!mounted)
		skip ();
}

static int close_top (void **state)
{
	close (top);
	return test_folder_remove (state);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		RUN (reading_is_bounded), RUN (nothing_is_opened_outside_or_through_links), RUN (a_write_replaces_the_whole_file_with_its_mode),
		RUN (what_others_can_write_is_not_trusted), RUN (a_tree_goes_and_its_links_targets_stay), RUN (depth_does_not_protect_a_tree),
		RUN (only_the_named_users_files_go), RUN (a_mount_point_is_left_and_reported),
	};
	return cmocka_run_group_tests (tests, open_top, close_top);
}
