/* Include this last in every .c file: it makes the unsafe calls of the C library a compile error.
 * (Last, because system headers mention these names themselves.) */
#ifndef ENC_BASE_ENC_H
#define ENC_BASE_ENC_H

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#undef alloca
#pragma GCC poison strcpy strcat stpcpy sprintf vsprintf gets strtok atoi atol atoll atof alloca
#pragma GCC poison system popen tmpnam tempnam mktemp execlp execvp execvpe

#endif
