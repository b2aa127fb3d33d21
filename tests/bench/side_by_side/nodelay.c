/*
 * Loaded before the frontends' own libraries: connections that they accept send
 * at once, as vLLM's own server has them. Dynamo's frontend leaves Nagle's
 * algorithm on.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int accept4(int fd, struct sockaddr *address, socklen_t *n, int flags)
{
    int accepted = (int)syscall(SYS_accept4, fd, address, n, flags);
    const int yes = 1;

    if (accepted >= 0)
        (void)setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    return accepted;
}
