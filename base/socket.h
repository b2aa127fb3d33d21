/* Settings of every connection's socket, and its peer's address. */
#ifndef BASE_SOCKET_H
#define BASE_SOCKET_H

#include <stddef.h>

struct sockaddr;

/* socket_tune(fd): sends small frames at once, and detects a vanished host
 * within 10 s. */
void socket_tune(int fd);

/* socket_connect(address, n): begins to connect a new, non-blocking socket: it
 * can be written when that has ended, see socket_error(). Returns the socket,
 * owned, or a negative errno. */
[[nodiscard]] int socket_connect(const struct sockaddr *address, size_t n);

/* socket_error(fd): returns why connecting failed, an errno; 0 = it did not. */
int socket_error(int fd);

/* socket_acknowledge(fd): acknowledges read bytes at once. Otherwise the kernel
 * may wait 40 ms, while a peer with Nagle's algorithm sends nothing more. Call
 * it after each read. */
void socket_acknowledge(int fd);

/* socket_peer(fd, host, host_cap, port, port_cap): writes the peer's numeric
 * address and port; an IPv4 address mapped into IPv6 is written as IPv4.
 * Returns 0; or -ENOTCONN, with port "?" and host untouched. */
[[nodiscard]] int socket_peer(int fd, char *host, size_t host_cap, char *port,
                              size_t port_cap);

#endif
