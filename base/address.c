/* See address.h. */
#include "base/address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

static bool is_any(const char *host)
{
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0 ||
           strcmp(host, "*") == 0;
}

static bool is_loopback(const char *host)
{
    return strcasecmp(host, "localhost") == 0 ||
           strcmp(host, "127.0.0.1") == 0 || strcmp(host, "::1") == 0;
}

bool address_meet(const struct address *a, unsigned a_more,
                  const struct address *b, unsigned b_more)
{
    bool localhost = strcasecmp(a->host, "localhost") == 0 ||
                     strcasecmp(b->host, "localhost") == 0;

    if (a->port == 0 || b->port == 0 || a->port > b->port + b_more ||
        b->port > a->port + a_more)
        return false;
    return is_any(a->host) || is_any(b->host) ||
           strcasecmp(a->host, b->host) == 0 ||
           (localhost && is_loopback(a->host) && is_loopback(b->host));
}
