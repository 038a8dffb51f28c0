/* Named fault points, so that tests can stop a real process at an exact place.
 *
 * A test writes /run/enclave/points/<process> before the start: lines "name kill|fail|stall [nth]", the folder and file owned by
 * root and not writable by others. The file is read once, by enc_point_open(); without it every point is one compare of a
 * NULL pointer. Whoever can write that file is root and could kill the process anyway, and no point can make a check pass:
 * they only kill, stall or fail. Packages are built with ENC_POINTS=OFF all the same (preset dist).
 *
 *   if ((rc = enc_point ("step.reserve.after_do", err)) < 0) return rc; */
#ifndef ENC_BASE_POINT_H
#define ENC_BASE_POINT_H

#include "base/error.h"

#ifdef ENC_POINTS
/* Read the list of this process; a list that is not root's is ignored with a line on stderr. The folder can be given by tests. */
void enc_point_open (const char *process, const char *folder);
/* 0; or ENC_EFAILED "fault point …"; or does not return: kill = SIGKILL to itself, stall = sleeps until killed.
 * With nth the first n-1 passes are let through. */
int enc_point (const char *name, struct enc_error *err);
#else
static inline void enc_point_open (const char *process ENC_UNUSED, const char *folder ENC_UNUSED)
{
}
static inline int enc_point (const char *name ENC_UNUSED, struct enc_error *err ENC_UNUSED)
{
	return 0;
}
#endif

#endif
