/*
 * A request's prefill or decode in a pool, as data: read from one pool and
 * entered into another one with the same instances, it counts there as if it
 * had been decided there. So conductors know of each other's work.
 *
 * Times are absolute, and ids those of the pool; the code that carries a record
 * to another pool translates both.
 */
#ifndef CONDUCTOR_CORE_POOL_RECORD_H
#define CONDUCTOR_CORE_POOL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/core/pool/pool.h"

/* Most bookings in a record; further ones are left out. */
#define POOL_RECORD_BOOKED_MAX 16

struct pool_record_booked {
    uint32_t holder;  /* pool id */
    unsigned channel; /* as in struct pool_booking */
    int64_t from_us, until_us;
};

/* A prefill that waits or runs. */
struct pool_record_prefill {
    uint32_t instance; /* pool id */
    /* request.keys is borrowed: in a record that was read, from the pool, until
     * that changes. */
    struct pool_prefill_request request;
    bool started;
    int64_t started_us; /* if started */
    int64_t worked_us; /* if started: time for which no other prefill was served
                          in its place; read under orders that interrupt */
    size_t n_booked;
    struct pool_record_booked booked[POOL_RECORD_BOOKED_MAX]; /* oldest first */
};

/* A decode that is under way or will be. */
struct pool_record_decode {
    uint32_t instance; /* pool id */
    struct pool_decode_request request;
    int64_t produced_tokens;
    int64_t likely_tokens; /* 0 = unknown */
    bool coming, started;
    struct pool_push push; /* from = POOL_NO_INSTANCE: none */
};

/* Reads the prefill of a request on an instance. Returns 0, -ESTALE or -ENOENT.
 * Cost: O(its queue and its bookings). */
[[nodiscard]] int pool_read_prefill(const struct pool *pool, uint32_t id,
                                    uint64_t request_id, int64_t now_us,
                                    struct pool_record_prefill *out);

/* Enters a prefill. Its bookings begin when their channels are free in this
 * pool: with the same bookings in both pools they end at the same time, else
 * later. Bookings of unknown holders are left out. Returns as
 * pool_prefill_accept(). */
[[nodiscard]] int pool_enter_prefill(struct pool *pool,
                                     const struct pool_record_prefill *record,
                                     int64_t now_us);

/* Reads the decode of a request on an instance. Returns 0, -ESTALE or -ENOENT.
 * Cost: O(its decodes). */
[[nodiscard]] int pool_read_decode(const struct pool *pool, uint32_t id,
                                   uint64_t request_id,
                                   struct pool_record_decode *out);

/* Enters a decode. Returns as pool_decode_expect(). */
[[nodiscard]] int pool_enter_decode(struct pool *pool,
                                    const struct pool_record_decode *record,
                                    int64_t now_us);

#endif
