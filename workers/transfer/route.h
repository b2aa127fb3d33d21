/* The way to the memory of a peer, over the first transport of those that both
 * have that stands. It lives until its ops are over, which may be later than
 * the peer's connection. */
#ifndef WORKERS_TRANSFER_ROUTE_H
#define WORKERS_TRANSFER_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workers/transfer/engine/transport.h"

struct peer;
struct route;
struct route_op;
struct transfer;

/* An op has ended; see transport_path_ops.done. -ENOTCONN: the transport never
 * stood, and route_again() follows. */
typedef void route_done(void *arg, int rc);

/* TRANSPORTS: choose one that both have, and open it. 0, also if there is none;
 * -EBADMSG, -ENOMEM. */
int route_on_transports(struct peer *p, const uint8_t *payload, size_t len);

/* Whether KV can be asked for over a transport; if not, it comes in frames. */
bool route_usable(const struct route *r);

/* Read slices (n, borrowed) under a grant. Returns the op, gone with done(); or
 * NULL: not usable, or no memory. */
[[nodiscard]] struct route_op *route_read(struct route *r, uint64_t grant_id,
                                          const struct transport_slice *slices,
                                          uint32_t n, route_done *done,
                                          void *arg);

/* The same, to the peer. */
[[nodiscard]] struct route_op *route_write(struct route *r, uint64_t grant_id,
                                           const struct transport_slice *slices,
                                           uint32_t n, route_done *done,
                                           void *arg);

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
