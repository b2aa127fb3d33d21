/* Carries out a command that sets how many instances hold the beginning of a
 * prompt: the store API's change_replica (Mooncake, section on the store). Such
 * copies may be evicted like any other block. */
#ifndef CONDUCTOR_CORE_REPLICATION_REPLICAS_H
#define CONDUCTOR_CORE_REPLICATION_REPLICAS_H

#include "conductor/core/replication/replication.h"

#define REPLICAS_ORDERS_MAX 16u

struct replicas {
    uint32_t holders; /* instances that take work and have all blocks */
    uint32_t n;
    struct replication_action orders[REPLICAS_ORDERS_MAX]; /* (n), id 0 */
};

/*
 * Writes the orders after which `copies` instances hold a prompt's first
 * blocks. Copies go to prefill instances, first to those with most of the
 * blocks, then to those with most room; each comes from the holder with the
 * fewest copies to send. Surplus holders drop the blocks, the fullest first.
 * Blocks that are only in slow tiers are not copied.
 *   keys    (n_keys), at least 1, borrowed; the orders point to it.
 *   tag     as in replication_asked().
 *   copies  at least 1.
 *   out     written.
 * Cost: a match, and O(instances^2) for each order at most.
 */
void replicas_change(struct scheduler *s, const uint64_t *keys, uint32_t n_keys,
                     uint64_t tag, uint32_t copies, struct replicas *out);

#endif
