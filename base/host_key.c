/* See host_key.h. */
#include "base/host_key.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/socket.h"

uint64_t host_key(const char *host)
{
    uint64_t hash = 0xcbf29ce484222325u;
    size_t n =
        strcspn(host, "%"); /* cut off a link-local address's interface */
    const unsigned char *bytes = (const unsigned char *)host;
    char text[INET6_ADDRSTRLEN] = "";
    struct in6_addr v6;

    if (n < sizeof(text))
        memcpy(text, host, n);
    if (inet_pton(AF_INET6, text, &v6) == 1) {
        bytes = v6.s6_addr;
        n = 8;
    }
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

uint64_t host_key_of(struct loop *loop, int fd)
{
    char host[64] = "", port[16];

    /* Hosts without an address share the key of "". */
    (void)!socket_peer(loop, fd, host, sizeof(host), port, sizeof(port));
    return host_key(host);
}
