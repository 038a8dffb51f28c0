/* What a job's description may say, as text. Pure. */
#ifndef ENC_PLUGINS_TEXT_H
#define ENC_PLUGINS_TEXT_H

#include <stdbool.h>

/* Does this place lie within the enclave's storage? An absolute path below /enclave, /dev/null, or a relative one (to a working
 * folder that is checked itself); never one with "..". Slurm's patterns (%j, %u) may stand in it. */
bool enc_path_inside (const char *path);

/* Might this be a patient's number or a date: six digits in a row, a date in the usual forms, or "mrn", "pid", "patient" with a
 * number? Names and comments of jobs are seen by others and stand in logs. */
bool enc_text_identifies (const char *text);

#endif
