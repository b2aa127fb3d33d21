/* A peer that reads from this worker: the transports offered to it, and the
 * blocks it may read. A guest lives until the peer can no longer touch these
 * blocks, perhaps beyond the end of its connection. */
#ifndef WORKERS_TRANSFER_GUEST_H
#define WORKERS_TRANSFER_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct frame_conn;
struct guest;
struct transfer;

/* Offers the transports of `t` to the peer of `conn` with a TRANSPORTS frame
 * under `id`. `conn`, and `name` for logs, are borrowed until guest_shut().
 * Returns the guest, owned by the transfer, or NULL: out of memory. */
[[nodiscard]] struct guest *guest_new(struct transfer *t,
                                      struct frame_conn *conn, const char *name,
                                      uint64_t id);

/* Notes the end of a guest's connection: its grants are revoked, and it is
 * freed after the last one. NULL is a no-op. */
void guest_shut(struct guest *g);

/* Takes the peer's choice of a transport (a TRANSPORTS frame), once. Returns 0;
 * -EBADMSG; or -EPROTO: g is NULL, nothing was offered. */
int guest_on_transports(struct guest *g, const uint8_t *payload, size_t len);

/* Lets the peer read ids[n], blocks on which the caller has pins; each gets one
 * more pin until the grant is revoked. Returns 0 and a random *id; -EPROTO: the
 * peer chose no transport, or g is NULL; or the transport's error. */
[[nodiscard]] int guest_grant(struct guest *g, const uint32_t *ids, uint32_t n,
                              uint64_t *id);

/* The place of a block as its reader addresses it. */
struct guest_place {
    uint32_t region; /* number that the chosen transport gave to the memory */
    uint64_t offset; /* in the region, in bytes */
};

/* Writes the place of the i-th block of a grant to *place: in the card if the
 * block is there and the peer can read the card, else in the slab. */
void guest_place(struct guest *g, uint64_t grant_id, uint32_t i,
                 struct guest_place *place);

/* Revokes a grant. Its pins last until the peer cannot touch the blocks. */
void guest_revoke(struct guest *g, uint64_t id);

/* Frees all guests of `t` and their pins, after all transports were freed. */
void guest_free_all(struct transfer *t);

#endif
