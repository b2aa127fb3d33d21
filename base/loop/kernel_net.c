/* The kernel's sockets. */
#include <errno.h>
#include <unistd.h>

#include "base/loop/ops.h"

#define BACKLOG 1024

static int open_socket(const struct sockaddr *address)
{
    int fd = socket(address->sa_family,
                    SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    return fd < 0 ? -errno : fd;
}

/* Closes a socket of which a call failed. Returns its -errno. */
static int fail(int fd)
{
    int rc = -errno;

    close(fd);
    return rc;
}

static int kernel_listen(struct loop *, const struct sockaddr *address,
                         size_t n)
{
    int on = 1;
    int fd = open_socket(address);

    if (fd < 0)
        return fd;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    return bind(fd, address, (socklen_t)n) || listen(fd, BACKLOG) ? fail(fd)
                                                                  : fd;
}

static int kernel_accept(struct loop *, int fd)
{
    fd = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int kernel_connect(struct loop *, const struct sockaddr *address,
                          size_t n)
{
    int fd = open_socket(address);

    if (fd < 0)
        return fd;
    return connect(fd, address, (socklen_t)n) && errno != EINPROGRESS &&
                   errno != EINTR
               ? fail(fd)
               : fd;
}

static int kernel_error(struct loop *, int fd)
{
    int error = 0;
    socklen_t n = sizeof(error);

    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) ? errno : error;
}

static ssize_t receive(int fd, void *to, size_t n, int flags)
{
    ssize_t got;

    do
        got = recv(fd, to, n, flags | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

static ssize_t kernel_read(struct loop *, int fd, void *to, size_t n)
{
    return receive(fd, to, n, 0);
}

static int kernel_peek(struct loop *, int fd)
{
    char byte;

    return (int)receive(fd, &byte, 1, MSG_PEEK);
}

static ssize_t kernel_write(struct loop *, int fd, const struct iovec *parts,
                            size_t n_parts)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts,
                             .msg_iovlen = n_parts};
    ssize_t n;

    do
        n = n_parts == 1 ? send(fd, parts->iov_base, parts->iov_len,
                                MSG_DONTWAIT | MSG_NOSIGNAL)
                         : sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static void kernel_shut(struct loop *, int fd)
{
    shutdown(fd, SHUT_WR);
}

static void kernel_close(struct loop *, int fd)
{
    close(fd);
}

static int kernel_address(struct loop *, int fd, bool peer,
                          struct sockaddr_storage *address)
{
    socklen_t n = sizeof(*address);
    struct sockaddr *to = (struct sockaddr *)address;
    int rc = peer ? getpeername(fd, to, &n) : getsockname(fd, to, &n);

    return rc ? -errno : (int)n;
}

static void kernel_set(struct loop *, int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof(value));
}

const struct net_ops kernel_net_ops = {
    .listen = kernel_listen,
    .accept = kernel_accept,
    .connect = kernel_connect,
    .error = kernel_error,
    .read = kernel_read,
    .peek = kernel_peek,
    .write = kernel_write,
    .shut = kernel_shut,
    .close = kernel_close,
    .address = kernel_address,
    .set = kernel_set,
};
