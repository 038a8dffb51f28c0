/* What every unit test includes: cmocka with what it needs before it, and a private folder that is gone afterwards. */
#ifndef ENC_TEST_H
#define ENC_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
#include <sys/stat.h>
#include <cmocka.h>
#include "base/error.h"
#include "base/file.h"

#define T(name) static void name (void **state ENC_UNUSED)
#define RUN(name) cmocka_unit_test (name)

/* Succeeds, or shows the error. */
#define ok(call)                                                                                                       \
	do {                                                                                                           \
		err = (struct enc_error){ 0 };                                                                         \
		int rc_ = (call);                                                                                      \
		if (rc_ < 0)                                                                                           \
			fail_msg ("%s: %d %s (%s)", #call, rc_, err.text, err.pointer);                                \
	} while (0)
#define fails(call, code_)                                                                                             \
	do {                                                                                                           \
		err = (struct enc_error){ 0 };                                                                         \
		int rc_ = (call);                                                                                      \
		if (rc_ != -(code_))                                                                                   \
			fail_msg ("%s: %d %s, wanted -%d", #call, rc_, err.text, (code_));                              \
	} while (0)

/* Below the build folder, because /tmp is nobody's trusted folder. The path is static. */
static inline const char *test_folder (void)
{
	static char path[256];
	if (path[0])
		return path;
	(void) snprintf (path, sizeof (path), "%s/test-%d-XXXXXX", ENC_BINARY_DIR, (int) getpid ());
	if (!mkdtemp (path))
		abort ();
	return path;
}

static inline int test_folder_remove (void **state ENC_UNUSED)
{
	const char *path = test_folder ();
	return enc_remove_tree (AT_FDCWD, path, (uid_t) -1, NULL, NULL) == 0 ? 0 : -1;
}

#endif
