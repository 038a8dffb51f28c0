/* Secrets passed by descriptor. */
#include "crypto_test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crypto/secretfd.h"

static void a_secret_comes_back_as_it_was (void **state)
{
	uint8_t in[ENC_SECRET_FD_MAX];
	static const size_t sizes[] = { 1, 31, 32, 4000, ENC_SECRET_FD_MAX };

	(void) state;
	count_up (in, sizeof in, 3);
	for (size_t i = 0; i < ENC_ARRAY_LEN (sizes); i++) {
		struct enc_secret s = { 0 };
		int fd = enc_secret_fd (in, sizes[i], NULL);

		assert_true (fd >= 0);
		assert_true (fcntl (fd, F_GETFD) & FD_CLOEXEC);
		assert_int_equal (enc_secret_of_fd (fd, &s, NULL), 0);
		assert_int_equal (s.len, sizes[i]);
		assert_memory_equal (s.data, in, sizes[i]);
		/* it can be read again, as after a restart */
		struct enc_secret again = { 0 };
		assert_int_equal (enc_secret_of_fd (fd, &again, NULL), 0);
		enc_secret_done (&again);
		enc_secret_done (&s);
		close (fd);
	}
	assert_int_equal (enc_secret_fd (in, 0, NULL), -ENC_ELIMIT);
	assert_int_equal (enc_secret_fd (in, ENC_SECRET_FD_MAX + 1, NULL), -ENC_ELIMIT);
}

static void invariant_06_a_secret_from_a_file_or_changeable_memory_is_refused (void **state)
{
	struct enc_secret s = { 0 };
	int pipes[2];
	char path[] = "/tmp/enc-secret-XXXXXX";
	int file = mkstemp (path), memory = memfd_create ("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	(void) state;
	assert_int_equal (pipe (pipes), 0);
	assert_int_equal (ftruncate (file, 4 + ENC_SECRET_FD_MAX), 0);
	assert_int_equal (ftruncate (memory, 4 + ENC_SECRET_FD_MAX), 0);
	int const fds[] = { -1, pipes[0], file, memory };
	for (size_t i = 0; i < ENC_ARRAY_LEN (fds); i++)
		assert_int_equal (enc_secret_of_fd (fds[i], &s, NULL), -ENC_EINVAL);
	/* sealed, but its length is nonsense */
	assert_int_equal (pwrite (memory, "\xff\xff\xff\xff", 4, 0), 4);
	assert_int_equal (fcntl (memory, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
	assert_int_equal (enc_secret_of_fd (memory, &s, NULL), -ENC_EINVAL);
	assert_null (s.data);
	close (pipes[0]);
	close (pipes[1]);
	close (file);
	close (memory);
	(void) unlink (path);
}

int main (void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test (a_secret_comes_back_as_it_was),
		cmocka_unit_test (invariant_06_a_secret_from_a_file_or_changeable_memory_is_refused),
	};

	return cmocka_run_group_tests_name ("secretfd", tests, arena_up, arena_down);
}
