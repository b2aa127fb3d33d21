/*
 * A listening socket on the loop that accepts a few connections per turn. When
 * the process has no descriptor left, it pauses between attempts and logs once
 * a second how many failed; waiting connections stay in the kernel's queue.
 */
#ifndef BASE_LISTENER_H
#define BASE_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct listener;
struct loop;

/* Called when a connection was accepted: the callee takes fd, of the loop's net
 * (base/loop/net.h); it does not free the listener. */
typedef void listener_accepted(void *arg, int fd);

/* listener_new(loop, host, port, accepted, arg, out, err, err_bytes): listens
 * on the first address of host that can bind port (0 = any). Borrows loop and
 * arg. Looks up the host, blocking. Returns 0 with *out owned; or a negative
 * errno, -EADDRNOTAVAIL for a host that does not exist, with "host:port: why"
 * in err. */
[[nodiscard]] int listener_new(struct loop *loop, const char *host,
                               uint16_t port, listener_accepted *accepted,
                               void *arg, struct listener **out, char *err,
                               size_t err_bytes);

/* Returns why an address cannot be listened at, and what to do, for a negative
 * errno of listener_new(). Static, or until the next strerror(). */
const char *listener_why(int rc);

/* listener_take(loop, fd, accepted, arg, out): as listener_new(), with a
 * socket of the loop's net that listens already; takes fd even on failure.
 * Returns 0 or a negative errno. */
[[nodiscard]] int listener_take(struct loop *loop, int fd,
                                listener_accepted *accepted, void *arg,
                                struct listener **out);

/* listener_hold(l, on): stops accepting while on; new connections wait in the
 * kernel's queue. */
void listener_hold(struct listener *l, bool on);

/* listener_free(l): closes it. NULL is a no-op. */
void listener_free(struct listener *l);

/* listener_port(l): returns the port that it listens on. */
uint16_t listener_port(const struct listener *l);

/* host_is_loopback(host): true if every address of host is loopback. Looks up
 * names, blocking: only for the start of a program. An unknown name is not
 * loopback. */
bool host_is_loopback(const char *host);

/* descriptors_raise(): raises the soft limit of open files to the hard one.
 * Returns the limit in force. */
uint64_t descriptors_raise(void);

#endif
