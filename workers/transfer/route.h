/* The way to the memory of a peer: over the best transport that both have and
 * that can be opened. A route lives until its ops are over, which may be after
 * the end of its control connection. */
#ifndef WORKERS_TRANSFER_ROUTE_H
#define WORKERS_TRANSFER_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workers/transfer/engine/transport.h"

struct frame_conn;
struct route;
struct route_op;
struct transfer;

/* The peer at the end of a route. */
struct route_to {
    struct frame_conn *conn; /* to tell the peer the chosen transport; borrowed
                                until route_shut() */
    uint64_t id;             /* request id of TRANSPORTS */
    const char *host;        /* of the peer; borrowed for the call */
    uint16_t port;
    /* Called once: a transport is connected, or all attempts failed. */
    void (*ready)(void *arg);
    void *arg;
};

/* Called when an op has ended, as transport_path_ops.done. rc is -EILSEQ if the
 * bytes do not match their sums. */
typedef void route_done(void *arg, int rc);

/* Takes the peer's TRANSPORTS: tries the transports that both have, best first,
 * until one is connected, and tells the peer which one it is. Returns 0 and
 * *route, even if none can be tried (ready() is not called then); -EBADMSG, or
 * -ENOMEM. */
[[nodiscard]] int route_on_transports(struct transfer *t, struct route **route,
                                      const struct route_to *to,
                                      const uint8_t *payload, size_t len);

/* Returns whether KV can be read over `r` now. False if r is NULL. */
bool route_stands(const struct route *r);

/* Returns whether `r` is connected or a transport is being tried. False if r is
 * NULL. */
bool route_hopes(const struct route *r);

/* Returns the name of the connected transport, or NULL. */
const char *route_transport(const struct route *r);

/* Reads slices[n], borrowed, under a grant; their checksums must live until
 * done(). Returns 0 and *op, which lives until done(); or a negative errno, and
 * done() is not called: -ENOTCONN if the transport has ended, which closes the
 * control connection next; -EINVAL, -ENOMEM and others for these slices only.
 */
[[nodiscard]] int route_read(struct route *r, uint64_t grant_id,
                             const struct transport_slice *slices, uint32_t n,
                             route_done *done, void *arg, struct route_op **op);

/* Ends `op` soon; done() follows. */
void route_cancel(struct route_op *op);

/* Returns all bytes moved by its transport; 0 if none is connected. */
uint64_t route_moved_bytes(const struct route *r);

/* Notes that the control connection is gone: cancels all ops, and frees the
 * route after the last one. NULL is a no-op. */
void route_shut(struct route *r);

/* Frees all routes of `t`, after all transports were freed. Ops end with
 * -ECANCELED. */
void route_free_all(struct transfer *t);

#endif
