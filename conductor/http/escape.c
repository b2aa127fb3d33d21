/* See escape.h. */
#include "conductor/http/escape.h"

#include "conductor/http/chars.h"

size_t http_unescape(const char *at, size_t n, char *out, size_t size)
{
    size_t length = 0, used;

    for (size_t i = 0; i < n; i += used) {
        if (length + 1 == size) {
            *out = '\0';
            return 0;
        }
        out[length++] = (char)http_decode(at + i, n - i, &used);
    }
    out[length] = '\0';
    return length;
}
