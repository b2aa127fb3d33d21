/* HOST:PORT, as options and configurations give it. */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdint.h>

#define ADDRESS_HOST_MAX 256 /* bytes of a host, with its NUL */

struct address {
    char host[ADDRESS_HOST_MAX]; /* a name, or IPv4 or IPv6 in numbers */
    uint16_t port;
};

/* address_parse(text, a): reads "host:port" or "[v6]:port". Returns 0, or
 * -EINVAL with *a untouched. */
[[nodiscard]] int address_parse(const char *text, struct address *a);

#endif
