/* Paths and percent-encoding; between http_*.c and their tests. */
#ifndef ENC_BASE_HTTP_ROUTE_H
#define ENC_BASE_HTTP_ROUTE_H

#include <stdbool.h>
#include "base/http.h"

/* Does `path` fit `pattern`? Captured segments come decoded (heap, owner frees by enc_route_clear). A segment that is empty, does not
 * decode, or decodes to something with '/', "." or ".." fits nothing. */
bool enc_route_match (const char *pattern, const char *path, char *captures[ENC_HTTP_CAPTURES]);
void enc_route_clear (char *captures[ENC_HTTP_CAPTURES]);
/* Every escape decodes to text without controls. */
bool enc_url_query_ok (const char *query);

#endif
