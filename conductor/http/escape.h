/* Bytes that a path or a query has as %XX. */
#ifndef CONDUCTOR_HTTP_ESCAPE_H
#define CONDUCTOR_HTTP_ESCAPE_H

#include <stddef.h>

/* The n bytes at `at`, where "%2F" is one byte, into out (size), and a NUL
 * behind them; a % without two digits stays. out may be `at`. Returns how many
 * there are; 0 and "" if they do not fit. */
size_t http_unescape(const char *at, size_t n, char *out, size_t size);

#endif
