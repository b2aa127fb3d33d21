/* The invariants at the tops of the pool's files, counted again. */
#ifndef TESTS_UNIT_POOL_CHECK_H
#define TESTS_UNIT_POOL_CHECK_H

#include <stdbool.h>

struct pool;

/* Whether they hold, those of its bookings, pending blocks and arena too. */
bool pool_check(const struct pool *pool);

#endif
