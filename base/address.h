/* HOST:PORT, as options and configurations give it. */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#define ADDRESS_HOST_MAX 256 /* bytes of a host, with its NUL */

struct address {
    char host[ADDRESS_HOST_MAX]; /* a name, or IPv4 or IPv6 in numbers */
    uint16_t port;
};

/* address_parse(text, a): reads "host:port" or "[v6]:port". Returns 0, or
 * -EINVAL with *a untouched. */
[[nodiscard]] int address_parse(const char *text, struct address *a);

/* address_meet(a, a_more, b, b_more): whether two listeners, each with so many
 * more ports behind its own, would want one port of one address: 0.0.0.0, ::
 * and
 * * are every address. Names but localhost are not looked up. A port 0 meets
 * none: it is another one each time. */
bool address_meet(const struct address *a, unsigned a_more,
                  const struct address *b, unsigned b_more);

#endif
