/* See address.h. */
#include "base/address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int address_parse(const char *text, struct address *a)
{
    const char *colon = strrchr(text, ':');

    if (!colon || colon[1] < '0' || colon[1] > '9')
        return -EINVAL;
    char *end;
    errno = 0;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (errno || *end || port > UINT16_MAX)
        return -EINVAL;
    size_t n = (size_t)(colon - text);
    if (text[0] == '[') {
        if (n <= 2 || colon[-1] != ']')
            return -EINVAL;
        text++;
        n -= 2;
    } else if (memchr(text, ':', n)) {
        return -EINVAL;
    }
    if (n == 0 || n >= sizeof(a->host))
        return -EINVAL;
    memcpy(a->host, text, n);
    a->host[n] = '\0';
    a->port = (uint16_t)port;
    return 0;
}
