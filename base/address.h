/* HOST:PORT, as written in options and configurations. */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#define ADDRESS_HOST_MAX 256 /* bytes of a host, with its NUL */

struct address {
    char host[ADDRESS_HOST_MAX]; /* a name, or a numeric IPv4 or IPv6 address */
    uint16_t port;
};

/* address_parse(text, a): reads "host:port" or "[v6]:port". Returns 0, or
 * -EINVAL with *a untouched. */
[[nodiscard]] int address_parse(const char *text, struct address *a);

/* address_meet(a, a_more, b, b_more): returns whether two listeners, each with
 * a_more (b_more) further ports after its own, would use the same port of the
 * same address. 0.0.0.0, :: and "*" are every address. Of names, only localhost
 * is resolved. Port 0 meets nothing: the kernel picks another one each time. */
bool address_meet(const struct address *a, unsigned a_more,
                  const struct address *b, unsigned b_more);

#endif
