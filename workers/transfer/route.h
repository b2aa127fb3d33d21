/* The way to the memory of a peer, over the first transport of those that both
 * have that stands. It lives until its ops are over, which may be later than
 * the connection on which it was chosen. */
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

/* Whose memory it leads to. */
struct route_to {
    struct frame_conn *conn; /* says which transport was chosen; borrowed until
                                route_shut() */
    uint64_t id;             /* of TRANSPORTS about it */
    const char *host;        /* of the peer; for the call */
    uint16_t port;
    /* A transport stands, or there is none that could. Once. */
    void (*ready)(void *arg);
    void *arg;
};

/* An op has ended; see transport_path_ops.done. -EILSEQ: it was read, and its
 * sums are others. */
typedef void route_done(void *arg, int rc);

/* TRANSPORTS: open those that both have, one after the other, until one stands;
 * the peer is told of that one. 0 with *route, also if there is none; -EBADMSG,
 * -ENOMEM. */
[[nodiscard]] int route_on_transports(struct transfer *t, struct route **route,
                                      const struct route_to *to,
                                      const uint8_t *payload, size_t len);

/* Whether KV can be moved over it, and whether it can now or may yet. NULL: no.
 */
bool route_stands(const struct route *r);
bool route_hopes(const struct route *r);

/* The name of the transport; NULL: none stands. */
const char *route_transport(const struct route *r);

/* Read slices (n, borrowed) under a grant; their sums must live until done().
 * 0 with *op, gone with done(). Else there is no op, and done() does not come:
 * -ENOTCONN: the transport has ended, and the end of the connection follows; or
 * why these slices cannot be read (-EINVAL, -ENOMEM, ...). */
[[nodiscard]] int route_read(struct route *r, uint64_t grant_id,
                             const struct transport_slice *slices, uint32_t n,
                             route_done *done, void *arg, struct route_op **op);

/* End it soon; done() follows. */
void route_cancel(struct route_op *op);

/* All bytes that it has moved. */
uint64_t route_moved_bytes(const struct route *r);

/* The peer's connection is gone: ends what is under way. NULL is a no-op. */
void route_shut(struct route *r);

/* Free all routes of `t`, whose transports are gone. Ops end with
 * -ECANCELED. */
void route_free_all(struct transfer *t);

#endif
