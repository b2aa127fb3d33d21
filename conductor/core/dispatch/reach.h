/*
 * Which instances waiting requests may go to, where that are not all: those of
 * a LoRA adapter, or the one that keeps what a request is about. A younger
 * request that takes nothing of what any of them may go to holds none of them
 * up. Private to this folder.
 *
 * Requests of one set of instances are counted together. Where there are more
 * than DISPATCH_REACHES sets, further requests count as going anywhere, and so
 * do those whose set has all ready instances, as long as no instance can join.
 */
#ifndef CONDUCTOR_CORE_DISPATCH_REACH_H
#define CONDUCTOR_CORE_DISPATCH_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/schedule/schedule.h"

#define DISPATCH_REACHES 16u

/* All zero: of no request. */
struct reach {
    struct reach_set {
        const uint64_t *eligible; /* as in schedule_request; borrowed */
        uint32_t only;            /* likewise */
        uint64_t n;               /* requests; 0: a free place */
    } sets[DISPATCH_REACHES];
    uint64_t n_anywhere; /* of requests that may go to all instances */
};

/* reach_add(reach, pool, ask): a request is one of them. pool: stays as it is
 * until all are removed, so that a set of all its ready instances counts as
 * anywhere; NULL: it may change. Returns its place, for reach_remove(). O(slots
 * of the pool). */
uint32_t reach_add(struct reach *reach, const struct pool *pool,
                   const struct schedule_request *ask);

/* reach_remove(reach, place): it is none of them any more. */
void reach_remove(struct reach *reach, uint32_t place);

/* reach_has(reach, ask): whether one of them may go where this request may, and
 * nowhere else. */
bool reach_has(const struct reach *reach, const struct schedule_request *ask);

/* reach_takes(reach, pool, decision): whether a decision takes what one of them
 * may go to. */
bool reach_takes(const struct reach *reach, const struct pool *pool,
                 const struct schedule_decision *decision);

/* Likewise of a single request. */
bool reach_takes_of(const struct schedule_request *ask, const struct pool *pool,
                    const struct schedule_decision *decision);

#endif
