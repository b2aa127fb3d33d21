/*
 * The sockets of a loop. In a program they are the kernel's; loops in virtual
 * time have a net of their own (virtual_net.h). A descriptor belongs to its
 * loop's net: only these functions and a struct loop_watch use it.
 *
 * Every socket is a stream of bytes, does not block, and is closed on exec. A
 * watch reports LOOP_READ when net_read() or net_accept() would not return
 * -EAGAIN, and LOOP_WRITE when net_write() would not, or when connecting has
 * ended. Only the loop's own thread calls these functions, except that the
 * kernel's sockets may be used on any thread.
 */
#ifndef BASE_LOOP_NET_H
#define BASE_LOOP_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

struct loop;

/* Listens on an address of n bytes; port 0 = any. Returns the descriptor,
 * owned, or a negative errno. */
[[nodiscard]] int net_listen(struct loop *loop, const struct sockaddr *address,
                             size_t n);

/* Accepts a connection. Returns its descriptor, owned; -EAGAIN: none waits; or
 * another negative errno. */
[[nodiscard]] int net_accept(struct loop *loop, int fd);

/* Begins to connect to an address of n bytes; the socket can be written when
 * that has ended, see net_error(). Returns the descriptor, owned, or a negative
 * errno. */
[[nodiscard]] int net_connect(struct loop *loop, const struct sockaddr *address,
                              size_t n);

/* Returns why connecting failed, a positive errno; 0 = it did not. */
int net_error(struct loop *loop, int fd);

/* Reads at most n bytes, n > 0. Returns the bytes read; 0: the other side sends
 * no more; -EAGAIN: none has come; or another negative errno: the connection is
 * over. */
[[nodiscard]] ssize_t net_read(struct loop *loop, int fd, void *to, size_t n);

/* Returns what net_read() of one byte would, and leaves the byte there. */
[[nodiscard]] int net_peek(struct loop *loop, int fd);

/* Writes n_parts > 0 pieces, as far as there is room. Returns the bytes
 * written; -EAGAIN: there is no room; or another negative errno: the connection
 * is over. */
[[nodiscard]] ssize_t net_write(struct loop *loop, int fd,
                                const struct iovec *parts, size_t n_parts);

/* Ends the output, behind all that was written. */
void net_shut(struct loop *loop, int fd);

/* Closes a socket: bytes written are still sent, unless some of the input was
 * not read. Stop its watches first. */
void net_close(struct loop *loop, int fd);

/* Writes a socket's own address, or the one of the other side (`peer`). Returns
 * the address's length, or a negative errno: -ENOTCONN: there is no other
 * side. */
[[nodiscard]] int net_address(struct loop *loop, int fd, bool peer,
                              struct sockaddr_storage *address);

/* Sets an option of setsockopt(2) that has an int. A failure is ignored: it is
 * no reason to refuse a connection. */
void net_set(struct loop *loop, int fd, int level, int option, int value);

#endif
