/* Options and addresses of every connection's socket. */
#include "base/socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "base/loop/net.h"

/* A vanished host is detected within this time, whether output waits or
 * not. */
#define DEAD_AFTER_MS 10000
#define PROBE_IDLE_S 4
#define PROBE_INTERVAL_S 2

void socket_tune(struct loop *loop, int fd)
{
    static const struct {
        int level, option, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, PROBE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, PROBE_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT,
         (DEAD_AFTER_MS / 1000 - PROBE_IDLE_S) / PROBE_INTERVAL_S},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, DEAD_AFTER_MS},
    };

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        net_set(loop, fd, options[i].level, options[i].option,
                options[i].value);
}

void socket_acknowledge(struct loop *loop, int fd)
{
    net_set(loop, fd, IPPROTO_TCP, TCP_QUICKACK, 1);
}

/* Unmaps an IPv4 address, which a dual-stack socket reports as IPv6. */
static void unmap(struct sockaddr_storage *ss, socklen_t *len)
{
    struct sockaddr_in6 v6;
    struct sockaddr_in v4 = {.sin_family = AF_INET};

    memcpy(&v6, ss, sizeof(v6));
    if (v6.sin6_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
        return;
    v4.sin_port = v6.sin6_port;
    memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, sizeof(v4.sin_addr));
    memcpy(ss, &v4, sizeof(v4));
    *len = sizeof(v4);
}

int socket_peer(struct loop *loop, int fd, char *host, size_t host_cap,
                char *port, size_t port_cap)
{
    struct sockaddr_storage ss;
    int rc = net_address(loop, fd, true, &ss);
    socklen_t len = (socklen_t)rc;

    snprintf(port, port_cap, "?");
    if (rc < 0)
        return -ENOTCONN;
    unmap(&ss, &len);
    return getnameinfo((struct sockaddr *)&ss, len, host, (socklen_t)host_cap,
                       port, (socklen_t)port_cap,
                       NI_NUMERICHOST | NI_NUMERICSERV)
               ? -ENOTCONN
               : 0;
}
