/*
 * Connects to a host by name or numeric address: looks the name up (dns.h),
 * then connects to its first address. The caller sets a time limit and calls
 * dial_stop() when it has passed.
 */
#ifndef BASE_DIAL_H
#define BASE_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/loop/loop.h"

struct dns;

/* Called once, from the loop. fd: the connected socket, non-blocking, which the
 * callee owns; or negative, and why_not says why (borrowed for the call). */
typedef void dial_done(void *arg, int fd, const char *why_not);

/* A member of its owner's struct; all zero = nothing under way. */
struct dial {
    struct dns_lookup *lookup; /* NULL = none under way */
    struct loop_watch watch; /* of the socket, or of -1: `error` is reported */
    bool connecting;         /* watch.fd is a socket, owned */
    uint16_t port;
    int error; /* a positive errno */
    dial_done *done;
    void *arg;
};

/* Begins to connect to a host (copied). dns (borrowed) may be NULL: names then
 * fail. done() comes from the loop, never from this call. Nothing may be under
 * way. Returns 0, or -ENOMEM: done() is not called. */
[[nodiscard]] int dial_start(struct dial *d, struct loop *loop, struct dns *dns,
                             const char *host, uint16_t port, dial_done *done,
                             void *arg);

/* Gives up, without a callback. A no-op if nothing is under way. */
void dial_stop(struct dial *d);

/* Returns whether the host's name is being looked up. */
bool dial_looks_up(const struct dial *d);

/* Returns whether the socket is connected, and done() is due. */
bool dial_connected(const struct dial *d);

#endif
