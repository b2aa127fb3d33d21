/* Settings of every connection's socket, and its other side. */
#ifndef BASE_SOCKET_H
#define BASE_SOCKET_H

#include <stddef.h>

/* socket_tune(fd): small frames go at once, and a host that vanished is noticed
 * in 10 s. */
void socket_tune(int fd);

/* socket_acknowledge(fd): what has been read is acknowledged at once. A peer
 * with Nagle's algorithm sends nothing more before that, and the kernel would
 * take 40 ms. To be called after each read. */
void socket_acknowledge(int fd);

/* socket_peer(fd, host, host_cap, port, port_cap): the other side's address and
 * port as numbers; an IPv4 address as such, whatever the socket is of. Returns
 * 0; or -ENOTCONN, with port "?" and host untouched. */
[[nodiscard]] int socket_peer(int fd, char *host, size_t host_cap, char *port,
                              size_t port_cap);

#endif
