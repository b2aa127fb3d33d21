/* The peer of an accepted connection, as the transports see it: what it is
 * offered, and which blocks it may read or write. It lives until nobody can
 * touch these blocks any more, which may be later than its connection. */
#ifndef WORKERS_TRANSFER_GUEST_H
#define WORKERS_TRANSFER_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct guest;
struct inbound;
struct transfer;

/* Offer the transports of `t` to the peer of `in`, and tell it. Returns it
 * owned by the transfer, or NULL: no memory. */
[[nodiscard]] struct guest *guest_new(struct transfer *t, struct inbound *in);

/* Its connection is gone: what it was granted comes back when nobody can touch
 * it. NULL is a no-op. */
void guest_shut(struct guest *g);

/* TRANSPORTS: what the peer has chosen. 0, or -EBADMSG. */
int guest_on_transports(struct guest *g, const uint8_t *payload, size_t len);

/* Let the peer read (write: write) these blocks (n), on which the caller has
 * pins; each gets one more until it is revoked. 0 with a random *id; -EPROTO:
 * the peer has chosen no transport; or what the transport says. */
[[nodiscard]] int guest_grant(struct guest *g, const uint32_t *ids, uint32_t n,
                              bool write, uint64_t *id);

/* End it; the pins go when nobody can touch the blocks. */
void guest_revoke(struct guest *g, uint64_t id);

/* Free all guests of `t`, whose transports are gone, with their pins. */
void guest_free_all(struct transfer *t);

#endif
