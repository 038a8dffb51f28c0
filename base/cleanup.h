/* Ownership by scope, instead of goto. The closed set of macros:
 *
 *   enc_auto_free char *s = …;                    free()d at the end of the scope
 *   enc_auto_close int fd = -1;                   close()d if >= 0
 *   enc_auto (enc_json) struct enc_json *j = …;   enc_json_free()d: any type announced by ENC_DEFINE_AUTO in its header
 *   enc_auto_done (enc_buf_done) struct enc_buf b = …;   embedded objects
 *   return ENC_TAKE (s);  *ret = ENC_TAKE_FD (fd);   hand ownership out
 *
 * Destructors take NULL, return void and keep errno. */
#ifndef ENC_BASE_CLEANUP_H
#define ENC_BASE_CLEANUP_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void enc_cleanup_free (void *p)
{
	int saved = errno;
	free (*(void **) p);
	errno = saved;
}

static inline void enc_cleanup_close (const int *fd)
{
	int saved = errno;
	if (*fd >= 0)
		(void) close (*fd);
	errno = saved;
}

static inline void enc_cleanup_fclose (FILE **f)
{
	int saved = errno;
	if (*f)
		(void) fclose (*f);
	errno = saved;
}

#define enc_auto_free __attribute__ ((cleanup (enc_cleanup_free)))
#define enc_auto_close __attribute__ ((cleanup (enc_cleanup_close)))
#define enc_auto_fclose __attribute__ ((cleanup (enc_cleanup_fclose)))

/* Once per type, in its header: ENC_DEFINE_AUTO (enc_lease, struct enc_lease, enc_lease_free);
 * then in functions: enc_auto (enc_lease) struct enc_lease *l = NULL; */
#define ENC_DEFINE_AUTO(name, type, fn)                                                                                \
	static inline __attribute__ ((unused)) void name##_cleanup_ptr (type **p)                                      \
	{                                                                                                              \
		int saved_errno = errno;                                                                               \
		if (*p)                                                                                                \
			fn (*p);                                                                                       \
		errno = saved_errno;                                                                                   \
	}                                                                                                              \
	typedef int name##_auto_defined

#define enc_auto(name) __attribute__ ((cleanup (name##_cleanup_ptr)))
/* For embedded objects with a `_done (T *)`: enc_auto_done (enc_buf_done) struct enc_buf b = …; */
#define enc_auto_done(fn) __attribute__ ((cleanup (fn)))

#define ENC_TAKE(p)                                                                                                    \
	({                                                                                                             \
		__typeof__ (p) enc_taken_ = (p);                                                                       \
		(p) = NULL;                                                                                            \
		enc_taken_;                                                                                            \
	})
#define ENC_TAKE_FD(fd)                                                                                                \
	({                                                                                                             \
		int enc_taken_ = (fd);                                                                                 \
		(fd) = -1;                                                                                             \
		enc_taken_;                                                                                            \
	})

#define ENC_ARRAY_LEN(a) (sizeof (a) / sizeof ((a)[0]))

#endif
