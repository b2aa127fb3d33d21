/* The functions on sockets, each a call into the table of the loop's net. */
#include "base/loop/net.h"

#include "base/loop/ops.h"

int net_listen(struct loop *loop, const struct sockaddr *address, size_t n)
{
    return loop->net->listen(loop, address, n);
}

int net_accept(struct loop *loop, int fd)
{
    return loop->net->accept(loop, fd);
}

int net_connect(struct loop *loop, const struct sockaddr *address, size_t n)
{
    return loop->net->connect(loop, address, n);
}

int net_error(struct loop *loop, int fd)
{
    return loop->net->error(loop, fd);
}

ssize_t net_read(struct loop *loop, int fd, void *to, size_t n)
{
    return loop->net->read(loop, fd, to, n);
}

int net_peek(struct loop *loop, int fd)
{
    return loop->net->peek(loop, fd);
}

ssize_t net_write(struct loop *loop, int fd, const struct iovec *parts,
                  size_t n_parts)
{
    return loop->net->write(loop, fd, parts, n_parts);
}

void net_shut(struct loop *loop, int fd)
{
    loop->net->shut(loop, fd);
}

void net_close(struct loop *loop, int fd)
{
    loop->net->close(loop, fd);
}

int net_address(struct loop *loop, int fd, bool peer,
                struct sockaddr_storage *address)
{
    return loop->net->address(loop, fd, peer, address);
}

void net_set(struct loop *loop, int fd, int level, int option, int value)
{
    loop->net->set(loop, fd, level, option, value);
}
