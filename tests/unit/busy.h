/* Links and tiers that something outside the pool's prefills keeps busy. */
#ifndef TESTS_UNIT_BUSY_H
#define TESTS_UNIT_BUSY_H

#include "conductor/core/pool/pool.h"

/* An instance's link sends until then. Returns as pool_book(). */
static inline int busy_link(struct pool *pool, uint32_t id, int64_t until_us)
{
    return pool_book(pool, &(struct pool_booking){id, POOL_EGRESS, until_us},
                     POOL_NO_INSTANCE, 0, 0);
}

/* An instance's tier is read until then. Returns as pool_book(). */
static inline int busy_tier(struct pool *pool, uint32_t id, unsigned tier,
                            int64_t until_us)
{
    return pool_book(pool, &(struct pool_booking){id, tier, until_us},
                     POOL_NO_INSTANCE, 0, 0);
}

#endif
