/* Settings of every connection's socket, and its peer's address. */
#ifndef BASE_SOCKET_H
#define BASE_SOCKET_H

#include <stddef.h>

struct loop;

/* socket_tune(loop, fd): sends small frames at once, and detects a vanished
 * host within 10 s. */
void socket_tune(struct loop *loop, int fd);

/* socket_acknowledge(loop, fd): acknowledges read bytes at once. Otherwise the
 * kernel may wait 40 ms, while a peer with Nagle's algorithm sends nothing
 * more. Call it after each read. */
void socket_acknowledge(struct loop *loop, int fd);

/* socket_peer(loop, fd, host, host_cap, port, port_cap): writes the peer's
 * numeric address and port; an IPv4 address mapped into IPv6 is written as
 * IPv4. Returns 0; or -ENOTCONN, with port "?" and host untouched. */
[[nodiscard]] int socket_peer(struct loop *loop, int fd, char *host,
                              size_t host_cap, char *port, size_t port_cap);

#endif
