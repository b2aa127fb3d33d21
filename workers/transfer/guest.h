/* A peer, as the transports see it: what it is offered, and which blocks it may
 * read. It lives until nobody can touch these blocks any more, which may be
 * later than its connection. */
#ifndef WORKERS_TRANSFER_GUEST_H
#define WORKERS_TRANSFER_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct frame_conn;
struct guest;
struct transfer;

/* Offer the transports of `t` to the peer of `conn`, whose `name` is for the
 * log (both borrowed until guest_shut()), and tell it, in TRANSPORTS under
 * `id`. Returns it owned by the transfer, or NULL: no memory. */
[[nodiscard]] struct guest *guest_new(struct transfer *t,
                                      struct frame_conn *conn, const char *name,
                                      uint64_t id);

/* Its connection is gone: what it was granted comes back when nobody can touch
 * it. NULL is a no-op. */
void guest_shut(struct guest *g);

/* TRANSPORTS: what the peer has chosen, once. 0; -EBADMSG; -EPROTO: g is NULL,
 * it was offered nothing. */
int guest_on_transports(struct guest *g, const uint8_t *payload, size_t len);

/* Let the peer read these blocks (n), on which the caller has pins; each gets
 * one more until it is revoked. 0 with a random *id; -EPROTO: the peer has
 * chosen no transport, or g is NULL; or what the transport says. */
[[nodiscard]] int guest_grant(struct guest *g, const uint32_t *ids, uint32_t n,
                              uint64_t *id);

/* Where a block begins for its reader. */
struct guest_place {
    uint32_t region; /* of the memory that the chosen transport has */
    uint64_t offset;
};

/* *place of the i-th block of a grant: in the card where the peer can read it
 * there and it is there, else in the slab. */
void guest_place(struct guest *g, uint64_t grant_id, uint32_t i,
                 struct guest_place *place);

/* End it; the pins go when nobody can touch the blocks. */
void guest_revoke(struct guest *g, uint64_t id);

/* Free all guests of `t`, whose transports are gone, with their pins. */
void guest_free_all(struct transfer *t);

#endif
