/* Options and addresses of every connection's socket. */
#include "base/socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A vanished host is detected within this time, whether output waits or
 * not. */
#define DEAD_AFTER_MS 10000
#define PROBE_IDLE_S 4
#define PROBE_INTERVAL_S 2

/* Ignores errors: an option that fails is no reason to refuse a connection. */
void socket_tune(int fd)
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
        setsockopt(fd, options[i].level, options[i].option, &options[i].value,
                   sizeof(options[i].value));
}

int socket_connect(const struct sockaddr *address, size_t n)
{
    int fd = socket(address->sa_family,
                    SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error;

    if (fd < 0)
        return -errno;
    if (connect(fd, address, (socklen_t)n) == 0 || errno == EINPROGRESS ||
        errno == EINTR)
        return fd;
    error = errno;
    close(fd);
    return -error;
}

int socket_error(int fd)
{
    int error = 0;
    socklen_t n = sizeof(error);

    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) ? errno : error;
}

void socket_acknowledge(int fd)
{
    const int yes = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &yes, sizeof(yes));
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

int socket_peer(int fd, char *host, size_t host_cap, char *port,
                size_t port_cap)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    struct sockaddr *sa = (struct sockaddr *)&ss;

    snprintf(port, port_cap, "?");
    if (getpeername(fd, sa, &len))
        return -ENOTCONN;
    unmap(&ss, &len);
    return getnameinfo(sa, len, host, (socklen_t)host_cap, port,
                       (socklen_t)port_cap, NI_NUMERICHOST | NI_NUMERICSERV)
               ? -ENOTCONN
               : 0;
}
