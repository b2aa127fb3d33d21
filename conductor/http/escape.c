/* See escape.h. */
#include "conductor/http/escape.h"

/* Returns a hex digit's value; -1 = not a digit. */
static int hex_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

size_t http_unescape(const char *at, size_t n, char *out, size_t size)
{
    size_t length = 0;

    for (size_t i = 0; i < n; i++) {
        int high = at[i] == '%' && n - i > 2 ? hex_of(at[i + 1]) : -1;
        int low = high >= 0 ? hex_of(at[i + 2]) : -1;

        if (length + 1 == size) {
            *out = '\0';
            return 0;
        }
        out[length++] = low >= 0 ? (char)(high * 16 + low) : at[i];
        i += low >= 0 ? 2 : 0;
    }
    out[length] = '\0';
    return length;
}
