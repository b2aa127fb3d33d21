/* Percent-encoding (%XX) in paths and queries. */
#ifndef CONDUCTOR_HTTP_ESCAPE_H
#define CONDUCTOR_HTTP_ESCAPE_H

#include <stddef.h>

/* Decodes %XX in the n bytes at `at` into out (size), with a NUL; a % without
 * two hex digits stays. out may be `at`. Returns the bytes written; 0 with ""
 * if they do not fit. */
size_t http_unescape(const char *at, size_t n, char *out, size_t size);

#endif
